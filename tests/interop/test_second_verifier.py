"""Two verifiers that share no line, in Python and in Go, say the same of real proofs and of forged ones."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from catalog.changes import ChangeSet, CommitHeader, prove_row, prove_rows, to_json_lines, with_row, with_rows
from catalog.changes.digest import row_digests
from catalog.changes.pairing import pair
from catalog.merkle.note import VerifierKey
from catalog.timeline import write_as_of
from infra.local.server import ApiServer
from tests.contract.changes.test_row_proofs import mutation
from tests.contract.changes.test_timeline import busy
from tests.interop.second_verifier import Verdicts, verdicts
from tests.property.changes.forged_bytes import mutate_lines
from tests.property.changes.forgeries import MUTATIONS, Material, forge_changes, forge_leaf
from tests.property.changes.typed_tables import tables
from tests.unit.changes import test_golden_row_proofs
from tests.unit.timeline import test_as_of_file, test_forged_evidence, test_lying_maps
from tests.worlds.changes import make_world
from tests.worlds.forged_log import NAME, SIGNER, UUID, ForgedLog, ForgedTable

GOLDEN = Path(__file__).parents[1] / "golden"


def text(feed: list[ChangeSet]) -> bytes:
    return "".join(f"{line}\n" for one in feed for line in to_json_lines(one)).encode()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Verdicts]:
    with verdicts(tmp_path, SIGNER.verifier_key) as made:
        yield made


def test_the_golden_files_verify(tmp_path: Path) -> None:
    with verdicts(tmp_path, VerifierKey.parse(test_as_of_file.KEY)) as both:
        for name, question in test_as_of_file.ASKED.items():
            data = (GOLDEN / "as_of" / name).read_bytes()
            assert both.both("as-of", data, **question)
            for wrong in ({"index": 0, "time_ms": None}, {"table": "sales.b"}, {"uuid": "another"}):
                assert not both.both("as-of", data, **(question | wrong))
        assert both.both("leaf", (GOLDEN / "as_of" / "leaf.json").read_bytes())
        assert not both.both("leaf", (GOLDEN / "timeline" / "leaf-v1.json").read_bytes())
    keys = json.loads((GOLDEN / "timeline" / "keys.json").read_text())
    known = [VerifierKey.parse(value) for value in _texts(keys) if value.count("+") >= 2 and "PRIVATE" not in value]
    with verdicts(tmp_path, known[0]) as both:
        for path in sorted((GOLDEN / "timeline" / "checkpoints").iterdir()):
            both.both("checkpoint", path.read_bytes())
        assert both.accepted > 5


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


@pytest.mark.parametrize(("mode", "key"), [("cow", None), ("mor", [])])
def test_what_the_lake_proves_verifies(
    mode: str, key: list[str] | None, server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every kind of commit, of a keyed table and of one without a key: proofs, feeds, the table as of each index."""
    world = make_world(server, monkeypatch)
    try:
        name = busy(world, mode, key)
        timeline = world.caught_up()
        head = timeline.head()
        size = head.checkpoint.size
        with verdicts(tmp_path, world.signer.verifier_key) as both:
            assert both.both("checkpoint", head.note)
            for index in range(size):
                entry = timeline.source.entry(index, size)
                assert both.both("leaf", entry)
                assert both.both("proof", timeline.proof(index), entry=entry)
                assert not both.both("proof", timeline.proof(index), entry=entry + b" ")
                for asked in (name, "no.such"):
                    proven = write_as_of(timeline.prove_as_of(asked, index=index))
                    assert both.both("as-of", proven, table=asked, index=index)
                    assert not both.both("as-of", proven, table=asked, index=index + 1)
            later = 2**52
            proven = write_as_of(timeline.prove_as_of(name, time_ms=later))
            assert both.both("as-of", proven, table=name, time_ms=later, checkpoint=head.note)
            assert not both.both("as-of", proven, table=name, time_ms=later)
            feed = list(world.lake.changes(name))
            first, last = (feed[at].commit.sequence or 0 for at in (1, -1))
            assert both.both("feed", text(feed), table=name, until=last)
            assert both.both("feed", text(feed[2:]), table=name, since=first)
            for wrong in ({"table": "no.such"}, {"until": last + 1}, {"since": 0}, {"uuid": "another"}):
                assert not both.both("feed", text(feed), **({"table": name} | wrong))
            assert not both.both("feed", text([*feed[:1], *feed[2:]]), table=name)
    finally:
        world.close()


@pytest.mark.parametrize("name", test_as_of_file.ASKED)
def test_mutated_as_of_files_get_one_verdict(name: str, tmp_path: Path) -> None:
    data, chance = (GOLDEN / "as_of" / name).read_bytes(), random.Random(f"two {name}")
    record = json.loads(data)
    with verdicts(tmp_path, VerifierKey.parse(test_as_of_file.KEY)) as both:
        for _ in range(1000):
            forged = test_as_of_file.mutated(record, chance)
            written = json.dumps(forged, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            assert both.both("as-of", written, **test_as_of_file.ASKED[name]) == (written == data)


def test_an_operators_as_of_files_get_one_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The forgeries of tests/unit/timeline, written to files: maps of the future, second maps, maps that lie."""
    forged = test_forged_evidence
    old, new = forged.one_table(), forged.one_table(sequence=2, index=2, main_index=2, snapshot_id=6)
    claims = [
        forged.shown(forged.with_maps(forged.LEAVES, maps), tables, cut, at, **claim)
        for maps, tables, cut, at, claim in (
            ({1: old}, old, 1, 1, {}),
            ({1: new}, new, 1, 1, {}),
            ({1: old, 2: new}, new, 2, 2, {}),
            ({1: old, 2: new}, old, 2, 1, {"snapshot_id": 6, "stated_at": 2}),
            ({1: old}, old, 2, 1, {"snapshot_id": 6, "stated_at": 2}),
            ({1: old}, old, 2, 1, {}),
        )
    ]
    with verdicts(tmp_path, forged.SIGNER.verifier_key) as both:
        found = [both.both("as-of", write_as_of(one), table=forged.TABLE, index=one.index) for one in claims]
    assert found == [True, False, True, False, True, False]
    lies = test_lying_maps.test_a_map_that_its_leaves_do_not_give_is_refused.pytestmark[0].args[1]
    with verdicts(tmp_path, test_lying_maps.SIGNER.verifier_key) as both:
        assert both.both("as-of", write_as_of(test_lying_maps.as_of()), table="sales.a", index=1)
        for lie in lies:
            assert not both.both("as-of", write_as_of(test_lying_maps.as_of(**lie)), table="sales.a", index=1)


def test_forged_leaves_get_one_verdict(second: Verdicts) -> None:
    lies = test_forged_evidence.test_a_leaf_that_says_what_no_leaf_says_is_refused_in_every_proof.pytestmark[0].args[1]
    honest = test_forged_evidence.leaf(test_forged_evidence.A, 1, "append", 5, None)
    assert second.both("leaf", honest.encode())
    for lie in lies:
        assert not second.both("leaf", replace(honest, **lie).encode())
    chance, record = random.Random(7), json.loads(honest.encode())
    for _ in range(1500):
        forged = test_as_of_file.mutated(record, chance)
        written = json.dumps(forged, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if chance.random() < 0.3:
            at = chance.randrange(len(written))
            written = written[:at] + chance.choice('0-19"{}[],:\\ ue.') + written[at + chance.randrange(2) :]
        second.both("leaf", written.encode())


def test_a_reference_that_looks_like_main_gets_one_verdict(second: Verdicts) -> None:
    """Every character that Unicode's tables make one of m, a, i, n, or nothing, in the place of one and beside them."""
    honest = test_forged_evidence.leaf(test_forged_evidence.A, 1, "append", 5, None)
    chance, letters = random.Random(3), []
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        folded = unicodedata.normalize("NFKC", chr(code)).casefold()
        if set(folded) & set("main") or unicodedata.category(chr(code)) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
            letters.append(chr(code))
    letters += [chr(code) for code in (0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, 0xFE0F, 0xE0100, 0x301, 0x430)]
    for letter in letters:
        at = chance.randrange(4)
        for ref in ("main"[:at] + letter + "main"[at + 1 :], "main"[:at] + letter + "main"[at:]):
            second.both("leaf", replace(honest, ref=ref).encode())
    assert 0 < second.accepted < second.asked


def test_forged_feeds_get_one_verdict(second: Verdicts) -> None:
    chance = random.Random(1818)
    material = Material(chance)
    question = {"table": NAME, "uuid": UUID, "until": 7}
    assert second.both("feed", text(material.feed), **question)
    honest = [list(to_json_lines(one)) for one in material.feed]
    for number in range(240):
        if number % 2:
            forged = list(material.feed)
            chance.choice([*MUTATIONS, *[forge_leaf] * 12, *[forge_changes] * 4])(material, forged, chance)
            data = text(forged)
        else:
            at, lines = mutate_lines(material.feed, chance)
            if not lines or '"schema": "' + json.loads(honest[at][0])["schema"] not in lines[0]:
                continue  # the columns as Arrow has them: for readers that have Arrow
            sets = [*honest[:at], lines, *honest[at + 1 :]]
            data = "".join(f"{line}\n" for lines in sets for line in lines).encode()
        second.both("feed", data, **question)
    assert second.accepted < second.asked / 3


def iceberg(kind: Any) -> Any:
    """The Iceberg type of an Arrow type, as in a table's schema."""
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [iceberg_field(inner) for inner in kind]}
    if pa.types.is_map(kind):
        return {"type": "map", "key-id": 1, "value-id": 2} | {
            "key": iceberg(kind.key_type),
            "value": iceberg(kind.item_type),
        }
    if pa.types.is_list(kind):
        return {"type": "list", "element-id": 1, "element": iceberg(kind.value_type)}
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if pa.types.is_timestamp(kind):
        return "timestamp" + ("tz" if kind.tz else "") + ("_ns" if kind.unit == "ns" else "")
    plain = {"bool": "boolean", "int32": "int", "int64": "long", "date32[day]": "date", "time64[us]": "time"}
    return plain.get(str(kind), str(kind))


def iceberg_field(field: pa.Field) -> dict[str, Any]:
    return {"id": int(field.metadata[b"PARQUET:field_id"]), "name": field.name, "type": iceberg(field.type)}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(made=tables())
def test_rows_of_every_type_have_one_digest(second: Verdicts, made: Any) -> None:
    schema, _, rows = made
    if "Asia/Kolkata" in str(schema):
        return  # a table's instants are in UTC
    fields = {"type": "struct", "schema-id": 0, "fields": [iceberg_field(field) for field in schema]}
    schema_json = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    inserted = pair(rows.slice(0, 0), rows, (), schema)
    changes = ChangeSet.of(CommitHeader(NAME, UUID, 7, None, 0), schema, (), inserted)
    table = ForgedTable(ForgedLog())
    table.put(changes, {}, schema_sha256=sha256(schema_json).hexdigest())
    signed, index, passed = table.sets[0]
    table.sets[0] = (replace(signed, schema_json=schema_json), index, passed)
    assert second.both("feed", text(table.feed()), uuid=UUID, until=1)
    assert len(row_digests(rows)) == changes.count


def test_row_proofs_and_their_forgeries_have_one_verdict(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world, seed = make_world(server, monkeypatch), random.Random(7)
    try:
        name = world.name()
        world.lake.tables.create(name, {"region": "string", "id": "long", "v": "string"}, key=["id", "region"])
        world.caught_up()
        for at in range(3):
            rows = [{"region": "DE", "id": number, "v": f"{at}"} for number in range(200)]
            world.lake.tables.upsert(name, rows)
            world.caught_up()
        lake = world.another()
        head, times = lake.timeline.head().note, [leaf.sequenced_ms for _, leaf in lake.timeline.commits_since(name)]
        files = list[tuple[bytes, dict[str, Any]]]()
        for number, point in ((7, {"index": 3}), (7, {"index": 2}), (777, {"index": 3}), (7, {"time_ms": times[2]})):
            key = {"region": "DE", "id": number}
            proof = prove_row(lake.timeline, name, key, **point)
            shown = with_row(proof, lake.tables, name, key)
            files.append((shown.write(), {"table": name, "key": json.dumps(key), **point}))
        for count, point in ((3, {"index": 3}), (60, {"index": 3}), (9, {"time_ms": times[1]})):
            keys = [{"region": "DE", "id": seed.randrange(400)} for _ in range(count)]
            proof = with_rows(prove_rows(lake.timeline, name, keys, **point), lake.tables, name, keys[::2])
            files.append((proof.write(), {"table": name, "key": json.dumps(keys), **point}))
        with verdicts(tmp_path, world.signer.verifier_key) as both:
            for data, question in files:
                assert both.both("row", data, **question)
                assert both.both("row", data, **question, checkpoint=head)
                fewer = {"key": json.dumps(json.loads(question["key"])[1:])} if question["key"][0] == "[" else {}
                for wrong in ({"table": "a.b"}, {"uuid": "another"}, {"key": '{"id":8,"region":"DE"}'}, fewer):
                    if not wrong:
                        continue
                    assert not both.both("row", data, **(question | wrong))
            for _ in range(1500):
                (data, question), (other, _) = seed.sample(files, 2)
                both.both("row", mutation(seed, data, other), **question)
    finally:
        world.close()


@pytest.mark.parametrize("name", test_golden_row_proofs.ASKED)
def test_golden_row_proofs_and_their_mutations_get_one_verdict(name: str, tmp_path: Path) -> None:
    golden, chance = test_golden_row_proofs, random.Random(f"rows {name}")
    data, asked = golden.data(name), dict(golden.ASKED[name])
    question = {"table": "sales.orders", "key": json.dumps(asked.pop("keys")), **asked}
    with verdicts(tmp_path, golden.KEY) as both:
        assert both.both("row", data, **question)
        for _ in range(600):
            forged = mutation(chance, data, golden.data(chance.choice(list(golden.ASKED))))
            assert both.both("row", forged, **question) == (forged == data)
