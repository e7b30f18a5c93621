"""The lines of a session as statements: they end with `;` outside quotes and comments, a transaction with COMMIT."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_SKIPPED = re.compile(r"'[^']*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$|--[^\n]*(?:\n|$)|/\*.*?\*/", re.DOTALL)
_OPENS = re.compile(r"['\"]|\$\w*\$|/\*")
_WORD = re.compile(r"[A-Za-z]+")
_ENDS_TRANSACTION = ("COMMIT", "END", "ROLLBACK")
BARE_COMMANDS = {"help": "\\?", "exit": "\\q", "quit": "\\q"}


def statements(read_line: Callable[[bool], str]) -> Iterator[str]:
    """Complete statements, and commands of the shell, which are lines. `read_line(more)` returns a line, and raises
    EOFError at the end; KeyboardInterrupt there drops what was begun."""
    buffer = ""
    while True:
        try:
            line = read_line(bool(buffer))
        except EOFError:
            if buffer.strip():
                yield buffer.strip()
            return
        except KeyboardInterrupt:
            buffer = ""
            continue
        if not buffer:
            word = line.strip().rstrip(";").lower()
            if line.strip().startswith("\\") or word in BARE_COMMANDS:
                yield BARE_COMMANDS.get(word, line.strip())
                continue
        done, buffer = split(buffer + line + "\n")
        yield from done


def split(text: str) -> tuple[list[str], str]:
    """The complete statements at the beginning of the text, and what is left of it."""
    done, start = list[str](), 0
    for end in _ends(text):
        part = text[start:end].strip()
        if _first_word(part) in ("BEGIN", "START") and _last_word(part) not in _ENDS_TRANSACTION:
            continue  # a transaction is one text
        if part.strip("; \n\t"):
            done.append(part)
        start = end
    rest = text[start:]
    return done, rest if rest.strip() else ""


def _ends(text: str) -> Iterator[int]:
    """The positions after each `;` outside quotes and comments."""
    at = 0
    while at < len(text):
        if (skipped := _SKIPPED.match(text, at)) is not None:
            at = skipped.end()
        elif _OPENS.match(text, at) is not None:
            return  # it is not closed yet
        else:
            at += 1
            if text[at - 1] == ";":
                yield at


def _first_word(part: str) -> str:
    match = _WORD.match(_plain(part).strip())
    return match[0].upper() if match else ""


def _last_word(part: str) -> str:
    """Of the last statement in it: the first word after the last `;` but one."""
    pieces = [piece for piece in _plain(part).split(";") if piece.strip()]
    return _first_word(pieces[-1]) if len(pieces) > 1 else ""


def _plain(part: str) -> str:
    return _SKIPPED.sub(" ", part)
