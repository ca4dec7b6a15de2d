"""What a stream is told when it is started, and the words it exchanges with the desk."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mirrormaker.wire.client.cluster import Endpoint

REPORT_EVERY = 0.5  # seconds between reports; a stop is heard at once, because the desk speaks unasked too
LEASE = 4.0  # seconds without a word from the desk after which a stream sends nothing more (eight missed reports)
PRODUCE_TIMEOUT_MS = 5000  # how long a broker may hold a request: a dead stream's requests are through after that
# A dead sender's last request has been answered or dropped by then; needed only where brokers forget identities.
ZOMBIE_HORIZON = LEASE + PRODUCE_TIMEOUT_MS / 1000

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds, for leases: a machine that sleeps does not stop this clock."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True)
class StreamTask:
    """The part of the settings that streams need; travels inside Spark's closure, so secrets stay out of its configuration."""

    flow: int
    epoch: int
    control: tuple[str, int]
    secret: bytes = field(repr=False)
    source: Endpoint
    target: Endpoint
    read_committed: bool
    acks: int
    max_in_flight: int
    connections: int  # to each target broker (--num.producers)
    buffer_bytes: int
    buffer_messages: int | None  # --queue.size; None: only bytes count
    max_request_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    partition_fetch_bytes: int
    identity_expiration_ms: int  # the target's producer.id.expiration.ms
    batch_bytes: int  # of a batch that is packed here: batch.size, or what brokers like
    linger: float  # seconds that small batches wait for others
    codec: int | None  # compression.type; None: as it came
    partition_by: str | None  # "key" or "same"; None: the same where the counts are equal
    handler: tuple[str, str | None] | None  # --message.handler and its arguments
