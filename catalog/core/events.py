"""The events that the lake announces, and the messages on the sequencer's queue.

Every message has a correlation id, which follows one piece of work through functions, jobs and logs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol, TypeAlias
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from catalog.core.errors import Invalid, Unavailable

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

    Announced at least once; `(table_uuid, last_index)` identifies a duplicate. Readers get the leaves themselves from
    the timeline.
    """

    table: str
    table_uuid: str
    first_index: int
    last_index: int
    last_sequence: int
    snapshot_id: str | None
    checkpoint_size: int


class TableMoved(_Message):
    """The table may have a new commit. A hint to read the table: nothing in it is trusted but the name."""

    kind: Literal["moved"] = "moved"
    table: str = Field(min_length=1, max_length=512)


class NameIndex(_Message):
    """Gives an index of the timeline a name. A name never changes its index.

    The sender chooses the index: the newest one may be another by the time that the sequencer reads this.
    """

    kind: Literal["name"] = "name"
    name: str = Field(min_length=1, max_length=256)
    index: int = Field(ge=0)


class AdvanceWatermark(_Message):
    """A consumer has processed the table's leaves up to and including `sequence`.

    Moves its watermark if that is at `expected` (null: there is none yet); otherwise nothing happens, which the sender
    learns by reading the watermark. A watermark never goes back. `holder` distinguishes the runs of one consumer.
    """

    kind: Literal["mark"] = "mark"
    consumer: str = Field(pattern=r"^[^/\n]{1,128}$")
    table: str = Field(pattern=r"^[^\n]{1,512}$")
    table_uuid: UUID
    sequence: int = Field(ge=0)
    expected: int | None = Field(default=None, ge=0)
    holder: str = Field(pattern=r"^[0-9A-Za-z-]{1,64}$")


class PutMeta(_Message):
    """Stores a small JSON value (note metadata, job state) by space and id; null removes it."""

    kind: Literal["meta"] = "meta"
    space: str = Field(pattern=r"^[^/]{1,64}$")
    id: str = Field(min_length=1, max_length=512)
    value: Any = None


class Sweep(_Message):
    """Requests a check of every table for new commits. Sent on a schedule."""

    kind: Literal["sweep"] = "sweep"


class Compact(_Message):
    """Requests compaction of the timeline's database, garbage collection, and removal of superseded partial tiles."""

    kind: Literal["compact"] = "compact"


class VerificationFailed(_Message):
    """A verification found a fault. The sequencer reports it like a fault that it found itself."""

    kind: Literal["fault"] = "fault"
    subject: str = Field(min_length=1, max_length=2048)
    what: str = Field(min_length=1, max_length=4096)
    count: int = Field(default=1, ge=1)


SequencerMessage: TypeAlias = TableMoved | NameIndex | AdvanceWatermark | PutMeta | Sweep | Compact | VerificationFailed
_MESSAGE: TypeAdapter[SequencerMessage] = TypeAdapter(Annotated[SequencerMessage, Field(discriminator="kind")])


def parse_message(body: str) -> SequencerMessage:
    """A message on the sequencer's queue; Invalid, with the faulty fields, if it is not valid."""
    try:
        return _MESSAGE.validate_json(body)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'message'}: {problem['msg']}" for problem in error.errors()
        )
        raise Invalid(f"not a message for the sequencer: {problems}") from None


class EventBus(Protocol):
    """Where events are announced: at least once each, after what they announce is durable."""

    def announce(self, events: Sequence[CommitSequenced]) -> None: ...


class EventBridgeBus:
    """An EventBridge bus: one PutEvents per ten events. Unavailable if the bus rejects one."""

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
            response = self._client.put_events(Entries=entries)
            if response.get("FailedEntryCount"):
                codes = sorted({entry["ErrorCode"] for entry in response["Entries"] if "ErrorCode" in entry})
                raise Unavailable(f"the event bus {self._bus} rejected events: {', '.join(codes)}", subject=self._bus)


class NoEventBus:
    """For a lake without a bus: announces nothing, and readers poll."""

    def announce(self, events: Sequence[CommitSequenced]) -> None:
        return None


def encode_value(value: Any) -> bytes:
    """A PutMeta value as it is stored; Invalid if it is over MAX_META_BYTES."""
    encoded = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    if len(encoded) > MAX_META_BYTES:
        raise Invalid(
            f"a meta value of {len(encoded)} bytes is over the limit of {MAX_META_BYTES}: store it as an object"
        )
    return encoded
