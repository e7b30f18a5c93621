"""The command's manners: help with examples, data on stdout, errors with their exit code, JSON when asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from cli import lake_choice
from cli.main import _requested_format, app
from cli.output import Format, Output

NO_LAKE = {"STRANDLINE_DEV": "http://127.0.0.1:1"}


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands(get_command(app)))  # type: ignore[arg-type]


def strandline(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("STRANDLINE_")}
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments], env=env | variables, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_says_what_it_does_and_gives_an_example(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert command.help
    assert f"strandline {' '.join(path)}" in (command.epilog or "") + command.help


def test_the_first_commands_are_there() -> None:
    assert {("dev",), ("demo",), ("status",)} <= set(ALL)


def test_no_lake_is_one_line_on_stderr_and_exit_code_one() -> None:
    done = strandline("status", **NO_LAKE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "not_found" in done.stderr
    assert "strandline dev" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_set_up_chose_goes_before_what_path_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen-tools.json"
    monkeypatch.setattr(lake_choice, "CHOSEN_TOOLS", chosen)
    monkeypatch.setenv("PATH", "/old/node")
    monkeypatch.setenv("JAVA_HOME", "/old/java")
    lake_choice.use_chosen_tools()
    assert os.environ["PATH"] == "/old/node"  # never set up: PATH has to do
    chosen.write_text(json.dumps({"path": ["/venv/bin", "/java/bin"], "variables": {"JAVA_HOME": "/java"}}))
    lake_choice.use_chosen_tools()
    assert os.environ["PATH"].split(os.pathsep) == ["/venv/bin", "/java/bin", "/old/node"]
    assert os.environ["JAVA_HOME"] == "/java"


def test_errors_speak_json_when_asked() -> None:
    done = strandline("--output", "json", "status", **NO_LAKE)
    assert json.loads(done.stderr)["error"]["kind"] == "not_found"


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_takes_the_format_after_its_name(path: tuple[str, ...]) -> None:
    assert ["-o", "--output"] in [sorted(option.opts, key=len) for option in ALL[path].params]


PLACES = {
    "before": ("-o", "json", "status"),
    "after": ("status", "-o", "json"),
    "after, long": ("status", "--output=json"),
    "both, the last counts": ("-o", "text", "status", "-ojson"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_format_may_stand_before_or_after_the_command(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.dev.get_embedded", lambda resource: {"asked": {"for": resource}})
    result = CliRunner().invoke(app, PLACES[place])
    assert json.loads(result.stdout) == {"asked": {"for": "status"}}
    monkeypatch.setattr(sys, "argv", ["strandline", *PLACES[place]])
    assert _requested_format() is Format.JSON  # that of an error, too
    assert not CliRunner().invoke(app, (*PLACES[place], "-o", "text")).stdout.startswith("{")
    assert CliRunner().invoke(app, ("status", "-o", "yaml")).exit_code == 2


def test_the_version_is_one_line_that_a_script_can_read() -> None:
    done = strandline("--version", **NO_LAKE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"strandline {version('strandline')}\n"


def test_a_wrong_word_is_usage() -> None:
    done = strandline("floats")
    assert done.returncode == 2
    assert "floats" in done.stderr


class TestOutput:
    def test_data_is_one_json_document(self, capsys: pytest.CaptureFixture[str]) -> None:
        Output(Format.JSON).table([{"table": "bronze.notes", "rows": 3}], ["table", "rows"])
        assert json.loads(capsys.readouterr().out) == [{"table": "bronze.notes", "rows": 3}]

    def test_captions_and_progress_are_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        output = Output(Format.JSON)
        output.caption("look!")
        with output.progress("working"):
            pass
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", "")

    def test_text_is_plain_when_it_is_not_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        Output().table([{"table": "bronze.notes"}], ["table"])
        assert "\x1b" not in capsys.readouterr().out
