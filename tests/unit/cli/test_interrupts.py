"""Signals end a waiting command, whichever of its threads the kernel chooses."""

from __future__ import annotations

import subprocess
import sys

_COMMAND = """
import signal, sys, threading, time
from cli.interrupts import interrupt_on_signals, wait_for_interrupt

def signal_this_thread():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(60)

interrupt_on_signals()
threading.Thread(target=signal_this_thread, daemon=True).start()
try:
    wait_for_interrupt()
except KeyboardInterrupt:
    sys.exit(3)
"""


def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    assert subprocess.run([sys.executable, "-c", _COMMAND], timeout=30).returncode == 3
