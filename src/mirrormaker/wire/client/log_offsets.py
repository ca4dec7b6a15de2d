"""The start, the end and other offsets of a partition's log: ListOffsets."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mirrormaker.errors import OUTAGE, BadFrame, BrokerError, Unanswered
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import ListOffsetsRequest
from mirrormaker.wire.transport.turns import in_turns

# Timestamps with a special meaning; any other one asks for the first record at or after that time.
LATEST, EARLIEST = -1, -2
# As the replica id of a request: the broker answers with the log end offset instead of the high watermark.
DEBUGGING_REPLICA = -2
_ATTEMPTS, _PAUSE = 50, 0.2  # the pause is in seconds
_CHUNK = 200  # partitions in one request: the event loop must not stand still for long
_LOOKUPS_IN_ONE_TURN = 1000  # partitions whose leaders or answers are looked at before others have their turn


async def list_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    when: int,
    *,
    read_committed: bool = False,
    replica: int = -1,
) -> dict[TopicPartition, int | Exception]:
    """Return the offset of each partition at the timestamp `when`, or the error of its leader.

    A broker that does not answer is an error of the partitions that it leads; raise it only if no broker answers.
    """
    found: dict[TopicPartition, int | Exception] = {}
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    async for key in in_turns(partitions, _LOOKUPS_IN_ONE_TURN):
        leader = cluster.leader(*key)
        if leader is None:
            found[key] = BrokerError(LEADER_NOT_AVAILABLE, f"{key[0]}-{key[1]} has no leader")
        else:
            by_leader[leader.leader].append(key)
    chunks = [(node, keys[at : at + _CHUNK]) for node, keys in by_leader.items() for at in range(0, len(keys), _CHUNK)]
    unanswered: list[Exception] = []
    for node, keys in chunks:
        try:
            found |= await _ask_leader(cluster, node, keys, when, read_committed, replica)
        except OUTAGE as error:
            unanswered.append(error)
            found |= dict.fromkeys(keys, error)
    if unanswered and len(unanswered) == len(chunks):
        raise unanswered[0]
    return found


async def _ask_leader(
    cluster: Cluster, node: int, keys: Iterable[TopicPartition], when: int, read_committed: bool, replica: int
) -> dict[TopicPartition, int | Exception]:
    entry, row = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    topics: dict[str, list[Any]] = defaultdict(list)
    for topic, partition in keys:
        known = cluster.leader(topic, partition)  # it may be gone: the metadata was read again meanwhile
        epoch = known.leader_epoch if known else -1
        topics[topic].append(row(partition_index=partition, current_leader_epoch=epoch, timestamp=when))
    request = ListOffsetsRequest(
        replica_id=replica,
        isolation_level=int(read_committed),
        topics=[entry(name=topic, partitions=rows) for topic, rows in topics.items()],
    )
    answer = await cluster.ask(request, node)
    found: dict[TopicPartition, int | Exception] = {
        key: BadFrame(f"broker {node} did not answer for {key[0]}-{key[1]}") for key in keys
    }
    for topic_answer in answer.topics:
        for p in topic_answer.partitions:
            found[topic_answer.name, p.partition_index] = BrokerError(p.error_code) if p.error_code else _offset(p)
    return found


def _offset(answer: Any) -> int:
    """Return the offset of an answer; before Kafka 0.10.1 it is the only one of a list."""
    return int(answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset)


class _SharedLookups:
    """Lookups of single partitions that come in the same turn of the event loop go out in one request."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = weakref.ref(cluster)
        # By timestamp and replica id, the partitions of the next request.
        self._next: dict[tuple[int, int], dict[TopicPartition, asyncio.Future[int]]] = {}
        self._requests: set[asyncio.Task[None]] = set()

    async def look_up(self, key: TopicPartition, when: int, replica: int) -> int:
        """Return one partition's offset; raise the error of its leader."""
        loop = asyncio.get_running_loop()
        if (when, replica) not in self._next:
            self._next[when, replica] = {}
            loop.call_soon(self._send, when, replica)
        answer = self._next[when, replica].setdefault(key, loop.create_future())
        # Several may wait for it, and each of them may be cancelled.
        return await asyncio.shield(answer)

    def _send(self, when: int, replica: int) -> None:
        request = asyncio.ensure_future(self._ask(self._next.pop((when, replica)), when, replica))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)

    async def _ask(self, waiting: dict[TopicPartition, asyncio.Future[int]], when: int, replica: int) -> None:
        cluster = self._cluster()
        assert cluster is not None, "those who wait have the cluster"
        found: Mapping[TopicPartition, int | BaseException]
        try:
            found = await list_offsets(cluster, waiting, when, replica=replica)
        except BaseException as error:  # whatever it is, it is the error of all who wait
            found = dict.fromkeys(waiting, error)
        for key, answer in waiting.items():
            result = found[key]
            if isinstance(result, asyncio.CancelledError):
                answer.cancel()
            elif isinstance(result, BaseException):
                # Each of them raises it: without this, its traceback would grow each time.
                answer.set_exception(result.with_traceback(None))
                answer.exception()  # asyncio would complain about an exception that nobody has looked at
            else:
                answer.set_result(result)


_LOOKUPS: weakref.WeakKeyDictionary[Cluster, _SharedLookups] = weakref.WeakKeyDictionary()


async def look_up_offset(cluster: Cluster, key: TopicPartition, when: int, *, replica: int = -1) -> int:
    """Return one partition's offset at the timestamp `when`; raise the error of its leader.

    Thousands of partitions that resume at the same time share a few requests.
    """
    if cluster not in _LOOKUPS:
        _LOOKUPS[cluster] = _SharedLookups(cluster)
    return await _LOOKUPS[cluster].look_up(key, when, replica)


async def find_offsets(
    cluster: Cluster, keys: Iterable[TopicPartition], when: int, read_committed: bool = False, *, attempts: int = 5
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Exception]]:
    """Return the offset of each partition at the timestamp `when`, and the last error of those that could not be found.

    Leaders that move are asked again, each 0.2 s after the last time.
    """
    wanted: dict[TopicPartition, Exception] = {key: LookupError() for key in keys}
    found: dict[TopicPartition, int] = {}
    for attempt in range(attempts):
        if attempt and wanted:
            await asyncio.sleep(_PAUSE)
            with contextlib.suppress(*OUTAGE):
                await cluster.refresh({topic for topic, _ in wanted})
        try:
            answers = await list_offsets(cluster, wanted, when, read_committed=read_committed) if wanted else {}
        except OUTAGE as error:
            answers = dict.fromkeys(wanted, error)
        async for key, answer in in_turns(answers.items(), _LOOKUPS_IN_ONE_TURN):
            if isinstance(answer, Exception):
                wanted[key] = answer
            else:
                found[key] = answer
                wanted.pop(key, None)
    return found, wanted


async def wait_for_offsets(
    cluster: Cluster, keys: Iterable[TopicPartition], when: int, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at the timestamp `when`; ask again while leaders move.

    Raise Unanswered after 50 attempts, that is after 10 s at least.
    """
    found, failed = await find_offsets(cluster, keys, when, read_committed, attempts=_ATTEMPTS)
    if failed:
        topic, partition = min(failed)
        last = failed[topic, partition]
        raise Unanswered(f"{cluster.endpoint} does not tell the offsets of {topic}-{partition}: {last}", topic)
    return found
