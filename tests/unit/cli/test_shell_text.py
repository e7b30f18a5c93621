"""Lines of a session become statements at `;`, and not at one in quotes, comments or a transaction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.shell_text import split, statements


@pytest.mark.parametrize(
    ("text", "done", "rest"),
    [
        ("SELECT 1; SELECT 2;\n", ["SELECT 1;", "SELECT 2;"], ""),
        ("SELECT ';' AS a, \"x;y\"; SELECT", ["SELECT ';' AS a, \"x;y\";"], " SELECT"),
        ("SELECT 'it''s; fine';", ["SELECT 'it''s; fine';"], ""),
        ("SELECT 1 -- not; here\n;", ["SELECT 1 -- not; here\n;"], ""),
        ("SELECT /* ; */ 1;", ["SELECT /* ; */ 1;"], ""),
        ("SELECT $$a;b$$, $x$c;$$;$x$;", ["SELECT $$a;b$$, $x$c;$$;$x$;"], ""),
        ("SELECT 'open; ", [], "SELECT 'open; "),
        ("SELECT /* open; ", [], "SELECT /* open; "),
        ("BEGIN; INSERT INTO a.b VALUES (1);", [], "BEGIN; INSERT INTO a.b VALUES (1);"),
        ("begin; DELETE FROM a.b; Commit; SELECT 1;", ["begin; DELETE FROM a.b; Commit;", "SELECT 1;"], ""),
        ("BEGIN; DELETE FROM a.b WHERE x = 'COMMIT;';", [], "BEGIN; DELETE FROM a.b WHERE x = 'COMMIT;';"),
        (";;\n ; SELECT 1;", ["SELECT 1;"], ""),
    ],
)
def test_statements_end_where_they_end(text: str, done: list[str], rest: str) -> None:
    assert split(text) == (done, rest)


@given(
    st.lists(
        st.sampled_from(["SELECT 1;", "'a;\n'", ";", "\n", " ", "-- c;\n", "/*;*/", "BEGIN;", "COMMIT;", '"']),
        max_size=12,
    )
)
def test_it_does_not_matter_where_lines_end(pieces: list[str]) -> None:
    text = "".join(pieces)

    def reader(parts: list[str]):  # type: ignore[no-untyped-def]
        rest = iter(parts)

        def read(more: bool) -> str:
            line = next(rest, None)
            if line is None:
                raise EOFError
            return line

        return read

    whole, rest = split(text + "\n")
    by_line = list(statements(reader(text.split("\n"))))
    assert by_line == [*whole, *([rest.strip()] if rest.strip() else [])]


def test_commands_are_lines_and_interrupts_drop_what_was_begun() -> None:
    lines = iter(["\\dt", "SELECT", KeyboardInterrupt, "exit", "help;", "SELECT 1", ";"])

    def read(more: bool) -> str:
        line = next(lines, EOFError)
        if isinstance(line, str):
            return line
        raise line

    assert list(statements(read)) == ["\\dt", "\\q", "\\?", "SELECT 1\n;"]
