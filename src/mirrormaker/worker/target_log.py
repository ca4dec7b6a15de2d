"""One target partition, as its leader shows it: where its log begins and ends, its batches, and the producers it knows."""

from __future__ import annotations

import asyncio
import time

from mirrormaker.errors import BrokerError, UnsupportedRequest, raise_for
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS
from mirrormaker.model.position import Identity
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.cluster_description import Partition
from mirrormaker.wire.client.log_fetch import fetch_log
from mirrormaker.wire.client.log_offsets import DEBUGGING_REPLICA, EARLIEST, LATEST, look_up_offset
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.protocol.messages import DescribeProducersRequest
from mirrormaker.wire.records.batch import Batch, Batches
from mirrormaker.worker.outlet import UnconfirmedBatch

# Limit of one answer to a fetch. A position is committed after 64 MB of one partition, so a scan reads little more.
_SCAN_BYTES = 8 << 20
# Seconds between requests for a high watermark that has not reached the log end; the pause doubles each time.
_HIGH_WATERMARK_POLL, _LONGEST_POLL = 0.02, 1.0
_STUCK_AFTER = 2.0  # seconds without enough in-sync replicas until the unconfirmed batch is sent again
_REPEAT_TIMEOUT_MS = 1000  # how long the broker may hold that request


class TargetLog:
    """Reads one target partition."""

    def __init__(self, target: Cluster, topic: str, partition: int) -> None:
        self._target, self._topic, self._partition = target, topic, partition

    def __repr__(self) -> str:
        return f"{self._topic}-{self._partition}"

    def leader(self) -> Partition:
        """Return the partition's leader; raise BrokerError if it has none."""
        leader = self._target.leader(self._topic, self._partition)
        if leader is None:
            raise BrokerError(LEADER_NOT_AVAILABLE, f"{self} has no leader on the target")
        return leader

    async def start(self) -> int:
        """Return the log start offset."""
        return await self._offset(EARLIEST)

    async def replicated_end(self, unconfirmed: UnconfirmedBatch | None) -> int:
        """Return the leader's log end offset, once the high watermark has reached it: records beyond that may still vanish.

        A leader of Kafka 4 does not move its high watermark while there are fewer in-sync replicas than
        `min.insync.replicas`. If that setting is lowered, it moves it only at the next append. Therefore a batch that may
        have been appended is sent once more: the broker recognises the duplicate, answers it, and updates its high
        watermark.
        """
        end = await self._offset(LATEST, DEBUGGING_REPLICA)
        began, pause = time.monotonic(), _HIGH_WATERMARK_POLL
        while await self._offset(LATEST) < end:
            await asyncio.sleep(pause)
            pause = min(_LONGEST_POLL, 2 * pause)
            # A new leader, or a topic that was created again, may have a shorter log.
            end = min(end, await self._offset(LATEST, DEBUGGING_REPLICA))
            if unconfirmed is not None and time.monotonic() - began > _STUCK_AFTER:
                await self._send_again(unconfirmed)
                raise BrokerError(
                    NOT_ENOUGH_REPLICAS, "the end of the target's log is not on enough in-sync replicas yet"
                )
        return end

    async def fetch(self, offset: int) -> list[Batch]:
        """Return some batches from the offset on; the first one may begin before it. Whoever uses one checks its CRC."""
        self.leader()
        key = self._topic, self._partition
        log = await fetch_log(self._target, key, offset, _SCAN_BYTES, check_crcs=False, detail=self._topic)
        return [batch for run in log.runs if isinstance(run, Batches) for batch in run]

    async def last_sequence(self, identity: Identity) -> int | None:
        """Return the last sequence number that the leader remembers of a producer; None if it does not know it.

        The log is the better witness. This is used only where retention has deleted all our batches, or where the leader
        refuses the number that comes next in the log.
        """
        request = DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name=self._topic, partition_indexes=[self._partition])]
        )
        try:
            answer = await self._target.ask(request, self.leader().leader)
        except UnsupportedRequest:
            return None  # before Kafka 2.8; the ledger has to do
        (partition,) = answer.topics[0].partitions
        raise_for(partition.error_code, self._topic)
        for producer in partition.active_producers or ():
            if Identity(producer.producer_id, producer.producer_epoch) == identity and producer.last_sequence >= 0:
                return int(producer.last_sequence)
        return None

    async def _offset(self, when: int, replica: int = -1) -> int:
        return await look_up_offset(self._target, (self._topic, self._partition), when, replica=replica)

    async def _send_again(self, unconfirmed: UnconfirmedBatch) -> None:
        """Send the batch once more, only within the lease as always. The answer does not matter: the log will tell."""
        connection = await self._target.connection(self.leader().leader, "produce-again")
        version = produce.version_for(connection, [unconfirmed.topic_id])
        topics = [(self._topic, unconfirmed.topic_id, [(self._partition, memoryview(unconfirmed.data))])]
        parts = produce.encode_request(version, topics, acks=-1, timeout_ms=_REPEAT_TIMEOUT_MS)
        unconfirmed.is_under_way = True
        answer = connection.request(produce.API_KEY, version, produce.is_flexible(version), parts)
        await connection.answered_within(self._target.endpoint.request_timeout, "Produce", answer)
        unconfirmed.is_under_way = False
