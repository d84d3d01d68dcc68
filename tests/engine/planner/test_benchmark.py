"""Configs that fit as a server and not as a benchmark: llama-bench keeps the logits of a whole micro-batch."""

from __future__ import annotations

import pytest

from service.engine.catalogue import engine_devices, resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice
from service.engine.hardware_text import parse_hardware
from service.engine.measured.chosen import chosen
from service.engine.memory.predict import predict_memory
from service.engine.planner.ranking.current_command import parsed_command
from service.engine.run.resolved import resolve_run
from tests.engine.planner.asking import ask, first
from tests.models import build

HARDWARE = parse_hardware("RTX 3080 10GB, Ryzen 7 5800X3D, 32GB DDR4-3200")
MODEL, MIX = "Qwen3-14B", "iq4_xs"


def largest(command: str, engine: Engine) -> float:
    """MiB that a printed command takes on the card at most."""
    parsed, rig = parse(command, engine), resolve(HARDWARE)
    devices = engine_devices(rig, engine, (0,))
    run = resolve_run(engine, build(MODEL, MIX), parsed.flags, rig, devices, tool=parsed.tool)
    return predict_memory(run).total(0).high / 2**20


def test_a_micro_batch_is_as_large_as_the_server_has_room_for_and_the_benchmark_has_a_smaller_one() -> None:
    config = first(ask(MODEL, MIX, hardware=HARDWARE, engine="llama.cpp"))
    smaller, capacity = config.smaller_benchmark, config.devices[0].capacity_mib
    assert smaller is not None
    assert f" -ub {config.flags.n_ubatch} " in config.commands.server
    assert f" -ub {smaller.n_ubatch} " in config.commands.bench
    assert largest(config.commands.server, "llama.cpp") < capacity
    assert largest(config.commands.bench, "llama.cpp") < capacity
    twice = config.commands.bench.replace(f"-ub {smaller.n_ubatch}", f"-ub {2 * smaller.n_ubatch}")
    assert largest(twice, "llama.cpp") > capacity - config.devices[0].reserve_mib
    assert any(note.startswith(f"its benchmark has -ub {smaller.n_ubatch}: llama-bench keeps") for note in config.notes)


def test_what_is_measured_of_it_is_compared_with_the_speed_of_the_smaller_micro_batch() -> None:
    body = ask(MODEL, MIX, hardware=HARDWARE, engine="llama.cpp")
    config = first(body)
    smaller = config.smaller_benchmark
    assert smaller is not None
    measured = chosen(body.configs, body.goal, None, None).measurements[0]
    assert (measured.flags.n_ubatch, measured.n_prompt) == (smaller.n_ubatch, smaller.n_ubatch)
    assert measured.speed == smaller.speed
    assert smaller.speed[-1].pp_tps < config.speed[-1].pp_tps


def test_a_command_in_use_is_measured_with_a_micro_batch_that_fits_too() -> None:
    config = first(ask(MODEL, MIX, hardware=HARDWARE, engine="llama.cpp"))
    larger = config.commands.server.replace(f"-ub {config.flags.n_ubatch}", f"-ub {2 * config.flags.n_ubatch}")
    limits = Constraints(engines=[EngineChoice("llama.cpp")], current_command=larger)
    body = ask(MODEL, MIX, hardware=HARDWARE, constraints=limits)
    assert body.mine is not None
    assert body.mine.fits
    assert body.mine.smaller_benchmark is not None
    baseline = chosen(body.configs, body.goal, body.mine, parsed_command(limits)).measurements[0]
    assert baseline.flags.n_ubatch == body.mine.smaller_benchmark.n_ubatch


@pytest.mark.parametrize(
    ("engine", "build_date"), [("ik_llama.cpp", None), ("llama.cpp", "2026-05-29")], ids=["ik", "older llama.cpp"]
)
def test_a_benchmark_that_takes_what_the_server_takes_has_the_same_micro_batch(
    engine: Engine, build_date: str | None
) -> None:
    choice = EngineChoice(engine, build=build_date)
    config = first(ask(MODEL, MIX, hardware=HARDWARE, constraints=Constraints(engines=[choice])))
    assert config.smaller_benchmark is None
    assert f" -ub {config.flags.n_ubatch} " in config.commands.bench
