"""What is there and whose it is: every route that names a thing, for its owner, strangers, operators and hosts.

`test_who_may_what.py` has who may knock at all; here the advice, validation, run, result and host exist.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from nacl.signing import SigningKey
from sqlalchemy import Engine

from service.flows.accounts import account_named, create_token
from service.flows.context import Context, open_context, utc_now
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.wire.advice.advice import Advice
from tests.bots.discord_payloads import PUBLIC_KEY
from tests.bots.platforms import APPLICATION
from tests.bots.slack_payloads import SECRET
from tests.databases import postgres
from tests.flows.conftest import session_hub
from tests.flows.measuring.asking import QWEN, advised, probe_of
from tests.hosts import Signer, a_host, bearer, service
from tests.local_hub import LocalHub
from tests.stored_results import a_result, keep
from tests.web.accounts.test_who_may_what import routes_of_the_app
from tests.web.joining import settings_for, shared_engine, token_of

__all__ = ["postgres", "session_hub", "shared_engine"]
KINDS = ("nobody", "liar", "stranger", "operator", "session", "other host", "host", "owner")

# What each kind of caller is answered; the owner comes last, for what he is allowed may end the thing. `stranger` has
# an account with every scope but the operator's, and `operator` that one alone; `host` is the one that holds the run.
READ = (200,) * 8
SEEN = (200, 401, 200, 200, 401, 401, 401, 200)  # a token that is not good is refused
PRIVATE = (404, 401, 404, 200, 401, 401, 401, 200)  # of a private host: its owner, who asked, and operators
OWNED: dict[str, tuple[int, ...]] = {
    "GET /v1/advice/{advice_id}": SEEN,
    "GET /v1/advice/{advice_id}/events": READ,
    "GET /v1/advice/{advice_id}/file": READ,
    "GET /v1/advice/{advice_id}/hosts": SEEN,
    "POST /v1/advice/{advice_id}/validations": (401, 401, 409, 403, 401, 401, 401, 201),
    "DELETE /v1/advice/{advice_id}": (403, 403, 403, 403, 403, 403, 403, 204),
    "GET /v1/validations/{validation_id}": PRIVATE,
    "GET /v1/validations/{validation_id}/events": PRIVATE,
    "GET /v1/results/{result_id}": PRIVATE,
    "GET /v1/results/{result_id}/log": PRIVATE,
    "GET /v1/results/{result_id}/history": PRIVATE,
    "POST /v1/results/{result_id}/reports": (404, 401, 404, 201, 401, 401, 401, 201),
    "POST /v1/results/{result_id}/removal-requests": (404, 401, 404, 201, 401, 401, 401, 201),
    "PATCH /v1/results/{result_id}": (404, 401, 404, 403, 401, 401, 401, 200),
    "GET /v1/hosts/{host_id}": (404, 401, 404, 404, 401, 401, 401, 200),
    "PATCH /v1/hosts/{host_id}": (401, 401, 404, 403, 401, 401, 401, 200),
    "POST /v1/agent/runs/{run_id}/progress": (401, 401, 401, 401, 401, 409, 200, 401),
    # what ends a thing
    "POST /v1/agent/runs/{run_id}/report": (401, 401, 401, 401, 401, 409, 200, 401),
    "DELETE /v1/validations/{validation_id}": (401, 401, 404, 403, 401, 401, 401, 204),
    "DELETE /v1/results/{result_id}": (404, 401, 404, 403, 401, 401, 401, 204),
    "DELETE /v1/hosts/{host_id}": (401, 401, 404, 204, 401, 401, 401, 204),  # again: it is done
}
ELSEWHERE = {"GET /v1/repos/{owner}/{name}", "GET /v1/dumps/{name}"}  # what they name is nobody's
QUERIES = {"GET /v1/advice/{advice_id}/file": "?as=llama-swap"}
BODIES: dict[str, Any] = {
    "PATCH /v1/results/{result_id}": {"remarks": "mine"},
    "PATCH /v1/hosts/{host_id}": {"visibility": "private"},
    "POST /v1/results/{result_id}/reports": {"kind": "spam"},
    "POST /v1/results/{result_id}/removal-requests": {"text": "it names me"},
    "POST /v1/agent/runs/{run_id}/progress": {"fence": 1, "step": "loading"},
    "POST /v1/agent/runs/{run_id}/report": {
        "fence": 1,
        "failure": {"kind": "crashed", "transient": False, "text": "it ended"},
    },
}


def test_every_route_that_names_a_thing_is_in_the_table() -> None:
    naming = {route for route in routes_of_the_app() if " /v1/" in route and "{" in route}
    assert naming - ELSEWHERE == set(OWNED), "say in OWNED what its owner and others are answered"


class Things(NamedTuple):
    """The ids of what is there, by the name of its path parameter; and what each kind of caller sends."""

    ids: dict[str, str]
    headers: dict[str, dict[str, str]]
    hosts: dict[str, Signer]


@pytest.fixture(scope="module")
def context(
    shared_engine: Engine, valkey: EmbeddedValkey, session_hub: LocalHub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Context]:
    url = shared_engine.url.render_as_string(hide_password=False)
    made = msgspec.structs.replace(settings_for(url, valkey), hf_endpoint=session_hub.endpoint)
    with open_context(msgspec.structs.replace(made, state_dir=tmp_path_factory.mktemp("whose"))) as found:
        yield found


@pytest.fixture(scope="module")
def api(context: Context) -> Iterator[httpx.Client]:
    with service(context.settings) as client:
        yield client


def host_of(api: httpx.Client, context: Context, owner: str) -> Signer:
    """A private host of `owner`'s, in session."""
    key = SigningKey.generate()
    signer = Signer(api, a_host(context, owner, key=key, probe=probe_of(context)).id, key)
    assert signer.open_session().status_code == 201
    return signer


@pytest.fixture(scope="module")
def advice(context: Context) -> Advice:
    return advised(context)


@pytest.fixture(scope="module")
def things(api: httpx.Client, context: Context, advice: Advice) -> Things:
    """Things of an owner who was never here."""
    name = f"owner-{secrets.token_hex(4)}"
    agent = host_of(api, context, name)
    owner = token_of(context.engine, name, "submit", "validate", "host")
    made = api.post(f"/v1/advice/{advice.id}/validations", json={}, headers=owner)
    leased = agent.call("/v1/agent/leases", {"wait": 0}).json()
    owned: dict[str, Any] = {"account_id": account_named(context.engine, name, utc_now()).id, "host_id": agent.host}
    result = a_result(origin="agent", **owned)
    keep(context.engine, result)
    ids = {"advice_id": advice.id, "validation_id": made.json()["id"], "run_id": leased["run"]}
    headers = {
        "nobody": {},
        "liar": bearer("adv_" + secrets.token_urlsafe(32)),
        "stranger": token_of(context.engine, "stranger", "submit", "validate", "host"),
        "operator": token_of(context.engine, "operator", "operator"),
        "session": bearer(agent.token or ""),
        "owner": owner,
    }
    hosts = {"host": agent, "other host": host_of(api, context, "another")}
    return Things(ids | {"result_id": result.id, "host_id": agent.host}, headers, hosts)


def answered(api: httpx.Client, things: Things, kind: str, route: str, **more: str) -> httpx.Response:
    """Return what a kind of caller is answered; of a stream that does not end, its head."""
    method, path = route.split()
    path = path.format(**things.ids)
    content = msgspec.json.encode(BODIES.get(route, {})) if method in ("POST", "PATCH") else b""
    sent = things.hosts[kind].headers(path, content) if kind in things.hosts else things.headers[kind]
    url = path + QUERIES.get(route, "")
    with api.stream(method, url, content=content, headers={"content-type": "application/json", **sent, **more}) as got:
        if not path.endswith("/events"):
            got.read()
        return got


@pytest.mark.parametrize("route", ["GET /v1/hosts", "GET /v1/advice/{advice_id}/hosts"])
def test_a_private_host_is_listed_for_its_owner_alone(api: httpx.Client, things: Things, route: str) -> None:
    said = {kind: things.ids["host_id"] in answered(api, things, kind, route).text for kind in things.headers}
    assert [kind for kind, shown in said.items() if shown] == ["owner"]


LISTS = (
    "/v1/results",
    "/v1/results?format=csv",
    "/v1/results?format=jsonl",
    "/v1/leaderboard?trust=self-reported",
    "/v1/accuracy",
    "/leaderboard?trust=self-reported",
    "/results/{result_id}",
    "/compare?ids={result_id}",
)


@pytest.mark.parametrize("path", LISTS)
def test_what_a_private_host_measured_is_in_no_list_and_on_no_page(
    api: httpx.Client, context: Context, things: Things, path: str
) -> None:
    public = a_result()
    keep(context.engine, public)
    assert public.id in api.get("/v1/results").text
    said = api.get(path.format(**things.ids))
    asked = path.format(**things.ids).count(things.ids["result_id"])
    assert said.status_code == 404 or said.text.count(things.ids["result_id"]) <= asked


def test_a_private_validation_is_not_on_the_page_of_its_advice(api: httpx.Client, things: Things) -> None:
    page = api.get("/advice/{advice_id}".format(**things.ids))
    assert page.status_code == 200
    assert things.ids["validation_id"] not in page.text
    assert things.ids["run_id"] not in page.text


@pytest.mark.parametrize("route", ["GET /v1/validations/{validation_id}", "GET /v1/results/{result_id}"])
def test_what_is_private_is_answered_as_what_is_not_there_and_kept_nowhere(
    api: httpx.Client, things: Things, route: str
) -> None:
    hidden, nothing = (
        answered(api, things._replace(ids=ids), "stranger", route).json()
        for ids in (things.ids, {**things.ids, "result_id": "none", "validation_id": "none"})
    )
    assert {k: v for k, v in hidden.items() if k != "instance"} == {k: v for k, v in nothing.items() if k != "instance"}
    owned = answered(api, things, "owner", route)
    assert (owned.headers["cache-control"], owned.headers["vary"]) == ("private, no-store", "Authorization")


@pytest.mark.parametrize("route", OWNED)
def test_a_thing_is_its_owners_and_shows_to_others_what_the_table_says(
    api: httpx.Client, context: Context, things: Things, route: str
) -> None:
    if route == "DELETE /v1/advice/{advice_id}":  # only for the holder of the key
        asked = {"repo": QWEN, "hardware": "RTX 3090", "goal": {"output": 77}}
        made = api.post("/v1/advice", json=asked).json()
        ids, headers = {"advice_id": made["id"]}, {"owner": {"X-Advice-Key": made["delete_key"]}}
        things = things._replace(ids=things.ids | ids, headers=things.headers | headers)
    for bucket in context.redis.scan_iter("limit:*"):  # all these callers have one address, and ten reports an hour
        context.redis.delete(bucket)
    found = tuple(answered(api, things, kind, route).status_code for kind in KINDS)
    assert dict(zip(KINDS, found, strict=True)) == dict(zip(KINDS, OWNED[route], strict=True))


def test_pages_know_no_callers(api: httpx.Client, things: Things) -> None:
    wrong = {}
    for route in sorted(routes_of_the_app()):
        if (
            route.startswith("GET ") and " /v1/" not in route and route not in ("GET /metrics", "GET /ready")
        ):  # they say what is now
            path = route.split()[1].format_map(_Ids(things.ids))
            plain = api.get(path)
            others = {api.get(path, headers=things.headers[kind]).content for kind in ("owner", "operator")}
            if others != {plain.content}:
                wrong[path] = plain.status_code
    assert wrong == {}


class _Ids(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "none"


BOTS = {"POST /bots/discord", "POST /bots/slack/commands", "POST /bots/slack/interactivity"}


def test_bots_answer_to_their_platforms_signature_alone(context: Context, things: Things) -> None:
    told = {"discord_public_key": PUBLIC_KEY, "discord_application_id": APPLICATION, "slack_signing_secret": SECRET}
    settings: Settings = msgspec.structs.replace(context.settings, public_url="https://advisor.example", **told)
    assert {route for route in routes_of_the_app(settings) if "/bots/" in route} == BOTS
    with service(settings) as api:
        for route in BOTS:
            for kind in ("nobody", "owner", "operator", "host"):
                assert answered(api, things, kind, route).status_code == 401, (route, kind)


def test_a_token_shows_its_own_account_only(api: httpx.Client, context: Context) -> None:
    for name in ("anna", "bert"):
        token = create_token(context.engine, name, ["submit"], utc_now()).token
        assert api.get("/v1/account", headers=bearer(token)).json()["name"] == name
