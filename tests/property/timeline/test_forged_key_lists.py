"""No mutation of a key list, by whomever it is signed, makes a stranger's checkpoint valid.

STRANDLINE_FORGERIES and STRANDLINE_FORGERIES_SEED as in tests/property/changes/test_forgeries.py.
"""

from __future__ import annotations

import os
import random

from catalog.core.errors import Unverified
from catalog.merkle import Checkpoint, Ed25519Signer, sign_note
from catalog.merkle.note import encode_base64
from catalog.timeline.log.keyring import Keyring

FORGERIES = int(os.environ.get("STRANDLINE_FORGERIES", "2000")) // 2
SEED = int(os.environ.get("STRANDLINE_FORGERIES_SEED", "18"))
NAME = "strandline.example/lake"
FIRST, SECOND, THIRD, STRANGER, FRIEND = (Ed25519Signer(NAME, bytes([number]) * 32) for number in range(1, 6))
SIZES = (0, 4, 5, 7, 8, 50)


def honest() -> tuple[Keyring, bytes]:
    keyring, _ = Keyring().with_signer(FIRST, 0)
    keyring, _ = keyring.with_signer(SECOND, 5, FIRST)
    keyring, note = keyring.with_signer(THIRD, 8, SECOND)
    assert note is not None
    return keyring, note


def checkpoints() -> dict[tuple[str, int], bytes]:
    signers = {"first": FIRST, "second": SECOND, "third": THIRD, "stranger": STRANGER}
    return {
        (name, size): Checkpoint(NAME, size, bytes(32)).sign([signer])
        for name, signer in signers.items()
        for size in SIZES
    }


def mutate(lines: list[str], chance: random.Random) -> None:
    """Lines of the list: dropped, repeated, swapped, renumbered, re-keyed, with another voucher."""
    at = chance.randrange(1, len(lines))
    size, key, *voucher = lines[at].split(" ")
    match chance.randrange(8):
        case 0:
            del lines[at]
        case 1:
            lines.insert(chance.randrange(1, len(lines) + 1), lines[at])
        case 2:
            other = chance.randrange(1, len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = " ".join([str(chance.choice(SIZES)), key, *voucher])
        case 4:
            lines[at] = " ".join([size, str(chance.choice([STRANGER, FRIEND]).verifier_key), *voucher])
        case 5:
            statement = f"strandline/next-key@v1\n{size} {key}\n".encode()
            lines[at] = f"{size} {key} {encode_base64(chance.choice([STRANGER, FRIEND]).sign(statement))}"
        case 6:
            others = [line.split(" ")[2] for line in lines[1:] if line.count(" ") == 2]
            lines[at] = " ".join([size, key, *chance.sample(others, min(1, len(others)))])
        case 7:
            next_key = chance.choice([STRANGER, FRIEND]).verifier_key
            lines.insert(at + 1, f"{chance.choice(SIZES)} {next_key}" + (f" {voucher[0]}" if voucher else ""))


def test_no_forged_list_makes_a_strangers_checkpoint_valid() -> None:
    chance = random.Random(SEED)
    keyring, note = honest()
    signed, read = checkpoints(), 0
    ring = Keyring.parse(note, [FIRST.verifier_key])
    entitled = {(name, size) for (name, size), data in signed.items() if opens(ring, data)}
    assert entitled == {*(("first", s) for s in (0, 4)), *(("second", s) for s in (5, 7)), ("third", 8), ("third", 50)}
    for _ in range(FORGERIES):
        lines = keyring.text().splitlines()
        for _ in range(chance.randrange(1, 4)):
            if len(lines) > 1:
                mutate(lines, chance)
        text = "".join(f"{line}\n" for line in lines)
        forged = sign_note(text, chance.sample([STRANGER, FRIEND, THIRD], chance.randrange(1, 4)))
        try:
            ring = Keyring.parse(forged, [FIRST.verifier_key])
        except Unverified:
            continue
        read += 1
        believed = {at for at, data in signed.items() if opens(ring, data)}
        # An old list leaves a retired key in use, which only a kept list tells. No key signs before its time, and a
        # stranger's never.
        begins = {"first": 0, "second": 5, "third": 8}
        assert all(name in begins and size >= begins[name] for name, size in believed), (text, believed - entitled)
        try:
            ring = Keyring.parse(forged, [FIRST.verifier_key], Keyring.parse(note, [FIRST.verifier_key]))
        except Unverified:
            continue
        assert {at for at, data in signed.items() if opens(ring, data)} <= entitled, text
    assert read > FORGERIES // 20


def opens(ring: Keyring, note: bytes) -> bool:
    try:
        ring.open(note)
    except Unverified:
        return False
    return True
