"""A stream's connection to the control server of its driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from mirrormaker.control.control_encoding import MAX_MESSAGE, StreamEnd
from mirrormaker.control.control_messages import Order, Report
from mirrormaker.control.control_session import HANDSHAKE_BYTES, Session, StreamAttempt, StreamHandshake
from mirrormaker.control.frames import FrameConnection
from mirrormaker.errors import BadMessage, DriverGone, describe

_CONNECT_WITHIN = 4.0  # seconds until both sides have proved who they are; the first lease is not longer


class ControlClient:
    """Sends reports and yields orders. Every failure is `DriverGone`, and the end of the connection."""

    def __init__(self, connection: FrameConnection, session: Session) -> None:
        self._connection, self._session, self._end = connection, session, StreamEnd()

    @classmethod
    async def open(
        cls, address: tuple[str, int], secret: bytes, flow: int, job: int, stream: int, attempt: int
    ) -> ControlClient:
        """Connect, and return once both sides have proved to each other that they know the secret."""
        handshake = StreamHandshake(secret, StreamAttempt(flow, job, stream, attempt))
        connection = FrameConnection(HANDSHAKE_BYTES)
        try:
            async with asyncio.timeout(_CONNECT_WITHIN):
                session = await cls._greet(connection, address, handshake)
        except (OSError, BadMessage, TimeoutError) as error:
            connection.abort()
            raise DriverGone(f"no driver answers at {address[0]}:{address[1]}: {describe(error)}") from error
        connection.max_bytes = MAX_MESSAGE
        return cls(connection, session)

    @staticmethod
    async def _greet(connection: FrameConnection, address: tuple[str, int], handshake: StreamHandshake) -> Session:
        await asyncio.get_running_loop().create_connection(lambda: connection, *address)
        connection.write(handshake.hello(await connection.read()))
        return handshake.session(await connection.read())

    async def report(self, report: Report) -> None:
        """Send a report."""
        try:
            for message in self._end.reports(report):
                self._connection.write(self._session.seal(message))
                await self._connection.drain()
        except (OSError, BadMessage) as error:
            raise DriverGone(describe(error)) from error

    async def next_order(self) -> Order:
        """Wait for the driver's next order."""
        try:
            return self._end.order(self._session.open(await self._connection.read()))
        except BadMessage as error:
            # Nothing that comes after it can be trusted.
            self._connection.abort()
            raise DriverGone(describe(error)) from error
        except OSError as error:
            raise DriverGone(describe(error)) from error

    async def __aiter__(self) -> AsyncIterator[Order]:
        while True:
            yield await self.next_order()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
