"""`python -m fuzz.recording`: record the answers of a real broker anew, into `answers.jsonl`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence

from tests.support.secure_cluster import PLAIN, SCRAM, add_scram_user
from tests.support.topics import create_topic

from fuzz.conversations import CONVERSATIONS, ORDERS, PARTITIONS, PASSWORD, USER, Conversation
from fuzz.recorded import FILE, Recorded, save
from mirrormaker.embedded import Cluster as EmbeddedCluster
from mirrormaker.settings.addresses import addresses
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol.messages import ListGroupsRequest
from mirrormaker.wire.transport.connection import Answered, Connection, Part

NONCE = "a-nonce-that-is-always-the-same"
_PASSWORDS = "listener.name.words"
_SETTINGS = {
    "auto.create.topics.enable": "false",
    # A login has a lifetime, and is renewed.
    "connections.max.reauth.ms": "3600000",
    f"{_PASSWORDS}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{_PASSWORDS}.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
    f"{_PASSWORDS}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
}


def main() -> None:
    """Have each conversation with a real broker, and keep its answers."""
    recorder = _Recorder()
    secrets.token_urlsafe = lambda nbytes=None: NONCE  # a recorded answer to SCRAM fits one nonce only
    with EmbeddedCluster(settings=_SETTINGS, listeners={"WORDS": "SASL_PLAINTEXT"}, name="recorded") as broker:
        add_scram_user(broker, USER, password=PASSWORD)
        create_topic(broker, ORDERS, PARTITIONS)
        create_topic(broker, "grown", 2)
        for conversation in CONVERSATIONS:
            asyncio.run(recorder.record(conversation, broker))
    save(recorder.rows)
    print(f"{len(recorder.rows)} answers, {FILE.stat().st_size} bytes in {FILE}")


class _Recorder:
    """Notes the answer to each request that any connection sends."""

    def __init__(self) -> None:
        self.rows: list[Recorded] = []
        self._conversation = ""
        self._send = Connection.send
        Connection.send = self._recorded_send()  # type: ignore[method-assign]

    async def record(self, conversation: Conversation, broker: EmbeddedCluster) -> None:
        """Have one conversation."""
        self._conversation = conversation.name
        place = broker.address("WORDS") if conversation.security.sasl else broker.bootstrap
        cluster = Cluster(Endpoint(addresses(place, "recording", "bootstrap.servers"), security=conversation.security))
        try:
            await conversation.talk(cluster)
            # What old brokers are probed with.
            await cluster.ask(ListGroupsRequest(), newest=0)
        finally:
            cluster.close()
            await asyncio.sleep(0.1)

    def _recorded_send(self) -> Callable[..., None]:
        recorder = self

        def send(
            connection: Connection, key: int, version: int, flexible: bool, parts: Sequence[Part], answered: Answered
        ) -> None:
            request, conversation = b"".join(parts), recorder._conversation

            def noted(data: memoryview | None, error: Exception | None) -> None:
                if data is not None:
                    recorder.rows.append(Recorded(conversation, key, version, request, bytes(data)))
                answered(data, error)

            recorder._send(connection, key, version, flexible, parts, noted)

        return send


if __name__ == "__main__":
    main()
