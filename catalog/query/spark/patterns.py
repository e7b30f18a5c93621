"""Translates regular expressions from RE2's syntax (DuckDB) to Java's, where both match the same texts."""

from __future__ import annotations

import re

from catalog.query.spark.nodes import NotEquivalent

_FLAGS = "(?ud)"
"""As in RE2: case follows Unicode, `\\w` and `\\d` do not, and only `\\n` ends a line."""
_ESCAPED = re.compile(r"\\[wWdDsSbBtnr]|\\[^A-Za-z0-9\s]")
_CLASS = re.compile(r"\[\^?(?:[^\[\]\\&~-]|(?<=[^\[^])-(?=[^\]-])|\\[wWdDsStnr]|\\[^A-Za-z0-9\s])+\]")
_GROUP = re.compile(r"\((?:\?:|(?!\?))")
_COUNT = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{])")


def java_pattern(pattern: str) -> str:
    """The pattern in Java's syntax. NotEquivalent if a part of it is not known to mean the same."""
    parts, at = [_FLAGS], 0
    if pattern.startswith("(?i)"):
        parts.append("(?i)")
        at = 4
    while at < len(pattern):
        kinds = {"\\": _ESCAPED, "[": _CLASS, "(": _GROUP, "*": _COUNT, "+": _COUNT, "?": _COUNT, "{": _COUNT}
        kind = kinds.get(pattern[at])
        match = kind.match(pattern, at) if kind else None
        if kind is not None and match is None:
            raise NotEquivalent(
                f"this part of a regular expression is not known to mean the same in Spark: {pattern[at : at + 20]}"
            )
        part = match[0] if match else pattern[at]
        parts.append(r"\z" if part == "$" else part)  # Java's `$` also matches before a final line end
        at += len(part)
    return "".join(parts)
