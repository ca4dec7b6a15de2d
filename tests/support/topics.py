"""Create and delete topics of an embedded cluster, and follow their end offsets cheaply."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafka import KafkaAdminClient

from mirrormaker.embedded import Cluster
from tests.support import raw_requests
from tests.support.waiting import wait_until

_DELETED = 20.0  # seconds for deleted topics to leave the metadata; a tenth of one is usual


class EndOffsets:
    """The end offsets of a topic at a cluster of one broker."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._connection = raw_requests.RawConnection(cluster.brokers[0].port)
        self._request = raw_requests.list_end_offsets_request(topic, partitions)

    def records(self) -> int:
        """Return the sum of the end offsets: the number of records, if the topic has lost none."""
        return sum(max(0, end) for end in self.by_partition())

    def by_partition(self) -> list[int]:
        """Return the end offset of each partition, -1 for a partition that the broker does not lead (yet)."""
        return raw_requests.listed_end_offsets(self._connection.ask(self._request))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def create_topic(cluster: Cluster, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic and wait until its broker leads every partition; metadata name the leader a moment earlier."""
    cluster.create_topic(topic, partitions, config=config)
    ends = EndOffsets(cluster, topic, partitions)
    while -1 in ends.by_partition():
        time.sleep(0.02)
    ends.close()


def delete_all_topics(cluster: Cluster) -> None:
    """Delete all topics but Kafka's internal ones, and wait until they are gone."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        names = _topics(admin)
        if names:
            admin.delete_topics(sorted(names))
        wait_until(f"{', '.join(sorted(names))} deleted", lambda: not _topics(admin) & names, _DELETED)
    finally:
        admin.close()


def _topics(admin: KafkaAdminClient) -> set[str]:
    return {name for name in admin.list_topics() if not name.startswith("__")}
