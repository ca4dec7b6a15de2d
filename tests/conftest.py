"""Two real Kafka clusters for every test that asks for them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from mirrormaker.embedded import Cluster


@pytest.fixture(scope="session")
def source() -> Iterator[Cluster]:
    """A one-broker Kafka to mirror from, shared by all tests."""
    settings = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "500"}
    with Cluster(settings=settings, name="source") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def target() -> Iterator[Cluster]:
    """A one-broker Kafka to mirror to, shared by all tests."""
    with Cluster(settings={"auto.create.topics.enable": "false"}, name="target") as cluster:
        yield cluster


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own: the clusters are shared."""
    return f"{re.sub('[^a-z0-9-]+', '-', request.node.name.lower())[:60]}-{uuid.uuid4().hex[:8]}"
