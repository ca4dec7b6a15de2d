"""Everything that a stream is told when Spark starts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mirrormaker.wire.client.cluster import Endpoint


@dataclass(frozen=True)
class StreamTask:
    """The settings that streams need. They travel in Spark's closure, so secrets stay out of Spark's configuration."""

    flow: int
    job: int  # the number of the Spark job
    control: tuple[str, int]  # address of the control server
    secret: bytes = field(repr=False)
    source: Endpoint
    target: Endpoint
    read_committed: bool
    acks: int
    max_in_flight: int
    connections: int  # per target broker (--num.producers)
    buffer_bytes: int
    buffer_messages: int | None  # --queue.size; None bounds bytes only
    max_request_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    partition_fetch_bytes: int
    identity_expiration_ms: int  # the target's producer.id.expiration.ms
    batch_bytes: int  # largest batch that the mirror packs itself (batch.size)
    linger: float  # seconds that small batches wait for more (linger.ms)
    codec: int | None  # compression.type; None keeps the codec of the source
    partition_by: str | None  # "key" or "same"; None keeps the partition where both sides have as many
    handler: tuple[str, str | None] | None  # --message.handler and its arguments
    keeps_offset_map: bool = False
    # A handler that is an object of the program which started the mirror; it travels with the task.
    handler_object: Callable[[Any], Any] | None = None
