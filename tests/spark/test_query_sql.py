"""The same SQL on Spark and in DuckDB gives the same rows: TPC-H, random statements, and every trap once met."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.tpch import QUERIES, TABLES, generate
from catalog.core.errors import Conflict, Invalid, NotFound, Unverified
from catalog.core.settings import Settings
from catalog.lake import Lake
from catalog.query.run.queries import AccessRules, Queries
from catalog.query.spark.query_record import QueryRecord, QueryRecords, query_prefix
from catalog.query.spark.spark_queries import SparkQueries
from infra.local.endpoint import Endpoint
from spark_jobs.job import Outcome, execute
from spark_jobs.query import JOB, _sliced, collect
from tests.spark.lakes import open_with
from tests.worlds.query import assert_same, rows_of
from tests.worlds.query_grammar import Grammar
from tests.worlds.query_tables import make_tables

pytestmark = pytest.mark.xdist_group("spark")

TPCH = (1, 8, 13, 22)
"""Those with arithmetic, dates, outer joins and text; all 22 were compared once, and cost a minute."""

TIDES = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int32(),
        "metres": pa.float64(),
        "price": pa.decimal128(10, 2),
        "station": pa.string(),
        "Sea": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "seen": pa.timestamp("us", "UTC"),
        "high": pa.bool_(),
        "marks": pa.list_(pa.int64()),
    }
)


def tide(id: int, **more: Any) -> dict[str, Any]:
    at = datetime(2026, 1 + id % 3, 28 + id % 3 if id % 3 != 1 else 28, 10 + id, 4 * id, 7, 250_000)
    base = {
        "id": id,
        "n": id - 4,
        "metres": id / 3 - 1,
        "price": Decimal(id) * Decimal("1.25"),
        "station": ["Brest", "Newlyn", "Åland", "O'Hara\\x"][id % 4],
        "Sea": "North",
        "day": at.date(),
        "at": at,
        "seen": at.replace(tzinfo=UTC),
        "high": id % 2 == 0,
        "marks": list(range(id % 4)),
    }
    return {**base, **more}


ROWS = [
    *(tide(number) for number in range(10)),
    tide(
        10, n=None, metres=None, price=None, station=None, Sea=None, day=None, at=None, seen=None, high=None, marks=None
    ),
    tide(11, metres=float("nan"), station="", marks=[7, 8, 9]),
    tide(12, metres=float("inf"), day=date(2024, 2, 29)),
]

# Statements that say the order of their rows, and those that do not.
ORDERED = (
    "select id, n / 3, -n / 2, id / 2 * 2, (n + 7) / (id + 1) from q.t order by id",
    "select id, metres / 2, metres / n, n / metres, 1.0 / (id - 3) from q.t where id <> 4 or n <> 0 order by id",
    "select sum(n) / count(n), avg(n), sum(id) / 7, avg(price), sum(price), max(n) / 2 from q.t",
    "select id, n % 3, -n % 4, abs(n), n * 100000000, id // 3, -id // 2 from q.t order by id",
    "select id, n / 0, metres / 0, id / (n - n), 1 / metres from q.t order by id",
    "select sum(big), avg(big), sum(n) * 2 from (select 9223372036854775807 as big, n from q.t)",
    "select 2147483647 + id as a, 7 / 2 as b, 7 / 2.0 as c, 0.1 + 0.2 as d, 1e3 as e,"
    " -5 / 2 as f, 9000000000 / 7 as g, 2 ^ 3 as h from q.t order by id",
    "select n, metres from q.t order by n, id",
    "select n, metres from q.t order by n desc, id limit 4",
    "select id from q.t order by metres desc, id",
    "select id from q.t order by metres asc nulls first, id limit 5 offset 2",
    "select count(*) from q.t where \"at\" >= timestamp '2026-02-01 00:00:00' and seen < timestamptz '2026-03-01'",
    "select count(*) from q.t where day between '2026-01-15' and date '2026-03-02'",
    "select * from q.t where id in (1, 3, 5) order by id desc",
    "select bool_and(high), bool_or(high), stddev(n), var_pop(n), corr(n, id), count(distinct station) from q.t",
    "select max(metres), min(id) from q.t",
    "select high, station, count(*) as c from q.t group by rollup (high, station) order by c desc, 1, 2 limit 5",
    "select high, count(*) as c from q.t where id < 0 group by rollup (high) order by 2, high limit 3",
)
UNORDERED = (
    "select distinct t.station, high from q.t t order by t.station, high",
    "select distinct n as m, -n from q.t order by -n, 1",
    "select distinct(t.station) from q.t t order by t.station",
    "select high, station, grouping(high), grouping(station, high) as g, sum(n) from q.t"
    " group by rollup (high, station) order by g, case when g = 0 then station end, high, 1",
    "select high, grouping(high), count(*) from q.t where id < 0 group by cube (high)",
    "select id, '${env:PATH}' as a, station || '${spark.app.name}' /* ${system:user.dir} */ from q.t",
    "select id, row_number() over (order by metres desc, id), sum(n) over (partition by high order by id) from q.t",
    "select id, lag(n, 2) over (order by id), first_value(station) over (partition by high order by id) from q.t",
    "select id, avg(metres) over (order by id rows between 2 preceding and 1 following) from q.t where id < 9",
    "select id, ntile(3) over (order by id), rank() over (order by high), dense_rank() over (order by high) from q.t",
    "select id, day + interval '1' month, day - interval '90' day, day + interval '1 year 2 months' from q.t",
    "select id, day + 3, day - 1, day - date '2026-01-01', \"at\" + interval '90 minutes' from q.t",
    "select id, extract(year from day), extract(dow from day), extract(week from day), extract(doy from day),"
    ' extract(second from "at"), date_part(\'hour\', "at"), extract(quarter from seen) from q.t',
    "select id, date_trunc('month', day), date_trunc('week', \"at\"), date_trunc('hour', seen) from q.t",
    "select id, concat(station, '-', \"Sea\"), station || '!', concat_ws('/', station, \"Sea\", 'x') from q.t",
    "select id, substring(station from 2 for 2), substr(station, 3), substr(station, id + 1) from q.t",
    "select id, left(station, 2), left(station, -2), right(station, 2), right(station, -1), left(station, n) from q.t",
    "select id, upper(station), lower(station), length(station), trim(both 'B' from station),"
    " reverse(station), repeat(station, 2), replace(station, 'e', 'EE'), strpos(station, 'e'),"
    " split_part(station, 'e', 2), lpad(station, 8, '*-'), rpad(station, 3, ' ') from q.t",
    "select id from q.t where station like '%e%' or station ilike 'å%' or station = 'O''Hara\\x'",
    "select id, station ~ '^\\w+$', station !~ 'e', starts_with(station, 'B') from q.t",
    "select id, cast(n as text), cast(day as varchar), cast(high as text), cast(price as text), n || '' from q.t",
    "select id, cast(metres as bigint), cast(metres * 1.5 as int), cast(price as int),"
    " cast(price / 2 as bigint), cast('2026-02-03' as date), cast('12' as int) from"
    " q.t where id < 10",
    "select case when n > 0 then 'up' when n = 0 then 'level' end, count(*), count(metres) from q.t group by 1",
    "select coalesce(n, -1), nullif(n, 2), greatest(n, 1, 3), least(n, 1), n is distinct from 2 from q.t",
    "select id, round(metres), round(metres, 1), floor(metres), ceil(metres), ceil(metres) / 2, round(n) / 2,"
    " sqrt(abs(n)), power(n, 2), exp(n), ln(n) from q.t where id < 10",
    "select id, marks[1], marks[5], array_length(marks) from q.t",
    "select id, unnest(marks) from q.t",
    "select u.v / 2 from unnest([1, 2, 3]) as u(v)",
    'select id, "Sea" as "sea ", Station as STATION, q.t.n from q.t where q.t.id > 3',
    "select * from (select id, n from q.t) a left join (select id + 5 as id, high from q.t) b using (id)",
    "select id from q.t where n not in (select n from q.t where n > 2) union all select n from q.t",
    "select station from q.t except select station from q.t where id > 5",
    "select high, station, count(*) from q.t group by rollup (high, station)",
    "select high, count(*) filter (where n > 0), sum(n) filter (where n > 100), string_agg(station, ',' order"
    " by id) from q.t where station <> '' group by high",
    "with recursive c as (select 1 as i union all select i + 1 from c where i < 20) select i, i / 3 from c",
    "with late as (select * from q.t where id > 5) select a.id, (select max(b.n) from late b where b.high ="
    " a.high) from late a where exists (select 1 from q.t t where t.id = a.id - 1)",
    "select v.a / 2, v.b from (values (1, 'x'), (3, null)) v(a, b)",
    # The joined column where the left side has it; of the left side.
    "select * from (select high, id from q.t) a left join (select n, id + 5 as id, station from q.t) b using (id)",
    "select *, 1 as one from (select n, high, id from q.t) a join (select station, id from q.t) b using (id)",
    "select * from (select id, n from q.t) b join (select id, high from q.t) a using (id)",
    "select * from (select n, id from q.t) b left join (select high, id + 5 as id from q.t) a using (id)",
    "select * from q.t b natural join (select id from q.t) a",
    "select * from (select n, id from q.t) a full join (select high, id + 5 as id from q.t) b using (id)",
    "select id from q.t where price / 3 > 0.4",
    "select * from (select n, high, id from q.t) a natural left join (select high, id + 1 as id, day from q.t) b",
    "select id, a.n, b.n from q.t a left join q.t b using (id) where a.high",
    # Grand totals are there over no rows, too.
    "select high, count(*), sum(n), max(station) from q.t where id < 0 group by rollup (high)",
    "select high, station, count(*) from q.t where id < 0 group by cube (high, station)",
    "select high, count(*) from q.t where id < 0 group by grouping sets ((), (high), ()) having count(*) < 9",
    "select high, n + 1, count(*) from q.t where id < 0 group by rollup (high, n + 1)",
    "select not high, n is distinct from 1, count(*) from q.t where id < 0 group by rollup (high, n)",
    "select high, station, count(*) from q.t where id < 0 group by high, rollup (station)",
    "select a.high, b.c from q.t a left join (select count(*) as c from q.t where id < 0 group by cube (high)) b"
    " on true",
    "with g as (select count(*) as c from q.t where id < 0 group by rollup (high)) select c from g union all select 7",
    "select id, \"at\" at time zone 'UTC', seen at time zone 'UTC' from q.t",
    "select x ~ 'a$', x ~ 'a.b', x ~ '^[^a]\\w{1,2}$', x ~ '(?i)É' from"
    " (values (E'a\n'), (E'a\rb'), ('a b'), ('bé'), ('é')) v(x)",
    "select id, substr(station, 2, n) from q.t where n >= 0",
)

# What is not the same there is refused before anything starts; the reason says what.
REFUSED = {
    "select metres::text from q.t": "text from double",
    'select cast("at" as text) from q.t': "text from timestamp",
    "select station || metres from q.t": "text from double",
    "select regexp_replace(station, 'e', 'i') from q.t": "regexp_replace",
    "select array_agg(n) from q.t": "array_agg",
    "select median(n) from q.t": "median",
    "select random() from q.t": "rand",
    'select "at" - seen from q.t': "interval",
    "select 1 from q.t where \"at\" - timestamp '2026-01-01' > interval '1 day'": "difference of two times",
    "select distinct on (high) high, id from q.t order by high, id desc": "DISTINCT ON",
    "select day + interval '1 hour' from q.t": "less than a day",
    "select 1 from q.t where station = 5": "text with a number",
    "select id from q.t where n = any(select n from q.t)": "ANY",
    "select unnest(marks) / 2 from q.t": "unnest",
    "select i from range(3) r(i)": "not supported in FROM",
    'select extract(epoch from "at") from q.t': "epoch",
    "select count(*) from (q.t a cross join q.t b)": "parentheses",
    "select id, \"at\" at time zone 'Europe/Paris' from q.t": "AT TIME ZONE",
    "select date_trunc('day', seen at time zone 'Asia/Tokyo') from q.t": "AT TIME ZONE",
    "select timestamp '2026-01-01 00:00:00+05'": "offset",
    "select id from q.t where \"at\" > '2026-01-01 00:00:00+05'": "offset",
    "select cast(station as date) from q.t": "offset",
    "select cast(station as timestamp) from q.t": "offset",
    "select sum(n) from q.t group by rollup (high) order by max(station)": "ORDER BY",
    "select station similar to '%e%' from q.t": "SIMILAR TO",
    "select station ~ '[[:alpha:]]' from q.t": "regular expression",
    "select station ~ '\\pL' from q.t": "regular expression",
    "select replace(station, '', 'x') from q.t": "replace",
    "select replace(station, \"Sea\", 'x') from q.t": "replace",
    "select substr(station, 2, -1) from q.t": "negative",
    "select marks[id] from q.t": "array",
    "select marks[0] from q.t": "array",
    "select (price / 3)::text from q.t": "text from double",
    "select substr(station, 0, 3) from q.t": "below 1",
    "select substr(station, -1) from q.t": "below 1",
    "select price // 2 from q.t": "whole numbers",
    "select interval '1 day' = interval '24 hours'": "interval",
}


@pytest.fixture(scope="module")
def lake(endpoint: Endpoint, settings: Settings) -> Iterator[Lake]:
    with pytest.MonkeyPatch.context() as patch:
        made = open_with(endpoint, settings, patch)
        made.tables.create("q.t", TIDES)
        made.tables.insert("q.t", pa.Table.from_pylist(ROWS, schema=TIDES))
        yield made


@pytest.fixture(scope="module")
def tpch(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder: Path = tmp_path_factory.mktemp("tpch")
    generate(folder, 0.001)
    for name in TABLES:
        rows = pq.read_table(folder / f"{name}.parquet")
        lake.tables.create(f"tpch.{name}", rows.schema)
        lake.tables.insert(f"tpch.{name}", rows)
    return lake


def compare(
    lake: Lake, spark: SparkSession, sql: str, *, ordered: bool, queries: Queries | None = None, **given: Any
) -> None:
    ours = queries or lake.queries
    asked = ours.translated(sql, **given)
    theirs = rows_of(collect(spark, asked))
    assert_same(theirs, rows_of(ours.run(sql, **given)), ordered=ordered, note=f"{sql}\n  as {asked.sql}")


@pytest.mark.parametrize("number", range(len(ORDERED) + len(UNORDERED)))
def test_a_trap_between_the_dialects(lake: Lake, spark: SparkSession, number: int) -> None:
    sql = (*ORDERED, *UNORDERED)[number]
    compare(lake, spark, sql, ordered=sql in ORDERED)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_would_differ_is_refused_with_the_reason(lake: Lake, number: int) -> None:
    sql, reason = list(REFUSED.items())[number]
    with pytest.raises(Invalid, match=f"(?i)cannot run on Spark.*{reason}"):
        lake.queries.translated(sql)


def test_a_negative_length_counts_backwards_here_and_fails_on_spark(lake: Lake, spark: SparkSession) -> None:
    sql = "select substr(station, 2, n) from q.t"
    with pytest.raises(Exception, match="negative"):
        collect(spark, lake.queries.translated(sql))


@pytest.mark.parametrize("number", TPCH)
def test_tpch(tpch: Lake, spark: SparkSession, number: int) -> None:
    compare(tpch, spark, QUERIES[number], ordered=False)


@pytest.fixture(scope="module")
def evolved(lake: Lake) -> Lake:
    make_tables(lake)
    return lake


@pytest.mark.parametrize("seed", range(4))
def test_random_statements_give_the_same_rows(evolved: Lake, spark: SparkSession, seed: int) -> None:
    grammar = Grammar(random.Random(f"spark {seed}"))
    for _ in range(10):
        sql, ordered = grammar.statement()
        compare(evolved, spark, sql, ordered=ordered)


@pytest.mark.parametrize("values", ["'eu', 'tide'", "null, 'us'", ", ".join(f"'{n}'" for n in range(99))])
def test_a_partition_without_a_value_is_planned_where_a_list_of_texts_is_asked_for(
    evolved: Lake, spark: SparkSession, values: str
) -> None:
    sql = f"select id from qa.t where region in ({values}) or not (flag and region in ({values}))"
    compare(evolved, spark, sql, ordered=False)


def test_parameters_are_values_whatever_they_hold(lake: Lake, spark: SparkSession) -> None:
    nasty = "O'Hara\\x"
    sql = "select id, $name as name, $n / 2, $x * 2, $none is null from q.t where station = $name and id < $n"
    given = {"name": nasty, "n": 9, "x": 0.1, "none": None}
    compare(lake, spark, sql, ordered=False, parameters=given)
    assert lake.queries.translated(sql, parameters={**given, "name": "'; drop table q.t --"}).sql.count(";") == 2
    compare(lake, spark, "select id from q.t where id > $1 and day < $2", ordered=False, parameters=[3, "2026-02-01"])


def test_masks_and_row_filters_come_before_spark_sees_anything(lake: Lake, spark: SparkSession) -> None:
    rules = AccessRules("n // 2 > 0", {"metres": None, "station": "upper(station)"})
    queries = Queries(lake.tables, lambda: lake.timeline, lake.attestations, rules=lambda caller, table: rules)
    sql = "select * from q.t a where exists (select 1 from q.t b where b.id = a.id + 1)"
    compare(lake, spark, sql, ordered=False, queries=queries)
    assert "metres" not in queries.translated(sql).schema.names


def test_a_snapshot_is_read_under_the_schema_of_its_moment(lake: Lake, spark: SparkSession) -> None:
    lake.tables.create("q.moved", {"id": "long", "old": "int", "gone": "string"})
    first = lake.tables.insert("q.moved", [{"id": 1, "old": 7, "gone": "x"}]).snapshot_id
    lake.tables.insert("q.moved", [{"id": 2, "old": 8, "gone": "y"}])
    lake.tables.alter("q.moved", rename={"old": "new"}, drop=["gone"], promote={"old": "long"})
    lake.tables.alter("q.moved", add={"gone": "double"})
    compare(lake, spark, "select id, new / 2, gone from q.moved", ordered=False)
    compare(lake, spark, f"select * from q.moved VERSION AS OF 'snapshot:{first}'", ordered=False)
    lake.tables.create("q.empty", {"id": "long", "day": "date"})
    compare(lake, spark, "select count(*), max(day) from q.empty", ordered=True)


class Nowhere:
    """No run is ever asked for: all there is to know lies on S3."""

    def __call__(self) -> Any:
        raise AssertionError("nobody should look for a run")


def kept(lake: Lake, sql: str, **given: Any) -> tuple[QueryRecord, QueryRecords]:
    asked = lake.queries.translated(sql, **given)
    place = QueryRecords(lake.s3, lake.settings.bucket, asked.id)
    assert place.create(asked)
    return asked, place


def run_job(lake: Lake, spark: SparkSession, asked: QueryRecord) -> Outcome:
    return execute(JOB, JOB.arguments(query_id=asked.id, run_id=asked.id), spark, lake)


def test_the_job_writes_parts_and_then_says_so(lake: Lake, spark: SparkSession) -> None:
    asked, place = kept(lake, "select a.id, b.id, b.station from q.t a cross join q.t b order by a.id desc, b.id")
    outcome = run_job(lake, spark, asked)
    assert outcome.error is None, outcome.error
    assert outcome.report["result"]["rows"] == len(ROWS) ** 2 and outcome.report["result"]["read_bytes"] > 0
    submitted = SparkQueries(lake.s3, lake.settings.bucket, Nowhere())
    page = submitted.page(asked.id, 0, None)
    assert page.rows.column_names == ["id", "id", "station"] and page.next is None
    assert page.rows.column(0).to_pylist() == [one for one in reversed(range(13)) for _ in range(13)]
    assert submitted.status(asked.id, None).status == "done"
    before = place.result()
    assert run_job(lake, spark, asked).error is None and place.result() == before, "run again it does nothing"
    spelled = "SELECT  a.id, b.id, b.station FROM q.t a CROSS JOIN q.t b ORDER BY a.id DESC, b.id"
    (seen,) = lake.queries.explain(spelled).seen
    assert seen.startswith("seen     1 x on spark")
    part = before["parts"][0]["key"] if before else ""
    lake.s3.put_object(Bucket=lake.settings.bucket, Key=part, Body=b"PAR1")
    with pytest.raises(Unverified, match=part):
        submitted.page(asked.id, 0, None)


def test_what_fails_on_spark_leaves_its_reason_and_no_rows(lake: Lake, spark: SparkSession) -> None:
    asked, place = kept(lake, "select id // (n - n) from q.t where n is not null")
    assert isinstance(run_job(lake, spark, asked).error, Invalid)
    assert place.result() is None
    submitted = SparkQueries(lake.s3, lake.settings.bucket, Nowhere())
    assert submitted.status(asked.id, None).status == "failed"
    with pytest.raises(Invalid, match="DIVIDE_BY_ZERO"):
        submitted.page(asked.id, 0, None)


def test_a_cancelled_query_leaves_nothing(lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, place = kept(lake, "select id from q.t")
    answers = iter([False, True])  # cancelled while it ran
    monkeypatch.setattr(QueryRecords, "cancelled", lambda self: next(answers, True))
    assert isinstance(run_job(lake, spark, asked).error, Conflict)
    listed = lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=query_prefix(asked.id))["Contents"]
    assert [one["Key"].rpartition("/")[2] for one in listed] == ["query.json"]
    with pytest.raises(NotFound, match="cancelled"):
        SparkQueries(lake.s3, lake.settings.bucket, Nowhere()).page(asked.id, 0, None)
    assert place.id == asked.id


def test_large_answers_are_cut_into_parts_of_their_order() -> None:
    schema = pa.schema({"n": pa.int64(), "text": pa.string()})
    rows = pa.table({"n": range(200_000), "text": ["x" * 60] * 200_000}, schema=schema)
    parts = list(_sliced(schema, rows.to_batches(max_chunksize=30_000)))
    assert max(part.num_rows for part in parts) <= 65_536 and max(part.nbytes for part in parts) < 6 << 20
    assert pa.concat_tables(parts).equals(rows)
