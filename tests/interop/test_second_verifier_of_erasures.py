"""Two verifiers that share no line say the same of the records of erasures, real and forged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.merkle.tree import leaf_hash, root
from catalog.timeline import ErasedChange, ErasedRow, Erasure, Leaf, Replaced
from infra.local.server import ApiServer
from tests.contract.erasure.test_erasure import small_table
from tests.interop.second_verifier import Verdicts, verdicts
from tests.property.changes.forged_rows import mutated
from tests.worlds.erasure import erase, make_erasure_world
from tests.worlds.forged_log import SIGNER

UUID = "0c9a8a52-8d2b-4c0e-9d0a-3f6f1f0a5b11"
PLAIN = Leaf(
    table="silver.people",
    table_uuid=UUID,
    snapshot_id=4,
    parent_id=4,
    sequence=3,
    committed_ms=1,
    sequenced_ms=2,
    operation="erase",
    ref="main",
    schema_sha256="aa" * 32,
    metadata_sha256="bb" * 32,
)
RECORD = Erasure(
    "0" * 32,
    UUID,
    "request 2026-114: Ångström",
    (
        Replaced("s3://lake/tables/a/1.parquet", 10, "01" * 32, "s3://lake/tables/a/2.parquet", 9, "02" * 32),
        Replaced("s3://lake/tables/a/3.parquet", 11, "03" * 32, None, None, None),
    ),
    (ErasedChange(1, 0, "04" * 32), ErasedChange(2, 10, "05" * 32)),
    (ErasedRow("06" * 32, 0, 1), ErasedRow("06" * 32, 1, 2), ErasedRow("07" * 32, 2, 2)),
)
LATER = Erasure(
    "1" * 32,
    UUID,
    "again",
    (Replaced("s3://lake/tables/a/2.parquet", 9, "02" * 32, "s3://lake/tables/a/4.parquet", 8, "08" * 32),),
    (ErasedChange(1, 1, "09" * 32),),
    (),
)


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Verdicts]:
    with verdicts(tmp_path, SIGNER.verifier_key) as made:
        yield made


def leaf(record: Erasure, **changed: object) -> bytes:
    made = replace(PLAIN, content_root=record.content_root, content_count=record.content_count)
    return replace(made, **changed).encode()  # type: ignore[arg-type]


def agreed(second: Verdicts, *records: Erasure) -> bool:
    leaves = [leaf(record, sequence=3 + at) for at, record in enumerate(records)]
    return second.both("erasures", b"", leaves=leaves, records=[record.encode() for record in records])


def test_a_record_counts_only_with_its_leaf(second: Verdicts) -> None:
    assert agreed(second, RECORD) and agreed(second, RECORD, LATER) and agreed(second, LATER)
    assert second._theirs("erasures", b"", leaves=[leaf(RECORD)], records=[RECORD.encode()])[1] == "rows 3, changes 2"
    both = {"records": [RECORD.encode(), b"no record", LATER.encode()]}
    assert second.both("erasures", b"", leaves=[leaf(RECORD), leaf(LATER), leaf(RECORD)], **both)
    assert second.both("erasures", b"", leaves=[], records=[])
    assert not second.both("erasures", b"", leaves=[leaf(RECORD)], records=[])
    assert not second.both("erasures", b"", leaves=[leaf(RECORD)], records=[LATER.encode()])
    assert not second.both("erasures", b"", leaves=[leaf(RECORD, content_count=4)], records=[RECORD.encode()])
    assert not second.both("erasures", b"", leaves=[leaf(RECORD, table_uuid="other")], records=[RECORD.encode()])
    assert not second.both("erasures", b"", leaves=[leaf(RECORD, sequence=2)], records=[RECORD.encode()])


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RECORD, id="x"),
        replace(RECORD, objects=(RECORD.objects[0], RECORD.objects[0])),
        replace(RECORD, objects=(RECORD.objects[0]._replace(new_path=RECORD.objects[0].path),)),
        replace(RECORD, objects=(RECORD.objects[0]._replace(new_path=RECORD.objects[1].path), RECORD.objects[1])),
        replace(RECORD, objects=(RECORD.objects[0]._replace(new_length=None),)),
        replace(RECORD, objects=(RECORD.objects[0]._replace(length=-1),)),
        replace(RECORD, changes=(ErasedChange(1, 0, "04" * 32), ErasedChange(1, 0, "05" * 32))),
        replace(RECORD, changes=(ErasedChange(3, 0, "04" * 32),)),
        replace(RECORD, rows=(ErasedRow("06" * 32, 2, 1),)),
        replace(RECORD, rows=(ErasedRow("06" * 32, 1, 3),)),
        replace(RECORD, rows=(ErasedRow("AB" * 32, 1, 2),)),
    ],
)
def test_a_record_that_says_what_it_may_not_is_rejected(second: Verdicts, wrong: Erasure) -> None:
    assert not agreed(second, wrong)


@pytest.mark.parametrize(
    "later",
    [
        replace(LATER, changes=RECORD.changes),
        replace(LATER, objects=RECORD.objects[:1]),
        replace(LATER, objects=(LATER.objects[0]._replace(new_path=RECORD.objects[0].path),)),
        replace(LATER, objects=(Replaced("x", 1, "01" * 32, RECORD.objects[0].new_path, 1, "02" * 32),)),
    ],
    ids=["a change again", "an object again", "at an old path", "at a new path"],
)
def test_a_record_that_contradicts_an_earlier_one_is_rejected(second: Verdicts, later: Erasure) -> None:
    assert agreed(second, RECORD) and not agreed(second, RECORD, later)


def shuffled(seed: random.Random, data: bytes) -> bytes:
    """Whole lines swapped, repeated or left out, and numbers in them changed."""
    lines = data.split(b"\n")[:-1]
    at, other = seed.randrange(len(lines)), seed.randrange(len(lines))
    match seed.randrange(4):
        case 0:
            lines[at], lines[other] = lines[other], lines[at]
        case 1:
            lines.insert(at, lines[other])
        case 2:
            del lines[at]
        case _:
            digits = [place for place, byte in enumerate(lines[at]) if chr(byte).isdigit()]
            if digits:
                place = seed.choice(digits)
                lines[at] = lines[at][:place] + str(seed.randrange(10)).encode() + lines[at][place + 1 :]
    return b"".join(line + b"\n" for line in lines)


def test_forged_records_are_judged_alike(second: Verdicts) -> None:
    """Each mutation is covered by a leaf of its own, so that the record's own rules decide."""
    seed, data = random.Random(18), RECORD.encode()
    for number in range(1500):
        forged = shuffled(seed, data) if number % 2 else mutated(seed, data, LATER.encode())
        lines = forged.split(b"\n")[:-1]
        stated = {"content_root": root(map(leaf_hash, lines)).hex(), "content_count": max(1, len(lines))}
        second.both("erasures", b"", leaves=[leaf(RECORD, **stated)], records=[forged])
        if forged != data:
            assert not second.both("erasures", b"", leaves=[leaf(RECORD)], records=[forged])
    assert second.accepted


def test_a_real_erasure_is_read_by_both(server: ApiServer, monkeypatch: pytest.MonkeyPatch, second: Verdicts) -> None:
    world = make_erasure_world(server, monkeypatch)
    name = small_table(world)
    for id_ in (7, 5):
        erase(world, name, keys=[{"id": id_}])
    uuid, s3 = str(world.plain(name).metadata.table_uuid), world.client("s3")
    keys = [key for key in world.object_keys(f"erasures/{uuid}/") if "." not in key]
    records = [s3.get_object(Bucket=world.bucket, Key=key)["Body"].read() for key in keys]
    leaves = [each.encode() for _, each in world.caught_up().commits_since(name)]
    assert len(records) == 2 and second.both("erasures", b"", leaves=leaves, records=records)
    assert not second.both("erasures", b"", leaves=leaves, records=records[:1])
    world.close()
