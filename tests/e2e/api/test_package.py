"""The Python package against the deployed API: every example in its docstrings, and what they leave out."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas
import polars
import pytest

import strandline
from catalog.timeline import write_as_of
from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import COLUMNS, ROWS
from tests.e2e.flow import lake_of

NOTES = [{"id": 1, "text": "The spring tide floods the harbour."}, {"id": 2, "text": "Bread rises twice."}]


def documented() -> dict[str, Any]:
    """Every public name: the package's own, the methods of its classes, and what is in `strandline.verify`."""
    values: dict[str, Any] = {}
    for name in strandline.__all__:
        one = getattr(strandline, name)
        inner = {f"verify.{each}": getattr(one, each) for each in one.__all__} if isinstance(one, ModuleType) else {}
        for path, value in inner.items() or [(name, one)]:
            values[path] = value
            if inspect.isclass(value):
                fields = getattr(value, "__dataclass_fields__", {})
                for member, given in vars(value).items():
                    callable_ = inspect.isfunction(given) or isinstance(given, property)
                    if callable_ and not member.startswith("_") and member not in fields:
                        values[f"{path}.{member}"] = given
    return values


DOCUMENTED = documented()


@pytest.fixture(scope="module")
def lake(cloud: EmbeddedCloud) -> Iterator[strandline.Lake]:
    with strandline.connect(cloud.addresses()["api"], cloud.token("admin")) as lake:
        yield lake


@pytest.fixture(scope="module")
def examples(cloud: EmbeddedCloud, lake: strandline.Lake) -> dict[str, Any]:
    """What the examples take for granted."""
    tides = lake.create_table("silver.tides", COLUMNS, key=["station"])
    lake.commit(tides.insert(ROWS))
    lake.create_table("silver.scratch", COLUMNS, key=["station"]).insert([{"station": "Dover", "metres": 3.5}])
    lake.create_table("silver.notes", {"id": "long", "text": "string"}, key=["id"]).insert(NOTES)
    with pytest.MonkeyPatch.context() as patch:
        lake_of(cloud, patch).vectors.create("silver.notes", "text")
        cloud.wait_until_idle()
        # `timeline as-of` writes these files; an example of the verifier finds them where it runs.
        timeline = lake_of(cloud, patch).timeline
        head = timeline.published_head()
        index = head.checkpoint.size - 1
        as_of = {
            f"{table}.as-of.json": write_as_of(timeline.prove_as_of(table, index=index, head=head))
            for table in ("silver.tides", "silver.ebbs")
        }
    reader = strandline.connect(lake.endpoint, cloud.token("reader:silver.*"))
    return {
        "strandline": strandline,
        "lake": lake,
        "reader": reader,
        "tides": tides,
        "key": lake.verifier_keys()[0],
        "index": index,
        "as_of_files": as_of,
    }


@pytest.mark.parametrize("name", DOCUMENTED)
def test_its_example_does_what_it_says(
    name: str,
    examples: dict[str, Any],
    cloud: EmbeddedCloud,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_ENDPOINT", cloud.addresses()["api"])
    monkeypatch.setenv("STRANDLINE_TOKEN", cloud.token("admin"))
    for file, proof in examples["as_of_files"].items():
        (tmp_path / file).write_bytes(proof)
    text = DOCUMENTED[name].__doc__ or ""
    test = doctest.DocTestParser().get_doctest(text, dict(examples), name, None, 0)
    assert test.examples, f"{name} has no example in its docstring"
    said: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append).failed
    assert not failed, "".join(said)


class TestAnswers:
    def test_a_receipt_that_is_too_long_for_a_header_comes_all_the_same(self, lake: strandline.Lake) -> None:
        table = lake.create_table("silver.many", {"id": "long"})
        for number in range(12):
            receipt = table.insert([{"id": number}])
        lake.commit(receipt)
        rows = lake.sql("select sum(id) as n from silver.many", verify=True)
        assert rows.rows() == [{"n": 66}]
        assert rows.receipt["verified"] and len(rows.receipt["objects"]) >= 12 and rows.receipt["proofs"]
        assert len(str(rows.receipt)) > 4096

    def test_an_answer_that_lies_elsewhere_brings_its_receipt(self, lake: strandline.Lake) -> None:
        lake.commit(lake.create_table("silver.long", {"text": "string"}).insert([{"text": "tide" * 1000}] * 100))
        rows = lake.sql("select a.text || b.text as text from silver.long a cross join silver.long b")
        assert len(rows) == 10_000 and rows.to_arrow().nbytes > 4 << 20
        assert list(rows.receipt["snapshots"]) == ["silver.long"]

    def test_null_beside_a_large_integer_is_not_rounded_by_pandas(self, lake: strandline.Lake) -> None:
        large = 2**53 + 1
        frame = lake.sql(f"select * from (values ({large}), (null)) as t(n)").to_pandas()
        assert int(frame["n"].dropna().iloc[0]) == large and frame["n"].isna().sum() == 1

    def test_the_past_is_read_and_not_written(self, lake: strandline.Lake) -> None:
        table = lake.create_table("silver.past", COLUMNS, key=["station"])
        first = lake.commit(table.insert(ROWS))
        lake.commit(table.delete("metres > 4"))
        then = table.at(first["index"])
        assert (len(then.rows()), len(table.rows()), then.schema().names) == (2, 1, ["station", "metres"])
        assert len(table.at(f"snapshot:{first['snapshot_id']}").rows(["station"], where="metres > 4")) == 1
        assert then.rows().receipt["snapshots"] and len(table.at(datetime.now(UTC)).rows()) == 1
        with pytest.raises(strandline.StrandlineError):
            table.at(datetime(2020, 1, 1, tzinfo=UTC)).rows()
        for write in (lambda: then.insert(ROWS), lambda: then.delete("true"), then.changes, then.history):
            with pytest.raises(strandline.Invalid, match="without at"):
                write()

    def test_what_is_wrong_has_its_kind_and_the_next_step(self, lake: strandline.Lake) -> None:
        with pytest.raises(strandline.NotFound) as missing:
            lake.table("silver.nowhere").describe()
        assert (missing.value.kind, missing.value.status) == ("not_found", 404)
        assert missing.value.request_id in str(missing.value) and "lake.tables()" in str(missing.value)
        with pytest.raises(strandline.Invalid) as wrong:
            lake.sql("select nothing from silver.tides")
        assert (wrong.value.kind, wrong.value.status) == ("invalid", 400)


class TestWrites:
    def test_frames_go_in_without_their_row_numbers(self, lake: strandline.Lake) -> None:
        table = lake.create_table("silver.frames", COLUMNS)
        frame = pandas.DataFrame({"station": ["Brest", "Dover", "Leith"], "metres": [4.2, 3.5, 5.5]})
        assert table.insert(frame[frame.metres > 4])["rows"] == 2
        assert table.insert(polars.DataFrame({"station": ["Hull"], "metres": [1.0]}))["rows"] == 1
        assert table.insert(table.rows(where="station = 'Hull'"))["rows"] == 1
        with pytest.raises(strandline.Invalid, match="reset_index"):
            table.insert(frame.set_index("station"))
        assert sorted(row["station"] for row in table.rows()) == ["Brest", "Hull", "Hull", "Leith"]

    def test_values_that_json_lacks_are_not_changed(self, lake: strandline.Lake) -> None:
        columns = {"id": "long", "data": "binary", "price": "decimal(10, 2)", "at": "double"}
        table = lake.create_table("silver.exact", columns, key=["id"])
        rows = [{"id": 1, "data": b"\x00\xff"}, {"id": 2, "price": Decimal("19.90"), "at": float("inf")}]
        assert table.insert(rows)["rows"] == 2
        first, second = sorted(table.rows(), key=lambda row: row["id"])
        assert first == {"id": 1, "data": b"\x00\xff", "price": None, "at": None}
        assert (second["price"], second["at"]) == (Decimal("19.90"), float("inf"))


class TestFiles:
    def test_a_folder_keeps_its_paths_and_a_faulty_file_keeps_no_other_out(
        self, lake: strandline.Lake, tmp_path: Path
    ) -> None:
        (tmp_path / "2026" / "march").mkdir(parents=True)
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "config.csv").write_text("station,metres\nHidden,1\n")
        (tmp_path / "2026" / "march" / "a.csv").write_text("station,metres\nBrest,4.2\nDover,3.5\n")
        (tmp_path / "again.csv").write_text("station,metres\nBrest,4.2\nDover,3.5\n")
        (tmp_path / "broken.jsonl").write_text('{"gauge": ')
        seen: list[tuple[str, str]] = []
        files = lake.ingest(tmp_path, "bronze.folder", progress=lambda file: seen.append((file.name, file.status)))
        by_name = {file.name: file for file in files}
        assert list(by_name) == ["2026/march/a.csv", "again.csv", "broken.jsonl"]
        assert by_name["2026/march/a.csv"].status == by_name["again.csv"].status == "committed", "each path is a file"
        assert by_name["broken.jsonl"].status == "quarantined" and by_name["broken.jsonl"].reason
        assert seen[:3] == [(name, "landing") for name in by_name] and len(seen) == 6
        assert len(lake.table("bronze.folder").rows()) == 4
        assert {file.status for file in lake.ingest(tmp_path / "again.csv", "bronze.folder")} <= {
            "committed",
            "duplicate",
        }

    def test_what_is_not_there_is_said_before_anything_is_sent(self, lake: strandline.Lake, tmp_path: Path) -> None:
        with pytest.raises(strandline.Invalid, match="no file or folder"):
            lake.ingest(tmp_path / "nothing", "bronze.folder")
        with pytest.raises(strandline.Invalid, match="no file to ingest"):
            lake.ingest(tmp_path, "bronze.folder")


class TestProofs:
    def test_a_feed_is_held_to_the_table_that_is_expected(
        self, lake: strandline.Lake, examples: dict[str, Any], tmp_path: Path
    ) -> None:
        key, tides, scratch = examples["key"], examples["tides"], lake.table("silver.scratch")
        expected: dict[str, Any] = {"key": key, "table": "silver.tides", "uuid": tides.uuid}
        file = tmp_path / "feed.arrows"
        file.write_bytes(b"".join(one.to_bytes() for one in tides.changes()))
        assert strandline.verify.feed(file, **expected).changes == 2
        with pytest.raises(strandline.Unverified, match="uuid"):
            strandline.verify.feed(scratch.changes(), **expected)
        with pytest.raises(strandline.Unverified, match=r"not of silver\.other"):
            strandline.verify.feed(file, **{**expected, "table": "silver.other"})
        with pytest.raises(strandline.Unverified, match="should reach 9"):
            strandline.verify.feed(file, **expected, until=9)
        with pytest.raises(strandline.Unverified, match="proves nothing"):
            strandline.verify.feed([], **expected)
        with pytest.raises(strandline.Unverified):
            strandline.verify.feed(file, **expected, since=0, until=7)
        file.write_bytes(file.read_bytes().replace(b"Brest", b"Crest"))
        with pytest.raises(strandline.Unverified):
            strandline.verify.feed(file, **expected)

    def test_a_proof_of_another_table_or_key_is_refused(self, lake: strandline.Lake, examples: dict[str, Any]) -> None:
        key, tides, scratch = examples["key"], examples["tides"], lake.table("silver.scratch")
        proof = lake.prove(lake.table("silver.scratch").history().rows()[0])
        with pytest.raises(strandline.Unverified, match="uuid"):
            proof.verify(key=key, table="silver.scratch", uuid=tides.uuid)
        with pytest.raises(strandline.Unverified):
            strandline.verify.proof(
                proof.data.replace(b"index ", b"index 1"), key=key, table="silver.scratch", uuid=scratch.uuid
            )
        with pytest.raises(strandline.NotFound):
            lake.prove(10**9)
        with pytest.raises(strandline.Unavailable, match="not in the timeline"):
            lake.prove({"snapshot_id": "12345"}, timeout_s=0)


def test_the_examples_are_those_that_people_read() -> None:
    """No public method without a docstring hides from the test above."""
    assert {"connect", "Lake.sql", "Table.at", "Result.receipt", "verify.feed", "Proof.verify"} <= set(DOCUMENTED)
    assert not [name for name in DOCUMENTED if re.search(r"\._", name)]
