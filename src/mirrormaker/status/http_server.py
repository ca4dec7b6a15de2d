"""The HTTP server of the status page: GET only, one request per connection, everything bounded.

On loopback no token is needed; the Host header keeps other web sites out, because a foreign name that points here is refused.
Elsewhere a token is needed: in an `Authorization: Bearer` header, or once in the address, which leaves a cookie.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ipaddress
import re
import socket
import traceback
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from urllib.parse import parse_qs

from mirrormaker.errors import MirrorError
from mirrormaker.settings.status_options import StatusSettings, is_loopback
from mirrormaker.status.documents import Status
from mirrormaker.status.snapshot import NO_STREAM

_MAX_HEAD = 16 << 10  # bytes of a request, which has no body
_READ_WITHIN = 5.0  # seconds
_WRITE_WITHIN = 20.0  # seconds: 2,000 partitions are 600 KB, which takes a while over a slow line
_NAMED_WITHIN = 2.0  # seconds to find this machine's full name
_MAX_CONNECTIONS = 64
_FULL = "too many connections"
_DRAIN_WITHIN, _DRAIN_BYTES = 0.5, 8192  # seconds and bytes to read from a client that is refused
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]\r\n")
_JSON, _HTML, _TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_WITHOUT_TOKEN = ("/healthz", "/readyz")  # supervisors have no token, and learn nothing else


class BadRequest(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, text: str = "", **headers: str) -> None:
        super().__init__(text or status.phrase)
        self.status, self.headers = status, headers


@dataclass(frozen=True)
class Request:
    """The parts of a GET request that the server looks at."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]

    @classmethod
    def parse(cls, head: bytes) -> Request:
        """Read a request's head, up to and including the empty line."""
        match = _REQUEST_LINE.match(head)
        if match is None:
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        if match[1] != b"GET":
            raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET")
        headers: dict[str, str] = {}
        for line in head[match.end() : -4].split(b"\r\n"):
            name, colon, value = line.decode("latin-1").partition(":")
            name = name.lower()
            is_second_host = name == "host" and name in headers
            if line and (not colon or is_second_host or not re.fullmatch(r"[!-9;-~]+", name)):
                raise BadRequest(HTTPStatus.BAD_REQUEST)
            headers[name] = value.strip()
        try:
            path, _, text = match[2].decode().partition("?")
            query = parse_qs(text, max_num_fields=8)
        except ValueError:
            raise BadRequest(HTTPStatus.BAD_REQUEST) from None
        return cls(path, {name: values[0] for name, values in query.items()}, headers)


@dataclass(frozen=True)
class Answer:
    """A response."""

    body: bytes
    kind: str = _JSON
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


class Page:
    """An HTML file, and the policy that lets its own style and script run and nothing else."""

    def __init__(self, name: str) -> None:
        text = resources.files("mirrormaker.status").joinpath(name).read_text(encoding="utf-8")
        self.body = text.encode()
        hashes = {tag: _hash(re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)) for tag in ("script", "style")}
        self.policy = (
            f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; connect-src 'self';"
            " img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )


class StatusServer:
    """Serves the status page, its documents and the metrics."""

    def __init__(self, settings: StatusSettings, status: Status) -> None:
        self._settings, self._status = settings, status
        self._page, self._login = Page("page.html"), Page("login.html")
        self._server: asyncio.Server | None = None
        self._connections = 0
        # Connections that have not sent a request yet, the oldest first.
        self._silent: dict[asyncio.StreamReader, None] = {}
        self._names = {"localhost", settings.host.lower()}
        if not settings.is_loopback:
            self._names.add(socket.gethostname().lower())
        self.port = settings.port

    async def open(self) -> str:
        """Listen; return the address to open in a browser."""
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD)
        except OSError as error:
            reason = error.strerror or str(error)
            raise MirrorError(f"--status.address {host}:{port}: {reason}; choose another one") from error
        self.port = self._server.sockets[0].getsockname()[1]
        if not self._settings.is_loopback:
            with contextlib.suppress(asyncio.TimeoutError):
                self._names.add((await asyncio.wait_for(asyncio.to_thread(socket.getfqdn), _NAMED_WITHIN)).lower())
        self._ticking = asyncio.create_task(self._tick())
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/"

    async def _tick(self) -> None:
        while True:
            try:
                self._status.tick()
            except Exception:
                # A bug must neither stop the page nor go unnoticed.
                traceback.print_exc()
            await asyncio.sleep(1)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._ticking.cancel()

    # -- one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            answer = await self._respond(reader)
            if answer is not None:
                writer.write(_encode(answer))
                await asyncio.wait_for(writer.drain(), _WRITE_WITHIN)
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), _WRITE_WITHIN)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # the client has gone, or the process ends
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> Answer | None:
        try:
            if self._connections > _MAX_CONNECTIONS and not self._make_room():
                await self._drain(reader)
                raise BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, _FULL)
            return await self._answer(Request.parse(await self._head(reader)))
        except asyncio.IncompleteReadError:
            return None
        except asyncio.TimeoutError:
            bad = BadRequest(HTTPStatus.REQUEST_TIMEOUT)
        except OSError:
            # TimeoutError is an OSError since Python 3.11, so this clause stands after it.
            return None
        except asyncio.LimitOverrunError:
            bad = BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except BadRequest as error:
            bad = error
        except Exception:
            traceback.print_exc()
            bad = BadRequest(HTTPStatus.INTERNAL_SERVER_ERROR)
        return Answer(f"{bad}\n".encode(), _TEXT, bad.status, tuple(bad.headers.items()))

    def _make_room(self) -> bool:
        """Refuse the oldest silent connection: silent clients must not keep supervisors out."""
        if not self._silent:
            return False
        oldest = next(iter(self._silent))
        del self._silent[oldest]
        oldest.set_exception(BadRequest(HTTPStatus.SERVICE_UNAVAILABLE, _FULL))
        return True

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        """Read the request of a refused client: closing with unread data would drop our answer."""
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(_DRAIN_BYTES), _DRAIN_WITHIN)

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        self._silent[reader] = None
        try:
            return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _READ_WITHIN)
        finally:
            self._silent.pop(reader, None)

    # -- one request

    async def _answer(self, request: Request) -> Answer:
        self._check_host(request.headers.get("host", ""))
        if request.path in _WITHOUT_TOKEN:
            return self._health(request.path)
        if self._settings.token is not None and not self._is_authorized(request):
            if request.path == "/":
                return self._ask_for_token(request)
            raise BadRequest(HTTPStatus.UNAUTHORIZED, "a token is needed", **{"WWW-Authenticate": "Bearer"})
        if request.path == "/":
            if "token" in request.query:
                # The cookie has it by now; it should not stay in the address.
                return _redirect()
            return Answer(self._page.body, _HTML, headers=(("Content-Security-Policy", self._page.policy),))
        return await self._document(request)

    async def _document(self, request: Request) -> Answer:
        status = self._status
        if request.path == "/api/status":
            return Answer(status.overview())
        if request.path == "/api/partitions":
            return Answer(status.partitions())
        if request.path == "/api/groups":
            return Answer(status.groups())
        if request.path == "/api/history":
            return Answer(status.history(_number(request, "after")))
        if request.path == "/api/events":
            return Answer(status.events(int(_number(request, "after"))))
        if request.path == "/metrics":
            return Answer(await status.metrics(), _METRICS)
        raise BadRequest(HTTPStatus.NOT_FOUND)

    def _health(self, path: str) -> Answer:
        if path == "/readyz" and self._status.not_ready:
            reason = f": {NO_STREAM}" if not self._status.snapshot.streams_at_work else ""
            return Answer(f"not ready{reason}\n".encode(), _TEXT, HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ok\n", _TEXT)

    def _check_host(self, given: str) -> None:
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+))(?::\d{1,5})?", given)
        name = (match[1] or match[2]).lower() if match else ""
        if not (name in self._names or is_loopback(name) or (not self._settings.is_loopback and _is_ip_address(name))):
            raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST, "use the name or the address of the machine itself")

    # -- the token

    def _is_authorized(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._is_token(given.strip())
        cookies = (part.strip().partition("=") for part in request.headers.get("cookie", "").split(";"))
        return any(name == self._cookie and _same(value, self._proof) for name, _, value in cookies)

    def _ask_for_token(self, request: Request) -> Answer:
        """Answer with the login page; the token comes back in the address, and becomes a cookie."""
        if self._is_token(request.query.get("token", "")):
            return _redirect(("Set-Cookie", f"{self._cookie}={self._proof}; Path=/; HttpOnly; SameSite=Strict"))
        policy = ("Content-Security-Policy", self._login.policy)
        return Answer(self._login.body, _HTML, HTTPStatus.UNAUTHORIZED, (policy, ("WWW-Authenticate", "Bearer")))

    def _is_token(self, given: str) -> bool:
        return _same(given, self._settings.token or "")

    @property
    def _cookie(self) -> str:
        # Cookies do not know ports: two mirrors on one host need two names.
        return f"mirrormaker-{self.port}"

    @property
    def _proof(self) -> str:
        """The cookie's value: it opens this page, and is not the token itself."""
        return hmac.new((self._settings.token or "").encode(), b"cookie", hashlib.sha256).hexdigest()


def _same(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())


def _is_ip_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


def _number(request: Request, name: str) -> float:
    given = request.query.get(name, "0")
    if not re.fullmatch(r"\d{1,15}(\.\d{1,6})?", given):
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"{name} must be a number")
    return float(given)


def _redirect(*headers: tuple[str, str]) -> Answer:
    return Answer(b"", _TEXT, HTTPStatus.SEE_OTHER, (("Location", "/"), *headers))


def _hash(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"


def _encode(answer: Answer) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
        *(f"{name}: {value}" for name, value in answer.headers),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body
