"""Flows that keep advice in memory, for tests of what the web itself does. What they publish goes through Redis."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import msgspec
from redis import Redis

from service.engine.errors import AdvisorError, UnknownHardware
from service.engine.hardware import Assumption, Gpu, Hardware
from service.errors import AdviceNotFound, DatabaseUnavailable, ServiceUnavailable, WrongKey
from service.flows.advise import ReadyAdvice
from service.queue.connection import connect_async
from service.queue.listening import Listener
from service.queue.progress import PATTERNS, channel, publish
from service.wire.accuracy import Accuracy
from service.wire.advice import FINAL, Advice, AdviceEvent, AdviceRequest
from service.wire.board import Board, BoardChoices, BoardQuery
from service.wire.hardware import ParsedHardware
from service.wire.health import PartName
from service.wire.problem import problem_of
from service.wire.repo import RepoView, VariantView
from service.wire.submissions import Missing, Preview, Submission, Submitted

RTX_3090 = Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 3090")])
READY_REPO, NEW_REPO, FAILING_REPO, BROKEN_REPO = "known/ready", "never/read", "always/fails", "breaks/it"
DELETE_KEY = "the-key-of-whoever-asked"


class Asked(NamedTuple):
    advice: Advice
    delete_key: str | None = None


class MemoryFlows:
    """Advice of READY_REPO is ready at once; that of other repos is queued until the test moves it on."""

    def __init__(self, redis: Redis, redis_url: str) -> None:
        self.redis, self.redis_url = redis, redis_url
        self.advice: dict[str, Advice] = {}
        self.validations: list[Any] = []
        self.submitted: list[Submission] = []
        self.choices = BoardChoices(models=[], rigs=[], variants=[], archs=[], depths=[0], vram=[], ram=[])
        self.bad: dict[PartName, str] = {}  # parts that do not answer, and why
        self.failure: AdvisorError = AdviceNotFound("unset")
        self.reading = threading.Event()  # set: an inspection has begun
        self.may_end = threading.Event()
        self.may_end.set()

    def request_advice(self, request: AdviceRequest, admit_new_repo: Callable[[], None]) -> Asked:
        if request.repo == BROKEN_REPO:
            raise RuntimeError("a secret of the inside")
        ready = self.ready_advice(request)
        if ready is not None:
            return Asked(self.advice[ready.id])
        admit_new_repo()
        advice = self.put("queued-one", "queued", repo=request.repo)
        if request.repo == FAILING_REPO:
            self.fail(advice.id, self.failure)
        return Asked(advice, DELETE_KEY)

    def ready_advice(self, request: AdviceRequest) -> ReadyAdvice | None:
        if request.repo != READY_REPO:
            return None
        advice = self.put("ready-one", "ready", repo=READY_REPO)
        return ReadyAdvice(advice.id, self.advice_version(advice.id) or "")

    def put(self, advice_id: str, state: Any, **fields: Any) -> Advice:
        """Keep an advice in this state and tell whoever listens."""
        values = {"repo": READY_REPO, "revision": None, "hardware": RTX_3090, "goal": None, **fields}
        headline = "Yes: about 18 t/s." if state == "ready" else None
        advice = Advice(id=advice_id, state=state, headline=headline, **values)
        self.advice[advice_id] = advice
        publish(self.redis, AdviceEvent(advice_id, state, advice.progress))
        return advice

    def fail(self, advice_id: str, error: AdvisorError) -> None:
        failed = msgspec.structs.replace(self.advice[advice_id], state="failed", problem=problem_of(error))
        self.advice[advice_id] = failed
        publish(self.redis, AdviceEvent(advice_id, "failed", None))

    def read_advice(self, advice_id: str) -> Advice:
        if advice_id not in self.advice:
            raise AdviceNotFound("there is no advice with this id")
        return self.advice[advice_id]

    def advice_progress(self, advice_id: str) -> AdviceEvent:
        found = self.read_advice(advice_id)
        return AdviceEvent(found.id, found.state, found.progress)

    def advice_version(self, advice_id: str) -> str | None:
        found = self.read_advice(advice_id)
        return str(hash(msgspec.json.encode(found))) if found.state in FINAL else None

    def known_repos(self, limit: int) -> list[str]:
        return [READY_REPO][:limit]

    def validations_of_advice(self, advice_id: str) -> list[Any]:
        return self.validations

    def delete_advice(self, advice_id: str, key: str) -> None:
        self.read_advice(advice_id)
        if key != DELETE_KEY:
            raise WrongKey("the key is another one", field="X-Advice-Key")
        del self.advice[advice_id]

    def leaderboard(self, query: BoardQuery) -> Board:
        return Board(query=query, rows=[])

    def board_version(self) -> str:
        return "0"

    def board_choices(self) -> BoardChoices:
        return self.choices

    def accuracy(self) -> Accuracy:
        return Accuracy(n_results=0, since=None, lines=[], worst=[], calibration="test")

    def preview_submission(self, caller: None, asked: Submission, admit_new_repo: Callable[[], None]) -> Preview:
        missing = [] if asked.repo else [Missing("repo", "the variant is not named: `owner/name:VARIANT`")]
        return Preview(complete=not missing, missing=missing, rig="1x RTX 3090", command=asked.command)

    def submit(self, caller: None, asked: Submission, key: str | None, admit: Callable[[], None]) -> Submitted:
        self.submitted.append(asked)
        kept = {"id": "kept-one", "state": "shown", "state_reason": None, "tier": "self-reported"}
        return msgspec.convert({**kept, "is_new": True, "edit_key": DELETE_KEY}, Submitted)

    def hosts_figures(self) -> list[Any]:
        return []

    def inspect(
        self, repo: str, revision: str | None, variant: str | None, admit_new_repo: Callable[[], None]
    ) -> RepoView:
        if repo == NEW_REPO:
            admit_new_repo()
        self.reading.set()
        self.may_end.wait(10)
        return RepoView(
            repo=repo, revision=revision, variants=[VariantView(variant or "Q4_K_M", [], None)], other_files={}
        )

    def parse_hardware(self, text: str) -> ParsedHardware:
        if text == "RTX 9999":
            raise UnknownHardware("no GPU is called RTX 9999", field="hardware", choices=("RTX 5090", "RTX 4090"))
        return ParsedHardware(RTX_3090, "1x RTX 3090", [Assumption("ram", "64 GiB", "not stated", "what fits")])

    def known_gpus(self) -> list[dict[str, Any]]:
        return [{"name": "NVIDIA GeForce RTX 3090", "bandwidth_gbs": 936.0}, {"name": "AMD Radeon RX 7900 XTX"}]

    def known_cpus(self) -> list[dict[str, Any]]:
        return [{"name": "AMD EPYC 9355", "cores": 32}]

    def part(self, name: PartName) -> str:
        if name in self.bad:
            raise ServiceUnavailable(self.bad[name])
        return "answers"

    def counts(self) -> bytes:
        return b""

    def send_counts(self) -> None:
        pass

    def backlog(self) -> None:
        raise DatabaseUnavailable("there is none in memory")

    def database_connections(self) -> tuple[int, int]:
        return 0, 0

    def progress(self, advice_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        return Listener(connect_async(self.redis_url), *PATTERNS).listen(channel(advice_id))
