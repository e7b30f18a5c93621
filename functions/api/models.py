"""The bodies of requests and responses. Snapshot ids are text: JSON numbers are exact only below 2**53."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from catalog.formats import CsvOptions

NAME = r"^[a-z0-9_]{1,128}\.[a-z0-9_]{1,128}$"
WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
TableName = Annotated[str, Field(pattern=NAME, description="`<database>.<table>`", examples=["bronze.tides"])]
ColumnName = Annotated[str, Field(min_length=1, max_length=256)]
Term = Annotated[str, Field(min_length=1, max_length=512)]
Mode = Literal["cow", "mor", "hybrid"]


class In(BaseModel):
    """The body of a request: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Out(BaseModel):
    model_config = ConfigDict(frozen=True)


class TableIn(In):
    name: TableName
    columns: Annotated[
        dict[ColumnName, Term], Field(min_length=1, max_length=2000, description="name -> Iceberg type, in order")
    ]
    mode: Mode = "cow"
    key: list[ColumnName] = Field(default=[], max_length=64, description="columns that identify a row, for upsert")
    partition: list[Term] = Field(default=[], max_length=64, description="`region`, `day(ts)`, `bucket(16, id)`")
    sort: list[Term] = Field(default=[], max_length=64, description="`ts desc`")


class TableChange(In):
    """Applied as a whole or not at all: first drops, then renames, promotions and additions."""

    add: dict[ColumnName, Term] = Field(default={}, max_length=1000)
    drop: list[ColumnName] = Field(default=[], max_length=1000)
    rename: dict[ColumnName, ColumnName] = Field(default={}, max_length=1000)
    promote: dict[ColumnName, Term] = Field(default={}, max_length=1000)
    partition: list[Term] | None = None
    sort: list[Term] | None = None
    key: list[ColumnName] | None = None
    mode: Mode | None = None


class TableList(Out):
    tables: list[str]
    next: str | None = None


class ColumnOut(Out):
    name: str
    type: str
    required: bool
    doc: str | None = None
    low: Any = None
    high: Any = None
    nulls: int | None = None


class TableOut(Out):
    name: str
    uuid: str
    mode: str
    key: list[str]
    partition: list[str]
    sort: list[str]
    rows: int
    files: int
    bytes: int
    pending_deletes: int
    snapshots: int
    snapshot_id: str | None = None
    committed_ms: int | None = None
    needs_compaction: str | None = None
    schema_version: int
    columns: list[ColumnOut]
    snapshot_names: dict[str, str] = Field(description="name -> snapshot id")


class SchemaOut(Out):
    table: str
    version: int
    columns: list[ColumnOut]


class RowsIn(In):
    rows: list[dict[str, Any]] = Field(max_length=100_000)


class DeleteIn(In):
    """Either a filter or keys."""

    where: str | None = Field(default=None, min_length=1, max_length=10_000, examples=["metres > 5"])
    keys: list[dict[str, Any]] | None = Field(default=None, max_length=100_000)


class ErasureIn(In):
    """Either a filter or keys."""

    where: str | None = Field(default=None, min_length=1, max_length=10_000, examples=["email = 'ada@example.org'"])
    keys: list[dict[str, Any]] | None = Field(default=None, max_length=1000, examples=[[{"id": 17}]])
    reason: str = Field(min_length=1, max_length=1000, description="it stays in the timeline: no personal data")
    accept_guessable: bool = Field(
        default=False, description="also erase rows without a salt, whose digests can be guessed"
    )


class ErasureOut(Out):
    id: str
    table: str
    reason: str
    requested_by: str
    state: Literal["requested", "complete", "refused"]
    error: str | None = Field(default=None, description="why it was refused")
    index: int | None = Field(default=None, description="of the `erase` leaf; null if no row was found")
    rows: int = Field(description="versions of rows, in all files")
    unsalted: int = Field(description="of these, how many had no salt")
    vectors: list[str] = Field(description="vector tables that were removed; `remains` says how to make them again")
    remains: list[str] = Field(description="places that may still hold the rows, with what to do")


class ReceiptOut(Out):
    table: str
    snapshot_id: str | None = None
    sequence: int
    rows: int
    matched: int
    replayed: bool = Field(description="an earlier request with this Idempotency-Key wrote the rows")
    mode: str
    reason: str


class RowsOut(Out):
    columns: list[str]
    rows: list[dict[str, Any]]
    more: bool = Field(description="there are rows beyond the limit, or on the next page")
    next: str | None = Field(default=None, description="the token of the next page, for a query that became a job")
    receipt: dict[str, Any] | None = Field(default=None, description="what the result of a query was computed from")


class Elsewhere(Out):
    """The result is too large for one response: download it from `url`, which needs no token, before it expires."""

    url: str
    media_type: str
    bytes: int
    expires_in_s: int


class CommitOut(Out):
    """A leaf of the timeline. `entry` is exactly what was hashed into the tree."""

    index: int
    table: str
    table_uuid: str
    snapshot_id: str | None = None
    parent_id: str | None = None
    sequence: int
    committed_ms: int
    sequenced_ms: int
    operation: str
    ref: str | None = None
    entry: str


class CommitList(Out):
    commits: list[CommitOut]
    next: str | None = None


class SnapshotIn(In):
    """Names a snapshot of one table; without a table, a cut of the whole lake: an index of the timeline."""

    name: str = Field(pattern=WORD)
    table: TableName | None = None
    snapshot_id: str | None = Field(default=None, pattern=r"^-?[0-9]{1,19}$", description="default: the current one")
    index: int | None = Field(default=None, ge=0, lt=2**63, description="default: the newest published")


class SnapshotOut(Out):
    name: str
    table: str | None = None
    snapshot_id: str | None = None
    index: int | None = None


class SnapshotList(Out):
    snapshots: list[SnapshotOut]
    next: str | None = None


class ConsistencyOut(Out):
    """Proves that the timeline of `new` extends that of `old`: both checkpoints, and the RFC 6962 consistency proof."""

    old_size: int
    new_size: int
    old_checkpoint: str
    new_checkpoint: str
    hashes: list[str] = Field(description="base64")


class ChangeList(Out):
    """Change sets: each has a head with its evidence, and its changes."""

    change_sets: list[ChangeSetOut]
    next: str | None = None


class ChangeSetOut(Out):
    head: dict[str, Any]
    changes: list[dict[str, Any]]


class MarkIn(In):
    """The watermark moves if it is at `expected`; read it afterwards to learn whether it did."""

    sequence: int = Field(ge=0, lt=2**63, description="the last of the table's leaves that was processed")
    expected: int | None = Field(default=None, ge=0, lt=2**63, description="the current watermark; null: none yet")
    holder: str = Field(default="api", pattern=r"^[0-9A-Za-z-]{1,40}$", description="distinguishes your runs")


class MarkOut(Out):
    """No sequence: the consumer has not begun."""

    consumer: str
    table: str
    sequence: int | None = None
    holder: str | None = None


class UploadIn(In):
    table: TableName
    name: str = Field(min_length=1, max_length=512, description="the file's name; its suffix is its format")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="the file's SHA-256 in hex: S3 rejects other bytes")


class UploadOut(Out):
    """PUT the file to `url` with these headers; then GET /ingest/{sha256} for its status."""

    url: str
    key: str
    headers: dict[str, str]
    expires_in_s: int


class IngestedFile(Out):
    """One file with these bytes. `landing`: not ingested yet. `committed`: its rows are in the table. `duplicate`: they
    were there before. `quarantined`: rejected for `reason`. `failed`: the lake failed for `reason`, and tries again."""

    status: Literal["landing", "committed", "duplicate", "empty", "quarantined", "failed"]
    key: str
    table: str | None = None
    rows: int | None = None
    snapshot_id: str | None = None
    index: int | None = Field(default=None, description="the timeline index of its commit, once that is sequenced")
    duplicate_of: str | None = None
    reason: str | None = None
    position: dict[str, int | str] | None = None
    report: str | None = None


class IngestOut(Out):
    """`status` is that of the first file; `unknown`: no such file was sent to a table that you may read."""

    sha256: str
    status: Literal["landing", "committed", "duplicate", "empty", "quarantined", "failed", "unknown"]
    files: list[IngestedFile]


class RuleIn(In):
    """How files become rows of a table; without columns, they are inferred from the first files."""

    columns: dict[ColumnName, Term] | None = Field(
        default=None, min_length=1, max_length=1000, description="name -> Iceberg type", examples=[{"id": "long"}]
    )
    key: list[ColumnName] = Field(default=[], max_length=64, description="rows replace the rows with the same key")
    mode: Mode = Field(default="cow", description="the write mode of a table that is created for this rule")
    unknown: Literal["reject", "ignore", "evolve"] = Field(
        default="reject", description="for columns that the table does not have"
    )
    csv: CsvOptions = Field(default=CsvOptions(), description="how CSV files are written, where it cannot be detected")


class RuleOut(Out):
    """`inferred`: derived from the first files, not set."""

    table: str
    columns: dict[str, Any] | None = None
    key: list[str]
    mode: Mode
    unknown: Literal["reject", "ignore", "evolve"]
    csv: CsvOptions
    inferred: bool


class HealthOut(Out):
    status: Literal["ok"]
    stage: str
    origin: str


class MetricsOut(Out):
    """A summary of the lake, of what the caller may see."""

    tables: int
    timeline_size: int
    sequenced_ms: int | None = None
    waiting_for_sequencer: int
    quarantined: dict[str, int] = Field(description="table -> its files that were quarantined in the last day")


class Described(Out):
    """This API, as an OpenAPI 3.1 document."""

    model_config = ConfigDict(extra="allow")

    openapi: str


class AnswerIn(In):
    keys: dict[str, list[str | int | bool]] = Field(
        default={}, max_length=100, description="values of key columns", examples=[{"id": [4711, 4712]}]
    )
    ranges: dict[str, tuple[str | int, str | int]] = Field(
        default={}, max_length=100, description="first and last value of key columns: whole numbers or days"
    )
    at: str | None = Field(
        default=None, min_length=1, max_length=256, description="an index of the timeline or a time; default: now"
    )
    values: bool = Field(default=True, description="whether the proof shows the rows, and not only their digests")
