"""Every error that the program raises on purpose, as one tree.

::

    MirrorError                     one line that a user can act on
    ├── SettingError                an option or a property is missing, unreadable or contradictory
    ├── ClusterError                a cluster cannot be reached, or refuses what the mirror needs
    │   ├── ZooKeeperError          no ZooKeeper server answers
    │   └── UnsupportedRequest      a broker does not know a request
    ├── LedgerError                 the group's committed positions do not fit this mirror
    │   └── EntryError              one partition's ledger entry cannot be read or written
    ├── FencedError                 another process took this one's place in the group
    ├── FlowClosed                  a failover has closed this flow: the target has writers of its own now
    ├── AbortError                  a record cannot be delivered, and the user chose to stop then
    ├── PartitionError              one partition cannot go on for now
    │   └── Undeliverable           one record that the target will never take
    ├── SparkError                  Spark does not start
    │   └── SparkGone               it has ended, and only the one who started it can start it again
    ├── CannotTell                  `verify` cannot compare both sides
    ├── EmbeddedError               a server that the program runs on this machine fails
    ├── WireError                   a request did not get the answer it needs
    │   ├── BrokerError             a broker answered with an error code (see `kafka_errors`)
    │   ├── ConnectionLost          the connection ended; it is unknown whether requests took effect
    │   │   ├── HungUp              the broker closed the connection in good order
    │   │   ├── Silent              the broker did not answer in time
    │   │   └── AuthenticationFailed   one side does not accept the other
    │   │       └── LoginFailed     the broker refuses our login
    │   │           └── NoTicket    there is no Kerberos ticket; nothing was sent
    │   ├── BadFrame                an answer cannot be decoded
    │   ├── NotMember               the consumer group went on without this member
    │   └── Unanswered              a broker keeps not answering for one topic
    ├── DataError                   bytes that are not what they should be
    │   ├── CorruptBatch            not a record batch, or not the one that was written
    │   │   └── BadChecksum         it does not match its CRC
    │   ├── BadVarint               a variable-length integer without an end
    │   ├── BadCompression          data that does not decompress within its limit
    │   └── NumbersBroken           the target's log contradicts the sequence numbers
    │       ├── RecordsLost         the target no longer has records that it had acknowledged
    │       └── LogReplaced         a target topic was deleted and created again
    ├── CredentialError             something to log in with that cannot be used
    │   ├── StoreError              a key store or trust store
    │   │   └── WrongPassword       the store, or the key in it, does not open
    │   ├── TlsFailed               a TLS setting or handshake
    │   ├── LoginError              a SASL login
    │   └── NotAKeytab              bytes that are no keytab
    ├── BadMessage                  a message between driver and streams that cannot be read
    └── DriverGone                  a stream lost its driver

`retriable` says whether the program tries the same call again. `scope` says how far the error reaches: whoever handles it may
stop that much, and nothing more. Both are attributes of the class unless an instance knows better.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mirrormaker.kafka_errors import Scope, error_code


class MirrorError(Exception):
    """Base of all errors. The text is one line and names the way out."""

    exit_code = 1
    retriable = False
    scope = Scope.SOURCE


class SettingError(MirrorError):
    """An option or a property that is missing, unreadable or contradictory."""

    scope = Scope.PROCESS

    def __init__(self, text: str, *, option: bool = False) -> None:
        """`option`: the mistake is on the command line, so a hint at --help is useful."""
        super().__init__(text)
        self.is_option = option


class ClusterError(MirrorError):
    """A cluster that cannot be reached, or refuses what the mirror needs."""

    retriable = True


class ZooKeeperError(ClusterError):
    """No ZooKeeper server answered in time."""

    unknown_host = False  # True if none of the names has an address


class UnsupportedRequest(ClusterError):
    """A broker is too old, or too new, for a request: asking again at once would not help."""


class LedgerError(MirrorError):
    """The group's committed positions do not fit this mirror."""


class EntryError(LedgerError):
    """The ledger entry of one partition cannot be read or written."""

    retriable = True
    scope = Scope.PARTITION


class FencedError(MirrorError):
    """Another process has taken this one's place in the group."""


class FlowClosed(MirrorError):
    """A failover has closed this flow: mirroring on would mix the source's records with those of the target's own writers."""


class AbortError(MirrorError):
    """A record cannot be delivered, and `--abort.on.send.failure` says that this is the end."""

    scope = Scope.PROCESS


class PartitionError(MirrorError):
    """One partition cannot be mirrored any further for now; the others go on."""

    retriable = True
    scope = Scope.PARTITION

    def __init__(self, text: str, *, final: bool = False) -> None:
        """`final`: trying again would not change anything."""
        super().__init__(text)
        self.retriable = not final


class Undeliverable(PartitionError):
    """The target will never take this record; `--abort.on.send.failure` decides what happens next."""

    scope = Scope.RECORD

    def __init__(self, name: str, offset: int, cause: str, unit: Any = None) -> None:
        """`unit` is the unit of progress that the target refused; None if nothing was sent."""
        super().__init__(f"{name}: the record at source offset {offset} cannot be delivered: {cause}")
        self.offset, self.cause, self.unit = offset, cause, unit


class SparkError(MirrorError):
    """Spark does not start."""

    scope = Scope.PROCESS


class SparkGone(SparkError):
    """Spark has ended, and only the one who started it can start it again."""


class CannotTell(MirrorError):
    """Something keeps `verify` from comparing both sides: neither the same nor different."""

    exit_code = 2


class EmbeddedError(MirrorError):
    """A server that the program runs on this machine did not start, or ended."""

    scope = Scope.PROCESS


# -- what a request to a cluster can end with


class WireError(MirrorError):
    """A request did not get the answer that it needs."""

    retriable = True
    scope = Scope.PARTITION


class BrokerError(WireError):
    """A broker answered with an error code; `kafka_errors` says what each code means."""

    def __init__(self, code: int, detail: str = "") -> None:
        self.code, self.detail = code, detail
        known = error_code(code)
        self.name, self.retriable, self.scope = known.name, known.retriable, known.scope
        super().__init__(f"{known.name} ({code})" + (f": {detail}" if detail else f": {known.words}"))


def raise_for(code: int, detail: str = "") -> None:
    """Raise a broker's error code; 0 means that there is none."""
    if code:
        raise BrokerError(code, detail)


class ConnectionLost(WireError, ConnectionError):
    """The connection ended with requests unanswered: whether they took effect is unknown."""


class HungUp(ConnectionLost):
    """The other side has ended the connection in good order."""


class Silent(ConnectionLost):
    """The other side has not answered in time."""


class AuthenticationFailed(ConnectionLost):
    """One side does not accept the other: the next attempt fails alike, until someone changes something."""


class LoginFailed(AuthenticationFailed):
    """The broker refuses our login, or we have none: trying again soon would only get the account locked."""


class NoTicket(LoginFailed):
    """There is no Kerberos ticket. Nothing was sent: a connection that is logged in stays logged in."""


class BadFrame(WireError):
    """An answer whose lengths do not add up."""


class NotMember(WireError):
    """The consumer group went on without this member, which has to join again."""

    scope = Scope.SOURCE


class Unanswered(WireError):
    """A broker keeps not answering for one topic: whoever can wait asks again."""

    scope = Scope.TOPIC

    def __init__(self, text: str, topic: str = "") -> None:
        super().__init__(text)
        self.topic = topic


# Everything that a request to a cluster can raise. Requests are made in many places; this is the one list for all of them.
OUTAGE = (WireError, OSError, asyncio.TimeoutError)


# -- bytes that are not what they should be


class DataError(MirrorError):
    """Bytes that cannot be what was written."""

    scope = Scope.PARTITION


class CorruptBatch(DataError):
    """Bytes that are no record batch, or not the batch that was written."""


class BadChecksum(CorruptBatch):
    """A record batch that does not match its CRC: it was damaged where it is stored, or on its way."""


class BadVarint(DataError):
    """A variable-length integer that does not end where it must."""


class BadCompression(DataError):
    """Bytes that do not decompress, or to more than is allowed."""


class NumbersBroken(DataError):
    """The target's log contradicts the sequence numbers: another writer uses them, or records were lost. Never guess."""


class RecordsLost(NumbersBroken):
    """The target no longer has records that it had acknowledged; the text says how many."""


class LogReplaced(NumbersBroken):
    """A target topic was deleted and created again: its log is another one, under the same name."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"the target topic {topic} was deleted and created again")
        self.topic = topic


# -- logging in


class CredentialError(MirrorError):
    """Something to log in with that cannot be used."""

    scope = Scope.PROCESS


class StoreError(CredentialError):
    """A key store or trust store that cannot be used; the caller says which one."""


class WrongPassword(StoreError):
    """The store, or the key in it, does not open with the password."""


class TlsFailed(CredentialError):
    """A TLS setting that cannot be used, or a handshake that failed."""


class LoginError(CredentialError):
    """There is nothing to log in with, or the broker's proof is wrong."""


class NotAKeytab(CredentialError):
    """The bytes are not a keytab."""


# -- streams


class BadMessage(MirrorError):
    """A message between driver and streams that cannot be read."""


class DriverGone(MirrorError):
    """A stream's driver has ended, or cannot be reached."""

    retriable = True


def describe(error: BaseException) -> str:
    """Return an error in one line, also if it carries no text."""
    return str(error) or type(error).__name__


def describe_any(error: BaseException) -> str:
    """Return an error in one line, with its type if nobody expects it: then it is a bug of ours."""
    is_expected = isinstance(error, (*OUTAGE, MirrorError))
    return describe(error) if is_expected else f"unexpected {type(error).__name__}: {error}"
