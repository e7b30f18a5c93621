"""The head of a vector table means the same to those who search by it and to the timeline that proves it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from catalog.core.errors import Unverified
from catalog.core.vector_head import Head
from catalog.timeline.sequencer.vector_events import VectorHead

HEAD: dict[str, Any] = {
    "format": "strandline/vectors@v1",
    "uuid": "7d0f3a52-2f6b-4a2c-9d33-6f0f6f3f1a11",
    "table": "silver.notes",
    "table_uuid": "2b1f9a52-2f6b-4a2c-9d33-6f0f6f3f1a22",
    "column": "text",
    "key": ["id"],
    "columns": ["id", "title"],
    "embedder": "bundled",
    "dimensions": 64,
    "entries": [
        {"snapshot_id": 9, "version": 3, "rows": 5, "manifest_sha256": "bb", "refreshed_ms": 20},
        {"snapshot_id": 7, "version": 2, "rows": 4, "manifest_sha256": "aa", "refreshed_ms": 10},
    ],
}


def test_the_timeline_digests_what_the_table_was_made_from() -> None:
    data = json.dumps(HEAD).encode()
    known = VectorHead.parse(data, "vectors/silver.notes.text")
    # Canonical JSON [RFC 8785] of these plain values, written out: leaves in every timeline have its digest.
    made_from = (
        '{"column":"text","columns":["id","title"],"dimensions":64,"embedder":"bundled","key":["id"],'
        '"table":"silver.notes","table_uuid":"2b1f9a52-2f6b-4a2c-9d33-6f0f6f3f1a22"}'
    )
    assert known.identity_sha256 == sha256(made_from.encode()).hexdigest()
    assert known.sha256 == sha256(data).hexdigest()
    assert known.uuid == HEAD["uuid"]
    assert [(one.snapshot_id, one.version) for one in known.offered] == [(7, 2), (9, 3)]


@pytest.mark.parametrize(
    "forged",
    [
        {"uuid": "not one"},
        {"uuid": None},
        {"format": "strandline/vectors@v2"},
        {"entries": [{"version": "newest"}]},
        {"note": "a field that nobody knows"},
    ],
)
def test_both_refuse_the_same_heads(forged: dict[str, Any]) -> None:
    data = json.dumps({**HEAD, **forged}).encode()
    with pytest.raises(Unverified, match=r"vectors/silver\.notes\.text\.json is not the head"):
        VectorHead.parse(data, "vectors/silver.notes.text")
    with pytest.raises(Unverified, match="is not the head"):
        Head.parse(data, "vectors/silver.notes.text.json", "silver.notes.text")
