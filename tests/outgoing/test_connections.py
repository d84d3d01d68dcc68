"""A name is resolved once, and what is connected to is what was checked."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import httpcore
import pytest

from service.outgoing.connections import CheckedBackend, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808",
        "2002:7f00:1::", "2002:808:808::", "2001:0:808:808::1", "100::1", "localhost", "",
    ],
)  # fmt: skip
def test_addresses_that_are_not_the_internets(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "3.164.1.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"])
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public(address)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(0.05)
        yield made


def answers(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let names have these addresses; return which were asked for, as they are asked."""
    asked: list[str] = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[object]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr("service.outgoing.connections.socket.getaddrinfo", resolve)
    return asked


def test_a_name_that_leads_inside_is_not_connected_to(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers(monkeypatch, "127.0.0.1")
    with caplog.at_level(logging.WARNING), pytest.raises(httpcore.ConnectError):
        CheckedBackend(lambda host: False, httpcore).connect_tcp("cdn-lfs.hf.co", listener.getsockname()[1], 1)
    with pytest.raises(TimeoutError):
        listener.accept()
    assert "cdn-lfs.hf.co is at 127.0.0.1" in caplog.text


def test_what_the_operator_named_may_lie_inside(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "127.0.0.1")
    stream = CheckedBackend(lambda host: host == "mirror.lan", httpcore).connect_tcp(
        "mirror.lan", listener.getsockname()[1], 1
    )
    stream.close()
    listener.accept()[0].close()


def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the server that answers for the name could say something else the second time."""
    connected: list[str] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        connected.append(address[0])
        raise ConnectionRefusedError

    asked = answers(monkeypatch, "10.0.0.5", "8.8.8.8", "169.254.169.254", "1.1.1.1")
    monkeypatch.setattr("socket.create_connection", connect)
    with pytest.raises(httpcore.ConnectError):
        CheckedBackend(lambda host: False, httpcore).connect_tcp("cdn-lfs.hf.co", 443, 1)
    assert (asked, connected) == (["cdn-lfs.hf.co"], ["8.8.8.8", "1.1.1.1"])


@pytest.mark.parametrize("host", ["0177.0.0.1", "2130706433", "0x7f000001", "127.1"])
def test_other_spellings_of_this_machine_are_seen_through(listener: socket.socket, host: str) -> None:
    with pytest.raises(httpcore.ConnectError):
        CheckedBackend(lambda host: False, httpcore).connect_tcp(host, listener.getsockname()[1], 1)
    with pytest.raises(TimeoutError):
        listener.accept()


@pytest.mark.parametrize("host", ["a" * 300, "a..b", "\u2024"])
def test_a_name_that_cannot_be_is_not_known(host: str) -> None:
    with pytest.raises(httpcore.ConnectError):
        CheckedBackend(lambda host: True, httpcore).connect_tcp(host, 80, 1)


def test_no_unix_socket_is_asked() -> None:
    with pytest.raises(httpcore.ConnectError):
        CheckedBackend(lambda host: True, httpcore).connect_unix_socket("/run/valkey.sock")
