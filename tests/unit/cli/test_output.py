"""What a query's rows look like to people."""

from __future__ import annotations

import pytest

from cli.output import Output


def test_an_answer_has_its_own_headings_and_shows_nulls(capsys: pytest.CaptureFixture[str]) -> None:
    Output().answer([(None, "[red]x[/]"), ("None", "")], ["is_now", "[bold]b"])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.split() == ["is_now", "[bold]b"]
    assert [row.split() for row in rows] == [["NULL", "[red]x[/]"], ["None"]]
