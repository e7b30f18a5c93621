"""Notes, keys and checkpoints: the examples Go publishes, and what is refused."""

from __future__ import annotations

import pytest

from catalog.merkle import (
    Checkpoint,
    Ed25519Signer,
    NoteError,
    Signer,
    VerifierKey,
    open_checkpoint,
    open_note,
    sign_note,
)
from catalog.merkle.note import MAX_NOTE_BYTES, decode_base64

# The example in the documentation of golang.org/x/mod/sumdb/note.
SKEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
SIGNATURE = (
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
KEY = VerifierKey.parse(VKEY)
ROOT = bytes(range(32))
ROOT_LINE = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def test_gos_example_note():
    signer = Ed25519Signer.parse(SKEY)
    assert str(signer.verifier_key) == VKEY
    assert sign_note(TEXT, [signer]) == f"{TEXT}\n{SIGNATURE}".encode()
    note = open_note(f"{TEXT}\n{SIGNATURE}".encode(), [KEY])
    assert (note.text, note.signed_by) == (TEXT, (KEY,))


def test_a_real_logs_key():
    key = VerifierKey.parse("sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8")
    assert (key.name, key.key_id.hex()) == ("sum.golang.org", "033de0ae")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PeterNeumann",
        "PeterNeumann+c74f20a3",
        VKEY.replace("c74f20a3", "c74f20a4"),
        VKEY.replace("c74f20a3", "C74F20A3"),
        VKEY.replace("+ARpc", "+BRpc"),  # another signature type
        VKEY.replace("Peter", "Peter "),
        VKEY.replace("PeterNeumann", ""),
        VKEY + "=",
        VKEY + "\n",
        VKEY[:-1],
        "PeterNeumann+c74f20a3+",
        SKEY,
    ],
)
def test_a_wrong_verifier_key_is_refused(text):
    with pytest.raises(ValueError, match="verifier key"):
        VerifierKey.parse(text)


@pytest.mark.parametrize(
    "text", ["", VKEY, SKEY[:-2], SKEY.replace("c74f20a3", "c74f20a4"), SKEY.replace("+AYEK", "+BYEK")]
)
def test_a_wrong_signer_key_is_refused_and_not_quoted(text):
    with pytest.raises(ValueError, match="not a signer key") as refused:
        Ed25519Signer.parse(text)
    assert refused.value.__suppress_context__
    assert "YEKFALVFGyNhPJEMzD1QIDr" not in str(refused.value)


def test_a_signer_does_not_show_its_secret():
    signer = Ed25519Signer.parse(SKEY)
    assert "seed" not in repr(signer) and repr(signer.seed) not in repr(signer)


def test_generated_keys_differ_and_sign():
    one, two = Ed25519Signer.generate("example.com"), Ed25519Signer.generate("example.com")
    assert one.verifier_key != two.verifier_key
    note = sign_note(TEXT, [one, two])
    assert open_note(note, [two.verifier_key]).signed_by == (two.verifier_key,)


def test_a_signer_may_be_anything_that_signs():
    class Remote:
        """Like a key in AWS KMS: the secret is behind the call."""

        name, key_id = KEY.name, KEY.key_id

        def sign(self, message: bytes) -> bytes:
            return Ed25519Signer.parse(SKEY).sign(message)

    remote: Signer = Remote()
    assert sign_note(TEXT, [remote]) == f"{TEXT}\n{SIGNATURE}".encode()


@pytest.mark.parametrize("text", ["", "no newline", "a\tb\n", "a\r\n", "\x00\n", "\ud800\n"])
def test_a_text_that_cannot_be_a_note_is_not_signed(text):
    with pytest.raises(ValueError, match=r"text of a note|surrogates"):
        sign_note(text, [Ed25519Signer.parse(SKEY)])


def test_a_note_needs_signers_each_once():
    signer = Ed25519Signer.parse(SKEY)
    for signers in ([], [signer, signer]):
        with pytest.raises(ValueError, match="at least one key, and once by each"):
            sign_note(TEXT, signers)


def test_a_key_id_has_four_bytes():
    class Wrong:
        name, key_id = KEY.name, b"12345"

        def sign(self, message: bytes) -> bytes:
            return bytes(64)

    with pytest.raises(ValueError, match="5 bytes, not 4"):
        sign_note(TEXT, [Wrong()])


def test_another_kind_of_key_is_called_that():
    with pytest.raises(ValueError, match="type is not Ed25519"):
        VerifierKey.parse(VKEY.replace("+ARpc", "+BRpc"))


def test_only_a_newline_ends_a_signature_line():
    line = SIGNATURE.removesuffix("\n")
    for separator in ("\u2028", "\u0085"):
        with pytest.raises(NoteError, match="not base64"):
            open_note(f"{TEXT}\n{line}{separator}{line}\n".encode(), [KEY])
    with pytest.raises(NoteError, match="ends in a blank line and signature lines"):
        open_note(f"{TEXT}\n{line}".encode(), [KEY])


def test_two_keys_that_cannot_be_told_apart_are_refused(monkeypatch):
    other = Ed25519Signer("PeterNeumann", bytes(32)).verifier_key
    monkeypatch.setattr(VerifierKey, "key_id", property(lambda self: b"same"))
    with pytest.raises(ValueError, match="two verifier keys"):
        open_note(b"", [KEY, other])


def test_a_note_over_the_limit_is_refused_before_it_is_read():
    with pytest.raises(NoteError, match="limit"):
        open_note(b"x" * (MAX_NOTE_BYTES + 1), [KEY])


@pytest.mark.parametrize(
    "text", ["", "A", "AA", "AAA", "AAAA=", "AB==", "A A=", "AA==\n", "AA-_", "ÄÄÄÄ", "=AAA", "AA==AAAA"]
)
def test_base64_has_one_spelling(text):
    with pytest.raises(ValueError, match="not base64"):
        decode_base64(text)


def test_a_signature_spelled_otherwise_is_refused():
    """Go takes it, for the last character has bits to spare. Two spellings of one note are one too many."""
    assert SIGNATURE.endswith("AM=\n")
    with pytest.raises(NoteError, match="not base64"):
        open_note(f"{TEXT}\n{SIGNATURE.replace('AM=', 'AN=')}".encode(), [KEY])


def test_a_checkpoint_is_three_lines():
    checkpoint = Checkpoint("example.com/log", 20852163, ROOT)
    assert checkpoint.text() == f"example.com/log\n20852163\n{ROOT_LINE}\n"
    assert Checkpoint.parse(checkpoint.text() + "an extension\n").extensions == ("an extension",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"o\n1\n{ROOT_LINE}",
        f"o\n1\n{ROOT_LINE}\nno newline at the end",
        f"o\n1\n{ROOT_LINE}\n\n",
        f"o\n1\n{ROOT_LINE}\n\nx\n",
        f"\n1\n{ROOT_LINE}\n",
        f"o\n01\n{ROOT_LINE}\n",
        f"o\n+1\n{ROOT_LINE}\n",
        f"o\n-1\n{ROOT_LINE}\n",
        f"o\n 1\n{ROOT_LINE}\n",
        f"o\n1_0\n{ROOT_LINE}\n",
        f"o\n\u0663\n{ROOT_LINE}\n",
        f"o\n1\u0663\n{ROOT_LINE}\n",
        f"o\n{2**63}\n{ROOT_LINE}\n",
        f"o\n{'9' * 5000}\n{ROOT_LINE}\n",
        f"o\n\n{ROOT_LINE}\n",
        f"o\n1\n{ROOT_LINE[:-4]}\n",
        f"o\n1\n{ROOT_LINE.replace('8=', '9=')}\n",
        "o\n1\n\n",
        "o\n1\n",
    ],
)
def test_a_text_that_is_no_checkpoint_is_refused(text):
    with pytest.raises(NoteError):
        Checkpoint.parse(text)


@pytest.mark.parametrize(
    "fields",
    [
        ("", 1, ROOT),
        ("a\nb", 1, ROOT),
        ("o", -1, ROOT),
        ("o", 2**63, ROOT),
        ("o", 1, ROOT[1:]),
        ("o", 1, ROOT, ("",)),
    ],
)
def test_a_checkpoint_that_could_not_be_read_is_not_made(fields):
    with pytest.raises(ValueError, match="checkpoint"):
        Checkpoint(*fields)


def test_a_checkpoint_is_of_one_log():
    signer = Ed25519Signer("example.com/log", bytes(32))
    keys = [signer.verifier_key]
    mine = Checkpoint("example.com/log", 1, ROOT)
    other = Checkpoint("example.com/other", 1, ROOT)
    assert open_checkpoint(mine.sign([signer]), keys) == mine
    assert open_checkpoint(other.sign([signer]), keys, "example.com/other") == other
    with pytest.raises(NoteError, match=r"is of 'example.com/other', not of example.com/log"):
        open_checkpoint(other.sign([signer]), keys)
    with pytest.raises(NoteError, match=r"not of example\.com/other"):
        open_checkpoint(mine.sign([signer]), keys, "example.com/other")
