"""The calibration moves to what was measured, is never silently worse, and every process predicts by it."""

from __future__ import annotations

import msgspec
import pytest

from service.engine.calibration import shipped
from service.engine.catalogue import engine_devices, resolve
from service.engine.measured.roofline import Prediction
from service.engine.measured.rows import MeasuredRow
from service.engine.run.placement import place
from service.engine.run.resolved import resolve_run
from service.engine.run_flags import RunFlags, to_flags
from service.engine.speed.predict import predict_speed
from service.engine.versions import versions
from service.errors import CalibrationRefused
from service.flows.advice.advise import compute_advice, read_advice, request_advice
from service.flows.advice.check import check_command
from service.flows.advice.reading import read_models
from service.flows.advice.repos import list_repo
from service.flows.context import Context
from service.flows.results.accuracy import accuracy
from service.flows.results.calibration import _is_kept_out, calibrate
from service.hub.listing import RepoListing
from service.hub.references import parse_reference
from service.store.results.calibrations import in_force, version_in_force
from service.store.results.results import StoredResult
from service.wire.advice.advice import Advice, AdviceRequest
from service.wire.advice.check import CheckRequest
from service.wire.results.results import ResultModel
from tests.flows.conftest import Clock
from tests.hosts import RIG, caller
from tests.speeds import device
from tests.stored_results import a_result, keep

QWEN = "Qwen/Qwen3-0.6B-GGUF"
FLAGS = RunFlags(n_ctx=8192)
DEPTHS = (0, 2048)


@pytest.fixture
def listing(context: Context) -> RepoListing:
    return list_repo(context, parse_reference(QWEN, None))


@pytest.fixture
def owners(context: Context) -> tuple[list[str], list[str]]:
    """Four owners whose results are fitted, and one whose are kept out."""
    fitted, kept_out = list[str](), list[str]()
    for i in range(100):
        owner = caller(context, f"owner{i}").account_id
        (kept_out if _is_kept_out(owner) else fitted).append(owner)
        if len(fitted) >= 4 and kept_out:
            break
    return fitted[:4], kept_out[:1]


def rows_like(context: Context, listing: RepoListing, faster: float) -> list[MeasuredRow]:
    """Rows as if the model ran so much faster than is predicted."""
    rig, flags, variant = resolve(RIG), to_flags(FLAGS), listing.variants[0]
    model = read_models(context.hub, listing, [variant]).variants[0].model
    devices = engine_devices(rig, "ik_llama.cpp", [0])
    placement = place("ik_llama.cpp", model, flags, [d.free for d in devices])
    rows = []
    for n_kv in DEPTHS:
        speed = predict_speed(resolve_run("ik_llama.cpp", model, flags, rig, devices, placement=placement), n_kv)
        pp, tg = speed.pp.expected * faster, speed.tg.expected * faster
        rows.append(MeasuredRow(n_kv=n_kv, n_prompt=512, n_gen=64, pp_seconds=(512 / pp,), tg_seconds=(64 / tg,)))
    return rows


def measured(listing: RepoListing, owner: str, rows: list[MeasuredRow]) -> StoredResult:
    cards = [msgspec.structs.replace(device("CUDA0", 600.0), gpu="NVIDIA GeForce RTX 3090")]
    model = ResultModel(repo=QWEN, revision=listing.revision or "", variant=listing.variants[0].name, files=())
    prediction = Prediction(devices=cards, speed=[], most_tg=1e5, most_pp=1e7)
    return a_result(
        rows, origin="agent", tier="agent-run", account_id=owner, hardware=RIG, hardware_key="k",
        flags=FLAGS, model=model, prediction=prediction,
    )  # fmt: skip


def fill(
    context: Context, listing: RepoListing, owners: tuple[list[str], list[str]], truth: float, apart: float
) -> None:
    """Results of everybody at `truth` times the prediction; those kept out `apart` times that."""
    fitted, kept_out = owners
    rows = rows_like(context, listing, truth)
    for owner in fitted:
        keep(context.engine, *(measured(listing, owner, rows) for _ in range(5)))
    rows = rows_like(context, listing, truth * apart)
    keep(context.engine, *(measured(listing, owner, rows) for owner in kept_out))


def test_it_moves_to_what_was_measured_and_errors_on_what_was_kept_out_shrink(
    context: Context, listing: RepoListing, owners: tuple[list[str], list[str]], clock: Clock
) -> None:
    fill(context, listing, owners, 0.75, 1.0)
    found = calibrate(context)
    assert (found.n_results, found.errors.kept_out) == (20, 1)
    assert found.errors.tg_before == pytest.approx(1 / 0.75 - 1, abs=0.01)
    assert found.errors.tg_after < found.errors.tg_before
    assert found.errors.pp_after < found.errors.pp_before
    assert in_force(context.engine) == found.calibration != shipped()
    assert version_in_force(context.engine) == found.calibration.version == accuracy(context).calibration
    assert [used.version for used in accuracy(context).calibrations] == [found.calibration.version]
    for name, parameter in found.calibration.parameters.items():
        assert parameter.value >= parameter.least, name


def test_new_advice_and_checks_are_predicted_by_it_at_once(
    context: Context, listing: RepoListing, owners: tuple[list[str], list[str]]
) -> None:
    """Also in a process that did not fit it: nothing of it is kept in one."""
    fill(context, listing, owners, 0.75, 1.0)
    asked = AdviceRequest(repo=QWEN, hardware=RIG)
    repo = f"{QWEN}:{listing.variants[0].name}"
    to_check = CheckRequest(command="llama-server -m m.gguf -ngl 99 -c 8192", repo=repo, hardware=RIG)
    before, checked_before = computed(context, asked), check_command(context, to_check)
    made = calibrate(context).calibration
    after, checked_after = computed(context, asked), check_command(context, to_check)
    assert before.id != after.id
    assert before.versions is not None
    assert after.versions is not None
    assert (before.versions.calibration, after.versions.calibration) == (versions().calibration, made.version)
    assert after.configs[0].goal_seconds[1] > before.configs[0].goal_seconds[1] * 1.1
    assert checked_after.speed[0].tg_tps < checked_before.speed[0].tg_tps / 1.1


def computed(context: Context, asked: AdviceRequest) -> Advice:
    requested = request_advice(context, asked)
    compute_advice(context, requested.advice.id)
    return read_advice(context, requested.advice.id)


@pytest.mark.full
def test_it_is_refused_with_the_figures_where_it_would_be_worse_on_what_was_kept_out(
    context: Context, listing: RepoListing, owners: tuple[list[str], list[str]]
) -> None:
    fill(context, listing, owners, 0.75, 1.5)
    with pytest.raises(CalibrationRefused, match=r"worse on the 1 results kept out .* tokens \d+\.\d% before"):
        calibrate(context)
    assert in_force(context.engine) is None


@pytest.mark.full
def test_a_dry_run_keeps_nothing_and_too_few_results_are_refused(
    context: Context, listing: RepoListing, owners: tuple[list[str], list[str]]
) -> None:
    with pytest.raises(CalibrationRefused, match="0 results of 0 owners"):
        calibrate(context)
    fill(context, listing, owners, 0.75, 1.0)
    calibrate(context, keep=False)
    assert in_force(context.engine) is None
    assert accuracy(context).calibrations == []
