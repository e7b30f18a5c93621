"""A process that serves requests from its end of a channel, as its supervisor sees it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence

from catalog.core.worker_channel import Channel


class ChannelProcess:
    """Started with this environment and no other. After an error of its own it is `ended`, and not used again."""

    def __init__(
        self, command: Sequence[str], arguments: Sequence[object], environment: Mapping[str, str], stderr: int | None
    ) -> None:
        """The command gets the number of its socket, then the arguments. `stderr`: as in subprocess.Popen."""
        self.ended = False
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), *map(str, arguments)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
            )
        self._channel = Channel(ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it can take a request, as far as can be seen without sending one."""
        return not self.ended and self._process.poll() is None

    def kill(self) -> None:
        """Ends the process at once, whatever it does, and waits until it is gone. Idempotent."""
        self.ended = True
        self._process.kill()
        self._process.wait()
        self._channel.close()
