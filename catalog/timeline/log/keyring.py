"""The key list: the keys that sign the timeline's checkpoints, each with the size from which it signs.

Published as `timeline/keys`, a note signed by the newest key; old keys are never removed. Anybody can write such a list
and sign it with a key of his own, so it proves nothing by itself: a verifier pins the keys that it got from elsewhere,
and the list only adds keys that a pinned key vouches for, by a signature over the key and the size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from catalog.core.errors import Invalid, Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint, parse_decimal
from catalog.merkle.note import (
    NoteError,
    VerifierKey,
    decode_base64,
    encode_base64,
    open_note,
    sign_note,
)
from catalog.timeline.log.signer import Signer

HEADER = "strandline/keys@v2"
MAX_KEYS = 1000
MAX_BYTES = 1 << 20
_VOUCHED = "strandline/next-key@v1"


@dataclass(frozen=True, slots=True)
class Keyring:
    """(the first size that the key signed, key), oldest first.

    `vouchers`: for each key the signature by which the key before it vouches for it, empty if it does not.
    `trusted`: the keys that a verifier accepts; None: all of them, in the lake's own database.
    """

    keys: tuple[tuple[int, VerifierKey], ...] = ()
    vouchers: tuple[bytes, ...] = ()
    trusted: frozenset[VerifierKey] | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, note: bytes, pinned: Iterable[VerifierKey], kept: Keyring | None = None) -> Keyring:
        """The key list as a verifier reads it, who got the `pinned` keys from elsewhere; Unverified if it is forged.

        A key is trusted if it is pinned, or if a trusted key before it vouches for it. Keys that are not trusted stay
        in the list: they say until which size the key before them signed. `kept`: the list as the verifier saw it
        before; the new one must begin with it.
        """
        keyring = cls.stored(note).trusting(pinned)
        if kept is not None and keyring.keys[: len(kept.keys)] != kept.keys:
            raise Unverified("the timeline's key list does not begin with the one that was kept", subject="keys")
        return keyring

    def trusting(self, pinned: Iterable[VerifierKey]) -> Keyring:
        """The keyring in which only the pinned keys count, and those that they vouch for; see `parse`."""
        pins, trusted = frozenset(pinned), set[VerifierKey]()
        if not pins:
            raise Invalid("there is no pinned key: a key list cannot show by itself whose keys it has")
        for at, (first, key) in enumerate(self.keys):
            before = self.keys[at - 1][1] if at else None
            vouched = before is not None and before in trusted and _vouches(before, first, key, self.vouchers[at])
            if key in pins or vouched:
                trusted.add(key)
        if not trusted:
            raise Unverified("none of the pinned keys is in the key list: it is of another log", subject="keys")
        return Keyring(self.keys, self.vouchers, frozenset(trusted))

    @classmethod
    def stored(cls, note: bytes) -> Keyring:
        """The key list from the lake's own database. Its newest key signed it, whoever's that is: nothing is trusted
        that the database is not. Unverified if it is malformed.
        """
        try:
            if len(note) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES} bytes")
            header, *lines = note.decode().partition("\n\n")[0].split("\n")
            if header != HEADER or not 0 < len(lines) <= MAX_KEYS:
                raise ValueError(f"its first line is not {HEADER}, or it has not 1 to {MAX_KEYS} keys")
            entries = [_parse_line(line) for line in lines]
            keyring = cls(tuple((size, key) for size, key, _ in entries), tuple(voucher for _, _, voucher in entries))
            if any(a > b for (a, _), (b, _) in pairwise(keyring.keys)):
                raise ValueError("its sizes do not ascend")
            if len({key for _, key in keyring.keys}) != len(keyring.keys):
                raise ValueError("a key is in it twice: one that was retired does not sign again")
            opened = open_note(note, [keyring.keys[-1][1]])
            if opened.text != keyring.text():
                raise ValueError("it is not in its canonical form")
        except (ValueError, NoteError) as error:
            raise Unverified(f"not the timeline's key list: {error}", subject="keys") from None
        return keyring

    def with_signer(self, signer: Signer, size: int, previous: Signer | None = None) -> tuple[Keyring, bytes | None]:
        """The keyring in which this signer signs from `size` on, and its signed note if the keyring changed.

        `previous`: the signer until now, which vouches for the new key. Without it, every verifier that pinned the old
        key has to pin the new one.
        """
        if self.keys and self.keys[-1][1] == signer.verifier_key:
            return self, None
        key = signer.verifier_key
        if any(key == retired for _, retired in self.keys):
            raise Invalid(f"the key {key} was retired and cannot sign again: generate a new one")
        voucher = b""
        if previous is not None:
            if not self.keys or self.keys[-1][1] != previous.verifier_key:
                raise Invalid(f"the key {previous.verifier_key} cannot vouch for the next one: it is not the newest")
            voucher = previous.sign(_statement(size, key))
        keyring = Keyring((*self.keys, (size, key)), (*self.vouchers, voucher))
        return keyring, sign_note(keyring.text(), [signer])

    def text(self) -> str:
        lines = [HEADER]
        for (first, key), voucher in zip(self.keys, self.vouchers, strict=True):
            lines.append(f"{first} {key}" + (f" {encode_base64(voucher)}" if voucher else ""))
        return "".join(f"{line}\n" for line in lines)

    def open(self, note: bytes, origin: str | None = None) -> Checkpoint:
        """The checkpoint in a note; Unverified unless it is signed by the key that was in use at its size.

        That key must be trusted: a key that nobody vouched for may be a stranger's.
        """
        try:
            checkpoint = open_checkpoint(note, dict.fromkeys(key for _, key in self.keys), origin)
            in_use = [key for first, key in self.keys if first <= checkpoint.size][-1:]
            if self.trusted is not None:
                in_use = [key for key in in_use if key in self.trusted]
            open_note(note, in_use)
        except (NoteError, ValueError) as error:
            raise Unverified(f"the timeline's checkpoint does not verify: {error}", subject="checkpoint") from None
        return checkpoint


def _parse_line(line: str) -> tuple[int, VerifierKey, bytes]:
    size, text, *voucher = line.split(" ")
    if len(voucher) > 1:
        raise ValueError(f"the line {line!r:.80} has more than a size, a key and a signature")
    return parse_decimal(size), VerifierKey.parse(text), decode_base64(voucher[0]) if voucher else b""


def _statement(size: int, key: VerifierKey) -> bytes:
    """What a key signs to vouch for the next one."""
    return f"{_VOUCHED}\n{size} {key}\n".encode()


def _vouches(before: VerifierKey, size: int, key: VerifierKey, voucher: bytes) -> bool:
    return bool(voucher) and before.name == key.name and before.verify(_statement(size, key), voucher)
