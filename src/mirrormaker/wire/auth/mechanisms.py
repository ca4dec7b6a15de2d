"""What is said to log in, token by token: each mechanism is a generator that yields our tokens and is sent the broker's.

What it returns is the last token, which is not answered by a token. Steps may block: they run beside the event loop.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from typing import Any

from mirrormaker.errors import LoginError
from mirrormaker.wire.credentials import Client, Password

Exchange = Generator[bytes, bytes, bytes | None]

SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_LEAST_ITERATIONS = 4096  # as in Java: with fewer, whoever poses as the broker could guess the password
_MOST_ITERATIONS = 1_000_000  # two seconds: with more, it could keep us busy for hours
_TOKEN_TIMEOUT = 4.0  # seconds for the OAuth server: people wait for the first line of an error
_TOKEN_USED = 0.8  # of its life is a token used; the rest is for clocks that differ


class _HereOnly(urllib.request.HTTPRedirectHandler):
    """Whoever is named by a redirect must not be shown the client's secret."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_HereOnly)
_tokens: dict[Client, tuple[str, float]] = {}  # and when to ask for another


def plain(login: Password) -> Exchange:
    yield f"\0{login.user}\0{login.password}".encode()
    return None


def scram(login: Password, digest: str) -> Exchange:
    """RFC 5802: the password never leaves, and the broker proves that it knows it too."""
    nonce = secrets.token_urlsafe(24)
    user = login.user.replace("=", "=3D").replace(",", "=2C")
    opening = f"n={user},r={nonce}"
    offer = yield f"n,,{opening}".encode()
    said = _attributes(offer)
    salt, count = _bytes(said.get("s", "")), int(said["i"]) if said.get("i", "").isdecimal() else 0
    if not said.get("r", "").startswith(nonce) or not salt or not _LEAST_ITERATIONS <= count <= _MOST_ITERATIONS:
        raise LoginError("its answer to SCRAM is not one that a Kafka broker gives")
    salted = hashlib.pbkdf2_hmac(digest, login.password.encode(), salt, count)
    closing = f"c=biws,r={said['r']}"
    everything = f"{opening},{offer.decode()},{closing}".encode()
    key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, key).digest(), everything, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    verdict = _attributes((yield f"{closing},p={proof}".encode()))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), everything, digest)
    if not hmac.compare_digest(_bytes(verdict.get("v", "")), expected):
        raise LoginError("it does not know the password itself: is that the broker?")
    return None


def _attributes(message: bytes) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.decode("utf-8", "replace").split(",") if "=" in part)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def oauthbearer(login: Client) -> Exchange:
    """RFC 7628, with a token that the OAuth server gives to a client (RFC 6749, 4.4)."""
    extensions = "".join(f"{name}={value}\x01" for name, value in login.extensions)
    refusal = yield f"n,,\x01auth=Bearer {_token(login)}\x01{extensions}\x01".encode()
    if refusal:
        _tokens.pop(login, None)
        yield b"\x01"  # so it is laid down; the broker then refuses in its own words
    return None


def _token(login: Client) -> str:
    token, until = _tokens.get(login, ("", 0.0))
    if time.monotonic() < until:
        return token
    asked = {"grant_type": "client_credentials", **({"scope": login.scope} if login.scope else {})}
    pair = base64.b64encode(f"{login.id}:{login.secret}".encode()).decode()
    request = urllib.request.Request(
        login.token_url, urllib.parse.urlencode(asked).encode(), {"Authorization": f"Basic {pair}", "Accept": "application/json"}
    )  # fmt: skip
    try:
        with _opener.open(request, timeout=_TOKEN_TIMEOUT) as answer:
            said = json.load(answer)
        token, seconds = str(said["access_token"]), float(said.get("expires_in", 0))
    except urllib.error.HTTPError as error:
        raise LoginError(f"{login.token_url} gives {login} no token: HTTP {error.code} {error.reason}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise LoginError(f"{login.token_url} gives {login} no token: {reason}") from None
    except http.client.HTTPException:
        raise LoginError(f"{login.token_url} does not answer as a web server does: http or https?") from None
    except (ValueError, KeyError, TypeError):
        raise LoginError(f"{login.token_url} does not answer with a token, as OAuth servers do") from None
    _tokens[login] = token, time.monotonic() + _TOKEN_USED * seconds
    return token
