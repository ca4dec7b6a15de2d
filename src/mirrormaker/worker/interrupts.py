"""Why a partition leaves the hot path."""

from __future__ import annotations


class Released(Exception):
    """The desk wants the partition back."""


class Hold(Exception):
    """Records that a broker may forget who wrote, soon after another sender was at work: wait, then look again."""


class Split(Exception):
    """The target refused a batch of several records: they go again in smaller ones, until it is clear which is to blame."""


# Where a partition goes on that needs new numbers.
SAME_PLACE, FROM_THE_START, OUT_OF_RANGE, TRUNCATED = 0, 1, 2, 3
FORGOTTEN = 4  # the same place, where the target no longer knows the identity: what is there of it is known


class Renumber(Exception):
    """The records that follow are not those that the numbers were meant for: only the driver may give a new identity.

    With `topics` the records are the same and only the places are new: what is ahead of the position stays ahead.
    """

    def __init__(self, where: int, reason: str, topics: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.where, self.reason = where, reason
        self.topics = topics  # that a message handler sends to, and that need numbers too
