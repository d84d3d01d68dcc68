"""Who may call what: every route of the app, for every kind of caller. A route that is not in the table fails."""

from __future__ import annotations

import secrets
from typing import Any

import httpx
import msgspec
import pytest
from redis import Redis
from sqlalchemy import Engine

from service.settings import Settings
from service.web.app import create_app
from tests.databases import postgres
from tests.hosts import Signer, bearer
from tests.web.joining import in_session, shared_app, shared_engine, token_of

__all__ = ["postgres", "shared_app", "shared_engine"]
IN = 0  # not refused: neither 401 nor 403, and what is asked for is not hidden
KINDS = ("nobody", "liar", "reader", "asker", "other", "owner", "operator", "session", "host")

# What each kind of access answers to: nobody; a made-up token; an account with `submit` only; one with `validate` only;
# somebody else with `host`; the owner of the host that is asked for, with all three; an operator; the session of a host
# sent without a signature; a host that signs.
ACCESS: dict[str, tuple[int, ...]] = {
    "open": (IN, IN, IN, IN, IN, IN, IN, IN, IN),
    "keyed": (403,) * len(KINDS),  # the key that was given to anyone who asked for the advice, and nothing else
    "known": (401, 401, IN, IN, IN, IN, IN, 401, 401),
    "seen": (IN, 401, IN, IN, IN, IN, IN, 401, 401),
    "submit": (IN, 401, IN, 403, 403, IN, 403, 401, 401),
    "validate": (401, 401, 403, IN, 403, IN, 403, 401, 401),
    "host": (401, 401, 403, 403, IN, IN, 403, 401, 401),
    "operator": (401, 401, 403, 403, 403, 403, IN, 401, 401),
    "read own": (404, 401, 404, 404, 404, IN, 404, 401, 401),
    "change own": (401, 401, 403, 403, 404, IN, 403, 401, 401),
    "end own": (401, 401, 404, 404, 404, IN, IN, 401, 401),
    "signed": (401, 401, 401, 401, 401, 401, 401, 401, IN),
}
ROUTES = {
    "POST /v1/advice": "seen",
    "GET /v1/advice/{advice_id}": "seen",
    "GET /v1/advice/{advice_id}/events": "open",
    "GET /v1/advice/{advice_id}/file": "open",
    "DELETE /v1/advice/{advice_id}": "keyed",
    "POST /v1/check": "open",
    "GET /v1/repos/{owner}/{name}": "open",
    "GET /v1/hardware/gpus": "open",
    "GET /v1/hardware/cpus": "open",
    "POST /v1/hardware/parse": "open",
    "GET /v1/leaderboard": "open",
    "GET /v1/results": "open",
    "GET /v1/dumps": "open",
    "GET /v1/dumps/{name}": "open",
    "GET /v1/results/{result_id}": "seen",
    "GET /v1/results/{result_id}/log": "seen",
    "GET /v1/account": "known",
    "POST /v1/hosts/enrolments": "host",
    "GET /v1/hosts": "seen",
    "POST /v1/advice/{advice_id}/validations": "validate",
    "GET /v1/advice/{advice_id}/hosts": "seen",
    "GET /v1/validations/{validation_id}": "seen",
    "GET /v1/validations/{validation_id}/events": "seen",
    "DELETE /v1/validations/{validation_id}": "validate",
    "POST /v1/results/{result_id}/reports": "seen",
    "POST /v1/results/{result_id}/removal-requests": "seen",
    "GET /v1/moderation/reports": "operator",
    "GET /v1/moderation/removals": "operator",
    "GET /v1/moderation/quarantined": "operator",
    "POST /v1/moderation": "operator",
    "GET /v1/moderation/audit": "operator",
    "GET /metrics": "operator",
    "GET /v1/accuracy": "open",
    "POST /v1/results/preview": "seen",
    "POST /v1/results": "submit",
    "PATCH /v1/results/{result_id}": "seen",
    "DELETE /v1/results/{result_id}": "seen",
    "GET /v1/results/{result_id}/history": "seen",
    "GET /v1/hosts/{host_id}": "read own",
    "PATCH /v1/hosts/{host_id}": "change own",
    "DELETE /v1/hosts/{host_id}": "end own",
    "POST /v1/agent/greeting": "open",  # with a code
    "POST /v1/agent/hosts": "open",  # with a code
    "POST /v1/agent/sessions": "signed",
    "POST /v1/agent/probe": "signed",
    "POST /v1/agent/leave": "signed",
    "POST /v1/agent/leases": "signed",
    "POST /v1/agent/runs/{run_id}/progress": "signed",
    "POST /v1/agent/runs/{run_id}/report": "signed",
}
FORMS = {  # what needs no account, or a key that is typed in
    "POST /advice",
    "POST /advice/{advice_id}/deletion",
    "POST /results/{result_id}/changes",
    "POST /results/{result_id}/reports",
    "POST /submit",
    "POST /check",
    "POST /hosts",  # with the owner's token
    "POST /hosts/new",  # with the owner's token
    "POST /removal",
    "POST /moderation",  # with an operator's token
    "POST /mcp",  # tools that read, or ask for an advice
}
BODIES: dict[str, Any] = {
    "PATCH /v1/hosts/{host_id}": {"visibility": "private"},
    "POST /v1/agent/leases": {"wait": 0},
}


def routes_of_the_app(settings: Settings | None = None) -> set[str]:
    app = create_app(settings or Settings(redis_url="redis://127.0.0.1:1"))
    return {
        f"{method} {route.path_format}"
        for route in app.routes
        for method in getattr(route, "methods", ())
        if method not in ("OPTIONS", "HEAD")
    }


def test_every_route_is_in_the_table_and_pages_are_read_or_ask_for_an_advice() -> None:
    found = routes_of_the_app()
    api = {route for route in found if " /v1/" in route or route == "GET /metrics"}
    assert api == set(ROUTES), "say in ROUTES who may call it"
    assert {route for route in found - api if not route.startswith("GET ")} == FORMS


@pytest.fixture
def owner(shared_engine: Engine, redis: Redis) -> dict[str, str]:
    return token_of(shared_engine, f"owner-{secrets.token_hex(4)}", "submit", "validate", "host")


@pytest.fixture
def agent(shared_app: httpx.Client, owner: dict[str, str]) -> Signer:
    """The owner's private host, which every caller asks for."""
    return in_session(shared_app, owner)


@pytest.fixture
def headers(shared_engine: Engine, owner: dict[str, str], agent: Signer) -> dict[str, dict[str, str]]:
    """What each kind of caller sends; a host signs what it sends."""
    return {
        "nobody": {},
        "liar": bearer("adv_" + secrets.token_urlsafe(32)),
        "reader": token_of(shared_engine, "reader", "submit"),
        "asker": token_of(shared_engine, "asker", "validate"),
        "other": token_of(shared_engine, "other", "host"),
        "owner": owner,
        "operator": token_of(shared_engine, "operator", "operator"),
        "session": bearer(agent.token or ""),
    }


@pytest.mark.parametrize("route", ROUTES)
def test_each_kind_of_caller_is_let_in_or_refused_as_the_table_says(
    shared_app: httpx.Client, agent: Signer, headers: dict[str, dict[str, str]], route: str
) -> None:
    method, path = route.split()
    unknown = {
        "advice_id": "none",
        "validation_id": "none",
        "run_id": "none",
        "result_id": "none",
        "owner": "no%20owner",
        "name": "none",
    }
    path = path.format(host_id=agent.host, **unknown)
    content = msgspec.json.encode(BODIES.get(route, {})) if method in ("POST", "PATCH") else b""
    wrong = {}
    for kind, expected in zip(KINDS, ACCESS[ROUTES[route]], strict=True):
        sent = agent.headers(path, content) if kind == "host" else headers[kind]
        sent = {"content-type": "application/json", **sent}
        status = shared_app.request(method, path, content=content, headers=sent).status_code
        let_in = status not in (401, 403, 500) and not (status == 404 and "{host_id}" in route)
        if expected != (IN if let_in else status):
            wrong[kind] = status
    assert wrong == {}
