"""The notes medallion's rules: what one note becomes, what is rejected, and that mending equals making anew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import NotFound
from catalog.notes import layers
from catalog.notes.concepts import extract_concepts
from catalog.notes.expectations import in_range, judge, not_null, one_of, references, unique
from catalog.notes.facts import Change, gather, touched_units
from catalog.notes.graph import MAX_SHARED, hub_unit
from catalog.notes.layers import DERIVED, TABLES, TableSpec, retention_days, spec_of
from catalog.notes.medallion import (
    RULES,
    apply_rule,
    process_note,
    quality_score,
    staged_schema,
    transform_batches,
)
from catalog.notes.prose import parse_markdown, sentences, slug
from catalog.notes.summaries import summarise, teach

TIDES = """# Spring tides

The tide in Brest Harbour rises when Sun and Moon pull together. Spring tides come twice a month.
See [[Moon]] and [tables](https://example.org/t).

```
code = "is not prose"
```

## Neap

- Neap tides are weaker than spring tides.
- High water is listed in tide tables since 2019-05-01.
"""


def raw(path: str | None, body: str, **more: Any) -> dict[str, Any]:
    facts = {"note_id": path, "source": "note", "title": "T", "tags": [], "links": [], "front_matter": None, "at": None}
    return {**facts, "body": body, **more}


def note(body: str = TIDES, path: str = "sea/Spring Tide.md", **more: Any) -> dict[str, Any]:
    (row,) = process_note(raw(path, body, **more))
    return row


class TestMarkdown:
    def test_prose_has_neither_markup_nor_code(self) -> None:
        document = parse_markdown(TIDES)
        assert "code" not in document.text and "[[" not in document.text and "https" not in document.text
        assert document.text.startswith("The tide in Brest Harbour")
        assert document.headings == ("# Spring tides", "## Neap")
        assert document.urls == ("https://example.org/t",)
        assert (document.code_blocks, document.list_items) == (1, 2)

    @given(st.text(max_size=300))
    def test_any_text_is_a_document_and_sentences_stand_where_they_say(self, text: str) -> None:
        prose = parse_markdown(text).text
        for sentence in sentences(prose):
            assert prose[sentence.start :].startswith(sentence.text)

    def test_a_block_ends_a_sentence(self) -> None:
        texts = [s.text for s in sentences("One two three\n\nFour five. Six seven! “Eight nine?” Ten eleven")]
        assert texts == ["One two three", "Four five.", "Six seven!", "“Eight nine?", "Ten eleven"]

    @pytest.mark.parametrize("name", ["Notes/Spring Tide.md", "spring-tide", "SPRING_tide.md.gz", " Spring  Tide "])
    def test_a_link_and_a_file_meet_in_their_slug(self, name: str) -> None:
        assert slug(name) == "spring tide"


class TestConcepts:
    def test_positions_point_at_the_concept(self) -> None:
        row = note()
        concepts = extract_concepts(row)
        assert {"phrase", "entity"} == {concept["kind"] for concept in concepts}
        for concept in concepts:
            assert concept["count"] == len(concept["positions"]) > 0
            for at in concept["positions"]:
                assert " ".join(row["text"][at:].lower().split()).startswith(concept["concept"])

    def test_names_and_dates_are_entities_and_a_first_word_is_not(self) -> None:
        names = {c["concept"] for c in extract_concepts(note()) if c["kind"] == "entity"}
        assert {"brest harbour", "sun", "moon", "2019-05-01"} <= names
        assert not {"the", "spring", "high"} & names

    def test_the_same_note_gives_the_same_concepts(self) -> None:
        assert extract_concepts(note()) == extract_concepts(note())


class TestQuality:
    def test_more_of_anything_is_never_worse(self) -> None:
        assert quality_score(0, 0, 0, 0, False) == 0.0
        assert quality_score(10_000, 50, 50, 50, True) == 1.0
        assert quality_score(50, 0, 0, 0, True) < quality_score(100, 0, 0, 0, True) < quality_score(100, 1, 1, 1, True)

    def test_every_reason_of_a_reject_is_told(self) -> None:
        rules = (not_null("a"), in_range("n", 0, 1), one_of("k", ("x",)), unique("id"))
        rows = [{"id": 1, "a": 1, "n": 0.5, "k": "x"}, {"id": 2, "a": None, "n": 7, "k": "y"}, {"id": 1, "a": 2}]
        good, rejects = judge(rows, rules, ("id",), "id")
        assert good == rows[:1]
        first, second = (reject.reason for reject in rejects)
        assert all(word in first for word in ("a must not be null", "n is 7", "k is 'y'"))
        assert second == "id is there twice"

    def test_not_a_number_is_out_of_any_range(self) -> None:
        _, rejects = judge([{"n": float("nan")}], (in_range("n", 0, 1),), ("n",), "n")
        assert len(rejects) == 1

    def test_a_reference_must_exist(self) -> None:
        expected = (references(["a"], lambda facts: facts["notes"], "notes"),)
        _, rejects = judge([{"a": "x"}, {"a": "y"}, {"a": None}], expected, ("a",), "a", {"notes": ["x"]})
        assert [reject.reason for reject in rejects] == ["a 'y' is not in notes"]

    def test_an_edge_joins_nodes_that_its_unit_knows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts = {"kind": "note", "note_id": "a.md", "title": "A", "quality": 0.5, "concepts": ["tide"], "tags": ["sea"]}
        facts["links"] = [{"slug": "b", "target": "b.md"}, {"slug": "c", "target": None}]
        made, rejects = apply_rule(layers.KNOWLEDGE_GRAPH, [facts, {"kind": "tag", "name": "sea", "notes": ["a.md"]}])
        assert len(made) == 6 and not rejects
        stray = {**made[1], "id": "x", "target": "note:nobody.md"}
        monkeypatch.setitem(RULES, "knowledge_graph", lambda unit: [made[0], stray])
        good, (reject,) = apply_rule(layers.KNOWLEDGE_GRAPH, [facts])
        assert good == made[:1] and reject.reason == "target 'note:nobody.md' is not in the graph's nodes"

    def test_a_concept_is_of_the_note_it_was_found_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = note()
        other = [{**concept, "note_id": "other.md"} for concept in extract_concepts(row)[:1]]
        monkeypatch.setitem(RULES, "extracted_concepts", lambda unit: other)
        good, (reject,) = apply_rule(layers.EXTRACTED_CONCEPTS, [row])
        assert not good and "note_id 'other.md' is not in silver.processed_notes" in reject.reason

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (raw(None, TIDES), "note_id must not be null"),
            (raw("a.md", ""), "words is 0"),
            (raw("a.md", "one", title=None), "title must not be null"),
            (raw("clip:a.md", TIDES), "must not begin with 'clip:'"),
        ],
        ids=["no path", "no words", "no title", "a clip's name"],
    )
    def test_a_bad_note_is_rejected_and_the_others_go_on(self, fault: dict[str, Any], reason: str) -> None:
        good, rejects = apply_rule(layers.PROCESSED_NOTES, [fault, raw("b.md", TIDES)])
        assert [row["note_id"] for row in good] == ["b.md"]
        assert reason in rejects[0].reason


class TestSummaries:
    def test_a_summary_is_made_of_the_notes_own_sentences_in_order(self) -> None:
        row = note()
        own = [sentence.text for sentence in sentences(row["text"])]
        lengths = {summary["length"]: summary for summary in summarise(row)}
        assert list(lengths) == ["short", "medium", "long"]
        for summary in lengths.values():
            chosen = [text for text in own if text in summary["summary"]]
            assert " ".join(chosen) == summary["summary"] and len(chosen) == summary["sentences"]

    def test_a_length_that_says_no_more_is_left_out(self) -> None:
        assert [summary["length"] for summary in summarise(note("One short sentence here."))] == ["short"]

    def test_a_card_with_its_answer_filled_in_is_a_sentence_of_the_note(self) -> None:
        row = note()
        phrases = [c["concept"] for c in extract_concepts(row) if c["kind"] == "phrase"]
        cards = teach({**row, "concepts": phrases})
        clozes = [card for card in cards if card["kind"] == "cloze"]
        assert clozes and cards[-1]["answer"] == "Spring tides; Neap"
        own = {sentence.text for sentence in sentences(row["text"])}
        assert all(card["prompt"].replace("____", card["answer"]) in own for card in clozes)


def test_a_concept_of_too_many_notes_joins_no_pairs() -> None:
    few, many = (hub_unit("concept", "tide", [f"n{n}" for n in range(count)]) for count in (3, MAX_SHARED + 1))
    assert len(few) == 1 + 3 and len(many) == 1
    assert hub_unit("concept", "tide", []) == []


def test_every_table_comes_after_its_inputs_and_has_expectations_about_its_key() -> None:
    made = {spec.name for spec in layers.BRONZE}
    for spec in DERIVED:
        assert set(spec.inputs) <= made, spec.name
        made.add(spec.name)
        assert {*spec.key, spec.unit} <= set(spec.schema.names)
        named = {name for expectation in spec.expectations for name in expectation.unique_key}
        assert named == set(spec.key)
    assert [retention_days(f"{layer}.x") for layer in ("bronze", "silver", "gold")] == [90, 365, None]
    assert spec_of("insights") is spec_of("gold.insights")
    with pytest.raises(NotFound, match=r"gold\.insights"):
        spec_of("insihgts")


def test_batches_for_spark_carry_rows_and_rejects_side_by_side() -> None:
    spec = layers.PROCESSED_NOTES
    units = pa.RecordBatch.from_pylist([raw("a.md", TIDES, at=datetime(2026, 1, 1, tzinfo=UTC)), raw(None, "x y")])
    (batch,) = transform_batches(spec, [units])
    assert batch.schema == staged_schema(spec)
    good, bad = batch.to_pylist()
    assert good["note_id"] == "a.md" and good["reject_reason"] is None
    assert bad["note_id"] is None and "must not be null" in bad["reject_reason"]


# The law: tables mended unit by unit are the tables made anew.


class Memory:
    """Tables as lists of rows: what the facts are read from."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def rows(
        self, table: str, columns: Sequence[str], column: str | None = None, among: Collection[Any] = ()
    ) -> list[dict[str, Any]]:
        rows = self.tables[table]
        chosen = rows if column is None else [row for row in rows if row[column] in among]
        return [{name: row.get(name) for name in columns} for row in chosen]


def every_unit(spec: TableSpec, memory: Memory) -> set[Any]:
    """All units there are: those that a change of every row of every input would touch."""
    return touched_units(spec, {name: [(None, row) for row in memory.tables[name]] for name in spec.inputs}, memory)


def differences(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[Change]:
    return [(row, None) for row in before if row not in after] + [(None, row) for row in after if row not in before]


def mend(memory: Memory, changed: dict[str, list[Change]]) -> None:
    for spec in DERIVED:
        mine = {name: changed.get(name, []) for name in spec.inputs}
        units = touched_units(spec, mine, memory)
        rows, _ = apply_rule(spec, gather(spec, units, memory))
        before = memory.tables[spec.name]
        memory.tables[spec.name] = [row for row in before if row[spec.unit] not in units] + rows
        changed[spec.name] = differences(before, memory.tables[spec.name])


def anew(memory: Memory) -> Memory:
    fresh = Memory()
    for spec in layers.BRONZE:
        fresh.tables[spec.name] = memory.tables[spec.name]
    for spec in DERIVED:
        fresh.tables[spec.name], _ = apply_rule(spec, gather(spec, every_unit(spec, fresh), fresh))
    return fresh


NAMES = st.sampled_from(["a.md", "b.md", "x/a.md", "C note.md", "d.md"])
SENTENCES = [
    "The spring tide in Brest Harbour is high.",
    "Moon and Sun pull on the water.",
    "Tide tables list high water times.",
    "A neap tide is weak.",
]
NOTES = st.fixed_dictionaries(
    {
        "path": NAMES,
        "title": st.sampled_from(["Tide", "Moon"]),
        "tags": st.lists(st.sampled_from(["sea", "sky"]), unique=True),
        "links": st.lists(st.sampled_from(["a", "b", "C note", "nowhere"]), unique=True),
        "front_matter": st.none(),
        "body": st.lists(st.sampled_from(SENTENCES), max_size=4).map(" ".join),
    }
)
EVENTS = st.fixed_dictionaries(
    {
        "event_id": st.sampled_from(["1", "2", "3"]),
        "user_id": st.just("u"),
        "action": st.sampled_from(["viewed", "edited", "cooked"]),
        "note_id": NAMES,
        "at": st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]),
    }
)
EDITS = st.lists(st.one_of(NOTES, EVENTS, NAMES), min_size=1, max_size=6)


def edit(memory: Memory, what: Any) -> tuple[str, list[Change]]:
    """One row put in the place of the one of its name, or a note taken away."""
    if isinstance(what, str):
        table, column, name, rows = "bronze.raw_notes", "path", what, list[dict[str, Any]]()
    else:
        is_note = "path" in what
        table, column = ("bronze.raw_notes", "path") if is_note else ("bronze.raw_imports", "event_id")
        name, rows = what[column], [what]
    before = memory.tables[table]
    memory.tables[table] = [row for row in before if row[column] != name] + rows
    return table, differences(before, memory.tables[table])


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@given(st.lists(EDITS, min_size=1, max_size=4))
def test_tables_mended_after_each_batch_of_edits_are_the_tables_made_anew(batches: list[list[Any]]) -> None:
    memory = Memory()
    for batch in batches:
        changed: dict[str, list[Change]] = {}
        starts = {name: memory.tables[name] for name in ("bronze.raw_notes", "bronze.raw_imports")}
        for what in batch:
            edit(memory, what)
        for name, before in starts.items():
            changed[name] = differences(before, memory.tables[name])
        mend(memory, changed)
    fresh = anew(memory)
    for spec in DERIVED:
        assert ordered(memory.tables[spec.name]) == ordered(fresh.tables[spec.name]), spec.name
