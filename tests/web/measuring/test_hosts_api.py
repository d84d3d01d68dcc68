"""A machine joins: code, greeting, key, approval, session, probe; each through the real app on both databases."""

from __future__ import annotations

import httpx
import msgspec
import pytest
from nacl.signing import SigningKey
from sqlalchemy import Engine

from service.flows.accounts import create_token
from service.flows.context import utc_now
from service.wire.measuring.agent import enrolment_text, key_fingerprint
from tests.databases import database_url, engine, postgres
from tests.hosts import PROBE, Signer, bearer, public_key, signature
from tests.web.http.test_problems import assert_problem
from tests.web.joining import api, code_of, enrol, joined

__all__ = ["api", "database_url", "engine", "postgres"]


@pytest.fixture
def owner(engine: Engine) -> dict[str, str]:
    return bearer(create_token(engine, "alice", ["host"], utc_now()).token)


def test_a_machine_joins_and_is_approved_and_says_what_it_is(api: httpx.Client, owner: dict[str, str]) -> None:
    code = code_of(api, owner, visibility="public")
    greeted = api.post("/v1/agent/greeting", json={"code": code}).json()
    assert (greeted["owner"], greeted["visibility"]) == ("alice", "public")
    key = SigningKey.generate()
    made = enrol(api, code, key).json()
    assert made["state"] == "waiting"
    agent = Signer(api, made["host"], key)
    assert agent.open_session().json()["state"] == "waiting"
    assert agent.call("/v1/agent/probe", PROBE).status_code == 204
    assert api.get("/v1/hosts").json() == []
    approved = api.patch(f"/v1/hosts/{agent.host}", json={"state": "active"}, headers=owner).json()
    assert (approved["state"], approved["mine"], approved["agent"]) == ("active", True, "0.1.0")
    assert approved["key_fingerprint"] == key_fingerprint(public_key(key))
    (public,) = api.get("/v1/hosts").json()
    assert public["pseudonym"] == made["pseudonym"]
    assert public["hardware"] == msgspec.to_builtins(PROBE.hardware)
    assert (public["mine"], public["models"], public["agent"]) == (False, [], None)


def test_a_code_is_good_once(api: httpx.Client, owner: dict[str, str]) -> None:
    code = code_of(api, owner)
    assert enrol(api, code, SigningKey.generate()).status_code == 201
    assert_problem(enrol(api, code, SigningKey.generate()), 404, "enrolment-code-unknown")
    assert_problem(api.post("/v1/agent/greeting", json={"code": code}), 404, "enrolment-code-unknown")


def test_a_key_that_the_sender_does_not_have_is_refused_and_the_code_stays_good(
    api: httpx.Client, owner: dict[str, str]
) -> None:
    code, mine, other = code_of(api, owner), SigningKey.generate(), SigningKey.generate()
    proof = signature(mine, enrolment_text(api.base_url.netloc.decode(), code, public_key(other)))
    body = {"code": code, "public_key": public_key(other), "signature": proof, "agent": "0.1.0"}
    assert_problem(api.post("/v1/agent/hosts", json=body), 401, "not-authenticated")
    assert enrol(api, code, mine).status_code == 201


def test_a_signed_call_counts_once(api: httpx.Client, owner: dict[str, str]) -> None:
    agent = joined(api, owner)
    agent.open_session()
    content = msgspec.json.encode(PROBE)
    headers = agent.headers("/v1/agent/probe", content)
    assert api.post("/v1/agent/probe", content=content, headers=headers).status_code == 204
    replayed = api.post("/v1/agent/probe", content=content, headers=headers)
    assert_problem(replayed, 409, "counter-too-small")
    assert replayed.json()["choices"] == [str(agent.counter)]


def test_a_call_without_a_session_is_refused(api: httpx.Client, owner: dict[str, str]) -> None:
    agent = joined(api, owner)
    assert_problem(agent.call("/v1/agent/probe", PROBE), 401, "not-authenticated")
    agent.open_session()
    assert agent.call("/v1/agent/probe", PROBE).status_code == 204


def test_a_revoked_host_is_out_at_once(api: httpx.Client, owner: dict[str, str]) -> None:
    agent = joined(api, owner)
    agent.open_session()
    assert api.delete(f"/v1/hosts/{agent.host}", headers=owner).status_code == 204
    assert_problem(agent.call("/v1/agent/probe", PROBE), 403, "host-not-active")
    assert_problem(agent.open_session(), 403, "host-not-active")
    assert_problem(
        api.patch(f"/v1/hosts/{agent.host}", json={"state": "active"}, headers=owner), 403, "host-not-active"
    )


def test_a_host_leaves_by_itself(api: httpx.Client, owner: dict[str, str]) -> None:
    agent = joined(api, owner)
    agent.open_session()
    assert agent.call("/v1/agent/leave", {}).status_code == 204
    assert api.get(f"/v1/hosts/{agent.host}", headers=owner).json()["state"] == "revoked"


def test_a_private_host_is_nobody_elses_to_see_or_change(
    api: httpx.Client, owner: dict[str, str], engine: Engine
) -> None:
    agent = joined(api, owner)
    other = bearer(create_token(engine, "bob", ["host"], utc_now()).token)
    path = f"/v1/hosts/{agent.host}"
    for reply in (
        api.get(path),
        api.get(path, headers=other),
        api.patch(path, json={"state": "active"}, headers=other),
        api.delete(path, headers=other),
    ):
        assert_problem(reply, 404, "host-not-found")


def test_a_token_without_the_scope_is_told_so(api: httpx.Client, engine: Engine) -> None:
    reader = bearer(create_token(engine, "carol", ["submit"], utc_now()).token)
    reply = api.post("/v1/hosts/enrolments", json={}, headers=reader)
    assert_problem(reply, 403, "not-allowed")
    assert "scope host" in reply.json()["detail"]
    assert api.get("/v1/account", headers=reader).json() == {"name": "carol", "scopes": ["submit"]}
    nobody = api.get("/v1/account")
    assert_problem(nobody, 401, "not-authenticated")
    assert nobody.headers["www-authenticate"] == "Bearer"
