"""What can go wrong, as one line that a user can act on."""

from __future__ import annotations


class MirrorError(Exception):
    """Something the user should read: the text is one line and names the way out."""

    exit_code = 1


class SettingError(MirrorError):
    """An option or a property that is missing, unreadable or contradictory."""


class ClusterError(MirrorError):
    """A cluster that cannot be reached, or refuses what the mirror needs."""


class Unanswered(ClusterError):
    """A cluster that does not answer for now: whoever can wait asks again."""

    topic = ""  # for which it does not answer


class LedgerError(MirrorError):
    """The group's committed positions do not fit this mirror."""


class FencedError(MirrorError):
    """Another process has taken this one's place in the group."""


class AbortError(MirrorError):
    """A record cannot be delivered, and `--abort.on.send.failure` says that this is the end."""


class PartitionError(MirrorError):
    """One partition cannot be mirrored any further for now; the others go on."""

    is_final = False  # nothing that changes outside could make it right
