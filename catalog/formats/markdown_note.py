"""Markdown notes: YAML front matter, tags, wikilinks, body. One note is one row, and its text is unchanged."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import yaml  # type: ignore[import-untyped]

from catalog.formats.limits import FileRejected, FormatLimits

NOTE = pa.schema(
    [
        ("path", pa.string()),
        ("title", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("links", pa.list_(pa.string())),
        ("front_matter", pa.string()),
        ("body", pa.string()),
    ]
)
_FRONT = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S | re.M)
_CODE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)|`[^`\n]*`", re.S | re.M)
_TAG = re.compile(r"(?<![\w&/#])#([^\W\d][\w/-]*)")
_LINK = re.compile(r"\[\[([^\[\]|#\n]+)(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_HEADING = re.compile(r"^#[ \t]+(\S.*)$", re.M)
FRONT_MATTER_BYTES = 64 << 10
FRONT_MATTER_NODES = 4000
"""PyYAML takes about 30 microseconds for a node."""
_NUMBER_CHARACTERS = 400
_NUMBER = re.compile(r"[-+.]?[0-9][0-9a-zA-Z_:.+-]*")
# What PyYAML's constructors raise for a tag that its value does not fit: `!!bool x`, `!!int ""`, `!!timestamp x`.
_UNFIT = (ValueError, ArithmeticError, LookupError, AttributeError, TypeError, RecursionError)


def parse_note(text: str, path: str, limits: FormatLimits) -> dict[str, Any]:
    """The note's row. The title is the front matter's, else the first heading, else the file's name."""
    text = text.replace("\r\n", "\n")
    front = _FRONT.match(text)
    if front is None and re.match(r"---[ \t]*\n", text) and re.search(r"\A---[ \t]*\n[\w-]+:", text):
        raise FileRejected("the front matter is opened with --- and never closed: end it with a line ---", line=1)
    properties = _front_matter(front["yaml"], limits) if front else {}
    body = text[front.end() :] if front else text
    prose = _CODE.sub(" ", body)
    title = properties.get("title") or _heading(prose) or path.rpartition("/")[2].partition(".")[0]
    return {
        "path": path,
        "title": str(title),
        "tags": _unique([*_tag_list(properties.get("tags")), *_TAG.findall(prose)]),
        "links": _unique(link.strip() for link in _LINK.findall(prose)),
        "front_matter": _as_json(properties) if properties else None,
        "body": body,
    }


def _heading(prose: str) -> str | None:
    """The text of the first heading, without the closing `#`s. Each character is examined once."""
    heading = _HEADING.search(prose)
    return heading[1].rstrip(" \t").rstrip("#").rstrip(" \t") if heading else None


def _front_matter(text: str, limits: FormatLimits) -> dict[str, Any]:
    if len(text) > FRONT_MATTER_BYTES:
        reason = f"the front matter has {len(text)} characters, over the limit of {FRONT_MATTER_BYTES}"
        raise FileRejected(f"{reason}: move it into the note, or into a file of rows", line=1)
    try:
        _check_front_matter(text, limits)
        properties = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        reason = f"the front matter is not valid YAML: {error.problem}"
        raise FileRejected(reason, line=mark.line + 2 if mark else 1) from None
    except FileRejected:
        raise
    except (yaml.YAMLError, *_UNFIT) as error:
        raise FileRejected(f"the front matter is not valid YAML: {error}", line=1) from None
    if properties is None:
        return {}
    if not isinstance(properties, dict):
        kind = type(properties).__name__
        raise FileRejected(f"the front matter is a {kind}, not a mapping: write lines such as title: Tides", line=1)
    return properties


def _check_front_matter(text: str, limits: FormatLimits) -> None:
    """Bounds what building the values costs, from the events, which hold no values yet."""
    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 2
        if isinstance(event, yaml.AliasEvent):
            # A few lines of aliases can expand to gigabytes.
            raise FileRejected("the front matter has an alias (*name): write the value out", line=line)
        if isinstance(event, yaml.ScalarEvent) and _is_long_number(event):
            # `1:59:59…` is a number with the base 60: its value takes time by the square of its length.
            raise FileRejected(f"a number has more than {_NUMBER_CHARACTERS} characters: write it as text", line=line)
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > FRONT_MATTER_NODES:
            raise FileRejected(f"the front matter has more than {FRONT_MATTER_NODES} values: use fewer", line=line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > limits.depth:
            raise FileRejected(f"the front matter is nested deeper than {limits.depth} levels", line=line)


def _is_long_number(scalar: Any) -> bool:
    is_text = scalar.tag is None and not scalar.implicit[0]
    return not is_text and len(scalar.value) > _NUMBER_CHARACTERS and bool(_NUMBER.fullmatch(scalar.value))


def _as_json(properties: dict[str, Any]) -> str:
    try:
        text = json.dumps(_with_text_keys(properties), ensure_ascii=False, allow_nan=False, default=str)
        text.encode()  # a YAML escape can write half of a surrogate pair, which is no character
        return text
    except (TypeError, ValueError) as error:
        raise FileRejected(f"the front matter cannot be stored as JSON: {error}", line=1) from None


def _with_text_keys(value: Any) -> Any:
    """The value with every key as text: YAML also allows dates, numbers and null as keys."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(inner) for inner in value] if isinstance(value, list) else value


def _tag_list(tags: Any) -> list[str]:
    if isinstance(tags, str):
        tags = [tag for tag in re.split(r"[,\s]+", tags) if tag]
    return [str(tag).removeprefix("#") for tag in tags] if isinstance(tags, list) else []


def _unique(values: Any) -> list[str]:
    return list(dict.fromkeys(values))
