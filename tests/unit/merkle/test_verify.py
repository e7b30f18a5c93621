"""The verifier's strictness, and that it stands alone."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from catalog.merkle import ProofError, verify_batch, verify_consistency, verify_inclusion, verify_range

ROOM = Path(__file__).parents[3]


def H(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


# The seven leaves of RFC 6962, 2.1.3.
a, b, c, d, e, f, j = (letter.encode() * 32 for letter in "abcdefj")
g, h, i = H(a, b), H(c, d), H(e, f)
k = H(g, h)
l = H(i, j)  # noqa: E741
root3, root4, root6, root7 = H(g, c), k, H(k, i), H(k, l)


def test_the_rfcs_examples_hold():
    verify_inclusion(a, 0, 7, [b, h, l], root7)
    verify_inclusion(d, 3, 7, [c, g, l], root7)
    verify_inclusion(e, 4, 7, [f, j, k], root7)
    verify_inclusion(j, 6, 7, [i, k], root7)
    verify_consistency(3, 7, [c, d, g, l], root3, root7)
    verify_consistency(4, 7, [l], root4, root7)
    verify_consistency(6, 7, [i, j, k], root6, root7)
    verify_consistency(7, 7, [], root7, root7)
    verify_batch([a, d], [0, 3], 7, [b, c, l], root7)
    verify_range([b, c, d, e], 1, 7, [a, f, j], root7)
    verify_range([a, b, c, d, e, f, j], 0, 7, [], root7)


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("has no leaf 0", lambda: verify_inclusion(a, 0, 0, [], a)),
        ("has no leaf 7", lambda: verify_inclusion(j, 7, 7, [i, k], root7)),
        ("has no leaf -1", lambda: verify_inclusion(j, -1, 7, [i, k], root7)),
        ("has no leaf 0", lambda: verify_inclusion(a, 0, -1, [], a)),
        ("more hashes", lambda: verify_inclusion(a, 0, 1, [b], H(a, b))),
        ("more hashes", lambda: verify_inclusion(j, 6, 7, [i, k, k], root7)),
        ("fewer hashes", lambda: verify_inclusion(j, 6, 7, [i], root7)),
        ("fewer hashes", lambda: verify_inclusion(a, 0, 2, [], a)),
        ("not to " + root6.hex(), lambda: verify_inclusion(a, 0, 7, [b, h, l], root6)),
        # A root said to be of a larger tree, whose paths are longer.
        ("fewer hashes", lambda: verify_inclusion(a, 0, 9, [b, h, l], root7)),
        ("fewer hashes", lambda: verify_consistency(4, 9, [l], root4, root7)),
        # An inner node offered as a leaf: its row is not the leaves'.
        ("fewer hashes", lambda: verify_inclusion(g, 0, 7, [h, l], root7)),
        ("32 bytes", lambda: verify_inclusion(a[:31], 0, 7, [b, h, l], root7)),
        ("32 bytes", lambda: verify_inclusion(a, 0, 7, [b, h, l + b"x"], root7)),
        ("32 bytes", lambda: verify_inclusion(a, 0, 7, [b, h, l], root7 + b"x")),
        ("32 bytes", lambda: verify_inclusion(a, 0, 7, ["b" * 32, h, l], root7)),
        ("32 bytes", lambda: verify_inclusion(a, 0, 7, [None, h, l], root7)),
        ("no proof of consistency", lambda: verify_consistency(0, 7, [], sha256().digest(), root7)),
        (
            "no proof of consistency",
            lambda: verify_consistency(0, 0, [], sha256().digest(), sha256().digest()),
        ),
        ("no proof of consistency", lambda: verify_consistency(7, 6, [i, j, k], root7, root6)),
        ("no proof of consistency", lambda: verify_consistency(-1, 6, [i], root7, root6)),
        ("fewer hashes", lambda: verify_consistency(4, 7, [], root4, root7)),
        ("fewer hashes", lambda: verify_consistency(3, 7, [], root3, root7)),
        ("fewer hashes", lambda: verify_consistency(3, 7, [c, d, g], root3, k)),
        ("more hashes", lambda: verify_consistency(4, 7, [l, l], root4, root7)),
        ("more hashes", lambda: verify_consistency(7, 7, [l], root7, root7)),
        ("not to", lambda: verify_consistency(7, 7, [], root7, root6)),
        ("the old tree", lambda: verify_consistency(6, 7, [i, j, k], root4, root7)),
        ("the new tree", lambda: verify_consistency(6, 7, [i, j, k], root6, root4)),
        ("0 indices", lambda: verify_batch([], [], 7, [], root7)),
        ("2 indices and 1 leaf", lambda: verify_batch([a], [0, 3], 7, [b, c, l], root7)),
        ("do not ascend", lambda: verify_batch([d, a], [3, 0], 7, [b, c, l], root7)),
        ("do not ascend", lambda: verify_batch([a, a], [0, 0], 7, [b, h, l], root7)),
        ("has no leaves 0 to 7", lambda: verify_batch([a, d], [0, 7], 7, [b, c, l], root7)),
        ("has no leaves -1 to 3", lambda: verify_batch([a, d], [-1, 3], 7, [b, c, l], root7)),
        ("more hashes", lambda: verify_batch([a, d], [0, 3], 7, [b, c, l, l], root7)),
        ("fewer hashes", lambda: verify_batch([a, d], [0, 3], 7, [b, c], root7)),
        ("32 bytes", lambda: verify_batch([a[1:], d], [0, 3], 7, [b, c, l], root7)),
        # A hash that the leaves give themselves is not asked for, and not taken.
        ("more hashes", lambda: verify_batch([a, b], [0, 1], 7, [b, h, l], root7)),
    ],
)
def test_what_is_refused_and_why(what, call):
    with pytest.raises(ProofError, match=what):
        call()


def python(*arguments: str) -> str:
    run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOM, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_verifier_runs_alone_on_a_bare_python():
    """-I and -S: no site-packages and nothing of ours on the path, only the one file."""
    script = """
import runpy, sys
v = runpy.run_path(sys.argv[1])
v["verify_inclusion"](b"a" * 32, 0, 1, [], b"a" * 32)
try:
    v["verify_inclusion"](b"a" * 32, 0, 1, [], b"b" * 32)
except v["ProofError"]:
    print("refused", any(name.startswith(("catalog", "cryptography")) for name in sys.modules))
"""
    assert python("-I", "-S", "-c", script, str(ROOM / "catalog/merkle/verify.py")) == "refused False"


def test_importing_the_package_loads_nothing_from_pypi():
    script = """
import sys
sys.path.insert(0, "")
before = set(sys.modules)
import catalog.merkle
loaded = {name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
ours = {name for name in sys.modules if name.startswith("catalog.") and not name.startswith("catalog.merkle")}
print(sorted(loaded), sorted(ours))
"""
    assert python("-c", script) == "['catalog'] []"
