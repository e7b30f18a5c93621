"""Keeps a log's checkpoints in a git repository, one commit for each: others who fetch it see one history.

A checkpoint is committed only if its tree extends that of the one before it. Uses the `git` command.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from catalog import Invalid, Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import NoteError, split_note
from catalog.timeline import Timeline

FILE = "checkpoint"


@dataclass(frozen=True)
class CheckpointRepository:
    """A directory that is, or becomes, the work tree of a git repository."""

    directory: Path

    def publish(self, timeline: Timeline) -> tuple[Checkpoint, bool]:
        """Commits the published checkpoint; False if it is the one that is there already, with the same signatures.

        Unverified if the log does not extend the checkpoint that is there: the repository stays as it is.
        """
        head = timeline.public_head()
        kept = self._kept()
        if kept == head.note:
            return head.checkpoint, False
        if kept is not None:
            self._check_extends(kept, timeline, head.checkpoint)
        self._git("init", "--quiet")
        (self.directory / FILE).write_bytes(head.note)
        self._git("add", "--", FILE)
        message = f"{head.checkpoint.origin}: {head.checkpoint.size} leaves"
        self._git(*self._identity(), "commit", "--quiet", "--no-verify", "-m", message, "--", FILE)
        return head.checkpoint, True

    def _kept(self) -> bytes | None:
        """The last committed checkpoint. The file in the work tree may be another one after a crash."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not (self.directory / ".git").exists():
            return None
        shown = self._run("show", f"HEAD:./{FILE}")
        return shown.stdout if shown.returncode == 0 else None

    def _check_extends(self, kept: bytes, timeline: Timeline, new: Checkpoint) -> None:
        subject = str(self.directory / FILE)
        try:
            old = Checkpoint.parse(split_note(kept)[0])
        except NoteError as error:
            raise Unverified(f"{subject} is not a checkpoint: {error}", subject=subject) from None
        if old.origin != new.origin:
            raise Invalid(f"{subject} is of {old.origin}, not of {new.origin}: choose another directory")
        if old.size > new.size:
            raise Unverified(f"{subject} has {old.size} leaves, the log only {new.size}: history was lost")
        proof = timeline.consistency(old.size, new.size)
        if (proof.old.checkpoint.root, proof.new.checkpoint.root) != (old.root, new.root):
            raise Unverified(f"{subject}, of size {old.size}, is of another history than the log", subject=subject)

    def _identity(self) -> list[str]:
        """Git's own identity if the user has one; a scheduled job may not."""
        if self._run("var", "GIT_COMMITTER_IDENT").returncode == 0:
            return []
        return ["-c", "user.name=strandline", "-c", "user.email=strandline@localhost"]

    def _git(self, *words: str) -> None:
        done = self._run(*words)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise Invalid(f"git {' '.join(words)} in {self.directory} failed: {said}")

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        program = shutil.which("git")
        if program is None:
            raise Invalid("there is no git command: install git")
        return subprocess.run([program, "-C", str(self.directory), *words], capture_output=True)
