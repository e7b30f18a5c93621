"""Statements that a reader of one table might send to harm the lake: at least two hundred, for either engine.

Each must be answered or refused, and nothing else. None is meant to run for long: tests of deadlines have their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.worlds.hostile_statements import TOO_LARGE

MAX_TEXT = 100_000  # the API's own limit of a statement
_TEXTS = (
    "", " ", ";", ";;", "select", "select 1;select 2", "select '", 'select "', "select `a`", "select 1 --",
    "/* select 1", "/* /* */ select 1", "select 1 /*", "select\0 1", "select '\0'", "\ufeffselect 1",
    "select 1\u202e", "ſelect 1", "select 1 from", "select * from", "select from where", "selct 1", "select (",
    "select )", "select [", "select {", "select $1", "select :x", "select ?", "select $$", "select @@version",
    "select 1 as 1", "select 1 as ''", 'select 1 as ""', "select * from (values)", "select * from (select)", "values",
    "with", "with a as () select 1", "with a as (select 1) select * from b",
    "with recursive a as (select 1) select * from a", "explain", "explain explain", "explain route",
    "explain route select", "explain analyze select 1", "select 1 union select", "select 1 order by 7",
    "select 1 group by 7", "select 1 limit -1", "select 1 limit 'x'", "select 1 limit 1e99", "select 1 offset -1",
    "select 1 limit 99999999999999999999", "select distinct on () 1", "select all", "select 1 where",
    "select 1 having 1", "select 1 window w as ()", "select 1 qualify", "select * exclude (a)", "from", "table x",
    "show", "describe", "use x",
)  # fmt: skip
_VALUES = (
    "1e999", "-1e999", "0x", "0x" + "f" * 40, "1_000", "9" * 40, "-" + "9" * 40, "9223372036854775807 + 1",
    "-9223372036854775808 - 1", "-(-9223372036854775808)", "abs(-9223372036854775808)", "9223372036854775807 * 2",
    "-9223372036854775808 / -1", "1 / 0", "1 % 0", "1.0 / 0", "0.0 / 0", "power(10, 400)", "power(0, -1)", "sqrt(-1)",
    "ln(0)", "log(-1)", "factorial(21)", "acos(2)", "round(1.5, 999999999)", "cast('x' as int)", "cast('' as bigint)",
    "cast('nan' as int)", "cast(1e300 as bigint)", "cast(1e39 as float)", "cast('0000-00-00' as date)",
    "cast('99999-99-99' as timestamp)", "date '2026-02-30'", "timestamp '294277-01-01'", "interval '1' eon",
    "interval '999999999999 years'", "now() + interval '999999 years'", "date '9999-12-31' + 999999999",
    "to_timestamp(1e300)", "to_timestamp(-9223372036854775808)", "extract(nothing from now())",
    "date_trunc('x', now())", "chr(0)", "chr(-1)", "chr(1114112)", "ascii('')", "substring('abc', -5, -5)",
    "substr('abc', 9223372036854775807)", "left('abc', -9223372036854775808)", "lpad('x', -1)", "repeat('ab', -1)",
    "repeat('', 9223372036854775807)", "split_part('a', '', 0)", "translate('a', '', 'b')", "replace('aaa', '', 'x')",
    "overlay('a' placing 'b' from 0)", "'a' like '%' || repeat('_%', 2000)", "'a' like '\\'", "regexp_like('a', '(')",
    "regexp_like('a', '*')", "regexp_like(repeat('a', 40), '(a+)+$b')", "regexp_like('a', 'a{1,100000}{1,100000}')",
    "regexp_replace('a', '(?<n>a)', '${x}')", "[1, 2][99999999999]", "[1, 2][-99999999999]", "[1, 'a']", "[[1], 2]",
    "{'a': 1}.b", "cast('{' as json)", "decode('zz', 'hex')", "encode('a', 'nothing')", "sha256(null)", "random(1)",
    "uuid()", "nothing()", "md5(1)", "sum('x')", "count(*)", "max()", "sum(sum(1))", "row_number()", "lag(1) over ()",
    "ntile(0) over ()", "nth_value(1, 0) over ()",
    "sum(1) over (rows between 9223372036854775807 preceding and current row)", "case when end",
    "case 1 when 'a' then 2 end", "1 in ()", "1 in (select 1, 2)", "exists (1)", "(select 1, 2)",
    "(select 1 union select 2)", "1 = any('x')", "1 between 2", "null::nothing", "cast(1 as decimal(99, 98))",
    "cast(1 as decimal(0, 0))", "cast(1 as varchar(-1))", "x'zz'", "b'2'", "u&'\\d800'", "e'\\x'",
    "'a' collate nothing",
)  # fmt: skip
_ESCAPES = (
    "copy (select 1) to '/tmp/x'", "copy t from '/etc/passwd'", "attach '/tmp/x.db'", "attach 's3://x/y' as z",
    "install httpfs", "load '/tmp/x.so'", "pragma version", "pragma database_list", "set memory_limit = '100GB'",
    "set enable_external_access = true", "reset all", "create table t (a int)", "create view v as select 1",
    "create function f() as 1", "create macro m() as 1", "create secret s (type s3)", "insert into {mine} values (1)",
    "update {mine} set a = 1", "delete from {mine}", "drop table {mine}", "truncate {mine}",
    "alter table {mine} drop a", "merge into {mine} using x on true", "call pragma_version()",
    "export database '/tmp/x'", "import database '/tmp/x'", "begin", "commit", "vacuum", "checkpoint",
    "prepare p as select 1", "execute p", "grant all on t to x", "select * from read_csv('/etc/passwd')",
    "select * from read_csv_auto('/etc/passwd')", "select * from '/etc/passwd'", "select * from \"/etc/passwd\"",
    "select * from read_text('/etc/passwd')", "select * from read_blob('/proc/self/environ')",
    "select * from read_parquet('s3://bucket/x')", "select * from read_json('http://169.254.169.254/')",
    "select * from glob('/*')", "select * from parquet_metadata('/x')", "select * from 'http://localhost/x.csv'",
    "select getenv('AWS_SECRET_ACCESS_KEY')", "select current_setting('s3_secret_access_key')", "select version()",
    "select * from duckdb_settings()", "select * from duckdb_secrets()", "select * from duckdb_tables()",
    "select * from information_schema.tables", "select * from pg_catalog.pg_tables", "select * from sqlite_master",
    "select * from pragma_table_info('x')", "select * from query('select 1')",
    "select * from query_table('{hidden}')", "select * from range(9223372036854775807) limit 1",
    "select * from unnest([1, 2])", "show tables", "show all tables", "select nextval('x')", "select pg_sleep(1)",
    "select sleep(1)", "select * from repeat_row(1, num_rows=5)", "select * from {mine} tablesample (10)",
    "select * from {mine} using sample 10", "select * from {mine} as of 'x'", "select * from {mine} as of -5",
    "select * from {mine} for update", "select * from {mine} pivot (sum(a) for b in (1))",
    "select a, repeat('ab', 3) from {mine}", "select a, repeat('ab', 3)", "select name, repeat('ab', 3)",
    "select * from {mine}, lateral (select 1)", "select x.* from {mine}", "select {mine}.* from {mine} t",
    "select * from lake.{mine}", "select json_serialize_plan('select current_setting(''allowed_paths'')')",
    "select list_transform(['threads'], lambda x: current_setting(x))", "select 'threads'.current_setting()",
    "select to_aggregate_state(1)", "select finalize('x'::blob)", "select __internal_decompress_string(1::ubigint)",
    "select variant_bytes_to_variant('x'::blob)", "select json_serialize_sql('select 1')",
)  # fmt: skip
_HIDDEN = (
    "select * from {hidden}", "select count(*) from {hidden}", "select 1 from {hidden} limit 0",
    'select * from "{hidden}"', "select * from {mine} t, {hidden} h",
    "select * from {mine} where a in (select a from {hidden})", "with h as (select * from {hidden}) select * from h",
    "select (select max(a) from {hidden})", "select * from {mine} union all select * from {hidden}",
    "explain select * from {hidden}", "explain route select * from {hidden}",
    "select exists (select 1 from {hidden})", "from {hidden}", "describe {hidden}", "select * from {hidden} as of 0",
    "select case when false then (select max(a) from {hidden}) end",
    "select * from (select * from (select * from {hidden}) x) y",
    "with {hidden_name} as (select 1) select * from {hidden}", "select * from {HIDDEN}", "table {hidden}",
    "select {hidden}.a from {mine}", "select * from {mine} m where m.{hidden}.a = 1",
)  # fmt: skip
DEADLY = {
    "a long text": "select length(repeat('x', 1500000000))",
    "long texts": "select length(repeat('x', 1000000000)), length(repeat('y', 1000000000))",
}
"""What ends its worker. Few: each costs the next query a start."""


def hostile_queries(mine: str, hidden: str) -> dict[str, str]:
    """Label -> statement. `mine`: the table that the caller may read, of the columns a and b; `hidden`: one that it may
    not. A statement whose label begins with `hidden` must not be answered with rows of that table."""
    names = {"mine": mine, "hidden": hidden, "hidden_name": hidden.partition(".")[2], "HIDDEN": hidden.upper()}

    def fill(sql: str) -> str:
        for name, value in names.items():
            sql = sql.replace(f"{{{name}}}", value)
        return sql

    return dict(_labelled(fill))


def _labelled(fill: object) -> Iterator[tuple[str, str]]:
    assert callable(fill)
    for name, (sql, _) in TOO_LARGE.items():
        if len(sql) <= MAX_TEXT and name != "lone surrogate":
            yield f"large: {name}", sql
    yield from ((f"text {number}: {sql[:30]!r}", sql) for number, sql in enumerate(_TEXTS))
    yield from ((f"value: {value[:60]}", f"select {value}") for value in _VALUES)
    yield from ((f"escape: {sql}", fill(sql)) for sql in _ESCAPES)
    yield from ((f"hidden: {sql}", fill(sql)) for sql in _HIDDEN)
    yield from ((f"deadly: {name}", sql) for name, sql in DEADLY.items())
