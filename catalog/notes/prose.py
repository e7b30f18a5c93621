"""Markdown to prose without markup, headings and URLs; prose to sentences with their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

# Separates blocks: it ends a sentence, whatever the block ends with, and is part of none.
BREAK = "\n\n"
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[\w])|\n\n", re.U)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*", re.U)
_BLOCKS = {"Paragraph", "Item", "TableCell", "BlockQuote", "HtmlBlock", "DefinitionListTitle"}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, and where it starts in the prose."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Document:
    """`text` is the prose: no markup, no code, an empty line between blocks. `headings` begin with their `#`s."""

    text: str
    headings: tuple[str, ...]
    urls: tuple[str, ...]
    code_blocks: int
    list_items: int


def parse_markdown(body: str) -> Document:
    """Parses a note in about 30 microseconds. Never fails: any text is Markdown."""
    text: list[str] = []
    headings: list[str] = []
    urls: list[str] = []
    heading: list[str] | None = None
    level = code = items = 0
    inside_code = False
    for event in _parser().events(body, merge_text=True):
        kind, value = next(iter(event.items())) if isinstance(event, dict) else (event, None)
        name, detail = _tag(value)
        if kind == "Start":
            if name == "Heading":
                heading, level = [], int(detail["level"][1])
            elif name == "CodeBlock":
                inside_code, code = True, code + 1
            elif name == "Item":
                items += 1
            elif name in ("Link", "Image") and "://" in detail["dest_url"]:
                urls.append(detail["dest_url"])
        elif kind == "End":
            if name == "Heading" and heading is not None:
                headings.append(f"{'#' * level} {' '.join(''.join(heading).split())}")
                heading = None
            elif name == "CodeBlock":
                inside_code = False
            elif name in _BLOCKS:
                text.append(BREAK)
        elif kind in ("Text", "Code") and not inside_code:
            (text if heading is None else heading).append(str(value))
        elif kind in ("SoftBreak", "HardBreak"):
            (text if heading is None else heading).append(" ")
    blocks = (" ".join(block.split()) for block in "".join(text).split(BREAK))
    prose = BREAK.join(block for block in blocks if block)
    return Document(prose, tuple(headings), tuple(dict.fromkeys(urls)), code, items)


def sentences(text: str) -> list[Sentence]:
    """The sentences of prose, unchanged, without those of one word."""
    parsed, start = [], 0
    for end in [*_SENTENCE_END.finditer(text), None]:
        piece = text[start : end.start() if end else len(text)]
        if len(_WORD.findall(piece)) > 1:
            parsed.append(Sentence(piece.strip(), start + len(piece) - len(piece.lstrip())))
        start = end.end() if end else len(text)
    return parsed


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def slug(name: str) -> str:
    """The form in which wikilinks and note names are compared: `Notes/Spring Tide.md` -> `spring tide`."""
    last = name.strip().rpartition("/")[2]
    stem = re.sub(r"\.(md|markdown)(\.(gz|gzip|zst|zstd))?$", "", last, flags=re.I)
    return " ".join(stem.replace("_", " ").replace("-", " ").casefold().split())


def _tag(value: Any) -> tuple[str, Any]:
    if isinstance(value, dict) and value:
        name, detail = next(iter(value.items()))
        return str(name), detail
    return (value, None) if isinstance(value, str) else ("", None)


@cache
def _parser() -> Any:
    import pyromark  # imported late: declarations do not need it

    on = pyromark.Options
    return pyromark.Markdown(
        options=on.ENABLE_WIKILINKS | on.ENABLE_TABLES | on.ENABLE_TASKLISTS | on.ENABLE_STRIKETHROUGH
    )
