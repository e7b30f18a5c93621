"""S3's records and keys: what is taken, what is passed over, what is refused and why."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

import pytest

from catalog.core.errors import Invalid
from catalog.ingest.s3_events import Destination, LandedFile, parse_event, parse_key


def record(key: str, name: str = "ObjectCreated:Put", **stored: Any) -> dict[str, Any]:
    return {
        "eventName": name,
        "responseElements": {"x-amz-request-id": "R1"},
        "s3": {"bucket": {"name": "lake"}, "object": {"key": key, **stored}},
    }


def body(*records: Any) -> str:
    return json.dumps({"Records": list(records)})


@pytest.mark.parametrize("name", ["a b.md", "a+b.md", "100%.md", "%41.md", "日本/é.md", "a..b.md", 'x"&=?#.md'])
def test_a_key_is_decoded_as_s3_encodes_it(name: str) -> None:
    encoded = quote_plus(f"landing/bronze/notes/{name}", safe="/*")
    (landed,) = parse_event(body(record(encoded, versionId="v1")))
    assert landed == LandedFile("lake", f"landing/bronze/notes/{name}", "v1", "R1")
    assert parse_key(landed.key) == Destination("bronze", "notes", name)


@pytest.mark.parametrize(
    "message",
    [
        json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}),
        body(),
        body(record("landing/bronze/t/a.md", "ObjectRemoved:Delete")),
        body(record("landing/bronze/t/")),
    ],
)
def test_what_tells_of_no_file_is_passed_over(message: str) -> None:
    assert parse_event(message) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("not json", "not a message from S3"),
        ("[]", "no list of Records"),
        ('{"Records": 1}', "no list of Records"),
        (body({"eventName": "ObjectCreated:Put"}), "record 0"),
        (body(record("landing/bronze/t/a.md"), "x"), "record 1"),
        (body(record("landing/bronze/t/%ff.md")), "not UTF-8"),
    ],
)
def test_a_message_that_is_none_of_s3s_is_refused(message: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        parse_event(message)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("elsewhere/bronze/t/a.md", "not below landing/"),
        ("landing/a.md", "names no table"),
        ("landing/bronze/a.md", "names no table"),
        ("landing/bronze/t/", "names no table"),
        ("landing/Bronze/t/a.md", "'Bronze' is not a namespace name"),
        ("landing/bronze/my table/a.md", "'my table' is not a table name"),
        ("landing/bronze//a.md", "'' is not a table name"),
        ("landing/../t/a.md", "'..' is not a namespace name"),
        ("landing/bronze/t/../other/a.md", "segment"),
        ("landing/bronze/t/./a.md", "segment"),
        ("landing/bronze/t/" + "x" * 1020, "longer than 1024 bytes"),
    ],
)
def test_a_key_that_does_not_fit_says_why(key: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        parse_key(key)
