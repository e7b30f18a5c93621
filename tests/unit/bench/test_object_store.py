"""The server that figures over S3 are taken on: only the version that was chosen, and never a reason not to measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import harness, object_store

SERVED = Counter({"/lake/data/x.parquet": 2})


class StandIn:
    url = "http://127.0.0.1:1"

    def gets(self) -> Counter[str]:
        return SERVED


@pytest.fixture
def nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(object_store, "BUILD_DIR", tmp_path / "built")
    monkeypatch.setenv("PATH", str(tmp_path))
    object_store.build_versitygw.cache_clear()
    yield tmp_path
    object_store.build_versitygw.cache_clear()


def go(folder: Path, script: str) -> None:
    (folder / "go").write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\n{script}\n")
    (folder / "go").chmod(0o755)


def building(total: str) -> str:
    told = f"mod {object_store.MODULE} {object_store.VERSION} {total}"
    return f'if [ "$1" = install ]; then echo program > "$GOBIN/versitygw"; else echo "{told}"; fi'


def test_without_go_the_embedded_cloud_stands_in_and_is_named(nothing_built: Path) -> None:
    running: Any = StandIn()
    with object_store.object_store(running) as store:
        assert store.url == running.url
        assert store.gets() == SERVED
    assert "embedded cloud" in harness.machine()["object_store"]


def test_a_build_that_fails_is_told_and_the_embedded_cloud_stands_in(
    nothing_built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(nothing_built, "echo no network >&2; exit 1")
    assert object_store.build_versitygw() is None
    assert "no network" in capsys.readouterr().err


def test_what_was_built_is_kept_and_named(nothing_built: Path) -> None:
    go(nothing_built, building(object_store.SUM))
    program = object_store.build_versitygw()
    assert program is not None
    assert program.read_text() == "program\n"
    assert harness.machine()["object_store"] == f"versitygw {object_store.VERSION.removeprefix('v')}"


def test_another_program_under_the_same_version_is_refused(nothing_built: Path) -> None:
    go(nothing_built, building("h1:something/else="))
    with pytest.raises(RuntimeError, match="checksum of"):
        object_store.build_versitygw()
    assert not list(nothing_built.glob("built/*"))


def test_reads_are_counted_by_path_from_the_server_s_log() -> None:
    line = (
        "bench lake [17/November/2026:15:38:36 +0000] 127.0.0.1 bench ID {} data/x.parquet /lake/data/x.parquet 200 -"
    )
    log = [
        "log starts 2026-11-17 15:38:34\n",
        *(line.format(f"s3_{what}Object") for what in ("Put", "Get", "Head", "Get")),
    ]
    assert object_store._read(log) == SERVED
