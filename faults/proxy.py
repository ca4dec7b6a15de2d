"""A proxy between clients and brokers on this machine that delays, throttles, freezes, refuses or cuts connections.

`python -m faults.proxy PORT:TARGET ...` listens on each PORT and connects to its TARGET. It reads orders from stdin,
one per line: `delay SECONDS` (in each direction), `throttle BYTES_PER_SECOND` (in each direction, for all connections
together; 0 ends it), `freeze on|off`, `refuse on|off`, `cut` (all connections), `cut one`. It answers each order with
a line. It is a process of its own, so that the test cannot slow it down. It forwards 800 MB per second of CPU time.
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

from mirrormaker.embedded import child_processes

_ROOT = Path(__file__).resolve().parent.parent
_CHUNK = 256 << 10

# Bytes that one direction of a connection can hold, as a long-distance line does: with 50 ms more than 1 GB/s.
_CAPACITY = 64 << 20

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing the socket sends a reset and drops its data


class Proxy:
    """Starts and controls the proxy process. It runs inside `with`."""

    def __init__(self, routes: Mapping[int, int]) -> None:
        """`routes` maps each port to listen on to the port of a broker."""
        self.routes = dict(routes)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.routes)

    def send(self, order: str) -> None:
        """Send an order, and return when the proxy has carried it out."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(order.encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode().strip()
        if answer != "ok":
            raise RuntimeError(f"{order!r}: {answer or 'the proxy has ended'}")

    def start(self) -> Proxy:
        """Start the process and wait until it listens."""
        command = [sys.executable, "-m", "faults.proxy", *(f"{port}:{target}" for port, target in self.routes.items())]
        self._process = child_processes.spawn(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, cwd=_ROOT
        )
        self.send("delay 0")  # the proxy answers as soon as it listens
        return self

    def stop(self) -> None:
        """Stop the process."""
        if self._process is not None:
            child_processes.end(self._process, signal.SIGTERM)
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()
            self._process = None

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Direction:
    """One direction of all connections: its delay and its throughput."""

    def __init__(self) -> None:
        self.delay = 0.0  # seconds
        self.rate = 0.0  # bytes per second; 0 is unlimited
        self._free_at = 0.0

    async def throttle(self, size: int) -> None:
        """Wait until this many bytes may pass."""
        if self.rate:
            now = asyncio.get_running_loop().time()
            self._free_at = max(now, self._free_at) + size / self.rate
            await asyncio.sleep(self._free_at - now)


class Network:
    """All connections through this proxy, and the faults that they suffer now."""

    def __init__(self) -> None:
        self.to_broker, self.to_client = Direction(), Direction()
        self.refusing = False
        self.flowing = asyncio.Event()  # cleared while connections are frozen
        self.flowing.set()
        self._links: dict[asyncio.Task[None], None] = {}

    async def listen(self, port: int, target: int) -> None:
        """Accept connections for ever."""
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

    def carry_out(self, order: str) -> None:
        """Carry out one order."""
        verb, _, value = order.partition(" ")
        if verb == "delay":
            self.to_broker.delay = self.to_client.delay = float(value)
        elif verb == "throttle":
            self.to_broker.rate = self.to_client.rate = float(value)
        elif verb == "freeze":
            (self.flowing.clear if value == "on" else self.flowing.set)()
        elif verb == "refuse":
            self.refusing = value == "on"
        elif verb == "cut":
            links = list(self._links)
            for link in random.sample(links, min(1, len(links))) if value == "one" else links:
                link.cancel()
        else:
            raise ValueError("unknown order")

    async def _link(self, client: socket.socket, target: int) -> None:
        broker = socket.socket()
        tasks: list[asyncio.Task[None]] = []
        try:
            for end in (client, broker):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(broker, ("127.0.0.1", target))
            up, down = Pipe(self.to_broker, self.flowing), Pipe(self.to_client, self.flowing)
            loops = (up.read(client), up.write(broker), down.read(broker), down.write(client))
            tasks = [asyncio.create_task(loop) for loop in loops]
            await asyncio.gather(*tasks)
        except (OSError, asyncio.CancelledError):
            pass  # the connection was cut or one side has closed it: the other side gets a reset
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            _reset(client)
            _reset(broker)


class Pipe:
    """One direction of one connection. Data is written in order, `delay` seconds after it was read."""

    def __init__(self, direction: Direction, flowing: asyncio.Event) -> None:
        self._direction, self._flowing = direction, flowing
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._held = 0
        self._room = asyncio.Event()

    async def read(self, end: socket.socket) -> None:
        """Read from a socket until it ends."""
        loop = asyncio.get_running_loop()
        data = b"."
        while data:
            while self._held > _CAPACITY:
                self._room.clear()
                await self._room.wait()
            data = await loop.sock_recv(end, _CHUNK)
            self._queue.put_nowait((loop.time() + self._direction.delay, data))
            self._held += len(data)

    async def write(self, end: socket.socket) -> None:
        """Write to a socket until there is no more data."""
        loop = asyncio.get_running_loop()
        while True:
            due, data = await self._queue.get()
            if (pause := due - loop.time()) > 0:
                await asyncio.sleep(pause)
            await self._direction.throttle(len(data))
            await self._flowing.wait()
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
    listeners = [asyncio.create_task(network.listen(*map(int, route.split(":")))) for route in routes]
    await asyncio.sleep(0)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        try:
            network.carry_out(line.decode().strip())
            print("ok", flush=True)
        except ValueError as error:
            print(error, flush=True)
    for task in listeners:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1:]))
