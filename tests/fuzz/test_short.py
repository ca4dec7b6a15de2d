"""`make fuzz` with --quick: at most a minute, and at most 500 damaged inputs of each kind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from fuzz.conversations import CONVERSATIONS, Conversation
from fuzz.recorded import load
from fuzz.replay import talk

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda conversation: conversation.name)
def test_the_recorded_answers_are_answers_while_they_are_whole(conversation: Conversation) -> None:
    """Otherwise damaged ones would never reach the code behind the first check."""
    answers = defaultdict(list)
    for row in load():
        if row.conversation == conversation.name:
            answers[row.api_key].append(row.answer)
    asyncio.run(talk(conversation, answers))


def test_no_damaged_answer_gets_out_of_hand() -> None:
    done = subprocess.run([sys.executable, "-m", "fuzz", "--quick"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
