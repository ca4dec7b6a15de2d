"""A proxy between clients and brokers on this machine that understands requests and changes single answers.

A cluster that is started with `proxied=True` names the ports of its proxy in its own metadata, so that clients come
back through it. The proxy runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import threading
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections import deque
from collections.abc import Callable, Collection, Mapping

from tests.support.refusals import Exchange, Refusal, Script

# An answer as the broker sent it -> as the client gets it, both with their length. If the length promises more than there
# is, the connection ends there.
Damage = Callable[[bytes], bytes]

_START = 10.0  # seconds until the proxy listens
_LARGEST = 64 << 20  # bytes of a request or an answer, also as the limit of the streams' buffers


class RewritingProxy:
    """Listens on each of its ports, and forwards to a broker. It runs inside `with`."""

    def __init__(self, routes: Mapping[int, int]) -> None:
        """`routes` maps each port to listen on to the port of a broker."""
        self.routes = dict(routes)
        self.script = Script()
        # Changes every answer of these brokers (by port; None: of all), if there is one.
        self.damage: Damage | None = None
        self.damaged: Collection[int] | None = None
        self.answers_damaged = 0
        self.mistakes: list[str] = []  # requests or answers that the proxy could not handle
        self._links: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rewriting-proxy", daemon=True)
        self._listening, self._stopping = threading.Event(), asyncio.Event()

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.routes)

    def refuse(self, request: str, codes: Mapping[str, int], times: int | None = None) -> Refusal:
        """Answer requests of a type with error codes by topic, until `allow`; each topic at most `times` times."""
        refusal = Refusal(request, codes, times)
        self.script.refusals = (*self.script.refusals, refusal)
        return refusal

    def allow(self, *refusals: Refusal) -> None:
        """End these refusals, or all of them."""
        self.script.refusals = tuple(r for r in self.script.refusals if refusals and r not in refusals)

    def cut(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for link in self._links:
            link.cancel()

    # -- the thread

    def start(self) -> RewritingProxy:
        """Start the thread, and wait until it listens."""
        self._thread.start()
        assert self._listening.wait(_START), "the proxy does not listen"
        return self

    def stop(self) -> None:
        """Close everything, and wait for the end of the thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def __enter__(self) -> RewritingProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        servers = [await self._listen(port, broker) for port, broker in self.routes.items()]
        self._listening.set()
        await self._stopping.wait()
        for server in servers:
            server.close()
        self._cut()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _listen(self, port: int, broker: int) -> asyncio.Server:
        async def serve(reader: Reader, writer: Writer) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._links.add(task)
            try:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    await _Link(self, reader, writer).run(broker)
            except Exception as error:  # a mistake of ours: whoever uses the proxy has to know
                self.mistakes.append(repr(error))
            finally:
                self._links.discard(task)
                writer.transport.abort()

        return await asyncio.start_server(serve, "127.0.0.1", port, limit=_LARGEST)


class _Link:
    """One client's connection and the proxy's own connection to the broker."""

    def __init__(self, proxy: RewritingProxy, client: Reader, to_client: Writer) -> None:
        self._proxy, self._client, self._to_client = proxy, client, to_client
        self._port = 0  # of the broker
        # Requests in their order, which is also the order of their answers.
        self._unanswered: deque[Exchange] = deque()

    async def run(self, port: int) -> None:
        """Forward both ways until one side ends."""
        self._port = port
        broker, to_broker = await asyncio.open_connection("127.0.0.1", port, limit=_LARGEST)
        tasks = [asyncio.create_task(self._requests(to_broker)), asyncio.create_task(self._answers(broker))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            to_broker.transport.abort()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                raise error

    async def _requests(self, to_broker: Writer) -> None:
        while True:
            exchange = Exchange(self._proxy.script, await _read(self._client))
            if exchange.expects_answer:
                self._unanswered.append(exchange)
            if exchange.forwarded is not None:
                to_broker.write(struct.pack(">i", len(exchange.forwarded)) + exchange.forwarded)
                await to_broker.drain()
            self._answer_alone()

    async def _answers(self, broker: Reader) -> None:
        while True:
            frame = await _read(broker)
            self._send(self._unanswered.popleft().answer(frame))
            self._answer_alone()
            await self._to_client.drain()

    def _answer_alone(self) -> None:
        """Answer the requests that the broker did not get, as soon as all requests before them are answered."""
        while self._unanswered and self._unanswered[0].forwarded is None:
            self._send(self._unanswered.popleft().answer(None))

    def _send(self, answer: bytes) -> None:
        frame = struct.pack(">i", len(answer)) + answer
        damage, damaged = self._proxy.damage, self._proxy.damaged
        if damage is not None and (damaged is None or self._port in damaged):
            whole, frame = frame, damage(frame)
            self._proxy.answers_damaged += frame != whole
        self._to_client.write(frame)
        if len(frame) - 4 < struct.unpack_from(">i", frame)[0]:
            self._to_client.close()


async def _read(reader: Reader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def random_damage(generator: random.Random, share: float) -> Damage:
    """Return a function that damages this share of all answers.

    They become garbage, lose their end, have one wrong bit, or break off: then the length promises more than is sent.
    """

    def damage(frame: bytes) -> bytes:
        if generator.random() >= share:
            return frame
        kind = generator.randrange(4)
        if kind == 0:
            return frame[:4] + generator.randbytes(len(frame) - 4)
        if kind == 1:
            kept = frame[8 : generator.randrange(8, len(frame) + 1)]
            return struct.pack(">i", len(kept) + 4) + frame[4:8] + kept
        if kind == 2:
            return frame[: generator.randrange(4, len(frame))]
        place = generator.randrange(8 * 4, 8 * len(frame))
        flipped = bytearray(frame)
        flipped[place // 8] ^= 1 << place % 8
        return bytes(flipped)

    return damage
