"""What the lake announces, and what it is asked for over queues: values that leave or enter the process.

Every message carries a correlation id, which follows one piece of work through functions, jobs and logs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol, TypeAlias
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from catalog.errors import Invalid, Unavailable

SOURCE = "strandline"
MAX_META_BYTES = 64 * 1024
_PUT_EVENTS_LIMIT = 10


def new_correlation_id() -> str:
    return uuid4().hex


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    correlation_id: str = Field(default_factory=new_correlation_id, min_length=1, max_length=128)


class CommitSequenced(_Message):
    """The table's leaves `first_index`..`last_index` are in the timeline, published and provable.

    Announced at least once. `(table_uuid, last_index)` tells a doubled one; readers ask the timeline for the
    rest.
    """

    table: str
    table_uuid: str
    first_index: int
    last_index: int
    last_sequence: int
    snapshot_id: str | None
    checkpoint_size: int


class TableMoved(_Message):
    """Something was committed to the table. A hint to look: nothing in it is believed but the name."""

    kind: Literal["moved"] = "moved"
    table: str = Field(min_length=1, max_length=512)


class NameIndex(_Message):
    """Gives an index of the timeline a name; without one, the newest. A name never changes its index."""

    kind: Literal["name"] = "name"
    name: str = Field(min_length=1, max_length=256)
    index: int | None = Field(default=None, ge=0)


class MoveMark(_Message):
    """A consumer has dealt with the table's leaves up to and including `sequence`.

    Moves its mark if that stands at `expected` (null: there is none yet); otherwise nothing happens, and whoever
    asked finds out by reading it. A mark never goes back. `holder` tells the runs of one consumer apart.
    """

    kind: Literal["mark"] = "mark"
    consumer: str = Field(pattern=r"^[^/\n]{1,128}$")
    table: str = Field(pattern=r"^[^\n]{1,512}$")
    table_uuid: UUID
    sequence: int = Field(ge=0)
    expected: int | None = Field(default=None, ge=0)
    holder: str = Field(pattern=r"^[0-9A-Za-z-]{1,64}$")


class PutMeta(_Message):
    """Keeps a small JSON value (note metadata, job state) under space and id; null removes it."""

    kind: Literal["meta"] = "meta"
    space: str = Field(pattern=r"^[^/]{1,64}$")
    id: str = Field(min_length=1, max_length=512)
    value: Any = None


class Sweep(_Message):
    """Every table is looked at, whether or not anybody said that it moved: what a schedule sends."""

    kind: Literal["sweep"] = "sweep"


class Compact(_Message):
    """The timeline's database is compacted, its garbage collected, superseded partial tiles removed."""

    kind: Literal["compact"] = "compact"


class FaultFound(_Message):
    """A verification found what is stored not to be what was signed. The sequencer tells it as a finding of its own."""

    kind: Literal["fault"] = "fault"
    subject: str = Field(min_length=1, max_length=2048)
    what: str = Field(min_length=1, max_length=4096)
    count: int = Field(default=1, ge=1)


SequencerMessage: TypeAlias = TableMoved | NameIndex | MoveMark | PutMeta | Sweep | Compact | FaultFound
_MESSAGE: TypeAdapter[SequencerMessage] = TypeAdapter(Annotated[SequencerMessage, Field(discriminator="kind")])


def parse_message(body: str) -> SequencerMessage:
    """A message on the sequencer's queue; Invalid, with the place of the fault, when it is none."""
    try:
        return _MESSAGE.validate_json(body)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'message'}: {problem['msg']}" for problem in error.errors()
        )
        raise Invalid(f"not a message for the sequencer: {problems}") from None


class EventBus(Protocol):
    """Where announcements go. They are sent at least once, after what they announce is durable."""

    def announce(self, events: Sequence[CommitSequenced]) -> None: ...


class EventBridgeBus:
    """An EventBridge bus: one PutEvents per ten events. Unavailable if the bus refuses one."""

    def __init__(self, client: Any, bus: str) -> None:
        self._client = client
        self._bus = bus

    def announce(self, events: Sequence[CommitSequenced]) -> None:
        for start in range(0, len(events), _PUT_EVENTS_LIMIT):
            entries = [
                {
                    "EventBusName": self._bus,
                    "Source": SOURCE,
                    "DetailType": type(event).__name__,
                    "Detail": event.model_dump_json(),
                }
                for event in events[start : start + _PUT_EVENTS_LIMIT]
            ]
            answer = self._client.put_events(Entries=entries)
            if answer.get("FailedEntryCount"):
                codes = sorted({entry["ErrorCode"] for entry in answer["Entries"] if "ErrorCode" in entry})
                raise Unavailable(f"the event bus {self._bus} refused events: {', '.join(codes)}", subject=self._bus)


class SilentBus:
    """For a lake without a bus: readers poll."""

    def announce(self, events: Sequence[CommitSequenced]) -> None:
        return None


def encode_value(value: Any) -> bytes:
    """A meta value as it is stored; Invalid when it is too large to be one."""
    encoded = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    if len(encoded) > MAX_META_BYTES:
        raise Invalid(f"a meta value of {len(encoded)} bytes is over the limit of {MAX_META_BYTES}: use an object")
    return encoded
