"""Advice for an older build: its spelling, its buffers, its speed, and nothing that it lacks."""

from __future__ import annotations

import pytest

from service.engine.advice import AdviceBody
from service.engine.builds import parse_build
from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.config import Engine
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, EngineChoice
from service.engine.hardware import Hardware
from tests import rigs
from tests.engine.planner.asking import ask, first
from tests.models import build

QWEN = "Qwen3-235B-A22B"
R1, R1_IK = "DeepSeek-R1-0528", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0"


def of_build(
    engine: Engine, named: str, model: str = QWEN, mix: str = "q2_K", hardware: Hardware = rigs.ONE_3090_DESKTOP,
    command: str | None = None,
) -> AdviceBody:  # fmt: skip
    choice = EngineChoice(engine, parse_build(named))
    limits = Constraints(engines=[choice], current_command=command, current_engine=engine)
    return ask(model, mix, hardware=hardware, constraints=limits)


@pytest.mark.parametrize(
    ("engine", "named", "model", "mix", "hardware"),
    [
        ("ik_llama.cpp", "2025-06-01", QWEN, "q2_K", rigs.ONE_3090_DESKTOP),
        pytest.param("ik_llama.cpp", "2025-06-01", R1, R1_IK, rigs.TWO_5090_TWO_4090, marks=pytest.mark.full),
        pytest.param("llama.cpp", "2025-08-10", QWEN, "q2_K", rigs.ONE_3090_DESKTOP, marks=pytest.mark.full),
        ("llama.cpp", "b7000", QWEN, "q2_K", rigs.ONE_3090_DESKTOP),
    ],
)
def test_check_with_that_build_gives_the_same_figures_back(
    engine: Engine, named: str, model: str, mix: str, hardware: Hardware
) -> None:
    config = first(of_build(engine, named, model, mix, hardware))
    report = check(
        config.commands.server, engine, build(model, mix), resolve(hardware), build=named,
        depths=[p.n_kv for p in config.speed],
    )  # fmt: skip
    assert [d.total_mib for d in report.memory.devices] == [d.total_mib for d in config.devices]
    assert report.speed == config.speed
    errors = [f for f in report.findings if f.severity == "error"]
    assert {f.rule for f in errors} <= {"copies-of-ram"}  # how the build was made, not what it is told
    assert all(any(f.message in note for note in config.notes) for f in errors)
    assert config.build == report.build


def test_an_old_build_gets_its_own_spelling() -> None:
    old, new = (first(of_build("ik_llama.cpp", date)).commands.server for date in ("2025-06-01", "2026-08-15"))
    assert " -fa -" in old
    assert "-fmoe" in old
    assert " -fa on" in new
    assert "--no-mmap" in first(of_build("llama.cpp", "2025-08-10")).commands.server


def test_a_build_without_overrides_is_refused_where_weights_have_to_be_moved() -> None:
    body = of_build("ik_llama.cpp", "2025-02-10", "DeepSeek-V2.5")
    assert not body.configs
    assert "has no -ot" in body.refused[0].reason


def test_a_build_from_before_the_model_is_refused() -> None:
    body = of_build("ik_llama.cpp", "2025-02-10")
    assert not body.configs
    assert "does not know the architecture 'qwen3moe'" in body.refused[0].reason


def test_the_command_in_use_is_read_as_that_build_reads_it() -> None:
    command = f"llama-server -m {QWEN}-q2_K.gguf -c 16384 -ngl 99 -ot exps=CPU -fa"
    body = of_build("ik_llama.cpp", "2025-06-01", command=command)
    assert body.mine is not None
    assert body.mine.build == "of 2025-06-01"
    assert not body.mine.flags.fused_moe


def test_a_build_newer_than_those_known_is_assumed_to_be_today_s() -> None:
    body = of_build("ik_llama.cpp", "2027-01-01")
    assert any(a.field == "constraints.engines" for a in body.assumed)


def test_an_unknown_build_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="not known here"):
        of_build("ik_llama.cpp", "0123456789")
