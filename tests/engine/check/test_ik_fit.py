"""What ik_llama.cpp's `--fit` chooses (src/llama.cpp:4281-4610 of 8337e4cd3), and what `check` says of it.

Held to runs of the engine on stand-in cards (`python -m rig.measure RIG --fit`): every fourth of those recorded, to the
byte, with the layers whose experts it put into RAM.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rig.commands import flags_run_with
from rig.measure import Run, recorded
from service.engine.catalogue import resolve
from service.engine.check.report import CheckReport
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.config import Flags
from service.engine.engines.ik_llama_cpp.fit import fitted
from service.engine.engines.ik_llama_cpp.placement import slot_sizes, split_layers
from service.engine.engines.spec import FitAsked
from service.engine.hardware_text import parse_hardware
from service.engine.model import Model
from service.engine.tensor_names import layer_of
from service.engine.units import GIB, MIB
from tests.bare_runs import memory_on
from tests.models import build

FLAGS = Flags(n_ctx=16_384, flash_attn="on")
MARGIN = GIB


@cache
def moe() -> Model:
    return build("Qwen3-30B-A3B", "q4_K_M")


def chosen(model: Model, flags: Flags, free: list[int]) -> Flags | None:
    """`used` is never asked: nothing is measured."""
    return fitted(FitAsked(model=model, flags=flags, n_ctx=flags.n_ctx, free=free, placed=False, streams=1, used=fail))


def fail(flags: Flags) -> list[int]:
    raise AssertionError


def moved(model: Model, flags: Flags) -> list[int]:
    experts = [t.name for t in model.tensors if "_exps.weight" in t.name]
    rules = [rule.pattern.split(".(")[0].replace("\\", "") + "." for rule in flags.overrides]
    return sorted({layer_of(name) or 0 for name in experts if name.startswith(tuple(rules))})


def checked(command: str, hardware: str) -> CheckReport:
    return check(command, "ik_llama.cpp", moe(), resolve(parse_hardware(hardware)))


RECORDED = list(recorded(Path(__file__).parents[2] / "data" / "memory_fit_ik.jsonl"))[::4]


@pytest.mark.parametrize(("row", "run"), RECORDED, ids=[row["id"] for row, _ in RECORDED])
def test_the_choice_and_every_buffer_are_those_of_the_engine(row: dict[str, Any], run: Run) -> None:
    model, free = build(run.model, run.mix), [n * MIB for n in run.free_mib]
    parsed = parse(f"llama-sweep-bench -m m.gguf {shlex.join(run.args)}", "ik_llama.cpp")
    flags = flags_run_with(parsed, model, free)
    measured = row["measured"]
    assert (flags is None) == measured.get("no_placement", False)
    if flags is None:
        return
    layers = [int(found[1]) for rule in flags.overrides if (found := re.match(r"blk\\.(\d+)\\.", rule.pattern))]
    assert layers == measured["experts_in_ram"]
    memory = memory_on("ik_llama.cpp", model, flags, free, tool=parsed.tool)
    for name, parts in measured["devices"].items():
        device = memory.devices[-1] if name == "Host" else memory.devices[int(name.removeprefix("CUDA"))]
        assert {part: getattr(device, part.removesuffix("_bytes")) for part in parts} == parts
    assert (memory.graph_splits, memory.graph_nodes) == (measured["graph_splits"], measured["graph_nodes"])


def test_everything_is_on_the_cards_where_the_estimate_has_room() -> None:
    found = chosen(moe(), replace(FLAGS, n_gpu_layers=3), [48 * GIB])
    assert found == replace(FLAGS, n_gpu_layers=999)


@pytest.mark.parametrize("free", [[12 * GIB], [9 * GIB, 7 * GIB], [4 * GIB, 10 * GIB, 4 * GIB]])
def test_each_card_gives_up_the_experts_of_its_last_layers_and_no_more_than_it_must(free: list[int]) -> None:
    model = moe()
    found = chosen(model, FLAGS, free)
    assert found is not None
    sizes, _ = slot_sizes(model, found)
    devices = split_layers(model, replace(FLAGS, n_gpu_layers=999), free)
    gone = moved(model, found)
    assert gone
    for card, n in enumerate(free):
        own = [i for i in range(model.n_layer) if devices[i] == card]
        left = sum(size for size, device in zip(sizes, devices, strict=True) if device == card)
        for layer in (i for i in own if i in gone):
            left -= sum(t.nbytes for t in model.by_layer[layer] if "_exps." in t.name)
        n_gone = sum(i in gone for i in own)
        assert [i for i in own if i in gone] == own[len(own) - n_gone :]
        assert left <= n - MARGIN
        if n_gone:
            first = own[len(own) - n_gone]
            assert left + sum(t.nbytes for t in model.by_layer[first] if "_exps." in t.name) > n - MARGIN


def test_a_split_graph_gives_up_the_experts_of_the_first_layers() -> None:
    found = chosen(moe(), replace(FLAGS, split_mode="graph"), [9 * GIB, 9 * GIB])
    assert found is not None
    gone = moved(moe(), found)
    assert gone == list(range(len(gone)))
    assert 0 < len(gone) < moe().n_layer


def test_a_dense_model_is_filled_from_the_head_down() -> None:
    model = build("Llama-3.3-70B", "q4_K_M")
    free = [24 * GIB, 12 * GIB]
    found = chosen(model, FLAGS, free)
    assert found is not None
    sizes, _ = slot_sizes(model, found)
    devices = split_layers(model, found, free)
    start = found.layers_in_ram
    held = [sum(sizes[i] for i in range(start, model.n_layer) if devices[i] == card) for card in (0, 1)]
    assert held[1] + sizes[-1] <= 11 * GIB < held[1] + sizes[-1] + sizes[0]
    assert held[0] <= 23 * GIB < held[0] + sizes[start - 1]


def test_the_margin_is_what_the_command_says() -> None:
    counts = []
    for other in ((), ("--fit-margin 3072",), ("-gfm 0,5120",)):
        found = chosen(moe(), replace(FLAGS, other=other), [14 * GIB])
        assert found is not None
        counts.append(len(found.overrides))
    assert counts == sorted(set(counts))


def test_check_says_what_fit_gives() -> None:
    report = checked("llama-server -m m.gguf -c 16384 -fa on --fit", "RTX 3060, Ryzen 9 7950X, 64GB")
    (found,) = [one for one in report.findings if one.rule == "fit-places-itself"]
    assert "--fit gives all layers on the GPU and" in found.message
    assert report.memory.devices[-1].weights_mib > 1_000


def test_a_machine_that_is_too_small_for_it_is_an_error() -> None:
    report = checked("llama-server -m m.gguf -c 131072 -fa on --fit", "RTX 3060 [2 GiB], Ryzen 9 7950X, 64GB")
    assert "fit-finds-no-placement" in [one.rule for one in report.findings if one.severity == "error"]
