"""The life of one source partition in the driver, as a state machine without input, output or a clock.

::

                      Given                Ended (stopped)
        Waiting ----------------> Running ----------------> Stopped ----+
           ^                         |                                  |
           |        Ended, StreamGone|         Given, after a pause     |
           +-------------------------+----------------------------------+
           |                         |
           | Renumbered              | Ended (needs a new identity)
           +---- Renumbering <-------+

A stream that is asked to let go of its partition (`Releasing`) ends with `Ended`, or dies. From every state, `Leave` ends in
`Gone`: at once, or as soon as the stream has let go. `step` takes a life and an event, and returns the new life and the effects
that the driver has to carry out. An event that comes too late for a state changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

# Seconds until a partition that stopped is tried again, after its first failure, its second one, and so on.
RETRY_AFTER = (5.0, 15.0, 30.0, 60.0)
# The same where another attempt is expected to fail too: someone has to repair something first.
RETRY_FINAL_AFTER = 600.0


# -- states


@dataclass(frozen=True, slots=True)
class Waiting:
    """No stream has the partition; it may be given to one.

    `clean`: no sender can have requests under way, and the position covers all that the target holds.
    """

    clean: bool


@dataclass(frozen=True, slots=True)
class Running:
    """A stream has the partition. `tenancy` tells this stay from earlier ones."""

    stream: int
    tenancy: int


class Then(IntEnum):
    """The next step of a partition whose stream is asked to let go. The larger one wins."""

    GO_ON = 0
    RENUMBER = 1
    LEAVE = 2


@dataclass(frozen=True, slots=True)
class Releasing:
    """A stream was asked to let go of the partition. `need` describes the new identity if `then` is RENUMBER."""

    stream: int
    tenancy: int
    then: Then
    need: Any = None


@dataclass(frozen=True, slots=True)
class Renumbering:
    """The driver allocates a new producer identity. `leaves`: after that the partition belongs to another process."""

    leaves: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The partition cannot go on; it is tried again at `retry_at`."""

    retry_at: float
    clean: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """The partition belongs to another process, or has to be acquired again from the ledger."""


State = Waiting | Running | Releasing | Renumbering | Stopped | Gone


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a partition stopped last, until it makes progress again."""

    reason: str
    failures: int = 1


@dataclass(frozen=True, slots=True)
class Life:
    """A partition's state, and what is remembered beside it."""

    state: State
    trouble: Trouble | None = None
    # True if another process may have had the partition since: only the ledger knows where it stands.
    is_outdated: bool = False

    @property
    def is_leaving(self) -> bool:
        """True if the partition is, or is about to be, in other hands."""
        match self.state:
            case Releasing(then=then):
                return then is Then.LEAVE
            case Renumbering(leaves):
                return leaves
            case state:
                return isinstance(state, Gone)

    def moved_to(self, state: State, *, is_outdated: bool = False) -> Life:
        """Return this life in another state; one that is outdated stays so.

        dataclasses.replace takes three times as long, and thousands of lives move on at once if a stream dies.
        """
        return Life(state, self.trouble, self.is_outdated or is_outdated)

    def may_be_given(self, now: float) -> bool:
        """Return True if a stream may have the partition now."""
        match self.state:
            case Waiting():
                return True
            case Stopped(retry_at):
                return now >= retry_at
        return False


# -- events


@dataclass(frozen=True, slots=True)
class Given:
    """The driver gives the partition to a stream."""

    stream: int
    tenancy: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """Another stream should have the partition."""


@dataclass(frozen=True, slots=True)
class RenumberWanted:
    """The partition needs a new identity. `is_even`: no target partition holds records from after the position."""

    need: Any
    is_even: bool


@dataclass(frozen=True, slots=True)
class Released:
    """A stream has let go of the partition as it was asked to. `is_even`: as in `RenumberWanted`."""

    tenancy: int
    clean: bool
    is_even: bool


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """A stream cannot go on with the partition. `final`: another attempt is expected to fail too."""

    tenancy: int
    clean: bool
    reason: str
    final: bool
    now: float


@dataclass(frozen=True, slots=True)
class IdentityNeeded:
    """A stream has let go of the partition because only the driver can help: with a new identity, or without a record."""

    tenancy: int
    need: Any


@dataclass(frozen=True, slots=True)
class StreamGone:
    """The stream has died, or never had the partition."""

    stream: int


@dataclass(frozen=True, slots=True)
class Renumbered:
    """The new identity is committed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The driver itself cannot go on with the partition."""

    reason: str
    now: float
    final: bool = False


@dataclass(frozen=True, slots=True)
class Progressed:
    """The partition has moved, or is at the end of the source's log and flows."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The group has assigned the partition to another process. `is_outdated`: others may have had it already."""

    is_outdated: bool = False


@dataclass(frozen=True, slots=True)
class Lapsed:
    """The stream, or the allocation of an identity, took too long to come to its end."""


Event = (
    Given | Recalled | RenumberWanted | Released | StreamStopped | IdentityNeeded | StreamGone | Renumbered | Refused
    | Progressed | Leave | Lapsed
)  # fmt: skip


# -- effects


@dataclass(frozen=True, slots=True)
class OrderTake:
    """Order the stream to take the partition."""

    stream: int
    tenancy: int
    clean: bool


@dataclass(frozen=True, slots=True)
class OrderRelease:
    """Order the stream to let go of the partition."""

    stream: int
    tenancy: int


@dataclass(frozen=True, slots=True)
class Allocate:
    """Get the partition a new identity, or past a record, as `need` says; then `Renumbered` or `Refused` follows."""

    need: Any


@dataclass(frozen=True, slots=True)
class ReportStop:
    """Report a reason that is new."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReportRecovery:
    """Report that the partition flows again."""


Effect = OrderTake | OrderRelease | Allocate | ReportStop | ReportRecovery


# -- transitions


def step(life: Life, event: Event) -> tuple[Life, tuple[Effect, ...]]:
    """Return the life after an event, and the effects to carry out."""
    match life.state, event:
        case ((Waiting(clean=clean) | Stopped(clean=clean)), Given(stream, tenancy)):
            return life.moved_to(Running(stream, tenancy)), (OrderTake(stream, tenancy, clean),)
        case Running(stream, tenancy), Recalled():
            return _recall(life, Releasing(stream, tenancy, Then.GO_ON))
        case Running(stream, tenancy), RenumberWanted(need):
            return _recall(life, Releasing(stream, tenancy, Then.RENUMBER, need))
        case Running(stream, tenancy), Leave(is_outdated):
            return _recall(life, Releasing(stream, tenancy, Then.LEAVE), is_outdated=is_outdated)
        case Releasing(stream, tenancy, then), RenumberWanted(need) if then < Then.RENUMBER:
            return life.moved_to(Releasing(stream, tenancy, Then.RENUMBER, need)), ()
        case Waiting(), RenumberWanted(need, is_even=True):
            return life.moved_to(Renumbering()), (Allocate(need),)
        case ((Running(stream=stream) | Releasing(stream=stream)), StreamGone(gone)) if stream == gone:
            return life.moved_to(Gone() if life.is_leaving else Waiting(clean=False)), ()
        case (
            (Running(tenancy=tenancy) | Releasing(tenancy=tenancy)),
            (Released(tenancy=ended) | StreamStopped(tenancy=ended) | IdentityNeeded(tenancy=ended)),
        ) if tenancy == ended:
            return _ended(life, event)
        case Renumbering(leaves), Renumbered():
            return life.moved_to(Gone() if leaves else Waiting(clean=True)), ()
        case ((Waiting() | Renumbering(leaves=False)), Refused(reason, now, final)):
            clean = life.state.clean if isinstance(life.state, Waiting) else False
            return _stop(life, reason, now, clean, final)
        case ((Running() | Releasing()), Progressed()) if life.trouble is not None:
            return Life(life.state, None, life.is_outdated), (ReportRecovery(),)
        case Releasing(stream, tenancy), Leave(is_outdated):
            return life.moved_to(Releasing(stream, tenancy, Then.LEAVE), is_outdated=is_outdated), ()
        case Renumbering(), Leave(is_outdated):
            return life.moved_to(Renumbering(leaves=True), is_outdated=is_outdated), ()
        case Renumbering(leaves=True), Refused():
            return life.moved_to(Gone()), ()
        case _, Leave(is_outdated):
            return life.moved_to(Gone(), is_outdated=is_outdated), ()
        case _, Lapsed():
            return life.moved_to(Gone()), ()
    return life, ()


def _recall(life: Life, state: Releasing, *, is_outdated: bool = False) -> tuple[Life, tuple[Effect, ...]]:
    return life.moved_to(state, is_outdated=is_outdated), (OrderRelease(state.stream, state.tenancy),)


def _ended(life: Life, event: Released | StreamStopped | IdentityNeeded) -> tuple[Life, tuple[Effect, ...]]:
    """Return the life after the stream's last word on the partition."""
    state = life.state
    if life.is_leaving:
        # The next owner comes upon the same trouble, and takes care of it.
        return life.moved_to(Gone()), ()
    match event:
        case IdentityNeeded(need=need):
            return life.moved_to(Renumbering()), (Allocate(need),)
        case StreamStopped(clean=clean, reason=reason, final=final, now=now):
            return _stop(life, reason, now, clean, final)
        case Released(clean=clean, is_even=is_even):
            if isinstance(state, Releasing) and state.then is Then.RENUMBER and is_even:
                return life.moved_to(Renumbering()), (Allocate(state.need),)
            return life.moved_to(Waiting(clean)), ()


def _stop(life: Life, reason: str, now: float, clean: bool, final: bool) -> tuple[Life, tuple[Effect, ...]]:
    failures = 0 if life.trouble is None else life.trouble.failures
    pause = RETRY_FINAL_AFTER if final else RETRY_AFTER[min(failures, len(RETRY_AFTER) - 1)]
    is_news = life.trouble is None or life.trouble.reason != reason
    stopped = Life(Stopped(now + pause, clean), Trouble(reason, failures + 1), life.is_outdated)
    return stopped, (ReportStop(reason),) if is_news else ()
