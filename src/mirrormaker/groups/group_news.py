"""What the log says about single groups: each change once."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

from mirrormaker.errors import describe
from mirrormaker.events import event
from mirrormaker.events.group_events import GroupFollowed, GroupGone, GroupNotFollowed, GroupsNotFollowed
from mirrormaker.groups.offset_writer import OffsetWriter
from mirrormaker.groups.planning import Entry
from mirrormaker.model.group_sync import State, advice
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.transport.turns import in_turns

_ENTRIES_IN_ONE_TURN = 50  # each may have hundreds of partitions
_MOST_EVENTS = 10  # lines about single groups in one round
# States that end by themselves.
_PASSING = frozenset({State.UNSTABLE, State.UNMAPPED, State.DELETED})

GroupTopic = tuple[str, str]


class GroupNews:
    """Reports each group that is no longer kept in step, or is again, or is gone from the source."""

    def __init__(self, target: Cluster, writer: OffsetWriter, report: event.Report) -> None:
        self._target, self._writer, self._report = target, writer, report
        self._told: dict[str, State] = {}
        # Where the log of a target partition has to end, by group, topic and partition, before an offset there is right.
        self._short: dict[tuple[str, str, int], int] = {}
        self._known: set[str] = set()  # groups that were kept in step in the last round
        self._missed: set[str] = set()  # those that the source did not list in the last round

    async def tell(
        self, entries: Mapping[GroupTopic, Entry], on_source: Collection[str], troubles: Mapping[str, Exception]
    ) -> None:
        """Report what has changed since the last round; `on_source` are the groups that the source lists.

        `troubles` are groups whose offsets cannot be understood.
        """
        worst: dict[str, tuple[str, State]] = {}
        short: dict[tuple[str, str, int], int] = {}
        known: set[str] = set()
        foreign: set[str] = set()
        async for (group, topic), entry in in_turns(entries.items(), _ENTRIES_IN_ONE_TURN):
            known.add(group)
            state = entry.state
            if not state.is_followed:
                foreign.add(group)
            if state is State.TARGET_SHORT:
                is_left = self._stays_short(group, topic, entry, short)
            else:
                is_left = not state.is_followed and state not in _PASSING
            if is_left and group not in worst:
                worst[group] = (topic, state)
        self._short = short
        worst |= dict.fromkeys(troubles, ("its offsets", State.UNMOVABLE))
        news = [group for group, (_, state) in worst.items() if self._told.get(group) is not state]
        for group in news[:_MOST_EVENTS]:
            topic, state = worst[group]
            reason = describe(troubles[group]) if group in troubles else self._way_out(group, topic, state)
            self._report(GroupNotFollowed(group, topic, state.value, reason))
        if len(news) > _MOST_EVENTS:
            self._report(GroupsNotFollowed(len(news) - _MOST_EVENTS))
        for group in [group for group in self._told if group not in worst and group in known][:_MOST_EVENTS]:
            self._report(GroupFollowed(group))
        self._told = {group: state for group, (_, state) in worst.items()}
        self._tell_gone(known - foreign, on_source)

    def _way_out(self, group: str, topic: str, state: State) -> str:
        found = advice(state, group, topic, self._target.endpoint)
        if state is State.REFUSED:
            return self._writer.reason(group, topic) or found
        # This is the mirror that the advice would have started.
        return "another line of this log names the offset to set" if state is State.TARGET_SHORT else found

    def _stays_short(self, group: str, topic: str, entry: Entry, short: dict[tuple[str, str, int], int]) -> bool:
        """Return True if the log of the target has not reached the place of an earlier round.

        The map may be a moment ahead of the end that was read of a log to which this mirror writes.
        """
        stays = False
        for partition, decision in entry.decisions.items():
            if decision.state is State.TARGET_SHORT:
                key = group, topic, partition
                place = self._short.get(key, -1)
                stays = stays or decision.offset < place
                short[key] = place if decision.offset < place else decision.offset + decision.missing
        return stays

    def _tell_gone(self, known: set[str], on_source: Collection[str]) -> None:
        """Report groups that the source has not listed twice: while a coordinator moves, it may miss one."""
        missed = (self._known | self._missed) - set(on_source)
        for group in sorted(missed & self._missed)[:_MOST_EVENTS]:
            self._report(
                GroupGone(group, f"--bootstrap-server {self._target.endpoint} --delete --group {shlex.quote(group)}")
            )
        self._missed = missed - self._missed
        self._known = known
