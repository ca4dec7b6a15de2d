"""How long a stream may send without hearing from its driver.

A stream sends records only while it holds its lease. The lease begins when the stream sends a report that the driver answers, and
lasts `LEASE` seconds. The driver answers only while it is certain of its own place in the consumer group. So a process that was
frozen or cut off falls silent before the group gives its partitions to another process.
"""

from __future__ import annotations

import time

REPORT_EVERY = 0.5  # seconds between two reports of a stream
LEASE = 4.0  # seconds: eight missed reports
PRODUCE_TIMEOUT_MS = 5000  # how long a broker may hold a produce request
# Seconds after which the last request of a dead sender has been answered or dropped. Only needed where brokers forget identities.
ZOMBIE_HORIZON = LEASE + PRODUCE_TIMEOUT_MS / 1000

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_clock() -> float:
    """Return seconds on a clock that goes on while the machine is suspended."""
    return time.clock_gettime(_CLOCK)
