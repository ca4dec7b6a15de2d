"""What can happen to a Spark cluster: its executors."""

from __future__ import annotations

from faults.case import Case

# The cases of a standalone Spark cluster belong here: they need one on this machine to do harm to.
CASES: tuple[Case, ...] = ()
