"""What an attacker sends to `/v1/agent`, all refused: tokens of others, forged signatures, replays, stolen codes."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from litestar import Request
from nacl.signing import SigningKey
from redis import Redis
from sqlalchemy import Engine, func, select, update

from service.flows.accounts import create_token
from service.flows.context import utc_now
from service.settings import Settings
from service.store import accounts
from service.store.measuring import hosts
from service.store.tables import account, enrolment, host, host_session
from service.web.app import create_app
from service.web.services import Services
from service.wire.measuring.agent import COUNTER_HEADER, HOST_HEADER, SIGNATURE_HEADER, enrolment_text, signed_text
from tests.databases import postgres
from tests.hosts import PROBE, Signer, bearer, public_key, signature
from tests.web.http.test_problems import assert_problem
from tests.web.joining import code_of, enrol, in_session, joined, shared_app, shared_engine, token_of
from workers.agent.client import service_address

__all__ = ["postgres", "shared_app", "shared_engine"]
PATH = "/v1/agent/probe"
CONTENT = msgspec.json.encode(PROBE)
AT_ONCE = 8


@pytest.fixture
def api(shared_app: httpx.Client, redis: Redis) -> httpx.Client:
    """The module's app; `redis`: with nothing counted yet."""
    return shared_app


@pytest.fixture
def owner(shared_engine: Engine) -> dict[str, str]:
    """An account of the test's own: one account has 64 hosts at most."""
    return token_of(shared_engine, f"owner-{secrets.token_hex(4)}", "host")


@pytest.fixture
def agent(api: httpx.Client, owner: dict[str, str]) -> Signer:
    return in_session(api, owner)


@pytest.fixture
def unchanged(shared_engine: Engine, agent: Signer) -> Iterator[None]:
    """Afterwards: nothing that was sent did anything."""
    before = hosts.read(shared_engine, agent.host)
    yield
    assert hosts.read(shared_engine, agent.host) == before


def send(api: httpx.Client, headers: dict[str, str], content: bytes = CONTENT) -> httpx.Response:
    return api.post(PATH, content=content, headers=headers)


def flipped(text: str) -> str:
    return text[:-6] + ("A" if text[-6] != "A" else "B") + text[-5:]


def expired(engine: Engine, agent: Signer) -> str:
    with engine.begin() as connection:
        past = utc_now() - timedelta(seconds=1)
        connection.execute(update(host_session).where(host_session.c.host_id == agent.host).values(expires_at=past))
    return f"Bearer {agent.token}"


def another_hosts(api: httpx.Client, owner: dict[str, str]) -> str:
    return f"Bearer {in_session(api, owner).token}"


AUTHORIZATIONS: dict[str, Callable[[Signer], str | None]] = {
    "none": lambda agent: None,
    "empty": lambda agent: "",
    "a bare scheme": lambda agent: "Bearer",
    "garbage": lambda agent: "Bearer ';DROP TABLE host",
    "of the shape only": lambda agent: "Bearer ahs_" + secrets.token_urlsafe(32),
    "one letter changed": lambda agent: f"Bearer {flipped(agent.token or '')}",
    "cut short": lambda agent: f"Bearer {(agent.token or '')[:-1]}",
    "too long": lambda agent: f"Bearer {agent.token}{'A' * 5000}",
    "another scheme": lambda agent: f"Basic {agent.token}",
    "no scheme": lambda agent: agent.token,
    "the hash that the database holds": lambda agent: f"Bearer ahs_{'0' * 64}",
}


@pytest.mark.parametrize("kind", AUTHORIZATIONS)
def test_a_signed_call_with_a_bad_session_is_refused(
    api: httpx.Client, agent: Signer, unchanged: None, kind: str
) -> None:
    headers, sent = agent.headers(PATH, CONTENT), AUTHORIZATIONS[kind](agent)
    del headers["authorization"]
    assert_problem(send(api, headers | ({} if sent is None else {"authorization": sent})), 401, "not-authenticated")


def test_sessions_of_other_hosts_and_tokens_of_accounts_are_no_sessions_of_this_host(
    api: httpx.Client, owner: dict[str, str], agent: Signer, unchanged: None
) -> None:
    for sent in (another_hosts(api, owner), owner["authorization"]):
        headers = agent.headers(PATH, CONTENT) | {"authorization": sent}
        assert_problem(send(api, headers), 401, "not-authenticated")


def test_an_expired_session_is_over(api: httpx.Client, shared_engine: Engine, agent: Signer, unchanged: None) -> None:
    expired(shared_engine, agent)
    assert_problem(send(api, agent.headers(PATH, CONTENT)), 401, "not-authenticated")


def test_a_new_session_ends_the_one_before(api: httpx.Client, agent: Signer) -> None:
    former = agent.token
    assert agent.open_session().status_code == 201
    stolen = agent.headers(PATH, CONTENT) | {"authorization": f"Bearer {former}"}
    assert_problem(send(api, stolen), 401, "not-authenticated")
    assert send(api, agent.headers(PATH, CONTENT)).status_code == 204


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/account"), ("GET", "/v1/hosts"), ("POST", "/v1/hosts/enrolments")]
)
def test_a_session_opens_nothing_of_accounts(api: httpx.Client, agent: Signer, method: str, path: str) -> None:
    reply = api.request(method, path, json={} if method == "POST" else None, headers=bearer(agent.token or ""))
    assert_problem(reply, 401, "not-authenticated")


def forged(agent: Signer, **changes: object) -> dict[str, str]:
    """Return the headers of a call whose signature covers something else than what is sent."""
    made = agent.headers(PATH, CONTENT)
    facts = {
        "authority": agent.client.base_url.netloc.decode(),
        "method": "POST",
        "path": PATH,
        "host": agent.host,
        "counter": agent.counter,
        "body": CONTENT,
    }
    text = signed_text(**(facts | changes))  # type: ignore[arg-type]
    return made | {SIGNATURE_HEADER: signature(agent.key, text)}


@pytest.mark.parametrize(
    "changes",
    [
        {"authority": "evil.example"},
        {"authority": "127.0.0.1"},
        {"authority": ""},
        {"method": "GET"},
        {"path": "/v1/agent/leave"},
        {"path": PATH + "/"},
        {"path": PATH + "?x"},
        {"host": "another-host"},
        {"host": ""},
        {"counter": 1},
        {"counter": 10**18},
        {"body": b""},
        {"body": CONTENT + b" "},
        {"body": b"{}"},
    ],
    ids=str,
)
def test_a_signature_of_another_call_is_refused(
    api: httpx.Client, agent: Signer, unchanged: None, changes: dict[str, object]
) -> None:
    assert_problem(send(api, forged(agent, **changes)), 401, "not-authenticated")


def test_a_signature_of_another_key_is_refused(
    api: httpx.Client, owner: dict[str, str], agent: Signer, unchanged: None
) -> None:
    other = in_session(api, owner)
    signed_by_other = forged(Signer(api, agent.host, other.key, agent.counter))
    for headers in (
        signed_by_other | {"authorization": f"Bearer {agent.token}"},
        signed_by_other | {"authorization": f"Bearer {other.token}"},
        other.headers(PATH, CONTENT) | {HOST_HEADER: agent.host},
        agent.headers(PATH, CONTENT) | {HOST_HEADER: other.host},
        agent.headers(PATH, CONTENT) | {HOST_HEADER: "x" * 5000},
        agent.headers(PATH, CONTENT) | {HOST_HEADER: "' OR 1=1 --"},
    ):
        assert_problem(send(api, headers), 401, "not-authenticated")


@pytest.mark.parametrize("missing", [HOST_HEADER, COUNTER_HEADER, SIGNATURE_HEADER])
def test_a_call_without_one_of_its_headers_is_refused(
    api: httpx.Client, agent: Signer, unchanged: None, missing: str
) -> None:
    headers = agent.headers(PATH, CONTENT)
    for sent in ({**headers, missing: ""}, {name: value for name, value in headers.items() if name != missing}):
        assert_problem(send(api, sent), 401, "not-authenticated")


ENCODED = base64.b64encode
BAD_SIGNATURES = ("A", "=", "AAAA", "x" * 5000, "!" * 88, *(ENCODED(bytes(n)).decode() for n in (32, 63, 64, 65, 96)))


@pytest.mark.parametrize("sent", BAD_SIGNATURES, ids=lambda text: f"{text[:4]}-{len(text)}")
def test_a_signature_that_is_none_is_refused(api: httpx.Client, agent: Signer, unchanged: None, sent: str) -> None:
    assert_problem(send(api, agent.headers(PATH, CONTENT) | {SIGNATURE_HEADER: sent}), 401, "not-authenticated")


@pytest.mark.parametrize("sent", ["0", "-1", "+9", "9.0", "1e9", "0x9", "9_0", str(1 << 63), "9" * 5000])
def test_a_counter_that_is_none_is_refused(api: httpx.Client, agent: Signer, unchanged: None, sent: str) -> None:
    headers = agent.headers(PATH, CONTENT)
    text = "\n".join(
        signed_text(api.base_url.netloc.decode(), "POST", PATH, agent.host, 0, CONTENT).decode().split("\n")
    )
    text = text.replace("\n0\n", f"\n{sent}\n")
    headers |= {COUNTER_HEADER: sent, SIGNATURE_HEADER: signature(agent.key, text.encode())}
    assert_problem(send(api, headers), 401, "not-authenticated")


def test_the_largest_counter_there_is_is_the_last(api: httpx.Client, agent: Signer) -> None:
    agent.counter = (1 << 63) - 2
    assert send(api, agent.headers(PATH, CONTENT)).status_code == 204
    agent.counter = 5
    assert_problem(send(api, agent.headers(PATH, CONTENT)), 409, "counter-too-small")


def test_a_call_is_taken_once_however_often_it_comes(api: httpx.Client, agent: Signer) -> None:
    headers = agent.headers(PATH, CONTENT)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = sorted(reply.status_code for reply in pool.map(lambda _: send(api, headers), range(AT_ONCE)))
    assert found == [204] + [409] * (AT_ONCE - 1)


def test_an_older_call_that_was_held_back_is_refused_and_told_where_to_go_on(api: httpx.Client, agent: Signer) -> None:
    held_back, later = agent.headers(PATH, CONTENT), agent.headers(PATH, CONTENT)
    assert send(api, later).status_code == 204
    found = assert_problem(send(api, held_back), 409, "counter-too-small")
    assert found["choices"] == [str(agent.counter)]


def test_only_a_good_signature_is_told_the_counter(api: httpx.Client, agent: Signer) -> None:
    agent.counter = 0
    found = assert_problem(send(api, forged(agent, body=b"{}")), 401, "not-authenticated")
    assert "choices" not in found


def test_an_opening_of_a_session_cannot_be_repeated(api: httpx.Client, agent: Signer) -> None:
    content = b"{}"
    headers = agent.headers("/v1/agent/sessions", content)
    opened = api.post("/v1/agent/sessions", content=content, headers=headers)
    assert opened.status_code == 201
    again = api.post("/v1/agent/sessions", content=content, headers=headers)
    assert_problem(again, 409, "counter-too-small")
    agent.token = opened.json()["token"]
    assert send(api, agent.headers(PATH, CONTENT)).status_code == 204


def test_calls_that_count_at_once_are_each_taken_at_most_once(api: httpx.Client, shared_engine: Engine) -> None:
    agent = in_session(api, token_of(shared_engine, "carol", "host"))
    calls = [agent.headers(PATH, CONTENT) for _ in range(AT_ONCE)] * 2
    with ThreadPoolExecutor(AT_ONCE) as pool:
        taken = [reply.status_code for reply in pool.map(lambda headers: send(api, headers), calls)]
    assert 1 <= taken.count(204) <= AT_ONCE
    assert taken.count(204) + taken.count(409) == len(calls)
    last = hosts.read(shared_engine, agent.host)
    assert last is not None
    assert last.counter == agent.counter


def test_the_clock_of_a_host_says_nothing(api: httpx.Client, agent: Signer) -> None:
    for date in ("Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 2100 23:59:59 GMT"):
        assert send(api, agent.headers(PATH, CONTENT) | {"date": date}).status_code == 204


def test_one_code_lets_one_of_many_machines_in(api: httpx.Client, owner: dict[str, str], shared_engine: Engine) -> None:
    code, keys = code_of(api, owner), [SigningKey.generate() for _ in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        replies = list(pool.map(lambda key: enrol(api, code, key), keys))
    assert sorted(reply.status_code for reply in replies) == [201] + [404] * (AT_ONCE - 1)
    with shared_engine.connect() as connection:
        there = connection.scalar(select(func.count()).where(host.c.public_key.in_([public_key(key) for key in keys])))
    assert there == 1


def test_one_machine_that_sends_its_key_twice_is_one_host(api: httpx.Client, owner: dict[str, str]) -> None:
    key = SigningKey.generate()
    assert enrol(api, code_of(api, owner), key).status_code == 201
    second = code_of(api, owner)
    assert_problem(enrol(api, second, key), 409, "host-exists")
    assert enrol(api, second, SigningKey.generate()).status_code == 201


def test_a_code_is_over_after_ten_minutes(api: httpx.Client, owner: dict[str, str], shared_engine: Engine) -> None:
    code = code_of(api, owner)
    with shared_engine.begin() as connection:
        connection.execute(update(enrolment).values(expires_at=utc_now() - timedelta(seconds=1)))
    assert_problem(api.post("/v1/agent/greeting", json={"code": code}), 404, "enrolment-code-unknown")
    assert_problem(enrol(api, code, SigningKey.generate()), 404, "enrolment-code-unknown")


def test_guessing_codes_ends_soon(api: httpx.Client, owner: dict[str, str]) -> None:
    code = code_of(api, owner)
    guesses = [api.post("/v1/agent/greeting", json={"code": secrets.token_urlsafe(16)}) for _ in range(21)]
    assert [reply.status_code for reply in guesses[:20]] == [404] * 20
    assert_problem(guesses[20], 429, "rate-limited")
    assert int(guesses[20].headers["retry-after"]) >= 1
    assert_problem(enrol(api, code, SigningKey.generate()), 429, "rate-limited")


@pytest.mark.parametrize("code", ["", "short", "x" * 65, "spaces in it, too", "ümlaut-ümlaut-ümlaut", 7, None])
def test_a_code_that_is_none_is_refused_before_it_is_looked_up(api: httpx.Client, code: object) -> None:
    assert_problem(api.post("/v1/agent/greeting", json={"code": code}), 422, "invalid-request")


def test_a_key_for_which_everybody_can_sign_is_refused(api: httpx.Client, owner: dict[str, str]) -> None:
    code = code_of(api, owner)
    identity = bytes([1]) + bytes(31)  # the neutral point: a lax verifier takes (neutral, 0) for any text
    body = {
        "code": code,
        "public_key": ENCODED(identity).decode(),
        "signature": ENCODED(identity + bytes(32)).decode(),
        "agent": "0.1.0",
    }
    assert_problem(api.post("/v1/agent/hosts", json=body), 401, "not-authenticated")


def test_a_proof_for_another_service_code_or_key_is_none(api: httpx.Client, owner: dict[str, str]) -> None:
    code, key = code_of(api, owner), SigningKey.generate()
    here, mine = api.base_url.netloc.decode(), public_key(key)
    for text in (
        enrolment_text("evil.example", code, mine),
        enrolment_text(here, secrets.token_urlsafe(16), mine),
        enrolment_text(here, code, public_key(SigningKey.generate())),
        signed_text(here, "POST", "/v1/agent/hosts", mine, 1, code.encode()),
    ):
        body = {"code": code, "public_key": mine, "signature": signature(key, text), "agent": "0.1.0"}
        assert_problem(api.post("/v1/agent/hosts", json=body), 401, "not-authenticated")
    assert enrol(api, code, key).status_code == 201


@pytest.mark.parametrize(
    "token", ["", "x", "adv_", "adv_" + "A" * 43, "adv_" + "A" * 5000, "ahs_" + "A" * 43, "ä" * 20]
)
def test_what_is_no_token_of_an_account_is_refused(api: httpx.Client, token: str) -> None:
    for scheme in ("Bearer ", "bearer ", "Basic ", ""):
        headers = [(b"authorization", (scheme + token).strip().encode())]
        assert_problem(api.get("/v1/account", headers=headers), 401, "not-authenticated")


def test_a_revoked_token_opens_nothing_at_once(api: httpx.Client, shared_engine: Engine) -> None:
    made = create_token(shared_engine, "alice", ["host"], utc_now())
    assert api.get("/v1/account", headers=bearer(made.token)).json()["name"] == "alice"
    assert accounts.revoke(shared_engine, made.id, utc_now())
    assert not accounts.revoke(shared_engine, made.id, utc_now())
    assert_problem(api.get("/v1/account", headers=bearer(made.token)), 401, "not-authenticated")


def test_a_revoked_host_has_no_session_left(
    api: httpx.Client, owner: dict[str, str], agent: Signer, shared_engine: Engine
) -> None:
    api.delete(f"/v1/hosts/{agent.host}", headers=owner)
    assert_problem(send(api, agent.headers(PATH, CONTENT)), 403, "host-not-active")
    with shared_engine.connect() as connection:
        assert connection.scalar(select(func.count()).where(host_session.c.host_id == agent.host)) == 0


def test_the_hosts_of_a_banned_account_are_out_and_out_of_sight(api: httpx.Client, shared_engine: Engine) -> None:
    mallory = token_of(shared_engine, "mallory", "host")
    agent, code = in_session(api, mallory, visibility="public"), code_of(api, mallory)
    with shared_engine.begin() as connection:
        connection.execute(update(account).where(account.c.name == "mallory").values(banned_at=utc_now()))
    assert_problem(send(api, agent.headers(PATH, CONTENT)), 403, "host-not-active")
    assert_problem(agent.open_session(), 403, "host-not-active")
    assert_problem(enrol(api, code, SigningKey.generate()), 404, "enrolment-code-unknown")
    assert_problem(api.get("/v1/account", headers=mallory), 401, "not-authenticated")
    assert agent.host not in [found["id"] for found in api.get("/v1/hosts").json()]


def test_a_host_that_was_never_approved_is_not_shown_to_others(api: httpx.Client, owner: dict[str, str]) -> None:
    agent = joined(api, owner, visibility="public")
    api.patch(f"/v1/hosts/{agent.host}", json={"state": "paused"}, headers=owner)
    assert agent.host not in [found["id"] for found in api.get("/v1/hosts").json()]


def test_an_account_has_no_end_of_codes_and_hosts(api: httpx.Client, shared_engine: Engine) -> None:
    many = token_of(shared_engine, "many", "host")
    agent = joined(api, many)
    for _ in range(63):
        code_of(api, many)
    assert_problem(api.post("/v1/hosts/enrolments", json={}, headers=many), 409, "too-many-hosts")
    api.delete(f"/v1/hosts/{agent.host}", headers=many)
    code_of(api, many)


def test_what_names_a_machine_is_not_kept(api: httpx.Client, agent: Signer, owner: dict[str, str]) -> None:
    probe = msgspec.to_builtins(PROBE)
    probe["hardware"]["gpus"][0] |= {"uuids": ["GPU-12345678-1234-1234-1234-123456789012"]}
    probe["hardware"]["notes"] = "the machine of Alice"
    assert agent.call(PATH, probe).status_code == 204
    shown = api.get(f"/v1/hosts/{agent.host}", headers=owner).text
    assert "12345678" not in shown
    assert "Alice" not in shown


@pytest.mark.parametrize(
    ("path", "value", "slug"),
    [
        (("hardware", "gpus", 0, "name"), "", "invalid-hardware"),
        (("hardware", "gpus", 0, "count"), 10**9, "invalid-hardware"),
        (("hardware", "gpus", 0, "vram_gib"), -1, "invalid-hardware"),
        (("hardware", "ram", "total_gb"), 1e300, "invalid-hardware"),
        (("hardware", "cpu", "model"), "a NUL: \x00", "invalid-request"),
        (("engines", 0, "version"), "a NUL: \x00", "invalid-request"),
        (("engines", 0, "engine"), "vllm", "invalid-request"),
        (("engines", 0, "sha256"), "b" * 63, "invalid-request"),
        (("hostname",), "alices-desktop", "invalid-request"),
        (("max_minutes",), 10**9, "invalid-request"),
    ],
    ids=str,
)
def test_a_probe_of_what_cannot_be_is_refused(
    api: httpx.Client, agent: Signer, path: tuple[str | int, ...], value: object, slug: str
) -> None:
    probe = msgspec.to_builtins(PROBE)
    at = probe
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert_problem(agent.call(PATH, probe), 422, slug)


def test_a_bad_body_is_judged_after_the_signature(api: httpx.Client, agent: Signer) -> None:
    for content in (b"{", b"[]", b"\xff", b'{"agent": "\\u0000"}', b"[" * 100_000):
        good = agent.headers(PATH, content)
        assert send(api, good | {SIGNATURE_HEADER: "A" * 88}, content).status_code == 401
        assert send(api, good, content).status_code in (400, 422)


def test_a_body_over_a_mebibyte_is_refused(api: httpx.Client, agent: Signer, unchanged: None) -> None:
    content = b'{"agent": "' + b"a" * (1 << 20) + b'"}'
    assert_problem(send(api, agent.headers(PATH, content), content), 413, "body-too-large")


@pytest.mark.parametrize(
    ("public_url", "signed"),
    [
        ("https://advisor.example", "advisor.example"),
        ("https://Advisor.Example:443/", "advisor.example"),
        ("https://advisor.example:8443", "advisor.example:8443"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("http://[::1]:8000", "[::1]:8000"),
    ],
)
def test_what_a_host_signs_for_is_the_services_public_name(public_url: str, signed: str) -> None:
    services: Services = create_app(Settings(public_url=public_url, redis_url="redis://127.0.0.1:1")).state.services
    scope: Any = {"type": "http", "headers": [(b"host", b"evil.example")]}
    asked = Request[Any, Any, Any](scope=scope)
    assert services.authority(asked) == signed == service_address(public_url)[1]
