"""The process in which inputs are tried: `python -m tests.fuzz.worker TARGET:FIRST:COUNT …`. It may crash or hang.

It writes the target and number of each input before it tries it. Two seconds of its processor's time for one input end
it, and so does memory beyond its limit.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys

HANG_S = 2.0
BOUND_BYTES = 512 << 20
"""Of the largest target, beside the interpreter and its libraries: 1.5 times that is too much."""


def main() -> None:
    from tests.fuzz.mutation import mutate
    from tests.fuzz.targets import TARGETS, seeds

    runs = [(name, int(first), int(count)) for name, first, count in (text.split(":") for text in sys.argv[1:])]
    for name, *_ in runs:  # makes the seeds, and imports what the targets need
        TARGETS[name].check(seeds(name)[0])
    gc.freeze()
    limit = _private_bytes() + BOUND_BYTES * 3 // 2
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, first, count in runs:
        target, inputs = TARGETS[name], seeds(name)
        for number in range(first, first + count):
            sys.stdout.write(f"{name} {number}\n")
            sys.stdout.flush()
            # Negative numbers are the seeds and the corpus as they are.
            data = inputs[-number - 1] if number < 0 else mutate(inputs, number)
            gc.collect()  # what an earlier input left behind is not this one's
            signal.setitimer(signal.ITIMER_PROF, HANG_S)
            target.check(data)
            signal.setitimer(signal.ITIMER_PROF, 0)


def _private_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))


if __name__ == "__main__":
    main()
