"""Calls to the service: https only, signed, counted, and no answer believed beyond the protocol."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from service.engine.hardware import Hardware
from service.wire.measuring.agent import Progress, Report
from service.wire.measuring.hosts import Probe
from tests.workers.agent.documents import DOCUMENT
from tests.workers.agent.fake_service import HOST, FakeService, enrolled, problem
from workers.agent.client import MAX_REPLY_BYTES, Client, service_address
from workers.agent.errors import HostError, ServiceError, ServiceUnreachable
from workers.agent.state import COUNTER, State, make_key

LEASED = {"run": "r1", "fence": 1, "lease_seconds": 90, "document": msgspec.to_builtins(DOCUMENT)}


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "host")


@pytest.fixture
def client(service: FakeService, state: State) -> Iterator[Client]:
    key = enrolled(service, state)
    client = Client(service.address, "offload-advisor/test", wait=_Hasty())
    client.sign_as(HOST, key, state)
    yield client
    client.close()


class _Hasty(threading.Event):
    """Waits for nothing."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@pytest.mark.parametrize(
    ("address", "authority"),
    [
        ("https://advisor.example", "advisor.example"),
        ("https://Advisor.Example:443/", "advisor.example"),
        ("https://advisor.example:8443", "advisor.example:8443"),
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://localhost", "localhost"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_an_address_is_https_or_this_machine(address: str, authority: str) -> None:
    assert service_address(address)[1] == authority


@pytest.mark.parametrize(
    "address",
    [
        "http://advisor.example",
        "http://192.168.1.5:8000",
        "http://127.0.0.1.example",
        "ftp://advisor.example",
        "advisor.example",
        "https://",
        "https://user:word@advisor.example",
        "https://advisor.example/path",
        "https://advisor.example?x",
        "https://advisor.example:99999",
        "https://advi\nsor.example/x",
        "file:///etc/passwd",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(HostError):
        Client(address, "t")


def test_enrolment_shows_the_service_and_owner_before_the_key_is_sent(service: FakeService, state: State) -> None:
    greeted = {"service": "Advisor", "owner": "ada", "visibility": "private", "expires_at": "2026-01-01T00:00:00Z"}
    service.answers["/v1/agent/greeting"] = [(200, greeted)]
    service.answers["/v1/agent/hosts"] = [(201, {"host": HOST, "pseudonym": "quiet-otter-7", "state": "waiting"})]
    state.make()
    client = Client(service.address, "t")
    assert client.greet("c" * 22).owner == "ada"
    assert "public_key" not in json.dumps(service.calls)
    key = make_key(state)
    assert client.enrol("c" * 22, key, "offload-advisor/1").host == HOST
    assert service.bodies("/hosts")[0]["public_key"] == key.public
    client.close()


def test_calls_are_signed_and_counted(client: Client, service: FakeService, state: State) -> None:
    service.answers["/v1/agent/leases"] = [(200, LEASED)]
    client.probe(Probe(agent="t", hardware=Hardware(gpus=[])))
    leased = client.lease(0)
    assert leased is not None
    assert leased.document == DOCUMENT
    assert service.counters == [1, 2, 3]
    assert state.read(COUNTER) == b"3"


def test_no_run_is_none(client: Client) -> None:
    assert client.lease(0) is None


def test_an_agent_that_lost_its_counter_goes_on_from_the_services(client: Client, service: FakeService) -> None:
    service.last_counter = 41
    client.lease(0)
    assert service.counters == [42, 43]


@pytest.mark.parametrize("choices", [[], ["x"], ["1", "2"], ["9" * 30], None])
def test_a_counter_that_cannot_be_counted_on_from_ends_it(
    client: Client, service: FakeService, choices: list[str] | None
) -> None:
    service.answers["/v1/agent/sessions"] = [problem(409, "counter-too-small", choices=choices)]
    with pytest.raises(ServiceError, match="counter-too-small"):
        client.lease(0)


def test_another_session_begins_when_one_ends(client: Client, service: FakeService) -> None:
    client.lease(0)
    client._token = "ahs_old"
    client.lease(0)
    assert [path for path, _ in service.calls].count("/v1/agent/sessions") == 2


def test_a_service_that_never_accepts_a_session_is_not_asked_for_ever(client: Client, service: FakeService) -> None:
    service.answers["/v1/agent/leases"] = [problem(401, "session-expired")]
    with pytest.raises(ServiceError):
        client.lease(0)
    assert len(service.bodies("/leases")) == 3


def test_a_service_that_stumbles_is_asked_again(client: Client, service: FakeService) -> None:
    service.answers["/progress"] = [problem(503, "busy"), (502, b"<html>"), (200, {"stop": False})]
    assert not client.progress("r1", Progress(fence=1, step="checking")).stop
    service.answers["/progress"] = [problem(503, "busy")]
    with pytest.raises(ServiceUnreachable, match="so it is: busy"):
        client.progress("r1", Progress(fence=1, step="checking"))


def test_a_lost_lease_is_said_at_once(client: Client, service: FakeService) -> None:
    service.answers["/report"] = [problem(409, "lease-lost")]
    with pytest.raises(ServiceError) as caught:
        client.report("r1", Report(fence=1))
    assert caught.value.slug == "lease-lost"
    assert len(service.bodies("/report")) == 1


def test_no_redirect_is_followed(client: Client, service: FakeService) -> None:
    for status in (301, 302, 307, 308):
        service.answers["/v1/agent/leases"] = [(status, b"")]
        with pytest.raises(ServiceError, match="not followed"):
            client.lease(0)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"run": 1}',
        json.dumps(LEASED | {"document": msgspec.to_builtins(DOCUMENT) | {"argv": ["rm"]}}).encode(),
        json.dumps(LEASED | {"document": msgspec.to_builtins(DOCUMENT) | {"gpus": [99]}}).encode(),
    ],
)
def test_answers_outside_the_protocol_are_errors(client: Client, service: FakeService, answer: bytes) -> None:
    service.answers["/v1/agent/leases"] = [(200, answer)]
    if not answer:
        assert client.lease(0) is None
        return
    with pytest.raises(ServiceError, match="not of this protocol"):
        client.lease(0)


def test_a_huge_answer_is_cut_off(client: Client, service: FakeService) -> None:
    service.answers["/v1/agent/leases"] = [(200, b" " * (MAX_REPLY_BYTES + 2))]
    with pytest.raises(ServiceError, match="larger than"):
        client.lease(0)


@pytest.mark.parametrize("run", ["../hosts", "a/b", "a?b", "", "a" * 65, "a\r\nX: y"])
def test_a_runs_id_cannot_choose_another_path(client: Client, service: FakeService, run: str) -> None:
    with pytest.raises(ServiceError, match="a run's id"):
        client.progress(run, Progress(fence=1, step="checking"))
    assert service.calls == []


def test_text_of_the_service_has_no_control_characters(client: Client, service: FakeService) -> None:
    service.answers["/v1/agent/leases"] = [(403, {"type": "x", "title": "t", "status": 403, "detail": "\x1b[2Jgone\n"})]
    with pytest.raises(ServiceError) as caught:
        client.lease(0)
    assert caught.value.detail.endswith(": [2Jgone")


def test_a_service_that_is_not_there_is_unreachable(state: State) -> None:
    client = Client("http://127.0.0.1:1", "t", wait=_Hasty())
    with pytest.raises(ServiceUnreachable):
        client.greet("c" * 22)
    client.close()


def test_what_breaks_the_protocol_is_not_sent(client: Client, service: FakeService) -> None:
    with pytest.raises(HostError, match="not sent"):
        client.report("r1", Report(fence=1, log="x" * (1 << 20)))
    assert service.calls == []


def test_a_hosts_own_proxy_and_netrc_are_not_used(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert client.lease(0) is None


def test_a_service_that_cannot_prove_its_name_gets_nothing(state: State) -> None:
    """self_signed.pem: made with `openssl req -x509` for localhost, trusted by nobody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).with_name("self_signed.pem"))
    heard = list[bytes]()

    def listen(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            heard.append(secured.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=listen, args=(server,))
        thread.start()
        client = Client(f"https://localhost:{server.getsockname()[1]}", "t", wait=_Hasty())
        with pytest.raises(ServiceUnreachable, match=r"(?i)certificate"):
            client.greet("c" * 22)
        thread.join()
        client.close()
    assert heard == []


def test_a_service_that_wants_fewer_calls_is_not_asked_again_at_once(client: Client, service: FakeService) -> None:
    service.answers["/v1/agent/leases"] = [problem(429, "rate-limited")]
    with pytest.raises(ServiceUnreachable):
        client.lease(0)
    assert len(service.bodies("/leases")) == 1
