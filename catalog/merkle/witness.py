"""The witness protocol (c2sp.org/tlog-witness): what a log sends to a witness, and what the witness decides.

Pure: no HTTP and no storage. Whoever runs a witness keeps one record a log, and must replace it atomically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from catalog.merkle.checkpoint import Checkpoint, parse_decimal
from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.note import MAX_NOTE_BYTES, NoteError, VerifierKey, decode_base64, encode_base64, open_note
from catalog.merkle.verify import ProofError, verify_consistency

MAX_PROOF_LINES = 63
MAX_REQUEST_BYTES = MAX_NOTE_BYTES
SIZE_TYPE = "text/x.tlog.size"
_EMPTY_ROOT = sha256().digest()


class Refused(Exception):
    """A request that a witness does not cosign, with the HTTP status and body that the protocol demands."""

    def __init__(self, status: int, reason: str, body: str | None = None, content_type: str = "text/plain") -> None:
        super().__init__(reason)
        self.status, self.body, self.content_type = status, body if body is not None else f"{reason}\n", content_type


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """The body of `POST <submission prefix>/add-checkpoint`."""

    old_size: int
    proof: tuple[bytes, ...]
    note: bytes

    def encode(self) -> bytes:
        lines = [f"old {self.old_size}", *map(encode_base64, self.proof)]
        return "".join(f"{line}\n" for line in lines).encode() + b"\n" + self.note

    @classmethod
    def decode(cls, data: bytes) -> AddCheckpoint:
        """Reads a request; Refused with status 400 if it is malformed."""
        if len(data) > MAX_REQUEST_BYTES:
            raise Refused(400, f"a request of {len(data)} bytes is over the limit of {MAX_REQUEST_BYTES}")
        head, blank, note = data.partition(b"\n\n")
        try:
            first, *lines = head.decode("ascii").split("\n")
            if not blank or not first.startswith("old "):
                raise ValueError("it does not begin with `old <size>`, or has no empty line")
            if len(lines) > MAX_PROOF_LINES:
                raise ValueError(f"it has {len(lines)} proof lines, over the limit of {MAX_PROOF_LINES}")
            proof = tuple(map(decode_base64, lines))
            if any(len(value) != 32 for value in proof):
                raise ValueError("a hash is not 32 bytes long")
            return cls(parse_decimal(first.removeprefix("old ")), proof, note)
        except ValueError as error:
            raise Refused(400, f"not an add-checkpoint request: {error}") from None


@dataclass(frozen=True, slots=True)
class WitnessRecord:
    """The latest checkpoint of one log that a witness cosigned, with the log's signature and its own."""

    size: int
    root: bytes
    note: bytes


@dataclass(frozen=True, slots=True)
class Witness:
    """One witness: its key and the logs it knows, by origin, each with the keys that may sign for it."""

    signer: WitnessSigner
    logs: Mapping[str, Sequence[VerifierKey]]

    def add_checkpoint(
        self, request: AddCheckpoint, record: WitnessRecord | None, timestamp: int
    ) -> tuple[str, WitnessRecord]:
        """The cosignature line and the record to store before it is sent; Refused if the checkpoint is not cosigned.

        `record` is the log's current one. The caller stores the new one only if `record` is still current, and
        otherwise answers by `conflict`: two requests at once must not take the record back.
        """
        checkpoint, log_lines = self._open(request.note)
        if request.old_size > checkpoint.size:
            raise Refused(400, f"the old size {request.old_size} is above the checkpoint's size {checkpoint.size}")
        size = record.size if record is not None else 0
        if request.old_size != size:
            raise conflict(size)
        _check_extends(request, record, checkpoint)
        line = self.signer.cosign(checkpoint.text(), timestamp)
        # Of the sender's signature lines only the log's own are kept.
        note = "".join([checkpoint.text(), "\n", *log_lines, line]).encode()
        return line, WitnessRecord(checkpoint.size, checkpoint.root, note)

    def origin_of(self, note: bytes) -> str:
        """The origin whose record a request is about; Refused if the log is unknown or the note malformed."""
        return self._open(note)[0].origin

    def _open(self, note: bytes) -> tuple[Checkpoint, tuple[str, ...]]:
        """The checkpoint, and the signature lines of the log that vouch for it."""
        # The origin line chooses the keys; nothing else of the text is used before a signature by one of them holds.
        origin = note.partition(b"\n")[0].decode(errors="replace")
        if origin not in self.logs:
            raise Refused(404, f"this witness does not know the log {origin!r:.200}")
        try:
            opened = open_note(note, self.logs[origin])
            return Checkpoint.parse(opened.text), opened.lines
        except NoteError as error:
            raise Refused(403, f"the checkpoint is not signed by a known key of {origin!r:.200}: {error}") from None


def conflict(size: int) -> Refused:
    """The response to an old size that is not the size of the latest cosigned checkpoint, which it tells."""
    return Refused(409, f"the latest cosigned checkpoint has size {size}", f"{size}\n", SIZE_TYPE)


def origin_hash(origin: str) -> str:
    """The log's name in `GET <monitoring prefix>/<origin hash>/checkpoint`."""
    return sha256(origin.encode()).hexdigest()


def _check_extends(request: AddCheckpoint, record: WitnessRecord | None, checkpoint: Checkpoint) -> None:
    if checkpoint.size == 0 and checkpoint.root != _EMPTY_ROOT:
        raise Refused(422, "a checkpoint of size 0 has the root of the empty tree")
    if record is None or record.size == 0:
        if request.proof:
            raise Refused(422, "from size 0 there is nothing to prove: send no hashes")
        return
    try:
        verify_consistency(record.size, checkpoint.size, request.proof, record.root, checkpoint.root)
    except ProofError as error:
        raise Refused(422, f"the checkpoint does not extend the one cosigned before: {error}") from None
