"""The row encoding as a Spark SQL expression: the same bytes as encoding.py, with built-in functions only.

Pure text: nothing here imports Spark. An Arrow UDF would give the same bytes too, twenty times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from catalog.changes import tags
from catalog.changes.encoding import field_id
from catalog.errors import Invalid


def spark_expression(schema: pa.Schema) -> str:
    """SQL that gives the row's encoding (BINARY) from columns with the schema's names; ids are the schema's.

    Independent of the session's time zone and of ANSI mode. Raises Invalid for types Spark has not: time of
    day and nanosecond timestamps.
    """
    entry, payload = _struct([(field, _quoted(field.name)) for field in schema], 0)
    return f"unhex(concat('00000000', {entry}, {payload}))"


def spark_digest(schema: pa.Schema) -> str:
    """SQL that gives the row's digest (BINARY, 32 bytes)."""
    return f"unhex(sha2({spark_expression(schema)}, 256))"


# Everything below makes hex text, and one `unhex` around the whole row makes it bytes: Spark can only join
# arrays of text, sorts text as it would its bytes, and concatenates text as quickly. A lambda's variable is
# named by its depth.


def _item(field: pa.Field[Any], sql: str, depth: int) -> str:
    """A value as it stands in a list: tag, slot and payload, or nine zeros for NULL."""
    entry, payload = _parts(field, sql, depth)
    return f"coalesce({f'concat({entry}, {payload})' if payload else entry}, '{'00' * 9}')"


def _struct(columns: Sequence[tuple[pa.Field[Any], str]], depth: int) -> tuple[str, str]:
    """Tag and count, then directory and payloads, of a struct (or row) that is not NULL."""
    entries, payloads = list[str](), list[str]()
    for field, sql in sorted(columns, key=lambda column: field_id(column[0])):
        entry, payload = _parts(field, sql, depth)
        entries.append(f"coalesce(concat('{field_id(field):08X}', {entry}), '')")
        payloads += [f"coalesce({payload}, '')"] if payload else []
    count = " + ".join(f"int({sql} IS NOT NULL)" for _, sql in columns)
    return _entry(tags.STRUCT, _number(count)), f"concat({', '.join([*entries, *payloads])})"


def _parts(field: pa.Field[Any], sql: str, depth: int) -> tuple[str, str]:
    """The value's tag and slot, and its payload ('' when its type has none). Each is NULL where the value is."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):  # uuid, which Iceberg gives to Spark as text
        return _unless_null(sql, _entry(tags.BYTES, f"'{16:016X}'")), f"upper(replace({sql}, '-', ''))"
    if scalar := tags.scalar(kind):
        return _entry(scalar.tag, _slot(scalar.tag, sql, field)), ""
    if pa.types.is_decimal(kind):
        digits = _unscaled(sql)
        return _entry(tags.DECIMAL, f"'{kind.scale:08X}', {_number(f'length({digits})', 8)}"), f"hex({digits})"
    if tags.is_text(kind) or tags.is_bytes(kind):
        tag = tags.STRING if tags.is_text(kind) else tags.BYTES
        return _entry(tag, _number(f"octet_length({sql})")), f"hex({sql})"
    if pa.types.is_struct(kind):
        children = [(child, f"{sql}.{_quoted(child.name)}") for child in kind]
        entry, payload = _struct(children, depth)
        return _unless_null(sql, entry), _unless_null(sql, payload)
    if pa.types.is_map(kind):
        key, item = (f"e{depth}.{name}" for name in ("key", "value"))
        pair = f"concat({_item(kind.key_field, key, depth + 1)}, {_item(kind.item_field, item, depth + 1)})"
        pairs = f"array_sort(transform(map_entries({sql}), e{depth} -> {pair}))"
        return _entry(tags.MAP, _number(f"array_size(map_keys({sql}))")), f"array_join({pairs}, '')"
    if tags.is_list(kind):
        items = f"transform({sql}, x{depth} -> {_item(kind.value_field, f'x{depth}', depth + 1)})"
        return _entry(tags.LIST, _number(f"array_size({sql})")), f"array_join({items}, '')"
    raise Invalid(f"column {field.name!r} has the type {kind}, which Spark cannot digest")


def _slot(tag: int, sql: str, field: pa.Field[Any]) -> str:
    if tag == tags.BOOLEAN:
        return _number(f"int({sql})")
    if tag == tags.INTEGER:
        return _number(f"bigint({sql})")
    if tag == tags.FLOATING:
        return _floating(f"double({sql})")
    if tag == tags.DATE:
        return _number(f"bigint(unix_date({sql}))")
    if tag == tags.TIMESTAMP_ZONED:
        return _number(f"unix_micros({sql})")
    if tag == tags.TIMESTAMP:  # unix_micros would first read it in the session's zone
        days, second = f"bigint(unix_date(to_date({sql})))", f"bigint(extract(SECOND FROM {sql}) * 1000000)"
        return _number(f"{days} * 86400000000 + (hour({sql}) * 60 + minute({sql})) * 60000000L + {second}")
    raise Invalid(f"column {field.name!r} has the type {field.type}, which Spark has not")


def _floating(sql: str) -> str:
    """The IEEE 754 bits, rebuilt from C99 hex text `0x1.<13 digits>p<exponent>`: Spark has no function for them."""
    text = f"format_string('%.13a', abs({sql}))"
    exponent = f"if(substr({text}, 3, 1) = '1', int(substr({text}, 19)) + 1023, 0)"
    sign = f"if(string({sql}) LIKE '-%', 2048, 0)"  # also of -0.0, which is not below zero
    finite = f"concat(lpad(hex(bigint({exponent} + {sign})), 3, '0'), upper(substr({text}, 5, 13)))"
    return _unless_null(
        sql,
        f"CASE WHEN isnan({sql}) THEN '7FF8000000000000' "
        f"WHEN {sql} = double('Infinity') THEN '7FF0000000000000' "
        f"WHEN {sql} = double('-Infinity') THEN 'FFF0000000000000' ELSE {finite} END",
    )


def _unscaled(sql: str) -> str:
    """The digits of a decimal without its point. Small ones may print as `1.2E-8`, depending on the ANSI mode."""
    digits = f"ltrim('0', replace(split_part(string(abs({sql})), 'E', 1), '.', ''))"
    return f"concat(if({sql} < 0, '-', ''), if({sql} = 0, '0', {digits}))"


def _number(sql: str, width: int = 16) -> str:
    """Big-endian hex, in two's complement when negative."""
    return f"lpad(hex({sql}), {width}, '0')"


def _entry(tag: int, slot: str) -> str:
    return f"concat('{tag:02X}', {slot})"


def _unless_null(sql: str, then: str) -> str:
    return f"if({sql} IS NULL, NULL, {then})"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
