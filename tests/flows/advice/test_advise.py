"""From a request to an advice: one row a request, nothing computed twice, nothing lost, every failure said."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from service.engine.advice import AdviceBody
from service.engine.advise import VariantModel
from service.engine.calibration import Calibration
from service.engine.errors import UnknownHardware
from service.engine.goal import Constraints, GoalRequest, resolve_goal
from service.engine.hardware import Gpu, Hardware
from service.engine.planner.search.all_variants import Report, no_report
from service.engine.versions import versions
from service.errors import AdviceNotFound, DatabaseUnavailable, RateLimited, ServiceUnavailable, WrongKey
from service.flows.advice import fair_queue, requests
from service.flows.advice.advise import (
    MAX_ATTEMPTS,
    MAX_FAILURES,
    compute_advice,
    delete_advice,
    read_advice,
    request_advice,
)
from service.flows.advice.fair_queue import requeue_unfinished
from service.flows.context import Context
from service.queue.connection import connect
from service.queue.enqueue import queue_on
from service.store.advice import queue
from service.wire.advice.advice import Advice, AdviceRequest
from tests.flows.conftest import Clock, WatchedHub
from tests.local_hub import LocalHub
from tests.waiting import PATIENCE

QWEN = "Qwen/Qwen3-0.6B-GGUF"
RTX_3090 = Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 3090")])
RTX_4090 = Hardware(gpus=[Gpu(name="NVIDIA GeForce RTX 4090")])


class CountingAdvise:
    """Stands in for the engine: answers with the names of the variants, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(
        self, variants: Sequence[VariantModel], hardware: Hardware, goal: GoalRequest, constraints: Constraints,
        what_if: Sequence[str] = (), calibration: Calibration | None = None, report: Report = no_report,
    ) -> AdviceBody:  # fmt: skip
        self.calls += 1
        return AdviceBody(
            headline=", ".join(v.name for v in variants),
            hardware=hardware,
            assumed=[],
            goal=resolve_goal(goal, 32_768),
            configs=[],
            refused=[],
            considered=len(variants),
            versions=versions(),
        )


@pytest.fixture
def advise() -> CountingAdvise:
    return CountingAdvise()


def ask(repo: str = QWEN, hardware: Hardware | str = RTX_3090, **more: object) -> AdviceRequest:
    return msgspec.structs.replace(AdviceRequest(repo=repo, hardware=hardware), **more)


def computed(context: Context, request: AdviceRequest, advise: CountingAdvise) -> Advice:
    advice = request_advice(context, request).advice
    compute_advice(context, advice.id, advise)
    return read_advice(context, advice.id)


def job_ids(context: Context) -> list[str]:
    return queue_on(context.redis).job_ids


def test_a_request_becomes_a_queued_row_and_its_job(context: Context) -> None:
    requested = request_advice(context, ask())
    assert requested.delete_key
    assert (requested.advice.state, requested.advice.repo) == ("queued", QWEN)
    assert read_advice(context, requested.advice.id) == requested.advice
    assert job_ids(context) == [f"advice-{requested.advice.id}"]


def test_the_worker_pins_the_commit_reads_the_headers_and_stores_the_answer(
    context: Context, advise: CountingAdvise, hub: WatchedHub
) -> None:
    advice = computed(context, ask(), advise)
    assert (advice.state, advice.headline) == ("ready", "Q4_K_M, Q8_0, BF16")
    assert advice.revision is not None
    assert len(advice.revision) == 40
    assert hub.listed == [QWEN]
    assert sorted(hub.read) == ["BF16", "Q4_K_M", "Q8_0"]


def test_a_finished_advice_is_answered_at_once(context: Context, advise: CountingAdvise) -> None:
    first = computed(context, ask(), advise)
    again = request_advice(context, ask())
    assert again.advice == first
    assert again.delete_key is None


def test_running_it_again_changes_nothing(context: Context, advise: CountingAdvise) -> None:
    first = computed(context, ask(), advise)
    compute_advice(context, first.id, advise)
    assert read_advice(context, first.id) == first
    assert advise.calls == 1


def test_the_commit_of_a_branch_is_remembered_for_ten_minutes(
    context: Context, advise: CountingAdvise, hub: WatchedHub, clock: Clock
) -> None:
    first = computed(context, ask(), advise)
    clock.pass_minutes(9)
    assert request_advice(context, ask()).advice.id == first.id
    clock.pass_minutes(2)
    second = computed(context, ask(), advise)
    assert second.id != first.id
    assert hub.listed == [QWEN, QWEN]


def test_what_was_computed_for_a_commit_is_not_computed_again_when_the_branch_has_not_moved(
    context: Context, advise: CountingAdvise, hub: WatchedHub, clock: Clock
) -> None:
    first = computed(context, ask(), advise)
    clock.pass_minutes(11)
    second = computed(context, ask(), advise)
    assert (second.state, second.headline) == ("ready", first.headline)
    assert (advise.calls, len(hub.read)) == (1, 3)


def test_a_commit_named_by_its_sha_is_known_for_ever(context: Context, advise: CountingAdvise, clock: Clock) -> None:
    sha = computed(context, ask(), advise).revision
    first = computed(context, ask(revision=sha), advise)
    clock.pass_minutes(100_000)
    assert request_advice(context, ask(revision=sha)).advice.id == first.id


def test_identical_requests_at_once_share_one_row_and_one_job(context: Context) -> None:
    with ThreadPoolExecutor(8) as pool:
        requested = list(pool.map(lambda _: request_advice(context, ask()), range(16)))
    assert len({r.advice.id for r in requested}) == 1
    assert [r.delete_key is not None for r in requested].count(True) == 1
    assert len(job_ids(context)) == 1


def test_requests_for_one_repo_at_once_share_one_read_of_it(
    context: Context, advise: CountingAdvise, hub: WatchedHub, local_hub: LocalHub
) -> None:
    ids = [request_advice(context, ask(hardware=h)).advice.id for h in (RTX_3090, RTX_4090)]
    assert len(set(ids)) == 2
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda advice_id: compute_advice(context, advice_id, advise), ids))
    assert [read_advice(context, i).state for i in ids] == ["ready", "ready"]
    assert hub.listed == [QWEN]
    resolved = [request.path for request in local_hub.requests if "/resolve/" in request.path]
    assert len(resolved) == len(set(resolved)) == 3


def test_a_request_accepted_while_redis_is_away_waits_in_the_database(context: Context, tmp_path: Path) -> None:
    away = context._replace(redis=connect(f"unix://{tmp_path}/none.sock"))
    advice = request_advice(away, ask()).advice
    assert read_advice(context, advice.id).state == "queued"
    assert requeue_unfinished(context) == 1
    assert job_ids(context) == [f"advice-{advice.id}"]


def test_a_wiped_redis_loses_nothing(context: Context, advise: CountingAdvise) -> None:
    request_advice(context, ask())
    running = request_advice(context, ask(hardware=RTX_4090)).advice
    queue.start(context.engine, running.id, context.clock(), 1)
    done = computed(context, ask(goal=GoalRequest(preset="long")), advise)
    context.redis.flushall()
    assert requeue_unfinished(context) == 2
    assert len(job_ids(context)) == 2
    assert requeue_unfinished(context) == 0
    assert read_advice(context, done.id) == done


def test_a_failure_is_stored_as_a_problem_and_tried_again_when_asked(context: Context, advise: CountingAdvise) -> None:
    first = computed(context, ask("nobody/nothing-GGUF"), advise)
    assert first.state == "failed"
    assert first.problem is not None
    assert first.problem.type.endswith("repo-not-found")
    second = request_advice(context, ask("nobody/nothing-GGUF")).advice
    assert (second.id != first.id, second.state) == (True, "queued")
    assert read_advice(context, first.id) == first


@pytest.mark.parametrize(
    ("repo", "problem"),
    [
        ("local/gated-GGUF", "repo-gated"),
        ("local/not-a-GGUF", "not-gguf"),
        ("local/truncated-GGUF", "truncated-header"),
        ("local/no-gguf-anywhere", "repo-without-gguf"),
        ("local/many-variants-GGUF", "repo-too-large"),
        (f"{QWEN}:Q9_9", "unknown-variant"),
    ],
)
def test_what_is_wrong_with_a_repo_is_said(context: Context, advise: CountingAdvise, repo: str, problem: str) -> None:
    advice = computed(context, ask(repo), advise)
    assert advice.problem is not None
    assert advice.problem.type.endswith(problem)


def test_a_repo_without_gguf_offers_those_read_here(context: Context, advise: CountingAdvise) -> None:
    sha = computed(context, ask(), advise).revision
    assert sha
    found = computed(context, ask("deepseek-ai/DeepSeek-R1-0528"), advise).problem
    assert found is not None
    assert "ubergarm/DeepSeek-R1-0528-GGUF" in (found.choices or ())


def test_only_the_variant_that_the_repo_names_is_read(
    context: Context, advise: CountingAdvise, hub: WatchedHub
) -> None:
    assert computed(context, ask(f"{QWEN}:q8_0"), advise).headline == "Q8_0"
    assert hub.read == ["Q8_0"]


@pytest.mark.parametrize("variant", ["", ":Q4_K_M"])
def test_a_variant_that_lacks_shards_is_refused_unless_another_was_asked_for(
    context: Context, advise: CountingAdvise, variant: str
) -> None:
    refused = computed(context, ask(f"local/incomplete-GGUF{variant}"), advise).refused
    assert {(one.variant, one.kind) for one in refused} == (set() if variant else {("Q8_0", "unreadable")})
    assert all("there is no Qwen3-4B-Q8_0-00002-of-00003.gguf" in one.reason for one in refused)


def test_hardware_that_cannot_be_is_refused_before_anything_is_queued(context: Context) -> None:
    with pytest.raises(UnknownHardware):
        request_advice(context, ask(hardware=Hardware(gpus=[Gpu(name="GeForce RTX 9999")])))
    assert job_ids(context) == []


def test_admission_is_asked_for_repos_never_read_here_only(context: Context, advise: CountingAdvise) -> None:
    def refuse() -> None:
        raise RateLimited("too many new repos", retry_after=60)

    with pytest.raises(RateLimited):
        request_advice(context, ask(), refuse)
    assert queue.calls(context.engine) == []
    computed(context, ask(), advise)
    assert request_advice(context, ask(hardware=RTX_4090), refuse).advice.state == "queued"


def test_an_unexpected_error_is_tried_again_and_then_said(context: Context, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object, **__: object) -> AdviceBody:
        raise ZeroDivisionError("secret")

    advice = request_advice(context, ask()).advice
    for _ in range(MAX_FAILURES - 1):
        with pytest.raises(ZeroDivisionError):
            compute_advice(context, advice.id, broken)
        assert read_advice(context, advice.id).state == "running"
    compute_advice(context, advice.id, broken)
    failed = read_advice(context, advice.id)
    assert failed.problem is not None
    assert failed.problem.type.endswith("advice-failed")
    assert "secret" not in failed.problem.detail
    assert "secret" in caplog.text


def test_an_advice_is_not_failed_because_a_part_of_the_service_is_away(context: Context) -> None:
    def away(*_: object, **__: object) -> AdviceBody:
        raise DatabaseUnavailable("the database does not answer")

    advice = request_advice(context, ask()).advice
    for _ in range(MAX_FAILURES + 1):
        with pytest.raises(DatabaseUnavailable):
            compute_advice(context, advice.id, away)
    assert read_advice(context, advice.id).state == "running"


def test_more_requests_than_can_be_worked_off_are_refused(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "MAX_UNFINISHED", 1)
    first = request_advice(context, ask()).advice
    with pytest.raises(ServiceUnavailable, match="ask again"):
        request_advice(context, ask(hardware=RTX_4090))
    assert request_advice(context, ask()).advice.id == first.id


def test_a_request_that_ends_its_worker_each_time_is_given_up(context: Context, advise: CountingAdvise) -> None:
    advice = request_advice(context, ask()).advice
    for _ in range(MAX_ATTEMPTS):
        queue.start(context.engine, advice.id, context.clock(), 1)
    compute_advice(context, advice.id, advise)
    assert read_advice(context, advice.id).state == "failed"
    assert advise.calls == 0


def test_each_step_is_kept_and_published(context: Context, advise: CountingAdvise) -> None:
    advice = request_advice(context, ask()).advice
    listener = context.redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    listener.subscribe(f"advice:{advice.id}")
    listener.get_message(timeout=PATIENCE)
    compute_advice(context, advice.id, advise)
    heard: list[dict[str, object]] = []
    while not heard or heard[-1]["state"] != "ready":
        message = listener.get_message(timeout=PATIENCE)
        assert message is not None
        heard.append(msgspec.json.decode(message["data"]))
    listener.close()
    steps = [str(event["progress"]) for event in heard]
    assert steps[:4] == ["listing the repo", *(f"reading headers: {number} of 3" for number in (1, 2, 3))]
    assert steps[4:] == ["None"]


def test_an_advice_is_deleted_with_its_own_key_only(context: Context, advise: CountingAdvise) -> None:
    requested = request_advice(context, ask())
    with pytest.raises(WrongKey):
        delete_advice(context, requested.advice.id, "another key")
    delete_advice(context, requested.advice.id, requested.delete_key or "")
    with pytest.raises(AdviceNotFound):
        read_advice(context, requested.advice.id)
    compute_advice(context, requested.advice.id, advise)
    assert advise.calls == 0


def test_newer_knowledge_answers_again(
    context: Context, advise: CountingAdvise, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = computed(context, ask(), advise)
    newer = msgspec.structs.replace(versions(), calibration="newer")
    monkeypatch.setattr(requests, "versions", lambda _: newer)
    assert request_advice(context, ask()).advice.id != first.id


def test_ids_and_keys_are_random_and_long(context: Context) -> None:
    requested = [request_advice(context, ask(goal=GoalRequest(depth=n))) for n in range(8)]
    assert len({r.advice.id for r in requested}) == 8
    assert {len(r.advice.id) for r in requested} == {22}
