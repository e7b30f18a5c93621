"""The hard limits that a worker process sets for itself, before it reads anything of a stranger's."""

from __future__ import annotations

import resource


def limit_resources(memory_bytes: int) -> None:
    """Sets the hard limits of this process; it cannot raise them again.

    RLIMIT_DATA counts memory that is private and writable, so it is close to what the process really uses. RLIMIT_AS
    would also count what allocators reserve and never touch: 1.9 GB for a worker that uses 0.15.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def limit_processor_time(seconds: float) -> None:
    """Ends the process (SIGXCPU) after so much more processor time than it has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + seconds) + 2, hard))
