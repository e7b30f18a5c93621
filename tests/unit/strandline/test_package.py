"""The Python package without a lake: which one it finds, what it shows and sends, and proofs of our own making."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import strandline
from catalog.core.errors import Denied, Invalid, LakeError
from catalog.merkle import Ed25519Signer, leaf_hash, node_hash
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.proof import ProofFile, write
from catalog.timeline.log.leaf import Leaf
from cli.main import app
from strandline import embedded, profile
from strandline.display import MAX_CELL, MAX_COLUMNS, MAX_ROWS
from strandline.endpoints import resolve
from strandline.profile import Profile
from strandline.rows import Rows
from strandline.values import parameters, point, sendable_rows

HERE, THERE = "https://here.example/lake", "https://there.example"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("STRANDLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(embedded, "DEFAULT_PORT", 1)  # nobody listens there
    return tmp_path / "strandline" / "profile.json"


class TestWhichLake:
    def test_arguments_then_environment_then_profile_then_the_embedded_lake(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(strandline.NotFound, match=r"strandline login.*strandline dev"):
            resolve()
        monkeypatch.setattr(embedded, "get", lambda resource: {"endpoint": "http://127.0.0.1:5", "token": "of-dev"})
        assert resolve().token == "of-dev"
        profile.save(Profile(THERE, "of-profile"))
        assert (resolve().url, resolve().token) == (THERE, "of-profile")
        monkeypatch.setenv("STRANDLINE_DEV", "http://127.0.0.1:5")
        assert resolve().token == "of-dev"
        monkeypatch.setenv("STRANDLINE_ENDPOINT", HERE)
        monkeypatch.setenv("STRANDLINE_TOKEN", "of-environment")
        assert (resolve().url, resolve().token) == (HERE, "of-environment")
        assert (resolve(THERE, "given").url, resolve(THERE, "given").token) == (THERE, "given")

    def test_a_token_goes_only_where_it_belongs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        profile.save(Profile(THERE, "of-profile"))
        assert resolve(HERE).token is None
        assert resolve(THERE + "/").token == "of-profile"
        monkeypatch.setenv("STRANDLINE_ENDPOINT", HERE)
        assert resolve().token is None
        monkeypatch.setenv("STRANDLINE_TOKEN", "of-here")
        assert resolve(THERE).token == "of-profile"
        assert resolve("https://elsewhere.example").token is None

    @pytest.mark.parametrize(
        "wrong", ["lake.example", "ftp://lake.example", "https://", "https://u:secret@l.example", ""]
    )
    def test_what_is_no_address_is_refused(self, wrong: str) -> None:
        with pytest.raises(strandline.Invalid, match=r"https://lake\.example") as refused:
            strandline.connect(wrong)
        assert "secret" not in str(refused.value)

    def test_nobody_sees_the_token(self) -> None:
        lake = strandline.connect(HERE, "secret")
        assert repr(lake) == f"<strandline.Lake {HERE} (argument)>"
        assert "secret" not in repr(resolve(HERE, "secret")) + repr(Profile(HERE, "secret"))


class TestProfile:
    def test_only_its_owner_can_read_it(self, home: Path) -> None:
        before = os.umask(0o000)
        try:
            profile.save(Profile(HERE, "secret"))
        finally:
            os.umask(before)
        assert home.stat().st_mode & 0o777 == 0o600 and home.parent.stat().st_mode & 0o077 == 0
        profile.save(Profile(HERE, "newer"))
        assert profile.load() == Profile(HERE, "newer") and os.listdir(home.parent) == ["profile.json"]

    def test_one_that_others_can_read_is_refused(self, home: Path) -> None:
        profile.save(Profile(HERE, "secret"))
        home.chmod(0o640)
        with pytest.raises(strandline.Invalid, match="chmod 600"):
            strandline.connect()

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"endpoint": 1, "token": "secret"}', '{"token": "secret"'])
    def test_a_broken_one_says_what_to_do_and_nothing_of_the_token(self, home: Path, text: str) -> None:
        profile.save(Profile(HERE, "secret"))
        home.write_text(text)
        with pytest.raises(strandline.Invalid, match="strandline login") as broken:
            strandline.connect()
        assert "secret" not in str(broken.value)


class TestLogin:
    @pytest.fixture
    def tables(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A lake that knows one token."""
        listed = ["silver.tides"]

        def serve(request: httpx.Request) -> httpx.Response:
            good = request.headers["authorization"] == "Bearer good-token"
            return httpx.Response(200, json={"tables": listed}) if good else httpx.Response(401, json={"message": "no"})

        made = httpx.Client
        monkeypatch.setattr(httpx, "Client", lambda **given: made(**{**given, "transport": httpx.MockTransport(serve)}))
        return listed

    def login(self, *words: str, given: str = "", fails: type[LakeError] | None = None) -> str:
        result = CliRunner().invoke(app, ["login", *words], input=given)
        assert isinstance(result.exception, fails) if fails else result.exit_code == 0, result.output
        said = result.output + str(result.exception or "")
        assert "good-token" not in said and "bad-token" not in said
        return said

    def test_it_stores_what_works_and_python_finds_it(self, tables: list[str], home: Path) -> None:
        assert "1 tables" in self.login(HERE + "/", given="good-token\n")
        assert json.loads(home.read_text()) == {"endpoint": HERE, "token": "good-token"}
        assert strandline.connect().tables() == tables
        assert CliRunner().invoke(app, ["-o", "json", "api", "list"]).stdout == '["silver.tides"]\n'
        assert "Logged out" in CliRunner().invoke(app, ["logout"]).output and not home.exists()
        assert "Nobody" in CliRunner().invoke(app, ["logout"]).output

    def test_a_token_from_a_file_or_stdin(self, tables: list[str], home: Path, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("good-token\n")
        self.login(HERE, "--token-file", str(tmp_path / "token"))
        home.unlink()
        self.login(HERE, "--token-file", "-", given="good-token\n")
        assert home.exists()

    def test_what_does_not_work_is_not_stored(self, tables: list[str], home: Path) -> None:
        assert "does not accept this token" in self.login(HERE, given="bad-token\n", fails=Denied)
        self.login(HERE, "--token-file", "-", given="bad token\n", fails=Invalid)
        self.login("here", given="good-token\n", fails=Invalid)
        assert not home.exists()


class TestAnswers:
    @pytest.mark.parametrize(
        ("content", "ask"),
        [
            (b"<html>", lambda lake: lake.tables()),
            (b"{}", lambda lake: lake.tables()),
            (b"<html>", lambda lake: lake.sql("select 1")),
            (b"", lambda lake: lake.sql("select 1")),
            (b"<html>", lambda lake: list(lake.table("a.b").changes())),
        ],
    )
    def test_an_endpoint_that_is_no_lake_is_an_error_of_the_tree(self, content: bytes, ask: Any) -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
        with pytest.raises(strandline.Unavailable):
            ask(strandline.connect(HERE, transport=transport))

    def test_a_list_is_asked_for_where_one_word_would_be_taken_apart(self) -> None:
        lake = strandline.connect(HERE)
        wrong: tuple[Any, ...] = (
            lambda: lake.create_table("a.b", {"id": "long"}, key="id"),
            lambda: lake.create_table("a.b", ["id"]),  # type: ignore[arg-type]
            lambda: lake.table("a.b").upsert([{"id": 1}], "id"),
            lambda: lake.table("tides"),
            lambda: lake.table("a.b").rows(limit=-1),
            lambda: lake.table("a.b").delete(),
            lambda: lake.table("a.b").at(-1),
            lambda: lake.prove({"snapshot_id": None}),
        )
        for ask in wrong:
            with pytest.raises(strandline.Invalid):
                ask()

    def test_names_in_a_tables_statement_are_quoted(self) -> None:
        asked: list[Any] = []

        def serve(request: httpx.Request) -> httpx.Response:
            asked.append(json.loads(request.content))
            return httpx.Response(404, json={"type": "urn:strandline:not_found", "detail": "there is none"})

        table = strandline.connect(HERE, transport=httpx.MockTransport(serve)).table('a.b"; drop')
        for ask in (table, table.at("it's"), table.at(7)):
            with pytest.raises(strandline.NotFound):
                ask.rows(['c"d'], where="true -- all", limit=3)
        name = 'SELECT "c""d" FROM "a"."b""; drop"'
        ending = " WHERE (\ntrue -- all\n) LIMIT 3"
        assert [one["sql"] for one in asked] == [
            name + ending,
            f"{name} AS OF 'it''s'{ending}",
            f"{name} VERSION AS OF 7{ending}",
        ]
        assert [one["fresh"] for one in asked] == [True, False, False]


class TestShown:
    def test_a_page_of_rows_whatever_is_in_them(self) -> None:
        rows = Rows(pa.table({"<b>": ["<script>alert(1)</script>", None, "\x1b[31mred\n"]}))
        page, text = rows._repr_html_(), repr(rows)
        assert "<script>" not in page and "&lt;script&gt;" in page and "<b>" not in page
        assert "\x1b" not in page + text and r"\x1b[31mred\n" in text and "NULL" in text
        assert text.splitlines()[0] == "Rows: 3 rows x 1 column"

    def test_large_answers_are_shown_in_part_and_say_so(self) -> None:
        wide = {f"c{number}": ["x" * 1000] * 5000 for number in range(50)}
        rows = Rows(pa.table(wide))
        assert repr(rows).startswith(
            f"Rows: 5,000 rows x 50 columns; the first {MAX_ROWS} rows and {MAX_COLUMNS} columns"
        )
        assert len(repr(rows).splitlines()) == MAX_ROWS + 3 and max(map(len, repr(rows).split())) == MAX_CELL
        assert rows._repr_html_().count("<td>") == MAX_ROWS * MAX_COLUMNS
        assert len(rows) == 5000 and next(iter(rows))["c0"] == "x" * 1000

    def test_no_column_is_lost_where_two_have_one_name(self) -> None:
        rows = Rows(pa.table([[1], [2]], names=["n", "n"]))
        assert "1  2" in repr(rows) and rows.to_arrow().num_columns == 2
        for read in (rows.rows, lambda: next(iter(rows))):
            with pytest.raises(strandline.Invalid, match="two columns are named n"):
                read()

    def test_an_answer_with_forged_offsets_is_refused(self) -> None:
        offsets = b"".join(number.to_bytes(4, "little") for number in (0, 1 << 20, 3))
        forged = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")])
        with pytest.raises(strandline.Unavailable, match="not valid Arrow"):
            Rows(pa.table({"a": forged}))


class TestSent:
    def test_rows_that_json_holds_stay_as_they_are_and_others_become_arrow(self) -> None:
        plain = [{"a": 1, "b": [1.5, {"c": None}], "at": date(2026, 3, 1)}]
        assert sendable_rows(plain) == plain
        sent = sendable_rows([{"a": b"\xff"}, {"b": Decimal("1.10")}])
        assert isinstance(sent, pa.Table)
        assert sent.to_pylist() == [{"a": b"\xff", "b": None}, {"a": None, "b": Decimal("1.10")}]

    @pytest.mark.parametrize("rows", ["text", {"a": 1}, 7, [1], [{"a": object()}]])
    def test_what_are_no_rows_is_refused(self, rows: Any) -> None:
        with pytest.raises(strandline.Invalid):
            sendable_rows(rows)

    def test_parameters_by_name_and_by_position(self) -> None:
        assert parameters({"least": 4, "at": date(2026, 3, 1)}) == {"least": 4, "at": date(2026, 3, 1)}
        assert parameters([4, "x"]) == {"1": 4, "2": "x"} and parameters(None) == {}
        for wrong in (b"\xff", Decimal("1.1"), float("nan"), object()):
            with pytest.raises(strandline.Invalid, match="CAST"):
                parameters({"least": wrong})

    def test_points_in_time(self) -> None:
        assert point(7) == 7 and point("q1") == "q1" and point(date(2026, 3, 1)) == "2026-03-01"
        assert point(datetime(2026, 3, 1, 12, tzinfo=UTC)) == "2026-03-01T12:00:00+00:00"
        with pytest.raises(strandline.Invalid, match="time zone"):
            point(datetime(2026, 3, 1, 12))
        with pytest.raises(strandline.Invalid):
            point(True)


class TestVerify:
    """A log of two leaves, signed here: what a proof shows is held against what the caller expects."""

    EXPECTED = {"table": "silver.tides", "uuid": "11111111-2222-3333-4444-555555555555"}  # noqa: RUF012
    LEAF = dict.fromkeys(field.name for field in fields(Leaf)) | {
        "content_count": 0,
        "format": "strandline/commit@v2",
        "table": "silver.tides",
        "table_uuid": EXPECTED["uuid"],
        "snapshot_id": "77",
        "parent_id": None,
        "schema_sha256": None,
        "changes_root": None,
        "changes_count": None,
        "ref": "main",
        "attested": None,
        "sequence": 0,
        "operation": "append",
        "committed_ms": 1,
        "sequenced_ms": 2,
    }

    def prove(self, leaf: Any, signer: Ed25519Signer, extra: bytes | None = None) -> bytes:
        entry = leaf if isinstance(leaf, bytes) else json.dumps(leaf, sort_keys=True, separators=(",", ":")).encode()
        other = leaf_hash(b"another")
        note = Checkpoint(signer.name, 2, node_hash(leaf_hash(entry), other)).sign([signer])
        return write(ProofFile(0, (other,), note, entry if extra is None else extra))

    @pytest.fixture(scope="class")
    def signer(self) -> Ed25519Signer:
        return Ed25519Signer.generate("lake.example")

    def test_a_proof_that_holds(self, signer: Ed25519Signer, tmp_path: Path) -> None:
        key, file = str(signer.verifier_key), tmp_path / "0.tlog-proof"
        file.write_bytes(self.prove(self.LEAF, signer))
        proof = strandline.verify.proof(file, key=key, **self.EXPECTED)
        assert (proof.index, proof.checkpoint.size, proof.snapshot_id) == (0, 2, 77)
        names = ("silver.levels", "silver.tides")
        assert strandline.verify.proof(file, key=[key], table=names, uuid=self.EXPECTED["uuid"]) == proof

    @pytest.mark.parametrize(
        "change",
        [
            {"table_uuid": "99999999-2222-3333-4444-555555555555"},
            {"table": "silver.others"},
            {"format": "strandline/vectors@v1"},
            {"sequence": "0"},
        ],
    )
    def test_a_signed_leaf_of_something_else_is_refused(self, signer: Ed25519Signer, change: dict[str, Any]) -> None:
        data = self.prove({**self.LEAF, **change}, signer)
        with pytest.raises(strandline.Unverified):
            strandline.verify.proof(data, key=str(signer.verifier_key), **self.EXPECTED)

    def test_another_key_leaf_or_log_is_refused(self, signer: Ed25519Signer) -> None:
        data, key = self.prove(self.LEAF, signer), str(signer.verifier_key)
        other = str(Ed25519Signer.generate("lake.example").verifier_key)
        forged = json.dumps({**self.LEAF, "operation": "delete"}, sort_keys=True, separators=(",", ":")).encode()
        for attempt in ({"key": other}, {"key": key, "entry": forged}, {"key": key, "origin": "other.example"}):
            with pytest.raises(strandline.Unverified):
                strandline.verify.proof(data, **attempt, **self.EXPECTED)
        with pytest.raises(strandline.Unverified):
            strandline.verify.proof(data[:-9], key=key, **self.EXPECTED)
        with pytest.raises(strandline.Unverified):
            strandline.verify.proof(b"[]", key=key, **self.EXPECTED)

    def test_a_callers_mistake_is_not_a_failed_proof(self, signer: Ed25519Signer, tmp_path: Path) -> None:
        data, key = self.prove(self.LEAF, signer, extra=b""), str(signer.verifier_key)
        with pytest.raises(strandline.Invalid, match="entry="):
            strandline.verify.proof(data, key=key, **self.EXPECTED)
        for wrong in ("no key", []):
            with pytest.raises(strandline.Invalid, match="key"):
                strandline.verify.proof(data, key=wrong, **self.EXPECTED)
        with pytest.raises(strandline.Invalid, match="cannot be read"):
            strandline.verify.proof(tmp_path / "missing", key=key, **self.EXPECTED)

    def test_history_that_was_rewritten_is_refused(self, signer: Ed25519Signer) -> None:
        key = str(signer.verifier_key)
        hashes = [leaf_hash(bytes([number])) for number in range(4)]

        def signed(leaves: list[bytes]) -> bytes:
            root = node_hash(leaves[0], leaves[1])
            root = root if len(leaves) == 2 else node_hash(root, leaves[2])
            return Checkpoint(signer.name, len(leaves), root).sign([signer])

        old, new, rewritten = signed(hashes[:2]), signed(hashes[:3]), signed([hashes[3], *hashes[1:3]])
        assert strandline.verify.consistency(old, new, [hashes[2]], key=key).size == 3
        for shown, path in ((rewritten, [hashes[2]]), (new, []), (new, ["not base64!"])):
            with pytest.raises(strandline.Unverified):
                strandline.verify.consistency(old, shown, path, key=key)
