"""Clients that ask all the while, ask again as the service says, and write down what it promised."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress

import httpx

from bench.chaos.ledger import Ledger, Sent
from tests.end_to_end.stack import REPO
from tests.flows.results.submitted import COMMAND, RIG

PATIENCE = 900.0  # of a client that asks again: longer than any part is away, on a machine that others use too
KNOWN = ("Qwen/Qwen3-0.6B-GGUF", REPO)
N_NEW = 400
_TIMEOUT = httpx.Timeout(15, connect=5)
_MOST_PAUSE = 2.0
_MOST_OF_ACCOUNT = 50  # results that the operator sends; 60 an hour may be of one account
_HEAD = "|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n|---|\n"


def new_repo(number: int) -> str:
    """Return the name of one of N_NEW repos that nobody has read yet."""
    return f"chaos/new-{number}-GGUF"


class GaveUp(Exception):
    """The service did not answer in PATIENCE, or the campaign is over."""


class Client(ABC):
    """One client, from an address of its own, in a thread of its own."""

    def __init__(self, url: str, ledger: Ledger, seed: str, over: threading.Event, token: str = "") -> None:
        self.ledger, self.over, self.chance = ledger, over, random.Random(seed)
        headers = self.address()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self.http = httpx.Client(base_url=url, timeout=_TIMEOUT, trust_env=False, headers=headers)
        self.name = seed

    def address(self) -> dict[str, str]:
        """Return the header that lets a request come from an address of its own: few may be made of one in an hour."""
        return {"X-Forwarded-For": f"10.{'.'.join(str(self.chance.randrange(256)) for _ in range(3))}"}

    @abstractmethod
    def act(self) -> None:
        """Do one thing."""

    def run(self, least: float, most: float) -> None:
        """Act again and again, with a pause of so many seconds, until the campaign is over."""
        with self.http:
            while not self.over.is_set():
                try:
                    self.act()
                except GaveUp as error:
                    self.ledger.is_wrong(f"{self.name} gave up: {error}")
                except Exception as error:  # the very thing that is looked for
                    self.ledger.is_wrong(f"{self.name}: {type(error).__name__}: {error}")
                self.over.wait(self.chance.uniform(least, most))

    def insist(self, method: str, path: str, body: object = None, **headers: str) -> tuple[httpx.Response, int]:
        """Return the first answer that is none of "not now", and how often it was asked. Raises GaveUp."""
        deadline, asked = time.monotonic() + PATIENCE, 0
        while time.monotonic() < deadline:
            asked += 1
            try:
                reply = self.http.request(method, path, json=body, headers=headers)
            except httpx.TransportError as error:
                self.count(f"no answer ({type(error).__name__})")
                time.sleep(self.chance.uniform(0.1, 0.5))
                continue
            self.count(str(reply.status_code))
            if not self._later(method, path, reply):
                return reply, asked
        raise GaveUp(f"{method} {path}")

    def count(self, what: str) -> None:
        with self.ledger.writing():
            self.ledger.answers[what] += 1

    def _later(self, method: str, path: str, reply: httpx.Response) -> bool:
        """Whether the same is to be asked again; waits as long as the service says, within reason."""
        if reply.status_code not in (429, 503):
            if reply.status_code >= 500:
                self.ledger.is_wrong(f"{method} {path}: {reply.status_code} {reply.text[:200]}")
                time.sleep(0.5)
            return reply.status_code >= 500
        asked = reply.headers.get("retry-after", "")
        if not asked.isdigit():
            self.ledger.is_wrong(f"{method} {path}: {reply.status_code} without Retry-After: {reply.text[:200]}")
        time.sleep(min(float(asked) if asked.isdigit() else 1.0, self.chance.uniform(0.3, _MOST_PAUSE)))
        return True

    def expect(self, reply: httpx.Response, *statuses: int) -> bool:
        """Whether the answer is one of these; anything else is wrong."""
        if reply.status_code not in statuses:
            request = reply.request
            self.ledger.is_wrong(f"{request.method} {request.url.path}: {reply.status_code} {reply.text[:300]}")
        return reply.status_code in statuses


class Asker(Client):
    """Asks for advice about known and new repos, follows it in one of three ways, checks commands, reads the board."""

    def act(self) -> None:
        """Do one thing."""
        kind = self.chance.choices(("advise", "check", "board"), weights=(8, 2, 2))[0]
        {"advise": self.advise, "check": self.check, "board": self.board}[kind]()

    def advise(self) -> None:
        """Ask, and follow what was promised to its end."""
        began = time.monotonic()
        asked = {"repo": self._repo(), "hardware": self._hardware(), "goal": {"context": 8192, "depth": 4096}}
        reply, _ = self.insist("POST", "/v1/advice", asked)
        if not self.expect(reply, 200, 202):
            return
        found = reply.json()
        self.ledger.accept(found["id"], found["state"])
        self.ledger.well("write", began)
        if found["state"] not in ("ready", "failed"):
            self.chance.choice((self._wait, self._listen, self._leave))(found["id"])
            return
        self.ledger.well("advice", began)

    def check(self) -> None:
        """Check a command."""
        asked = {"command": COMMAND, "hardware": RIG, "repo": KNOWN[0], "engine": "ik_llama.cpp"}
        reply, _ = self.insist("POST", "/v1/check", asked)
        self.expect(reply, 200)

    def board(self) -> None:
        """Read a page of the board."""
        reply, _ = self.insist("GET", self.chance.choice(("/v1/leaderboard", "/v1/results", "/leaderboard")))
        self.expect(reply, 200)

    def _repo(self) -> str:
        if self.chance.random() < 0.3:
            return new_repo(self.chance.randrange(N_NEW))
        return self.chance.choice(KNOWN)

    def _hardware(self) -> str:
        gib = 64 if self.chance.random() < 0.2 else self.chance.randint(24, 1000)
        return f"RTX 3090, Ryzen 9 7950X, {gib}GB DDR5-5600"

    def _leave(self, advice: str) -> None:
        """Go away: what was promised is done all the same."""

    def _wait(self, advice: str) -> None:
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE and not self.over.is_set():
            reply, _ = self.insist("GET", f"/v1/advice/{advice}")
            if not self.expect(reply, 200):
                return
            state = reply.json()["state"]
            self.ledger.accept(advice, state)
            if state in ("ready", "failed"):
                self.ledger.well("advice", began)
                return
            time.sleep(0.5)

    def _listen(self, advice: str) -> None:
        """Follow by server-sent events, and go on from the last where the stream breaks."""
        began, last = time.monotonic(), ""
        while time.monotonic() < began + PATIENCE and not self.over.is_set():
            with suppress(httpx.TransportError):
                last, state = self._stream(advice, last)
                self.ledger.accept(advice, state)
                if state in ("ready", "failed"):
                    self.ledger.well("advice", began)
                    return
            time.sleep(self.chance.uniform(0.2, 1.0))

    def _stream(self, advice: str, last: str) -> tuple[str, str]:
        """Return the id and the name of the last event of one stream."""
        headers, name = {"Last-Event-ID": last} if last else {}, ""
        with self.http.stream("GET", f"/v1/advice/{advice}/events", headers=headers, timeout=_TIMEOUT) as reply:
            if reply.status_code not in (200, 204):
                reply.read()
                self._later("GET", f"/v1/advice/{advice}/events", reply)
                return last, ""
            for line in reply.iter_lines():
                field, _, value = line.partition(": ")
                name, last = (value if field == "event" else name), (value if field == "id" else last)
                if not line and name in ("ready", "failed"):
                    break
        return last, name


class Submitter(Client):
    """Sends results without an account, corrects some, takes some back, reports some."""

    def act(self) -> None:
        """Do one thing."""
        mine = [one for one in self._mine() if one.edit_key and one.state is None]
        acts = {self.submit: 6.0, self.correct: 3.0 if mine else 0.0, self.take_back: 1.0 if mine else 0.0}
        act = self.chance.choices(list(acts), weights=list(acts.values()))[0]
        act()

    def _mine(self) -> list[Sent]:
        with self.ledger.writing():
            return [one for one in self.ledger.sent.values() if one.id in self.ids]

    @property
    def ids(self) -> set[str]:
        """The results that this client has sent."""
        return self.__dict__.setdefault("_ids", set())  # type: ignore[no-any-return]

    def submit(self) -> Sent | None:
        """Send a new measurement, with a key, until it is taken."""
        began, rows = time.monotonic(), self._rows()
        asked = {"text": f"$ {COMMAND}\n\n{_HEAD}{rows}", "hardware": RIG}
        key = f"{self.chance.randrange(1 << 128):032x}"
        reply, n_asked = self.insist("POST", "/v1/results", asked, **{"Idempotency-Key": key}, **self.address())
        if not self.expect(reply, 200, 201):
            return None
        told = reply.json()
        if n_asked == 1 and not told["is_new"]:
            self.ledger.is_wrong(f"result {told['id']}: sent once, and known")
        if "Authorization" not in self.http.headers and not told.get("edit_key"):
            self.ledger.is_wrong(f"result {told['id']}: nobody has its edit key")
        one = Sent(id=told["id"], rows=rows, edit_key=told.get("edit_key"))
        with self.ledger.writing():
            self.ledger.sent[one.id] = one
            self.ids.add(one.id)
        self.ledger.well("write", began)
        return one

    def correct(self) -> None:
        """Change the remarks of a result."""
        one = self._one()
        if one is None:
            return
        text = f"two DIMMs, try {self.chance.randrange(1 << 30)}"
        reply, _ = self.insist(
            "PATCH", f"/v1/results/{one.id}", {"remarks": text}, **{"X-Edit-Key": one.edit_key or ""}
        )
        if reply.status_code == 422 and "times" in reply.text:
            return  # changed as often as one may
        if self.expect(reply, 200):
            one.remarks = text

    def take_back(self) -> None:
        """Delete a result."""
        one = self._one()
        if one is None:
            return
        reply, n_asked = self.insist("DELETE", f"/v1/results/{one.id}", **{"X-Edit-Key": one.edit_key or ""})
        if self.expect(reply, 204, *([404] if n_asked > 1 else [])):
            one.state = "deleted"

    def _one(self) -> Sent | None:
        mine = [one for one in self._mine() if one.edit_key and one.state is None]
        return self.chance.choice(mine) if mine else None

    def _rows(self) -> str:
        """Return a table that nobody has sent: slower with depth, and a little of chance in each figure."""
        rows = []
        for i, n_kv in enumerate((0, 512, 1024)):
            t = round(512 / 9_000 * (1 + 0.02 * i) * self.chance.uniform(0.9, 1.1), 3)
            u = round(128 / 250 * (1 + 0.02 * i) * self.chance.uniform(0.95, 1.05), 3)
            rows.append(f"|   512 |    128 | {n_kv:6d} | {t:8.3f} | {512 / t:8.2f} | {u:8.3f} | {128 / u:8.2f} |\n")
        return "".join(rows)


class Operator(Submitter):
    """Sends results, reads the reports of abuse, hides results and shows them again."""

    def act(self) -> None:
        """Do one thing."""
        mine = self._mine()
        if len(mine) < 5 or (len(mine) < _MOST_OF_ACCOUNT and self.chance.random() < 0.2):
            self.submit()
            return
        one = self.chance.choice(mine)
        if one.state in (None, "shown") and self.chance.random() < 0.3:
            reply, _ = self.insist(
                "POST", f"/v1/results/{one.id}/reports", {"kind": "spam", "text": "again"}, **self.address()
            )
            if reply.status_code == 201:
                with self.ledger.writing():
                    self.ledger.reports.add(reply.json()["id"])
            return
        action, state = ("show", "shown") if one.state == "hidden" else ("hide", "hidden")
        asked = {"action": action, "subject": one.id, "reason": "a campaign"}
        reply, _ = self.insist("POST", "/v1/moderation", asked)
        if self.expect(reply, 201):
            one.state = state


class Measurer(Client):
    """Has an advice measured, two validations at a time, and cancels some."""

    advice = ""
    open: tuple[str, ...] = ()

    def act(self) -> None:
        """Keep the machines busy."""
        self.open = tuple(one for one in self.open if not self._is_over(one))
        if len(self.open) < 2:
            self._ask()
        elif self.chance.random() < 0.03:
            one = self.open[0]
            reply, _ = self.insist("DELETE", f"/v1/validations/{one}")
            if self.expect(reply, 204):
                with self.ledger.writing():
                    self.ledger.cancelled.add(one)

    def _ask(self) -> None:
        key = f"{self.chance.randrange(1 << 60):x}"
        reply, _ = self.insist(
            "POST", f"/v1/advice/{self.advice}/validations", {"minutes": 1}, **{"Idempotency-Key": key}
        )
        if self.expect(reply, 200, 201):
            made = reply.json()["id"]
            with self.ledger.writing():
                self.ledger.validations[made] = key
            self.open += (made,)

    def _is_over(self, validation: str) -> bool:
        reply, _ = self.insist("GET", f"/v1/validations/{validation}")
        return not self.expect(reply, 200) or reply.json()["state"] in ("done", "cancelled")


class Prober(Client):
    """Asks one thing again and again, once each time, and notes when it was answered."""

    what, path = "", ""

    def act(self) -> None:
        """Ask once."""
        began = time.monotonic()
        with suppress(httpx.TransportError):
            reply = self.http.get(self.path, timeout=3)
            if reply.status_code == 200:
                self.ledger.well(self.what, began)
