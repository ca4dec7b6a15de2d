"""Rights of the mirror that `mirrormaker groups` looks for where nothing was written."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from mirrormaker.groups import readiness_rights
from mirrormaker.groups.readiness import GroupReadiness, PartitionReadiness
from mirrormaker.groups.readiness_rights import name_rights_of_mirror
from mirrormaker.mapping.map_topic import TOPIC
from mirrormaker.model.group_sync import Cost, State
from mirrormaker.wire.client.cluster import Endpoint

CHECKPOINTS = "east.checkpoints.internal"


def advice_for(state: State, lacking: set[str], *, topics: set[str] | None = None) -> str:
    """Return the advice for a group, where this client may not write some topics."""
    target: Any = mock.Mock(
        endpoint=Endpoint((("new", 9092),)), topics={TOPIC, CHECKPOINTS} if topics is None else topics
    )
    row = GroupReadiness("billing", "orders", (PartitionReadiness(0, 5, None, Cost(state)),), None, "wait")

    async def missing(_: object, names: set[str], needed: list[str]) -> dict[str, list[str]]:
        return {name: needed for name in names if name in lacking}

    with mock.patch.object(readiness_rights, "missing", missing):
        (found,) = asyncio.run(name_rights_of_mirror(target, CHECKPOINTS, [row]))
    # The mirror may have another login than this client.
    assert found.state is state
    return found.advice


@pytest.mark.parametrize(("state", "topic"), [(State.PENDING, CHECKPOINTS), (State.UNMAPPED, TOPIC)])
def test_a_right_to_write_that_is_missing_is_named_with_its_command(state: State, topic: str) -> None:
    found = advice_for(state, {CHECKPOINTS, TOPIC})
    assert found.startswith("wait; if the mirror has the same login: new:9092 does not give")
    assert (
        f"kafka-acls --bootstrap-server new:9092 --add --allow-principal User:ANONYMOUS --operation Write --topic {topic}"
        in found
    )
    assert advice_for(state, {CHECKPOINTS, TOPIC} - {topic}) == "wait"


def test_a_topic_that_no_mirror_has_created_is_named() -> None:
    found = advice_for(State.PENDING, set(), topics={TOPIC})
    assert found.startswith(
        f"wait; no mirror has created {CHECKPOINTS}: it needs the rights Create, Read and Write on that topic; this grants"
    )
    assert found.endswith(f"--operation Create --operation Read --operation Write --topic {CHECKPOINTS}")


def test_other_states_ask_for_nothing() -> None:
    assert advice_for(State.OWNED, {CHECKPOINTS, TOPIC}) == "wait"
