"""The facts of all units of a table, in Spark SQL. catalog.notes.facts gathers the same for a few units."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.notes import CLIP, CONCEPTS, EVENTS, GRAPH, METRICS, NOTES, RAW_CLIPS, RAW_EVENTS, RAW_NOTES, TableSpec


def all_facts(spec: TableSpec, relations: Mapping[str, str]) -> str:
    """A query for the facts of every unit. `relations`: each input as SQL, at its pinned snapshot."""
    return _QUERIES[spec.table].format_map(_Relations(relations))


class _Relations(dict[str, str]):
    """`{NOTES}` in a query stands for the relation of the input NOTES."""

    def __init__(self, relations: Mapping[str, str]) -> None:
        super().__init__({name: relations[table] for name, table in _NAMES.items() if table in relations})
        self["CLIP"] = CLIP


_NAMES = {
    "RAW_NOTES": RAW_NOTES,
    "RAW_CLIPS": RAW_CLIPS,
    "RAW_EVENTS": RAW_EVENTS,
    "NOTES": NOTES,
    "CONCEPTS": CONCEPTS,
    "GRAPH": GRAPH,
    "EVENTS": EVENTS,
    "METRICS": METRICS,
}

_PROCESSED = "SELECT note_id, title, text, headings FROM {NOTES}"

_QUERIES = {
    "processed_notes": """
      SELECT path AS note_id, 'note' AS source, title, tags, links, front_matter, body, CAST(NULL AS timestamp) AS at
      FROM {RAW_NOTES}
      UNION ALL
      SELECT concat('{CLIP}', url), 'clip', title, tags, CAST(array() AS array<string>), CAST(NULL AS string), body,
        clipped_at
      FROM {RAW_CLIPS}""",
    "extracted_concepts": _PROCESSED,
    "summaries": _PROCESSED,
    "user_events": "SELECT event_id, user_id, action, note_id, at FROM {RAW_EVENTS}",
    "teaching_materials": """
      SELECT n.note_id, n.title, n.text, n.headings, c.concepts FROM {NOTES} n LEFT JOIN (
        SELECT note_id, transform(array_sort(collect_list(struct(-score, concept))), s -> s.concept) AS concepts
        FROM {CONCEPTS} WHERE kind = 'phrase' GROUP BY note_id
      ) c ON n.note_id = c.note_id""",
    "knowledge_graph": """
      WITH notes AS (SELECT note_id, title, quality, slug, link_slugs, tags FROM {NOTES}),
      targets AS (SELECT slug, min(note_id) AS target FROM notes GROUP BY slug),
      links AS (
        SELECT l.note_id, l.slug, t.target
        FROM (SELECT note_id, explode(link_slugs) AS slug FROM notes) l LEFT JOIN targets t ON l.slug = t.slug),
      mentions AS (SELECT DISTINCT note_id, concept FROM {CONCEPTS}),
      hubs AS (
        SELECT 'tag' AS kind, explode(tags) AS name, note_id FROM notes
        UNION ALL SELECT 'concept', concept, note_id FROM mentions
        UNION ALL SELECT 'missing', slug, note_id FROM links WHERE target IS NULL)
      SELECT 'note' AS kind, n.note_id AS name, n.note_id, n.title, n.quality, n.tags, l.links, m.concepts,
        CAST(NULL AS array<string>) AS notes
      FROM notes n
      LEFT JOIN (SELECT note_id, collect_list(struct(slug, target)) AS links FROM links GROUP BY note_id) l
        ON n.note_id = l.note_id
      LEFT JOIN (SELECT note_id, collect_list(concept) AS concepts FROM mentions GROUP BY note_id) m
        ON n.note_id = m.note_id
      UNION ALL
      SELECT kind, name, NULL, NULL, NULL, NULL, NULL, NULL, collect_set(note_id) FROM hubs GROUP BY kind, name""",
    "note_metrics": """
      WITH edges AS (SELECT type, source, target FROM {GRAPH} WHERE kind = 'edge'),
      ends AS (
        SELECT source AS node, type, target AS other, true AS out FROM edges
        UNION ALL SELECT target, type, source, false FROM edges WHERE type IN ('links', 'shares')),
      counts AS (
        SELECT node,
          count_if(type = 'mentions') AS concepts,
          count_if(type = 'links' AND out AND other NOT LIKE 'missing:%') AS links_out,
          count_if(type = 'links' AND out AND other LIKE 'missing:%') AS missing_links,
          count_if(type = 'links' AND NOT out) AS links_in,
          count(DISTINCT CASE WHEN type = 'shares' THEN other END) AS related_notes
        FROM ends GROUP BY node),
      seen AS (
        SELECT note_id, count_if(action = 'viewed') AS views, count_if(action = 'edited') AS edits,
          max(at) AS last_event_at
        FROM {EVENTS} GROUP BY note_id)
      SELECT n.note_id, n.words, n.reading_seconds, n.quality, size(n.tags) AS tags, c.concepts, c.links_out,
        c.missing_links, c.links_in, c.related_notes, s.views, s.edits, s.last_event_at
      FROM {NOTES} n LEFT JOIN counts c ON c.node = concat('note:', n.note_id)
      LEFT JOIN seen s ON s.note_id = n.note_id""",
    "insights": """
      SELECT 'note' AS kind, concat('note:', note_id) AS subject, note_id AS name, words, quality, links_out, links_in,
        missing_links, related_notes, views, CAST(NULL AS double) AS weight
      FROM {METRICS}
      UNION ALL
      SELECT 'missing', id, label, NULL, NULL, NULL, NULL, NULL, NULL, NULL, weight
      FROM {GRAPH} WHERE kind = 'node' AND type = 'missing'""",
}
