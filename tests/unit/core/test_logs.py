"""Logs are JSON lines that carry the correlation id and nothing twice."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from catalog.core.logs import configure_logs, correlation, correlation_id


@pytest.fixture(autouse=True)
def _restore_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_is_json_with_service_and_extras(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("ingest")
    logging.getLogger("catalog.tables").info("committed", extra={"rows": 3})
    (line,) = lines(capsys)
    assert (line["message"], line["service"], line["rows"], line["level"]) == (
        "committed",
        "ingest",
        3,
        "INFO",
    )


def test_the_correlation_id_is_in_force_within_its_block(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("ingest")
    log = logging.getLogger("catalog")
    with correlation("file-1"):
        log.info("inside")
        with correlation(None):
            assert correlation_id() == "file-1"
    log.info("outside")
    inside, outside = lines(capsys)
    assert inside["correlation_id"] == "file-1"
    assert "correlation_id" not in outside


def test_configuring_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("ingest")
    configure_logs("ingest")
    logging.getLogger("catalog").info("once")
    assert len(lines(capsys)) == 1


def test_libraries_are_heard_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("ingest")
    logging.getLogger("botocore.hooks").info("chatter")
    logging.getLogger("botocore.hooks").warning("trouble")
    assert [line["message"] for line in lines(capsys)] == ["trouble"]
