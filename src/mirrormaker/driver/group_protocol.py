"""The consumer group protocol's payloads: subscriptions, assignments and commits, and what a generation gave us."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mirrormaker.errors import BadFrame
from mirrormaker.model.assignor import REJOIN, Member, decode_user_data, encode_user_data
from mirrormaker.wire.client.groups import by_topic
from mirrormaker.wire.protocol import messages
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OffsetCommitRequest,
)
from mirrormaker.wire.protocol.schema_decoder import MOST_WORK

Row = tuple[int, int, int, str]  # of a commit: partition, offset, leader epoch, metadata

# Before Kafka 2.1 a broker forgets a committed offset after a day, unless the commit asks for more.
_RETENTION_MS = 365 * 86_400_000


@dataclass(frozen=True)
class Generation:
    """One generation's assignment to this member. A new generation replaces it as a whole."""

    member_id: str = ""
    number: int = -1
    assigned: frozenset[TopicPartition] = field(default_factory=frozenset)
    # The partitions that this member said it owns when it joined.
    claimed: frozenset[TopicPartition] = field(default_factory=frozenset)
    # True if the leader is a mirrormaker: a partition that was claimed and not assigned belongs to nobody until this member has let
    # go of it and joined again.
    two_rounds: bool = False
    leader: str = ""

    @cached_property
    def to_release(self) -> frozenset[TopicPartition]:
        """The partitions that this member has to let go of before it joins again."""
        return self.claimed - self.assigned if self.two_rounds else frozenset()


def encode_subscription(
    topics: Iterable[str], claimed: Collection[TopicPartition], streams: int, generation: int
) -> bytes:
    """Return what this member tells the group's leader when it joins."""
    entry = ConsumerProtocolSubscription.TopicPartition
    return bytes(
        ConsumerProtocolSubscription(
            version=1,
            topics=sorted(topics),
            user_data=encode_user_data(streams, generation if claimed else -1),
            owned_partitions=[entry(topic=t, partitions=ps) for t, ps in sorted(by_topic(claimed).items())],
        ).encode()
    )


def decode_subscriptions(subscriptions: Sequence[bytes]) -> list[Member | BadFrame]:
    """Read the subscriptions of all members of a group; one that cannot be understood is an error in its place."""
    members: list[Member | BadFrame] = []
    for data, share in zip(subscriptions, messages.shares_of_members(list(map(len, subscriptions))), strict=True):
        try:
            members.append(decode_subscription(data, share))
        except BadFrame as error:
            members.append(error)
    return members


def decode_subscription(data: bytes, most_work: int = MOST_WORK) -> Member:
    """Read a member's subscription, and the part of it that only our own members send."""
    subscription = messages.decode_subscription(data, most_work)
    streams, generation = decode_user_data(bytes(subscription.user_data or b""))
    owned = frozenset((t.topic, p) for t in subscription.owned_partitions or () for p in t.partitions)
    return Member(frozenset(subscription.topics), streams, owned, generation)


def encode_assignment(keys: Iterable[TopicPartition]) -> bytes:
    """Return what the leader gives one member."""
    kind = ConsumerProtocolAssignment
    rows = [kind.TopicPartition(topic=t, partitions=ps) for t, ps in sorted(by_topic(keys).items())]
    return bytes(kind(version=1, assigned_partitions=rows, user_data=REJOIN).encode())


def decode_assignment(data: bytes) -> tuple[frozenset[TopicPartition], bool]:
    """Return the assigned partitions, and whether a mirrormaker assigned them."""
    assignment = messages.decode_assignment(data) if data else None
    if assignment is None:
        return frozenset(), False
    keys = frozenset((t.topic, p) for t in assignment.assigned_partitions for p in t.partitions)
    return keys, assignment.user_data == REJOIN


def commit_request(
    group: str, instance_id: str | None, member: str, generation: int, rows: Mapping[str, Sequence[Row]]
) -> OffsetCommitRequest:
    """Return the request that commits rows per topic, as a member of a generation."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    row = topic.OffsetCommitRequestPartition
    expires = int(time.time() * 1000) + _RETENTION_MS
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance_id,
        # Versions 2 to 4 have one retention time; version 1 has a time for each offset.
        retention_time_ms=_RETENTION_MS,
        topics=[
            topic(
                name=name,
                partitions=[
                    row(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                        commit_timestamp=expires,
                    )
                    for partition, offset, epoch, metadata in partitions
                ],
            )
            for name, partitions in rows.items()
        ],
    )
