"""A whole service with something in it of every kind, and callers of every kind, to send it anything."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from sqlalchemy import Engine

from service.flows.accounts import SCOPES, create_token
from service.flows.context import utc_now
from service.store.engines import make_engine
from service.wire.measuring.hosts import ModelFile, Probe
from tests.bots.discord_payloads import PUBLIC_KEY
from tests.bots.platforms import APPLICATION
from tests.bots.slack_payloads import SECRET
from tests.end_to_end.stack import FILE, REPO, Program, free_port, tiny_hub
from tests.flows.measuring.asking import BENCH, SWEEP
from tests.flows.results.submitted import sweep
from tests.hosts import RIG, Signer, bearer
from tests.waiting import wait_for
from tests.web.joining import in_session

_RIG = msgspec.to_builtins(RIG)
NOWHERE = "http://127.0.0.1:9"  # nothing answers there: nothing leaves the machine
SETTINGS = {
    "ADVISOR_REQUESTS_PER_MINUTE": "1000000",
    "ADVISOR_OPEN_ADVICES": "1000",
    "ADVISOR_NEW_REPOS_PER_HOUR": "1000000",
    "ADVISOR_STREAMS_PER_CLIENT": "1000",
    "ADVISOR_OPEN_VALIDATIONS": "1000",
    "ADVISOR_TRUSTED_PROXIES": "127.0.0.0/8",
    "ADVISOR_BOT_PERSON_PER_MINUTE": "100000",
    "ADVISOR_BOT_PLACE_PER_MINUTE": "100000",
    "ADVISOR_DISCORD_PUBLIC_KEY": PUBLIC_KEY,
    "ADVISOR_DISCORD_APPLICATION_ID": APPLICATION,
    "ADVISOR_DISCORD_API": NOWHERE,
    "ADVISOR_DISCORD_FILES": NOWHERE,
    "ADVISOR_SLACK_SIGNING_SECRET": SECRET,
    "ADVISOR_SLACK_API": NOWHERE,
    "ADVISOR_SLACK_HOOKS": NOWHERE,
}
GOAL = {"context": 8192, "depth": 4096, "prompt": 512, "output": 64}
COMMAND = f"./llama-sweep-bench -m /models/{FILE} -c 4096 -ngl 99 -fa on"


class World:
    """The service, its database, and what was put into it."""

    def __init__(self, url: str, service: Program, engine: Engine, model: Path) -> None:
        self.url, self.service = url, service
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=60)
        self._engine, self._numbers, self._lock = engine, itertools.count(1), threading.Lock()
        self._probe = Probe(
            agent="0.1.0",
            hardware=RIG,
            engines=(SWEEP, BENCH),
            models=(ModelFile(name=FILE, size=model.stat().st_size, header_sha256="0" * 64),),
        )
        self.all = self.token(*SCOPES)
        self.single = [self.token(scope) for scope in SCOPES]
        self.agent = self.new_agent()

    def address(self) -> dict[str, str]:
        """Return the header of a client not seen before, so that limits by address start anew."""
        number = next(self._numbers)
        return {"X-Forwarded-For": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"}

    def token(self, *scopes: str) -> dict[str, str]:
        """Return the header of a new account with these scopes."""
        return bearer(create_token(self._engine, f"account-{next(self._numbers)}", scopes, utc_now()).token)

    def new_agent(self) -> Signer:
        """Return a public host of a new account, approved, in session, which has said what it is."""
        with self._lock:
            self.client.headers.update(self.address())
            found = in_session(self.client, self.token(*SCOPES), visibility="public")
            reply = found.call("/v1/agent/probe", msgspec.to_builtins(self._probe))
            assert reply.status_code == 204, reply.text
            self.agent = found
            return found

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the service's answer to a valid request."""

        reply = self.client.post(path, json=body, headers={**self.address(), **(headers or self.all)})
        assert reply.is_success, f"{path}: {reply.status_code} {reply.text}"
        found: dict[str, Any] = reply.json()
        return found

    def advice(self) -> dict[str, Any]:
        """Return a ready advice that nobody had before: it has a key."""
        goal = {**GOAL, "output": 64 + next(self._numbers)}
        made = self.post("/v1/advice?wait=30", {"repo": REPO, "hardware": _RIG, "goal": goal})
        assert made["state"] == "ready", made
        return made

    def validation(self, advice: str) -> dict[str, Any]:
        """Return a validation of an advice, which waits for its host."""
        return self.post(f"/v1/advice/{advice}/validations", {})

    def result(self) -> dict[str, Any]:
        """Return a new result, sent without an account: it has an edit key."""
        text = f"$ {COMMAND}\n\n{sweep(tg=200 + next(self._numbers) / 16)}"
        body = {"text": text, "repo": REPO, "hardware": "2x RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"}
        return self.post("/v1/results", body, {"Accept": "application/json"})

    def run(self) -> dict[str, Any]:
        """Return a run that the agent holds."""
        reply = self.agent.call("/v1/agent/leases", {"wait": 5})
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Run a service with worker, Valkey, database and a local Hub for the block, with something of every kind in it."""
    url, state = f"http://127.0.0.1:{free_port()}", folder / "state"
    with tiny_hub(folder / FILE) as hub:
        own = {"HF_ENDPOINT": hub.endpoint, "ADVISOR_STATE_DIR": str(state), "ADVISOR_PUBLIC_URL": url}
        environment = {**SETTINGS, **own, "ADVISOR_PORT": url.rpartition(":")[2], "ADVISOR_WORKERS": "1"}
        service = Program((sys.executable, "-m", "service.cli", "serve"), environment, folder / "serve.log")
        service.start()
        engine = make_engine(f"sqlite:///{state / 'advisor.db'}")
        try:
            wait_for(lambda: _answers(url) or not service.is_running, "the service does not answer")
            assert service.is_running, service.log
            yield World(url, service, engine, folder / FILE)
        finally:
            engine.dispose()
            service.stop()
            service.kill()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False
