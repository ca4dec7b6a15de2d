"""Damaged answers, and the proxy that sends them."""

from __future__ import annotations

import random
import socket
import struct
import threading

from tests.support.rewriting_proxy import Damage, RewritingProxy, random_damage

ANSWER = struct.pack(">i", 60) + bytes(range(60))


def test_every_kind_of_damage_occurs() -> None:
    damage = random_damage(random.Random(1), 1.0)
    frames = [damage(ANSWER) for _ in range(200)]
    whole = [frame for frame in frames if len(frame) == len(ANSWER)]
    flipped = [frame for frame in whole if sum((a ^ b).bit_count() for a, b in zip(frame, ANSWER, strict=True)) == 1]
    shorter = [frame for frame in frames if len(frame) < len(ANSWER)]
    broken_off = [frame for frame in shorter if frame == ANSWER[: len(frame)]]
    kinds = (len(whole) - len(flipped), len(flipped), len(shorter) - len(broken_off), len(broken_off))
    assert min(kinds) > 20, kinds
    assert all(len(frame) >= 4 for frame in frames)


def test_no_answer_is_damaged_without_a_share() -> None:
    damage = random_damage(random.Random(1), 0.0)
    assert {damage(ANSWER) for _ in range(50)} == {ANSWER}


def test_the_proxy_closes_the_connection_after_an_answer_that_breaks_off() -> None:
    proxy, received = answered(lambda frame: frame[:30])
    assert received == ANSWER[:30]
    assert not proxy.mistakes


def test_the_proxy_counts_the_answers_that_it_has_damaged() -> None:
    proxy, _ = answered(lambda frame: frame[:30])
    assert proxy.answers_damaged == 1
    proxy, _ = answered(lambda frame: frame)
    assert proxy.answers_damaged == 0


def answered(damage: Damage) -> tuple[RewritingProxy, bytes]:
    """Send a request through a proxy, and return the proxy and what came back until the end of the connection or the answer."""
    with socket.create_server(("127.0.0.1", 0)) as broker, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        threading.Thread(target=answer_once, args=(broker,), daemon=True).start()
        with RewritingProxy({port: broker.getsockname()[1]}) as proxy:
            proxy.damage = damage
            with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
                request = struct.pack(">hhih", 18, 0, 7, -1)  # ApiVersions
                client.sendall(struct.pack(">i", len(request)) + request)
                received = b""
                while len(received) < len(ANSWER) and (part := client.recv(100)):
                    received += part
        return proxy, received


def answer_once(broker: socket.socket) -> None:
    """Answer the first request, and keep the connection open until the client has gone."""
    connection, _ = broker.accept()
    with connection:
        connection.recv(100)
        connection.sendall(ANSWER)
        connection.recv(100)
