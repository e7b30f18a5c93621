"""The feeder: sends each new checkpoint to the stage's witnesses, and adds their cosignatures to the note.

Witnesses are asked in parallel, with one second for all of them together. A witness that is slow, down or hostile costs
that second at most, and its own cosignature: a checkpoint is published with those that came in time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from catalog.core.errors import Invalid, LakeError
from catalog.merkle.checkpoint import Checkpoint, parse_decimal
from catalog.merkle.cosignature import Cosignature, add_cosignatures, read_cosignatures
from catalog.merkle.note import NoteError, split_note
from catalog.merkle.policy import Policy, PolicyError
from catalog.merkle.verify import ProofError
from catalog.merkle.witness import AddCheckpoint
from catalog.timeline.log.witness_client import WitnessClient, WitnessResponse

logger = logging.getLogger(__name__)

LIMIT_S = 1.0
"""How long all witnesses together may delay a checkpoint."""
GRACE_S = 4.0
"""How long after the limit a request may still occupy its thread and connection. Its response is not used."""
RETRY_S = 60.0
"""How often witnesses are asked again to cosign a checkpoint that is published already."""
REST_S = 30.0
"""How long a witness that missed the limit twice in a row is left out, so that it does not delay each checkpoint."""
MAX_WITNESSES = 32
"""Each adds a signature line, and a note with more than 100 lines is refused by verifiers."""

Prove = Callable[[int], Sequence[bytes]]
"""The consistency proof from a smaller, non-empty tree to that of the checkpoint."""


@dataclass
class _Fed:
    """A witness, and how it did."""

    client: WitnessClient
    missed: int = 0
    """How many checkpoints in a row it did not respond to in time."""
    rests_until: float = float("-inf")
    is_busy: bool = False
    """Whether an earlier request still waits for it. A witness never has more than one thread."""

    def may_be_asked(self, now: float) -> bool:
        return now >= self.rests_until and not self.is_busy


@dataclass(frozen=True)
class _Answer:
    fed: _Fed
    request: AddCheckpoint
    response: WitnessResponse | Exception
    is_second: bool


@dataclass
class Feeder:
    """Feeds a number of witnesses. Used by one thread at a time."""

    clients: Sequence[WitnessClient]
    clock: Callable[[], float] = time.monotonic
    _fed: list[_Fed] = field(init=False)
    _asked_at: float = field(init=False)

    def __post_init__(self) -> None:
        if len(self.clients) > MAX_WITNESSES:
            raise Invalid(f"{len(self.clients)} witnesses are over the limit of {MAX_WITNESSES}: name fewer with a URL")
        self._fed = [_Fed(client) for client in self.clients]
        self._asked_at = self.clock()

    @classmethod
    def parse(cls, policy: str) -> Feeder:
        """The feeder of the witnesses that have a URL in a policy file's text. Invalid if there is none."""
        try:
            parsed = Policy.parse(policy.encode())
        except PolicyError as error:
            raise Invalid(f"STRANDLINE_WITNESSES is not a c2sp.org/tlog-policy file: {error}") from None
        clients = [WitnessClient(name, parsed.witnesses[name], url) for name, url in parsed.urls.items()]
        if not clients:
            raise Invalid("STRANDLINE_WITNESSES has no witness with a URL: write `witness <name> <key> <url>`")
        return cls(clients)

    def lacks(self, note: bytes) -> bool:
        """Whether a witness that may be asked has not cosigned the published note. True once in RETRY_S at most."""
        now = self.clock()
        if now - self._asked_at < RETRY_S:
            return False
        return any(fed.may_be_asked(now) and not _cosigned(note, fed) for fed in self._fed)

    def cosign(self, own: bytes, published: bytes, prove: Prove) -> bytes:
        """The checkpoint with the cosignatures that came in time. Never raises for anything that a witness does.

        `own`: the checkpoint with the log's signature alone. `published`: the note that is published now; if it is of
        the same checkpoint, its signatures stay. At most two requests to each witness, the second one after a 409.
        """
        text, _ = split_note(own)
        size = Checkpoint.parse(text).size
        note = self._start(own, published, text)
        self._asked_at = now = self.clock()
        deadline = time.monotonic() + LIMIT_S
        answers = SimpleQueue[_Answer]()
        waiting = list[_Fed]()
        for fed in self._fed:
            if not fed.may_be_asked(now) or _cosigned(note, fed):
                continue
            # What it cosigned last is only guessed. If that is wrong, it responds 409 with the right size.
            old = _size_of(published) if _cosigned(published, fed) else 0
            if (request := _request(own, old, size, prove)) is not None:
                _send(fed, request, deadline, answers)
                waiting.append(fed)
        while waiting and (left := deadline - time.monotonic()) > 0:
            try:
                answer = answers.get(timeout=left)
            except Empty:
                break
            fed, again = answer.fed, None
            try:
                note, again = _take(note, answer, size, prove)
                fed.missed = 0
            except Exception as error:  # whatever a witness sends: the checkpoint is published without it
                reason = f"{error}"[:500]
                logger.warning("not cosigned", extra={"witness": fed.client.name, "size": size, "reason": reason})
            if again is None:
                waiting.remove(fed)
            else:
                _send(fed, again, deadline, answers, is_second=True)
        for fed in waiting:
            self._missed(fed, size)
        return note

    def _start(self, own: bytes, published: bytes, text: str) -> bytes:
        """The note to add cosignatures to: the published one if it is of the same checkpoint and not spoilt."""
        try:
            if not published or split_note(published)[0] != text:
                return own
            read_cosignatures(published, [fed.client.key for fed in self._fed])
        except NoteError:  # somebody added a false cosignature: publish the log's own note again
            return own
        return published

    def _missed(self, fed: _Fed, size: int) -> None:
        fed.missed += 1
        if fed.missed >= 2:
            fed.rests_until = self.clock() + REST_S
        reason = f"no response within {LIMIT_S:g} s"
        logger.warning("not cosigned", extra={"witness": fed.client.name, "size": size, "reason": reason})


def _size_of(note: bytes) -> int:
    return Checkpoint.parse(split_note(note)[0]).size


def _cosigned(note: bytes, fed: _Fed) -> tuple[Cosignature, ...]:
    try:
        return read_cosignatures(note, [fed.client.key]) if note else ()
    except NoteError:
        return ()


def _request(own: bytes, old: int, size: int, prove: Prove) -> AddCheckpoint | None:
    """The request; None, and a log line, if the proof cannot be made: publishing then says what is wrong."""
    try:
        return AddCheckpoint(old, tuple(prove(old)) if 0 < old < size else (), own)
    except (LakeError, ProofError) as error:
        logger.warning("no consistency proof", extra={"old": old, "size": size, "reason": str(error)})
        return None


def _send(
    fed: _Fed, request: AddCheckpoint, deadline: float, answers: SimpleQueue[_Answer], is_second: bool = False
) -> None:
    def run() -> None:
        response: WitnessResponse | Exception
        try:
            response = fed.client.add_checkpoint(request, deadline + GRACE_S)
        except Exception as error:
            response = error
        fed.is_busy = False
        answers.put(_Answer(fed, request, response, is_second))

    fed.is_busy = True
    # A daemon: a process that ends does not wait for it. Nobody else does, either, once the limit has passed.
    threading.Thread(target=run, name=f"witness {fed.client.name}", daemon=True).start()


def _take(note: bytes, answer: _Answer, size: int, prove: Prove) -> tuple[bytes, AddCheckpoint | None]:
    """The note with the witness's cosignature; or the note as it is and the request to send next.

    Raises if the response is neither a valid cosignature on this checkpoint nor a size to prove consistency from.
    """
    response, client = answer.response, answer.fed.client
    if isinstance(response, Exception):
        raise response
    if response.status == 200:
        cosigned, added = add_cosignatures(note, response.body, [client.key])
        if not added:
            raise NoteError("the response has no cosignature by the witness's key")
        return cosigned, None
    if response.status == 409 and not answer.is_second:
        old = parse_decimal(response.body.decode("ascii").removesuffix("\n"))
        if old > size:
            # Not necessarily the witness's fault: the database may be an old copy, or somebody has the key.
            raise NoteError(f"it has cosigned a checkpoint of this log with {old} leaves, and this one has {size}")
        return note, _request(answer.request.note, old, size, prove)
    raise NoteError(f"it responded {response.status}: {response.body[:200]!r}")
