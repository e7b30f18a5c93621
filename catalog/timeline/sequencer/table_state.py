"""Values of the sequencer: a table's metadata file, its state as of its last leaf, and its events. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from io import BytesIO
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.serializers import Compressor
from pyiceberg.table.snapshots import Snapshot

from catalog.timeline.log.leaf import canonical_sha256

References = dict[str, tuple[str, int]]
"""Reference -> (branch or tag, snapshot id)."""


@dataclass(frozen=True, slots=True)
class TableEvent:
    """What becomes one leaf. `snapshot` is set when the event adds that snapshot, rather than move a reference."""

    operation: str
    ref: str | None
    snapshot_id: int | None
    parent_id: int | None
    committed_ms: int
    schema_sha256: str | None
    snapshot: Snapshot | None = None
    transaction: TransactionCommit | None = None


@dataclass(frozen=True, slots=True)
class TransactionCommit:
    """That main moved to the snapshot that a transaction had staged: the transaction's id and all of its tables."""

    id: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as of its last leaf, as the database stores it."""

    name: str
    sequence: int = 0
    """The sequence of its next leaf."""
    refs: References = field(default_factory=dict)
    schema_sha256: str | None = None
    log: tuple[int, int] | None = None
    """The last entry of the snapshot log that was sequenced: (ms, snapshot id)."""
    metadata_location: str | None = None
    metadata_sha256: str | None = None
    dropped: bool = False
    erasure: str | None = None
    """The last erasure that the table's metadata named."""
    held: bool = False
    """The metadata has further events, held back until a transaction has committed to all of its tables."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> TableState:
        record = json.loads(data)
        record["refs"] = {name: (kind, int(target)) for name, (kind, target) in record["refs"].items()}
        record["log"] = None if record["log"] is None else (record["log"][0], record["log"][1])
        return cls(**record)


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A table's metadata file: its location, and the digests of its bytes and of each schema in it."""

    location: str
    sha256: str
    schemas: dict[int, str]

    @classmethod
    def read(cls, location: str, io: FileIO) -> MetadataFile:
        with io.new_input(location).open() as stream:
            data = stream.read()
        with Compressor.get_compressor(location).stream_decompressor(BytesIO(data)) as plain:
            record: dict[str, Any] = json.loads(plain.read())
        # Digests are over the schema as it is in the file, so that they cover fields that pyiceberg does not know.
        schemas = record.get("schemas") or [record["schema"]]
        return cls(
            location,
            sha256(data).hexdigest(),
            {schema.get("schema-id", 0): canonical_sha256(schema) for schema in schemas},
        )
