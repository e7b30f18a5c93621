"""Trust policies (c2sp.org/tlog-policy): which logs are accepted, and how many of which witnesses must have cosigned.

A policy is the verifier's own file. Nothing in a checkpoint or proof can change what it demands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.cosignature import WitnessKey, read_cosignatures
from catalog.merkle.note import NoteError, VerifierKey

MAX_POLICY_BYTES = 256 << 10
NO_WITNESS = "none"
MAX_SKEW_S = 300
"""How far a witness's clock may be ahead of the verifier's."""
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_SPACE = re.compile(r"[ \t]+")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")


class PolicyError(ValueError):
    """A policy file that cannot be used. The message has the line."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Accepts a checkpoint signed by one of the logs and witnessed by the quorum, a witness or group by name."""

    logs: tuple[VerifierKey, ...]
    quorum: str
    witnesses: Mapping[str, WitnessKey] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """Name -> (how many of its members, the members)."""
    urls: Mapping[str, str] = field(default_factory=dict)
    """The name of a witness -> the prefix to which checkpoints are sent."""
    not_before: int = 0
    """Only cosignatures from this time on count, and up to `not_after` (POSIX seconds): see `recent`."""
    not_after: int = 2**63 - 1

    def __post_init__(self) -> None:
        """A witness is somebody else than the log, and each witness than the others: PolicyError if not."""
        signers = [key.public_key for key in self.logs]
        for name, witness in self.witnesses.items():
            if witness.public_key in signers:
                raise PolicyError(f"the witness {name} has the public key of a log or of another witness")
            signers.append(witness.public_key)

    @classmethod
    def parse(cls, data: bytes) -> Policy:
        """Reads a policy file; PolicyError with the line for anything that the specification does not allow."""
        return _Parser().parse(data)

    def check(self, note: bytes, origin: str | None = None) -> Checkpoint:
        """The checkpoint, if a log of the policy signed it and the quorum cosigned it; NoteError if not.

        `origin`: the log it must be of. A signature that is there but wrong is refused, though others would suffice.
        """
        if not self.logs:
            raise NoteError("the policy names no log: add a line `log <verifier key>`")
        checkpoint = open_checkpoint(note, self.logs, origin)
        names = self.cosigned_by(note)
        if not self._is_witnessed(self.quorum, names):
            missing = ", ".join(sorted(self.witnesses.keys() - names))
            when = f" from {self.not_before} to {self.not_after} (POSIX seconds)" if self.not_before else ""
            raise NoteError(
                f"the quorum {self.quorum} of the policy is not met: {len(names)} of its {len(self.witnesses)} "
                f"witnesses cosigned{when} ({', '.join(sorted(names)) or 'none'}); missing: {missing}"
            )
        return checkpoint

    def recent(self, max_age_s: int, now_s: int) -> Policy:
        """The policy that counts only cosignatures of the last `max_age_s` seconds: the checkpoint was current then.

        A log cannot show an old checkpoint for the newest to somebody who demands this, unless witnesses cosign it
        anew. A time in the future is wrong, or was chosen to last: MAX_SKEW_S is tolerated. PolicyError if the policy
        demands no witness, since a log's own signature has no time.
        """
        if self.quorum == NO_WITNESS:
            raise PolicyError("the policy demands no witness: only a cosignature says how old a checkpoint is")
        if max_age_s <= 0:
            raise PolicyError(f"the age of a checkpoint is at most some seconds, not {max_age_s}")
        return replace(self, not_before=max(now_s - max_age_s, 1), not_after=now_s + MAX_SKEW_S)

    def cosigned_by(self, note: bytes) -> set[str]:
        """The names of the policy's witnesses that cosigned the checkpoint; NoteError if one of them signed another."""
        cosigned = {
            cosignature.key
            for cosignature in read_cosignatures(note, self.witnesses.values())
            if self.not_before <= cosignature.timestamp <= self.not_after
        }
        return {name for name, key in self.witnesses.items() if key in cosigned}

    def for_logs(self, keys: Iterable[VerifierKey]) -> Policy:
        """The policy for logs that the caller knows from elsewhere; with no keys, the policy itself.

        PolicyError if both name logs, which would leave open what is trusted, or if neither does.
        """
        logs = tuple(keys)
        if self.logs and logs:
            raise PolicyError("the policy names its logs: leave out the key, or the policy's `log` lines")
        if not self.logs and not logs:
            raise PolicyError("the policy names no log: add a line `log <verifier key>`, or pass the log's key")
        return replace(self, logs=self.logs or logs)

    def _is_witnessed(self, name: str, cosigned: set[str]) -> bool:
        if name == NO_WITNESS:
            return True
        if name in self.witnesses:
            return name in cosigned
        needed, members = self.groups[name]
        return sum(self._is_witnessed(member, cosigned) for member in members) >= needed


class _Parser:
    """Reads a policy line by line. A name is defined before it is used, so groups cannot contain themselves."""

    def __init__(self) -> None:
        self._logs = list[VerifierKey]()
        self._witnesses, self._urls = dict[str, WitnessKey](), dict[str, str]()
        self._groups = dict[str, tuple[int, tuple[str, ...]]]()
        self._members = set[str]()
        self._quorum: str | None = None

    def parse(self, data: bytes) -> Policy:
        if len(data) > MAX_POLICY_BYTES:
            raise PolicyError(f"a policy of {len(data)} bytes is over the limit of {MAX_POLICY_BYTES}")
        if _FORBIDDEN.search(data):
            raise PolicyError("a policy has no control characters but tabs and newlines")
        # Bytes above ASCII are opaque in names and comments: latin-1 maps each to a character of its own.
        for number, line in enumerate(data.decode("latin-1").split("\n"), 1):
            words = [word for word in _SPACE.split(line) if word]
            if words and not words[0].startswith("#"):
                try:
                    self._define(words[0], words[1:])
                except ValueError as error:
                    raise PolicyError(f"line {number}: {error}") from None
        if self._quorum is None:
            raise PolicyError("a policy has a line `quorum <name>`, or `quorum none` to demand no witness")
        return Policy(tuple(self._logs), self._quorum, self._witnesses, self._groups, self._urls)

    def _define(self, keyword: str, words: list[str]) -> None:
        if keyword == "log" and len(words) in (1, 2):
            self._add_log(VerifierKey.parse(words[0].encode("latin-1").decode()))
        elif keyword == "witness" and len(words) in (2, 3):
            self._add_witness(words[0], WitnessKey.parse(words[1].encode("latin-1").decode()), words[2:])
        elif keyword == "group" and len(words) >= 3:
            self._add_group(words[0], words[1], words[2:])
        elif keyword == "quorum" and len(words) == 1:
            self._set_quorum(words[0])
        else:
            raise ValueError(
                "a line is `log <vkey> [<url>]`, `witness <name> <vkey> [<url>]`, "
                "`group <name> all|any|<k> <name>...` or `quorum <name>`"
            )

    def _add_log(self, key: VerifierKey) -> None:
        if any(log.public_key == key.public_key for log in self._logs):
            raise ValueError(f"a second log has the public key of {key.name}")
        self._logs.append(key)

    def _add_witness(self, name: str, key: WitnessKey, urls: list[str]) -> None:
        self._check_new(name)
        if any(witness.public_key == key.public_key for witness in self._witnesses.values()):
            raise ValueError(f"a second witness has the public key of {name}")
        self._witnesses[name] = key
        self._urls |= dict.fromkeys([name], urls[0]) if urls else {}

    def _add_group(self, name: str, threshold: str, members: list[str]) -> None:
        self._check_new(name)
        for member in members:
            if member not in self._witnesses and member not in self._groups:
                raise ValueError(f"the member {member} is not defined on a line before")
            if member in self._members or members.count(member) > 1:
                raise ValueError(f"{member} is a member of a group already")
        if threshold not in ("all", "any") and not _COUNT.fullmatch(threshold):
            raise ValueError(f"a group's threshold is `all`, `any` or a number, not {threshold}")
        needed = {"all": len(members), "any": 1}.get(threshold) or int(threshold)
        if needed > len(members):
            raise ValueError(f"the group {name} needs {needed} of {len(members)} members")
        self._members |= set(members)
        self._groups[name] = (needed, tuple(members))

    def _set_quorum(self, name: str) -> None:
        if self._quorum is not None:
            raise ValueError("a policy has one quorum, and this is the second")
        if name != NO_WITNESS and name not in self._witnesses and name not in self._groups:
            raise ValueError(f"the quorum {name} is not defined on a line before")
        self._quorum = name

    def _check_new(self, name: str) -> None:
        if name == NO_WITNESS or name in self._witnesses or name in self._groups:
            raise ValueError(f"the name {name} is taken")
