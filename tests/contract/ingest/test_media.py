"""Media dropped into the bucket: a row of metadata, the bytes by their digest, and nothing of them held."""

from __future__ import annotations

import struct
from hashlib import sha256

import pytest

from infra.local.server import ApiServer
from tests.unit.formats.test_media import JPEG, MP3, PDF, PNG
from tests.worlds.ingest import FUNCTION, IngestWorld


@pytest.fixture
def world(server: ApiServer) -> IngestWorld:
    return IngestWorld.create(server)


def test_a_file_becomes_a_row_that_leads_to_its_bytes(world: IngestWorld) -> None:
    landed = world.put("raw_media/a b/tide.png", PNG)
    (outcome,) = world.ingest().run([landed])
    assert outcome.status == "committed", outcome.error
    (row,) = world.tables().scan(world.name("raw_media")).to_pylist()
    digest = sha256(PNG).hexdigest()
    assert (row["key"], row["version"], row["size"]) == (landed.key, landed.version_id, len(PNG))
    assert (row["sha256"], row["media_type"], row["width"], row["height"]) == (digest, "image/png", 640, 480)
    assert row["landed_at"].utcoffset() is not None
    bucket, _, key = row["path"].removeprefix("s3://").partition("/")
    assert world.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read() == PNG


def test_many_kinds_and_unknown_binary_share_a_table_and_a_commit(world: IngestWorld) -> None:
    files = {"a.jpg": JPEG, "b.pdf": PDF, "c.mp3": MP3, "d.bin": b"\x00\x01\x02", "e": b"\xfe\xff\x00"}
    outcomes = world.drop({f"m/{name}": body for name, body in files.items()})
    assert {outcome.status for outcome in outcomes} == {"committed"}
    media_types = {key.rpartition("/")[2]: kind for key, kind in world.rows("m", "key", "media_type")}
    binary = "application/octet-stream"
    assert media_types == {
        "a.jpg": "image/jpeg", "b.pdf": "application/pdf", "c.mp3": "audio/mpeg", "d.bin": binary, "e": binary,
    }  # fmt: skip
    assert len(world.tables().history(world.name("m"))) == 1


def test_the_same_picture_is_a_row_for_each_key_and_one_object(world: IngestWorld) -> None:
    world.drop({"m/a.png": PNG, "m/b.png": PNG})
    (again,) = world.drop({"m/c.png": PNG})
    assert again.status == "committed"
    assert len(world.rows("m", "key")) == 3 and len(world.objects("media/")) == 1


def test_media_and_rows_do_not_mix(world: IngestWorld) -> None:
    first, second = world.drop({"t/a.jsonl": b'{"id": 1}\n', "t/b.png": PNG})
    assert (first.status, second.status) == ("committed", "quarantined")
    (picture,) = world.drop({"m/a.png": PNG})
    (third,), (fourth,) = (
        world.drop({"t/c.gif": b"GIF89a" + struct.pack("<HH", 1, 1)}),
        world.drop({"m/d.csv": b"a\n1\n"}),
    )
    assert (picture.status, third.status, fourth.status) == ("committed", "quarantined", "quarantined")
    assert "holds rows" in str(third.error) and "metadata of media" in str(fourth.error)


def test_the_bytes_are_copied_within_s3(world: IngestWorld) -> None:
    landed = world.put("m/a.png", PNG + bytes(1 << 20))
    mark = world.server.log.mark()
    world.ingest().run([landed])
    made = world.server.log.since(mark, lambda r: r.principal == FUNCTION and (r.touches("media/")))
    assert [request.method for request in made] == ["PUT"], "one request, a copy: nothing is read back or sent"
