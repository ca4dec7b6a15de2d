"""Everything that a stream of one flow is told when Spark starts it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrormaker.worker.stream_task import StreamTask

if TYPE_CHECKING:
    from mirrormaker.driver.flow import Flow


def stream_task(flow: Flow) -> StreamTask:
    """Return a flow's settings as its streams need them; its clusters must have answered."""
    settings, target, options, control = flow.settings, flow.wiring.target, flow.options, flow.wiring.control
    return StreamTask(
        flow=flow.number,
        job=0,  # each job gets its own number when it starts
        control=control.address,
        secret=control.secret,
        source=replace(flow.source.endpoint, broker_version=flow.source.found_version),
        target=replace(flow.target.endpoint, broker_version=flow.target.found_version),
        read_committed=settings.read_committed,
        acks=target.acks,
        max_in_flight=target.max_in_flight,
        connections=options.num_producers,
        buffer_bytes=target.buffer_bytes,
        buffer_messages=options.queue_size,
        max_request_bytes=target.max_request_bytes,
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
        fetch_min_bytes=settings.fetch_min_bytes,
        fetch_max_bytes=settings.fetch_max_bytes,
        partition_fetch_bytes=settings.partition_fetch_bytes,
        identity_expiration_ms=flow.expiration_ms,
        batch_bytes=target.batch_bytes,
        linger=target.linger,
        codec=target.codec,
        partition_by=target.partition_by,
        handler=options.message_handler,
        handler_object=options.handler_object,
        keeps_offset_map=flow.offset_map is not None and flow.is_exact,
    )
