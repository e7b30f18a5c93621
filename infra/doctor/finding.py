"""What a check found: whether it is well, what was seen, and what to type next if it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    check: str
    ok: bool
    seen: str
    next: str = ""
    """What to type or change; empty if it is well."""


Check = Callable[[], Finding]


def run_checks(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """Runs every check. One that fails by itself is a finding, too, and the others run all the same."""
    for name, check in checks:
        try:
            yield check()
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            yield Finding(
                name, False, f"could not be checked: {reason}", "allow or mend that, and run the doctor again"
            )
