"""SIGINT (Ctrl-C) and SIGTERM, for commands that must stop what they started before they exit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED = 130
"""The exit code of an interrupted command: 128 plus SIGINT's number, as in shells."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_EVERY_S = 0.5


def interrupt_on_signals() -> None:
    """Makes both signals raise KeyboardInterrupt from now on, so that every `finally` runs."""
    _handle(_interrupt)


def wait_for_interrupt() -> NoReturn:
    """Sleeps until one of the signals raises KeyboardInterrupt.

    In short naps: the kernel may deliver a signal to another thread, and Python runs its handler in the main thread
    only, when that next wakes.
    """
    while True:
        time.sleep(_LOOK_EVERY_S)


def ignore_signals() -> None:
    """Ignores both signals until the process ends: an interrupted clean-up would leave processes behind."""
    _handle(signal.SIG_IGN)


@contextmanager
def signals_held() -> Iterator[None]:
    """Blocks both signals until the block ends, in this process and in those that the block starts."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _handle(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # only the main thread may set handlers
        for number in _SIGNALS:
            signal.signal(number, handler)


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
