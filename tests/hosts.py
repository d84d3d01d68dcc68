"""Hosts for tests: machines with a key, enrolled and approved, and clients that sign as an agent does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from nacl.signing import SigningKey

from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.flows import accounts
from service.flows.context import Context
from service.flows.measuring import hosts
from service.settings import Settings
from service.store.measuring import hosts as store
from service.store.measuring.hosts import StoredHost
from service.web.app import create_app
from service.wire.measuring import agent as protocol
from service.wire.measuring.agent import NewHost, enrolment_text, signed_text
from service.wire.measuring.hosts import EngineBuild, EnrolmentRequest, Probe, Visibility
from tests.web.servers import client_of

AUTHORITY = "advisor.example"
RIG = Hardware(
    gpus=[Gpu(name="RTX 3090", pcie="4.0 x16"), Gpu(name="RTX 3090", pcie="4.0 x8")],
    cpu=Cpu(model="Ryzen 9 7950X"),
    ram=Ram(total_gb=128, type="DDR5", channels=2, mts=5600),
)
LLAMA_BENCH = EngineBuild(engine="llama.cpp", sha256="b" * 64, version="b7100", commit="0c1e57098", backends=("cuda",))
SWEEP_BENCH = EngineBuild(
    engine="ik_llama.cpp", sha256="a" * 64, version="4500", commit="8337e4cd3", backends=("cuda",)
)
PROBE = Probe(agent="0.1.0", hardware=RIG, engines=(SWEEP_BENCH, LLAMA_BENCH))


def caller(context: Context, name: str = "alice", *scopes: str) -> accounts.Caller:
    """Return an account with these scopes (default: all but operator's)."""
    token = accounts.create_token(context.engine, name, scopes or ("submit", "validate", "host"), context.clock()).token
    return accounts.caller_of(context.engine, token, context.clock())


def public_key(key: SigningKey) -> str:
    """Return the key as it is sent."""
    return base64.b64encode(key.verify_key.encode()).decode()


def signature(key: SigningKey, text: bytes) -> str:
    """Return the signature of `text` as it is sent."""
    return base64.b64encode(key.sign(text).signature).decode()


def a_host(
    context: Context,
    owner: str = "alice",
    *,
    key: SigningKey | None = None,
    probe: Probe | None = PROBE,
    visibility: Visibility = "private",
    approved: bool = True,
) -> StoredHost:
    """Return a host of `owner`'s, enrolled with a code of his, approved by him, which has said what it is."""
    key, by = key or SigningKey.generate(), caller(context, owner)
    code = hosts.create_enrolment(context, by, EnrolmentRequest(visibility=visibility), "https://" + AUTHORITY).code
    proof = signature(key, enrolment_text(AUTHORITY, code, public_key(key)))
    made = hosts.enrol(
        context, NewHost(code=code, public_key=public_key(key), signature=proof, agent="0.1.0"), AUTHORITY
    )
    if approved:
        store.change(context.engine, made.host, context.clock(), state="active")
    found = store.read(context.engine, made.host)
    assert found is not None
    if probe is not None:
        hosts.save_probe(context, found, probe)
        found = store.read(context.engine, made.host)
        assert found is not None
    return found


class Signer:
    """A host's side of the protocol over HTTP: signs each call, counts, keeps its session."""

    def __init__(self, client: httpx.Client, host: str, key: SigningKey, counter: int = 0) -> None:
        self.client, self.host, self.key, self.counter = client, host, key, counter
        self.token: str | None = None

    def open_session(self) -> httpx.Response:
        """Open a session, and keep its token."""
        reply = self.call("/v1/agent/sessions", {})
        if reply.status_code == 201:
            self.token = reply.json()["token"]
        return reply

    def call(self, path: str, body: Any) -> httpx.Response:
        """Send `body` signed, with the next counter."""
        content = msgspec.json.encode(body)
        return self.client.post(path, content=content, headers=self.headers(path, content))

    def headers(self, path: str, content: bytes) -> dict[str, str]:
        """Return the headers of the next call."""
        self.counter += 1
        text = signed_text(self.client.base_url.netloc.decode(), "POST", path, self.host, self.counter, content)
        found = {
            "content-type": "application/json",
            protocol.HOST_HEADER: self.host,
            protocol.COUNTER_HEADER: str(self.counter),
            protocol.SIGNATURE_HEADER: signature(self.key, text),
        }
        return found | ({"authorization": f"Bearer {self.token}"} if self.token else {})


@contextmanager
def service(settings: Settings) -> Iterator[httpx.Client]:
    """Run the real app on these settings' database and Valkey; the value is a client without a token."""
    with client_of(create_app(settings)) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    """Return the header that sends a token."""
    return {"authorization": f"Bearer {token}"}
