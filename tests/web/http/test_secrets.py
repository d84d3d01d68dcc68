"""Tokens, codes and keys are nowhere but with their owners: not in logs, tables or Redis."""

from __future__ import annotations

import base64
import logging
import secrets

import httpx
import msgspec
import pytest
from nacl.signing import SigningKey
from redis import Redis
from sqlalchemy import Engine, select

from service.flows.accounts import create_token
from service.flows.context import utc_now
from service.store.tables import metadata
from tests.databases import database_url, engine, postgres
from tests.hosts import PROBE, Signer, bearer, public_key
from tests.web.http.test_access_log import lines, logged
from tests.web.joining import api, code_of, enrol

__all__ = ["api", "database_url", "engine", "postgres"]
PATH = "/v1/agent/probe"


def stored(engine: Engine) -> str:
    """Return all that the database holds, as text."""
    with engine.connect() as connection:
        rows = [tuple(row) for table in metadata.sorted_tables for row in connection.execute(select(table))]
    return "\n".join(map(repr, rows))


def remembered(redis: Redis) -> str:
    """Return all that Redis holds, as text."""
    return "\n".join(f"{key!r} {redis.dump(key)!r}" for key in redis.scan_iter("*"))


def test_a_hosts_whole_life_leaves_no_secret_behind(
    api: httpx.Client,
    engine: Engine,
    redis: Redis,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)  # as `advisor serve` logs, which hears no client of HTTP either
    caplog.set_level(logging.WARNING, "httpx")
    token = create_token(engine, "alice", ["host"], utc_now()).token
    guess, lie, key = secrets.token_urlsafe(16), "adv_" + secrets.token_urlsafe(32), SigningKey.generate()
    code, unused = code_of(api, bearer(token)), code_of(api, bearer(token))
    api.post("/v1/agent/greeting", json={"code": guess})
    api.get("/v1/account", headers=bearer(lie))
    agent = Signer(api, enrol(api, code, key).json()["host"], key)
    enrol(api, unused, key)
    agent.open_session()
    first, content = agent.token or "", msgspec.json.encode(PROBE)
    sent = agent.headers(PATH, content)
    api.post(PATH, content=content, headers=sent)
    api.post(PATH, content=content, headers=sent)
    api.post(PATH, content=b"{", headers=agent.headers(PATH, b"{"))
    api.post(PATH, content=content, headers=agent.headers(PATH, content) | bearer(token))
    api.get("/v1/account", headers=bearer(first))
    api.patch(f"/v1/hosts/{agent.host}", json={"state": first}, headers=bearer(token))
    agent.open_session()
    api.post(f"/v1/agent/greeting?code={unused}", json={"code": unused})
    known = stored(engine)
    written = logged(capsys, 15) + caplog.text
    kept = {"log": written, "database": known, "Redis": remembered(redis)}
    hidden = {
        "token": token, "made-up token": lie, "code": code, "open code": unused, "guess": guess,
        "session": first, "second session": agent.token or "", "signature": sent["Advisor-Signature"],
        "key": base64.b64encode(bytes(key)).decode(), "key, hexadecimal": bytes(key).hex(),
    }  # fmt: skip
    assert len([line for line in lines(written) if line["event"] == "request"]) >= 15
    assert public_key(key) in known
    assert "limit:" in kept["Redis"]
    assert [(name, place) for name, secret in hidden.items() for place, text in kept.items() if secret in text] == []
