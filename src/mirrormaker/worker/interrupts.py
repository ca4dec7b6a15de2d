"""Why a partition leaves the hot path."""

from __future__ import annotations

from kafka.errors import KafkaError

from mirrormaker.errors import PartitionError
from mirrormaker.model.position import Place
from mirrormaker.model.progress import Unit


class Released(Exception):
    """The desk wants the partition back."""


class Hold(Exception):
    """Records that a broker may forget who wrote, soon after another sender was at work: wait, then look again."""


class Split(Exception):
    """The target refused a batch of several records: they go again in smaller ones, until it is clear which is to blame."""


class Undeliverable(PartitionError):
    """The target will never take this record: what happens next is for `--abort.on.send.failure` to say."""

    def __init__(self, name: str, offset: int, cause: str, unit: Unit | None = None) -> None:
        super().__init__(f"{name}: the record at source offset {offset} cannot be delivered: {cause}")
        self.offset, self.cause = offset, cause
        self.unit = unit  # that was sent and refused; None: it was found before that
        self.place: Place | None = None  # that refused it


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


def describe(error: BaseException) -> str:
    """A broker's error in one line: its name, number and words."""
    if isinstance(error, KafkaError):
        number = getattr(error, "errno", None)
        name = type(error).__name__.removesuffix("Error")
        detail = " ".join(str(a) for a in error.args if a)
        return f"{name}{f' ({number})' if number is not None else ''}{f': {detail}' if detail else ''}"
    return str(error) or type(error).__name__
