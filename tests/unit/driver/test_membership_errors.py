"""A group's coordinator answers each request with each of Kafka's error codes: a member that has joined stays one."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.driver import membership as membership_module
from mirrormaker.driver.group_protocol import encode_assignment
from mirrormaker.driver.membership import Membership
from mirrormaker.errors import BrokerError, ClusterError, FencedError
from mirrormaker.kafka_errors import CODES, FENCED_INSTANCE_ID, MEMBER_ID_REQUIRED, error_code
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol.messages import ApiMessage

KEYS = frozenset({("orders", 0), ("orders", 1)})
_REFUSALS = 6  # answers with the error code
_EVERY_CODE = (*CODES, 9999)


class Coordinator:
    """Answers as a coordinator does, apart from the request that it refuses for a while."""

    def __init__(self) -> None:
        self.generation = 0
        self.refused, self.code, self.left = "", 0, 0
        self.asked: Counter[str] = Counter()

    def forget(self) -> None:
        """Be looked up again before the next request."""

    def refuse(self, request: str, code: int) -> None:
        """Answer a request with an error code for a while."""
        self.refused, self.code, self.left = request, code, _REFUSALS

    def _refusal(self, request: str) -> int:
        if request != self.refused or not self.left:
            return 0
        self.left -= 1
        return self.code

    async def ask(self, request: ApiMessage, **_: Any) -> Any:
        """Return the answer to a join, a sync or a heartbeat."""
        name = type(request).__name__.removesuffix("Request")
        self.asked[name] += 1
        if code := self._refusal("FindCoordinator"):
            raise BrokerError(code, "looking for the coordinator")
        code = self._refusal(name)
        if name == "JoinGroup" and not code:
            self.generation += 1
        member = "us" if not code or code == MEMBER_ID_REQUIRED else ""
        return SimpleNamespace(
            error_code=code, member_id=member, generation_id=self.generation, leader="other", skip_assignment=False,
            assignment=b"" if code else encode_assignment(KEYS),
        )  # fmt: skip

    async def committed(self, chosen: Any) -> Any:
        """Refuse to tell what is committed."""
        raise BrokerError(self.code, "reading committed offsets")


def member_of(coordinator: Coordinator) -> Membership:
    """Return a member that sends a heartbeat every millisecond."""
    settings: Any = SimpleNamespace(group_id="g", session_timeout_ms=10_000, heartbeat_interval_ms=1)
    cluster = Cluster(Endpoint((("127.0.0.1", 1),)))
    member = Membership(cluster, settings, "a-0", 2, lambda: member.generation.assigned)
    stand_in: Any = coordinator
    member._coordinator = stand_in
    return member


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def _play(request: str, code: int) -> None:
    coordinator = Coordinator()
    member = member_of(coordinator)

    async def before_join() -> None:
        """Have nothing to commit."""

    kept = asyncio.ensure_future(member.keep(before_join, lambda _: None))
    try:
        await asyncio.wait([kept, asyncio.ensure_future(_until(lambda: member.joined))], return_when="FIRST_COMPLETED")
        assert member.joined
        coordinator.refuse(request, code)
        member.rebalance()
        over = asyncio.ensure_future(_until(lambda: not coordinator.left and member.joined and member.is_settled))
        member.has_streams = True
        await asyncio.wait([kept, over], return_when="FIRST_COMPLETED", timeout=5)
        if code == FENCED_INSTANCE_ID and request != "FindCoordinator":
            assert isinstance(kept.exception(), FencedError)
        else:
            assert not kept.done() and over.done()
            assert member.is_certain and member.generation.assigned == KEYS
    finally:
        kept.cancel()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE", "_REFUSED_PAUSE"):
        monkeypatch.setattr(membership_module, name, 0.001)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("request_name", ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"])
def test_a_member_outlasts_every_error_code(request_name: str) -> None:
    for code in _EVERY_CODE:
        asyncio.run(_play(request_name, code))


@pytest.mark.parametrize("code", _EVERY_CODE)
def test_committed_offsets_that_are_refused_say_nothing_of_the_member(code: int) -> None:
    coordinator = Coordinator()
    member = member_of(coordinator)
    coordinator.code = code
    with pytest.raises(BrokerError if error_code(code).retriable else ClusterError):
        asyncio.run(member.committed())
    assert not member._rejoin.is_set()
