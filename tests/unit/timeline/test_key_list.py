"""A key list extends what a verifier pinned, and nothing else: anybody can write one and sign it."""

from __future__ import annotations

import pytest

from catalog.core.errors import Invalid, Unverified
from catalog.merkle import Checkpoint, Ed25519Signer, sign_note
from catalog.timeline.log.keyring import Keyring

NAME = "strandline.example/lake"
FIRST, SECOND, THIRD = (Ed25519Signer(NAME, bytes([number]) * 32) for number in (1, 2, 3))
STRANGER = Ed25519Signer(NAME, b"s" * 32)


def listed(*steps: tuple[Ed25519Signer, int, Ed25519Signer | None]) -> bytes:
    """The key list after these signers took over: (signer, from which size, who vouches for it)."""
    keyring, note = Keyring(), b""
    for signer, size, previous in steps:
        keyring, made = keyring.with_signer(signer, size, previous)
        note = made or note
    return note


def checkpoint(signer: Ed25519Signer, size: int) -> bytes:
    return Checkpoint(NAME, size, bytes(32)).sign([signer])


def test_a_strangers_list_is_refused_however_it_is_signed() -> None:
    own = listed((STRANGER, 0, None))
    with pytest.raises(Unverified, match="another log"):
        Keyring.parse(own, [FIRST.verifier_key])
    with pytest.raises(Invalid, match="pinned"):
        Keyring.parse(own, [])
    # The stranger's key after the pinned one: nobody vouches for it, or it vouches for itself.
    forgeries = [listed((FIRST, 0, None), (STRANGER, 5, None))]
    keyring, _ = Keyring().with_signer(FIRST, 0)
    statement = f"strandline/next-key@v1\n5 {STRANGER.verifier_key}\n".encode()
    for voucher in (STRANGER.sign(statement), bytes(64), b"x", FIRST.sign(statement.replace(b"\n5 ", b"\n7 "))):
        forged = Keyring((*keyring.keys, (5, STRANGER.verifier_key)), (b"", voucher))
        forgeries.append(sign_note(forged.text(), [STRANGER]))
    for note in forgeries:
        ring = Keyring.parse(note, [FIRST.verifier_key])
        assert ring.open(checkpoint(FIRST, 4)).size == 4
        for signer in (STRANGER, FIRST):
            with pytest.raises(Unverified):
                ring.open(checkpoint(signer, 9))


def test_a_pinned_key_vouches_for_the_next_and_that_for_the_one_after() -> None:
    note = listed((FIRST, 0, None), (SECOND, 5, FIRST), (THIRD, 8, SECOND))
    ring = Keyring.parse(note, [FIRST.verifier_key])
    for signer, size in ((FIRST, 4), (SECOND, 5), (SECOND, 7), (THIRD, 8), (THIRD, 99)):
        assert ring.open(checkpoint(signer, size)).size == size
    for signer, size in ((FIRST, 5), (SECOND, 4), (SECOND, 8), (THIRD, 7), (STRANGER, 9)):
        with pytest.raises(Unverified):
            ring.open(checkpoint(signer, size))
    # Keys before the pinned one are not vouched for by it.
    later = Keyring.parse(note, [SECOND.verifier_key])
    assert later.open(checkpoint(THIRD, 8)).size == 8
    with pytest.raises(Unverified):
        later.open(checkpoint(FIRST, 4))
    # A break in the chain ends it, unless the key after the break is pinned too.
    broken = listed((FIRST, 0, None), (SECOND, 5, None), (THIRD, 8, SECOND))
    with pytest.raises(Unverified):
        Keyring.parse(broken, [FIRST.verifier_key]).open(checkpoint(THIRD, 8))
    assert Keyring.parse(broken, [FIRST.verifier_key, SECOND.verifier_key]).open(checkpoint(THIRD, 8)).size == 8


def test_only_the_newest_key_vouches_and_for_a_key_of_its_log() -> None:
    keyring, _ = Keyring().with_signer(FIRST, 0)
    with pytest.raises(Invalid, match="not the newest"):
        keyring.with_signer(THIRD, 5, SECOND)
    elsewhere = Ed25519Signer("elsewhere.example", b"e" * 32)
    note = listed((FIRST, 0, None), (elsewhere, 5, FIRST))
    signed = Checkpoint("elsewhere.example", 6, bytes(32)).sign([elsewhere])
    with pytest.raises(Unverified):
        Keyring.parse(note, [FIRST.verifier_key]).open(signed)


def test_a_retired_key_does_not_come_back() -> None:
    """A stranger appends the first key again, which was pinned once and stolen since."""
    keyring, _ = Keyring().with_signer(FIRST, 0)
    keyring, _ = keyring.with_signer(SECOND, 5, FIRST)
    again = Keyring((*keyring.keys, (8, FIRST.verifier_key)), (*keyring.vouchers, b""))
    with pytest.raises(Unverified, match="twice"):
        Keyring.parse(sign_note(again.text(), [FIRST]), [FIRST.verifier_key])
    with pytest.raises(Invalid, match="retired"):
        keyring.with_signer(FIRST, 8)


def test_a_list_that_was_kept_is_extended() -> None:
    """A thief of the first key, after its retirement, shows the list from before."""
    whole = listed((FIRST, 0, None), (SECOND, 5, FIRST))
    kept = Keyring.parse(whole, [FIRST.verifier_key])
    longer = listed((FIRST, 0, None), (SECOND, 5, FIRST), (THIRD, 8, SECOND))
    assert len(Keyring.parse(longer, [FIRST.verifier_key], kept).keys) == 3
    moved = listed((FIRST, 0, None), (SECOND, 6, FIRST))
    for old in (listed((FIRST, 0, None)), moved):
        assert Keyring.parse(old, [FIRST.verifier_key])
        with pytest.raises(Unverified, match="kept"):
            Keyring.parse(old, [FIRST.verifier_key], kept)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("keys@v2", "keys@v1"),
        lambda text: text.replace("\n5 ", "\n05 "),
        lambda text: text.replace("\n0 ", "\n9 "),
        lambda text: text + "8 not-a-key\n",
        lambda text: text.split("\n", 1)[0] + "\n",
        lambda text: text.replace("\n5 ", "\n5  "),
        lambda text: text[:-1] + " AAAA\n",
        lambda text: text + "\n",
        lambda text: text + "9" * 5000 + " x\n",
        lambda text: text + f"9 {STRANGER.verifier_key}\n" * 1000,
    ],
)
def test_a_malformed_list_is_refused(spoil) -> None:  # type: ignore[no-untyped-def]
    text = listed((FIRST, 0, None), (SECOND, 5, FIRST)).decode().partition("\n\n")[0] + "\n"
    assert spoil(text) != text
    for signers in ([SECOND], [STRANGER], [FIRST]):
        with pytest.raises(Unverified):
            Keyring.parse(sign_note(spoil(text), signers), [FIRST.verifier_key])
    for note in (b"", b"\xff", b"\n\n", b"x" * (2 << 20)):
        with pytest.raises(Unverified):
            Keyring.parse(note, [FIRST.verifier_key])
