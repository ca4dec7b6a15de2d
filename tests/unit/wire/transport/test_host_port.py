"""Addresses as text, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.wire.transport.connection import Connection
from mirrormaker.wire.transport.host_port import join_host_port, split_host_port

ports = st.integers(1, 65535)


@given(st.one_of(st.ip_addresses().map(str), st.from_regex(r"[a-z0-9_.-]{1,20}", fullmatch=True)), ports)
def test_an_address_comes_back_as_it_was(host: str, port: int) -> None:
    assert split_host_port(join_host_port(host, port)) == (host, port)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", ("host", 2181)),
        ("host:99", ("host", 99)),
        ("[::1]", ("::1", 2181)),
        ("[fe80::1%eth0]:99", ("fe80::1%eth0", 99)),
        *(
            (text, None)
            for text in ("", ":99", "host:", "host:0", "host:65536", "host:99999", "::1", "a b:99", "a/b:99")
        ),
    ],
)
def test_a_port_may_have_a_default_and_everything_else_is_refused(text: str, expected: tuple[str, int] | None) -> None:
    assert split_host_port(text, 2181) == expected


def test_without_a_default_a_port_is_required() -> None:
    assert split_host_port("host") is None


def test_a_connection_is_named_by_its_address() -> None:
    assert str(Connection("::1", 9092, client_id="us")) == "[::1]:9092"
    assert str(Connection("host", 9092, client_id="us")) == "host:9092"
