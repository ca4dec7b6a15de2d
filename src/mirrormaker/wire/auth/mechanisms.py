"""The SASL mechanisms PLAIN, SCRAM and OAUTHBEARER, without any connection.

Each mechanism is a generator. It yields the client's tokens and is sent the broker's; it returns the last token, to
which the broker does not answer with another, or None. A step may block, so it runs in a thread.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator
from typing import Any

from mirrormaker.errors import LoginError
from mirrormaker.wire.credentials import OAuthClient, Password

Exchange = Generator[bytes, bytes, bytes | None]

SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# SCRAM's iteration count. With fewer, a server that poses as the broker could guess the password (Java has the same
# limit). With more, it could keep this client busy for hours: these take half a second. Kafka's tools allow 16,384.
_LEAST_ITERATIONS, _MOST_ITERATIONS = 4096, 300_000
_TOKEN_TIMEOUT = 4.0  # seconds for the OAuth server: a user waits for the first line of an error
_LONGEST_TOKEN_ANSWER = 1 << 20  # bytes
_TOKEN = re.compile("[!-~]+")  # RFC 6749, appendix A.12; a broker takes control characters for the end of the token
_TOKEN_SHARE = 0.8  # of a token's lifetime; the rest is for clocks that differ


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: another server must not see the client's secret."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)
# The token of each client, and the time at which to request another.
_tokens: dict[OAuthClient, tuple[str, float]] = {}


def plain(login: Password) -> Exchange:
    """Log in with PLAIN (RFC 4616): the password is sent as it is."""
    yield f"\0{login.user}\0{login.password}".encode()
    return None


def scram(login: Password, digest: str) -> Exchange:
    """Log in with SCRAM (RFC 5802): the password is never sent, and the broker proves that it knows it too."""
    nonce = secrets.token_urlsafe(24)
    user = login.user.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={user},r={nonce}"
    server_first = yield f"n,,{client_first}".encode()
    challenge = _attributes(server_first)
    salt, count = _bytes(challenge.get("s", "")), _number(challenge.get("i", ""))
    if not challenge.get("r", "").startswith(nonce) or not salt or not _LEAST_ITERATIONS <= count <= _MOST_ITERATIONS:
        raise LoginError("its answer to SCRAM is not one that a Kafka broker gives")
    salted = hashlib.pbkdf2_hmac(digest, login.password.encode(), salt, count)
    client_final = f"c=biws,r={challenge['r']}"
    auth_message = b",".join((client_first.encode(), server_first, client_final.encode()))
    key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, key).digest(), auth_message, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    server_final = _attributes((yield f"{client_final},p={proof}".encode()))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), auth_message, digest)
    if not hmac.compare_digest(_bytes(server_final.get("v", "")), expected):
        raise LoginError("it does not know the password itself: is that the broker?")
    return None


def _attributes(message: bytes) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.decode("utf-8", "replace").split(",") if "=" in part)


def _number(text: str) -> int:
    """Return a number of a few digits; 0 for every other text. Python refuses to convert thousands of digits."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def oauthbearer(login: OAuthClient) -> Exchange:
    """Log in with OAUTHBEARER (RFC 7628) and a token for the client's own credentials (RFC 6749, section 4.4)."""
    extensions = "".join(f"{name}={value}\x01" for name, value in login.extensions)
    refusal = yield f"n,,\x01auth=Bearer {_token(login)}\x01{extensions}\x01".encode()
    if refusal:
        _tokens.pop(login, None)
        # RFC 7628 asks for this answer to an error; the broker then refuses with its own message.
        yield b"\x01"
    return None


def _token(login: OAuthClient) -> str:
    token, until = _tokens.get(login, ("", 0.0))
    if time.monotonic() < until:
        return token
    form = {"grant_type": "client_credentials", **({"scope": login.scope} if login.scope else {})}
    pair = base64.b64encode(f"{login.id}:{login.secret}".encode()).decode()
    headers = {"Authorization": f"Basic {pair}", "Accept": "application/json"}
    request = urllib.request.Request(login.token_url, urllib.parse.urlencode(form).encode(), headers)
    try:
        with _opener.open(request, timeout=_TOKEN_TIMEOUT) as answer:
            document = json.loads(answer.read(_LONGEST_TOKEN_ANSWER))
        token, seconds = str(document["access_token"]), float(document.get("expires_in", 0))
        if not _TOKEN.fullmatch(token):
            raise ValueError
    except urllib.error.HTTPError as error:
        raise LoginError(f"{login.token_url} gives {login} no token: HTTP {error.code} {error.reason}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise LoginError(f"{login.token_url} gives {login} no token: {reason}") from None
    except http.client.HTTPException:
        raise LoginError(f"{login.token_url} does not answer as a web server does: http or https?") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise LoginError(f"{login.token_url} does not answer with a token, as OAuth servers do") from None
    _tokens[login] = token, time.monotonic() + _TOKEN_SHARE * seconds
    return token
