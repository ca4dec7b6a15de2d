"""New producer identities, for one partition or for thousands of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from mirrormaker.errors import BrokerError, ClusterError, MirrorError, Unanswered
from mirrormaker.kafka_errors import CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR
from mirrormaker.model.position import MARKED_EPOCH, UNNUMBERED, Identity
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import InitProducerIdRequest

_RETRIES = 50  # times 0.2 s: a new cluster has no producer ids to give for its first seconds
_AT_ONCE = 100  # identities requested without waiting in between


async def allocate_identities(
    target: Cluster, keys: Sequence[TopicPartition], *, marked: bool = True
) -> tuple[dict[TopicPartition, Identity], dict[TopicPartition, Exception]]:
    """Return a new identity for each partition, and the errors of those for which the target gives none.

    `marked` False: they have the epoch that the target gave them, instead of the mark of mirrors.
    """
    if not keys or not await target.knows(InitProducerIdRequest):
        return dict.fromkeys(keys, UNNUMBERED), {}
    identities: dict[TopicPartition, Identity] = {}
    ready: list[Identity] = []
    for number, key in enumerate(keys):
        if not ready:
            ready = await _allocate_many(target, min(_AT_ONCE, len(keys) - number), marked)
        try:
            name = _name(keys[number:])
            identities[key] = ready.pop() if ready else await allocate_identity(target, name, marked=marked)
        except (MirrorError, OSError) as error:
            # The target would refuse the others too, each after its own retries.
            return identities, dict.fromkeys(keys[number:], error)
    return identities, {}


def _name(keys: Sequence[TopicPartition]) -> str:
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"{keys[0][0]}-{keys[0][1]}{more}"


async def _allocate_many(target: Cluster, count: int, marked: bool) -> list[Identity]:
    """Allocate up to so many producer ids at once; fewer, or none, if the target does not give them at the first request."""
    try:
        answers = await target.ask_times(_new_identity_request(), count)
    except (MirrorError, OSError):
        return []
    return [identity for answer in answers if (identity := _identity_of(answer, marked)) is not None]


def _new_identity_request() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


def _identity_of(answer: Any, marked: bool) -> Identity | None:
    # A broker takes the producer id -1 with sequence numbers, and checks none of them.
    if answer.error_code or answer.producer_id < 0 or answer.producer_epoch < 0:
        return None
    # An epoch that is not 0 means something to the broker that gave it.
    return Identity(answer.producer_id, answer.producer_epoch or (MARKED_EPOCH if marked else 0))


async def allocate_identity(target: Cluster, name: str, *, marked: bool = True) -> Identity:
    """Allocate a producer id that nobody else uses. `name` tells users which partitions wait for it."""
    last = 0
    for _ in range(_RETRIES):
        try:
            answer = await target.ask(_new_identity_request())
        except OSError:
            await asyncio.sleep(0.2)
            continue
        if (identity := _identity_of(answer, marked)) is not None:
            return identity
        last = answer.error_code or UNKNOWN_SERVER_ERROR
        if last == CLUSTER_AUTHORIZATION_FAILED:
            raise ClusterError(f"{name}: {denied(target.endpoint, 'IdempotentWrite', 'cluster')}")
        if not BrokerError(last).retriable:
            break
        await asyncio.sleep(0.2)
    error = BrokerError(last or UNKNOWN_SERVER_ERROR)
    text = f"{name}: {target.endpoint} gives no producer id: {error}"
    raise Unanswered(text) if error.retriable or not last else ClusterError(text)
