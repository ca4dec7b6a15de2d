"""A network between clients and brokers on this machine that is slow, narrow, frozen or cut on demand.

`python -m faults.proxy PORT:TARGET ...` listens, and is told on stdin, a line each: `delay SECONDS` (each way),
`throttle BYTES_PER_SECOND` (each way, all connections together; 0 lifts it), `freeze on|off`, `refuse on|off`,
`cut` (every connection), `cut one`. A process of its own, so that whoever tells it is never in its way: it carries
800 MB for a second of CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from mirrormaker.embedded import child_processes

_ROOT = Path(__file__).resolve().parent.parent
_CHUNK = 256 << 10
_HELD = 64 << 20
"""Bytes on the way in one direction of a connection, like a long line's: at 50 ms that is more than 1 GB/s."""

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, and what is on its way is gone


class Proxy:
    """The process, as its owner sees it: started on entry, ended on exit."""

    def __init__(self, routes: Mapping[int, int]) -> None:
        self.routes = dict(routes)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The addresses to give to clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.routes)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tell(self, order: str) -> None:
        """Change the weather; it has changed when this returns."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(order.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode().strip()
        if answer != "ok":
            raise RuntimeError(f"{order!r}: {answer or 'the proxy is gone'}")

    def start(self) -> Proxy:
        command = [sys.executable, "-m", "faults.proxy", *(f"{port}:{target}" for port, target in self.routes.items())]
        self._process = child_processes.spawn(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, cwd=_ROOT
        )
        self.tell("delay 0")  # answered as soon as it listens
        return self

    def stop(self) -> None:
        if self._process is not None:
            child_processes.end(self._process, signal.SIGTERM)
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()
            self._process = None

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Way:
    """One direction of all connections: how long it takes, and how much goes through in a second."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.rate = 0.0
        self._free_at = 0.0

    async def narrow(self, size: int) -> None:
        """Wait for this much of the line's width."""
        if self.rate:
            now = asyncio.get_running_loop().time()
            self._free_at = max(now, self._free_at) + size / self.rate
            await asyncio.sleep(self._free_at - now)


class Network:
    """Everything that goes through this proxy."""

    def __init__(self) -> None:
        self.there, self.back = Way(), Way()
        self.refusing = False
        self.thawed = asyncio.Event()
        self.thawed.set()
        self._links: dict[asyncio.Task[None], None] = {}

    async def listen(self, port: int, target: int) -> None:
        """Take connections for ever."""
        server = socket.create_server(("127.0.0.1", port), backlog=128)
        server.setblocking(False)
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(server)
            if self.refusing:
                _reset(client)
                continue
            task = asyncio.create_task(self._link(client, target))
            self._links[task] = None
            task.add_done_callback(self._links.pop)

    def obey(self, order: str) -> None:
        """One line from stdin."""
        verb, _, what = order.partition(" ")
        if verb == "delay":
            self.there.delay = self.back.delay = float(what)
        elif verb == "throttle":
            self.there.rate = self.back.rate = float(what)
        elif verb == "freeze":
            (self.thawed.clear if what == "on" else self.thawed.set)()
        elif verb == "refuse":
            self.refusing = what == "on"
        elif verb == "cut":
            links = list(self._links)
            for link in random.sample(links, min(1, len(links))) if what == "one" else links:
                link.cancel()
        else:
            raise ValueError("not known")

    async def _link(self, client: socket.socket, target: int) -> None:
        broker = socket.socket()
        tasks: list[asyncio.Task[None]] = []
        try:
            for end in (client, broker):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(broker, ("127.0.0.1", target))
            there, back = Pipe(self.there, self.thawed), Pipe(self.back, self.thawed)
            steps = (there.read(client), there.write(broker), back.read(broker), back.write(client))
            tasks = [asyncio.create_task(step) for step in steps]
            await asyncio.gather(*tasks)
        except (OSError, asyncio.CancelledError):
            pass  # cut, or one side is gone: the other side learns it by a reset
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            _reset(client)
            _reset(broker)


class Pipe:
    """One direction of one connection: what is read now is written `delay` later, in order; reading goes on meanwhile."""

    def __init__(self, way: Way, thawed: asyncio.Event) -> None:
        self._way, self._thawed = way, thawed
        self._line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._held = 0
        self._room = asyncio.Event()

    async def read(self, end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        data = b"."
        while data:
            while self._held > _HELD:
                self._room.clear()
                await self._room.wait()
            data = await loop.sock_recv(end, _CHUNK)
            self._line.put_nowait((loop.time() + self._way.delay, data))
            self._held += len(data)

    async def write(self, end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._line.get()
            if (pause := due - loop.time()) > 0:
                await asyncio.sleep(pause)
            await self._way.narrow(len(data))
            await self._thawed.wait()
            if not data:
                end.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(end, data)
            self._held -= len(data)
            self._room.set()


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()


async def _serve(routes: list[str]) -> None:
    network = Network()
    listening = [asyncio.create_task(network.listen(*map(int, route.split(":")))) for route in routes]
    await asyncio.sleep(0)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        try:
            network.obey(line.decode().strip())
            print("ok", flush=True)
        except ValueError as error:
            print(error, flush=True)
    for task in listening:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1:]))
