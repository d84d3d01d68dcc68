"""Pages of models, rigs and people: what counts is on them, private hosts and banned people are not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from service.engine.advice import SpeedPoint
from service.engine.errors import InvalidInput
from service.engine.measured.classify import Failure
from service.engine.measured.roofline import Prediction
from service.errors import NotOnBoard, ResultNotFound
from service.flows.context import Context
from service.flows.results import leaderboard, read_results
from service.store.measuring import hosts
from service.wire.plain_text import as_text
from service.wire.results.board import BoardQuery
from service.wire.results.board_text import board_lines
from service.wire.results.results import ResultQuery
from tests.hosts import a_host, caller
from tests.stored_results import a_result, keep, row


def test_a_model_page_has_variants_by_size_and_rigs_by_speed(context: Context) -> None:
    keep(
        context.engine,
        a_result([row(0, 30), row(4096, 25)], tier="agent-run"),
        a_result(
            [row(0, 40)],
            tier="replicated",
            variant="IQ4_XS",
            bpw=4.25,
            rig_slug="rtx-5090",
            gpus="RTX 5090",
            vram_mib=32_607,
        ),
    )
    page = leaderboard.model_page(context, "qwen3-30b-a3b")
    assert (page.name, page.depth, page.depths, page.n_results) == ("Qwen3-30B-A3B", 0, [0, 4096], 2)
    assert [(one.slug, one.best_tps, one.size_gib) for one in page.variants] == [
        ("Q4_K_M", 30.0, 17.27),
        ("IQ4_XS", 40.0, 15.11),
    ]
    assert [one.name for one in page.rigs] == ["RTX 5090", "2x RTX 3090"]
    assert [one.result for one in leaderboard.model_page(context, page.slug, 4096).leading] == [page.leading[1].result]
    for slug, depth, error in (("none", None, NotOnBoard), (page.slug, 5, InvalidInput)):
        with pytest.raises(error):
            leaderboard.model_page(context, slug, depth)


def test_what_nothing_bears_out_is_in_a_section_of_its_own_with_what_was_predicted(context: Context) -> None:
    point = SpeedPoint(
        n_kv=0, pp_tps=500, pp_low=400, pp_high=600, tg_tps=746, tg_low=552, tg_high=1009, basis="estimated"
    )
    said = Prediction(devices=[], speed=[point], most_tg=3_737.0, most_pp=1e5)
    proven = a_result([row(0, 700)], tier="agent-run", prediction=said)
    paste = a_result([row(0, 3_300)], prediction=said)
    fair = a_result([row(0, 900)], prediction=said, engine="llama.cpp")
    keep(context.engine, proven, paste, fair)
    assert [one.result for one in leaderboard.leaderboard(context, BoardQuery()).rows] == [proven.id]
    rows = leaderboard.leaderboard(context, BoardQuery(trust="self-reported")).rows
    assert [(one.result, one.predicted_low, one.predicted_high, one.plausible) for one in rows] == [
        (paste.id, 552, 1009, False),
        (fair.id, 552, 1009, True),
    ]
    for page in (
        leaderboard.model_page(context, proven.model_slug),
        leaderboard.hardware_page(context, proven.rig_slug),
    ):
        assert [one.result for one in page.leading] == [proven.id]
        assert [one.result for one in page.unproven] == [paste.id, fair.id]
        assert page.n_results == 1
    assert [one.result for one in leaderboard.similar_results(context, fair.id)] == [proven.id]
    assert "implausible" in as_text(board_lines(leaderboard.leaderboard(context, BoardQuery(trust="self-reported"))))


def test_a_rig_page_has_models_and_one_without_cards_is_called_by_its_cpu(context: Context) -> None:
    a_cpu: dict[str, Any] = {"gpus": "no GPU", "rig_slug": "cpu-epyc-9355", "cpu": "EPYC 9355", "vram_mib": 0}
    keep(context.engine, a_result(tier="agent-run", **a_cpu))
    page = leaderboard.hardware_page(context, "cpu-epyc-9355")
    assert (page.name, page.vram_mib, [one.name for one in page.models]) == ("EPYC 9355, no GPU", 0, ["Qwen3-30B-A3B"])
    assert leaderboard.choices(context).rigs[0].name == "EPYC 9355, no GPU"
    with pytest.raises(NotOnBoard):
        leaderboard.hardware_page(context, "2x-rtx-3090")


def test_a_variant_that_is_written_in_two_ways_is_offered_once(context: Context) -> None:
    keep(context.engine, *(a_result(variant=name) for name in ("q4_0", "Q4_0", "iq4_ks", "UD-Q2_K_XL")))
    assert leaderboard.choices(context).variants == ["iq4_ks", "Q4_0", "UD-Q2_K_XL"]


def test_results_of_a_private_host_are_nowhere_until_its_owner_publishes_it(context: Context) -> None:
    host = a_host(context)
    one = a_result(host_id=host.id, account_id=host.account_id, tier="agent-run", origin="agent")
    keep(context.engine, one)
    assert leaderboard.leaderboard(context, BoardQuery()).rows == []
    assert read_results.list_results(context, ResultQuery()).results == []
    with pytest.raises(ResultNotFound):
        read_results.read_result(context, one.id)
    owner = caller(context, "alice")
    assert read_results.read_result(context, one.id, owner).host is None
    pseudonym = read_results.read_result(context, one.id, owner).contributor or ""
    assert leaderboard.contributor(context, pseudonym).n_results == {}
    hosts.change(context.engine, host.id, context.clock(), visibility="public")
    [shown] = leaderboard.leaderboard(context, BoardQuery()).rows
    page = leaderboard.contributor(context, shown.contributor or "")
    assert (page.n_results, [result.id for result in page.newest]) == ({"agent-run": 1}, [one.id])
    assert [(figures.pseudonym, figures.n_results) for figures in page.hosts] == [(host.pseudonym, 1)]
    assert read_results.read_result(context, one.id).host == host.pseudonym
    hosts.change(context.engine, host.id, context.clock(), visibility="private")
    assert leaderboard.leaderboard(context, BoardQuery()).rows == []
    assert leaderboard.hosts_figures(context) == []


def test_what_tells_one_machine_from_its_like_is_not_shown(context: Context) -> None:
    one = a_result()
    gpus = [msgspec.structs.replace(gpu, uuids=["GPU-1", "GPU-2"], pci_order=[0, 1]) for gpu in one.hardware.gpus]
    told = msgspec.structs.replace(one, hardware=msgspec.structs.replace(one.hardware, gpus=gpus, notes="alice's"))
    keep(context.engine, told)
    shown = msgspec.json.encode(read_results.read_result(context, one.id))
    assert b"GPU-1" not in shown
    assert b"alice" not in shown


def test_why_something_failed_or_is_in_quarantine_is_shown_without_control_characters(context: Context) -> None:
    failed = Failure(kind="crashed", transient=False, text="it\x1b[31m said\u202e so")
    one = a_result(failure=failed, state="quarantined", state_reason="far\x1b off")
    keep(context.engine, one)
    shown = read_results.read_result(context, one.id)
    assert shown.failure is not None
    assert (shown.failure.text, shown.state_reason) == ("it[31m said so", "far off")


def test_nobody_has_a_page_who_gave_nothing(context: Context) -> None:
    with pytest.raises(NotOnBoard):
        leaderboard.contributor(context, "nobody")
