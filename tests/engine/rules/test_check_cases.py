"""What people wrote and what `check` must say of it, each named for the mistake; speeds are the product's own model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.engine.catalogue import resolve
from service.engine.check.report import CheckReport
from service.engine.check.run import check
from service.engine.config import ENGINES, Engine
from service.engine.finding import Finding
from service.engine.hardware import Cpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from tests.models import build

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for line in (Path(__file__).parents[2] / "data" / "check_cases.jsonl").read_bytes().splitlines()
    for case in (msgspec.json.decode(line),)
}
BINDINGS = ("", "numactl --interleave=all ", "numactl -N 0 -m 0 ")


@cache
def checked(name: str, command: str | None = None) -> CheckReport:
    case = CASES[name]
    rig = resolve(parse_hardware(case["hardware"]))
    model = build(case["shape"], case["mix"])
    return check(command or case["command"], case["engine"], model, rig, build=case.get("build"))


def finding(name: str, rule: str) -> Finding:
    (found,) = [one for one in checked(name).findings if one.rule == rule]
    return found


@pytest.mark.parametrize(
    ("name", "rule", "fix"),
    [
        ("shared-experts-in-ram", "more-than-experts-in-ram", "leave out -ot ffn=CPU; -ot 'exps=CPU'"),
        ("attention-in-ram", "more-than-experts-in-ram", "leave out -ot attn=CPU"),
        ("small-ub-experts-in-ram", "micro-batch-small", "-ub 4096 -b 4096"),
        ("no-op-offload", "copying-off", "leave out --no-op-offload"),
        ("op-off-where-copying-wins", "copying-off", "leave out -op"),
        ("op-26", "obsolete-op-numbers", "leave out -op"),
        ("min-batch", "copying-off", "GGML_OP_OFFLOAD_MIN_BATCH=32 before the command"),
        ("mla-1", "mla-slower", "-mla 3"),
        ("cuda-misspelt", "cuda-key-unknown", "-cuda graphs=0"),
        ("ncmoe-two-cards", "does-not-fit", "-ts 31,16"),
    ],
)
def test_the_mistake_is_named_with_the_fix_that_helps(name: str, rule: str, fix: str) -> None:
    found = finding(name, rule)
    assert found.fix == fix
    assert found.gain


@pytest.mark.parametrize(
    ("name", "rule", "phase", "least"),
    [
        ("shared-experts-in-ram", "more-than-experts-in-ram", "TG", 1.15),
        ("attention-in-ram", "more-than-experts-in-ram", "TG", 1.5),
        ("small-ub-experts-in-ram", "micro-batch-small", "PP", 3.0),
        ("no-op-offload", "copying-off", "PP", 5.0),
        ("op-off-where-copying-wins", "copying-off", "PP", 3.0),
        ("mla-1", "mla-slower", "PP", 1.3),
    ],
)
def test_what_is_gained_is_said_in_figures(name: str, rule: str, phase: str, least: float) -> None:
    words = (finding(name, rule).gain or "").split(phase)[1].replace(",", "").split()
    assert float(words[2]) / float(words[0]) >= least


def test_a_main_gpu_under_layers_is_said_to_do_nothing_with_what_makes_a_card_first() -> None:
    message = finding("main-gpu-under-layer", "main-gpu-without-effect").message
    assert "CUDA_VISIBLE_DEVICES" in message
    assert "RTX 4090" in message


def test_merged_matrices_of_unequal_types_are_named() -> None:
    assert "q, k and v differ in type" in finding("merge-qkv", "merged-qkv-in-part").message


def test_merging_with_a_split_graph_is_named() -> None:
    command = CASES["merge-qkv"]["command"] + " -sm graph"
    (found,) = [f for f in checked("merge-qkv", command).findings if f.rule == "merged-qkv-in-part"]
    assert "merges nothing with -sm graph" in found.message


def test_up_and_gate_apart_without_fusion_are_no_finding() -> None:
    assert not [f for f in checked("up-gate-apart-unfused").findings if "fuse" in f.message]


def test_dense_layers_that_llama_cpp_keeps_in_ram_are_counted() -> None:
    assert checked("dense-ffn-in-ram").fits


def test_copies_of_ram_are_a_warning_for_the_build_they_ran_on() -> None:
    found = finding("copies-of-ram-older-build", "copies-of-ram")
    assert found.severity == "warning"


def test_four_bindings_have_four_speeds_each_with_its_interval() -> None:
    command = "llama-server -c 16384 -ngl 999 -fa on -b 4096 -ub 4096 -ot exps=CPU"
    written = [*(prefix + command for prefix in BINDINGS), f"{command} --numa distribute"]
    points = [checked("numa-bound", one).speed[0] for one in written]
    assert len({(point.tg_tps, point.tg_low) for point in points}) == 4
    assert len({point.tg_high / point.tg_low for point in points}) >= 3
    assert points[2].tg_tps == max(point.tg_tps for point in points)


def test_a_model_that_one_socket_holds_is_bound_to_it() -> None:
    command = CASES["numa-bound"]["command"].removeprefix("numactl -N 0 -m 0 ")
    (found,) = [f for f in checked("numa-bound", command).findings if f.rule == "numa-unset"]
    assert found.fix == "numactl -N 0 -m 0 before the command"
    assert "TG" in (found.gain or "")


def test_a_bare_server_is_computed_as_fit_places_it_and_then_as_we_would() -> None:
    report = checked("bare-server")
    found = finding("bare-server", "fit-places-itself")
    assert report.fits
    assert "-ngl 47" in found.message
    assert (found.fix or "").startswith("-fit off; ")
    assert report.memory.devices[0].capacity_mib - report.memory.devices[0].total_mib > 512


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_split_the_main_gpu_takes_the_experts_from_ram(engine: Engine) -> None:
    """With the link and the speed of that card."""
    rig, model = resolve(parse_hardware("RTX 4090 + RTX 3060, 64GB DDR5")), build("gpt-oss-120b", "exps=mxfp4,*=q8_0")
    options = "llama-server -ngl 99 -c 8192 -fa on -sm none -cmoe -ub 1024"
    one, two = (
        check(f"{env}{options}{mg}", engine, model, rig)
        for env, mg in (("", " -mg 1"), ("CUDA_VISIBLE_DEVICES=1 ", ""))
    )
    (said,) = [found.message for found in one.findings if found.rule == "micro-batch-small"]
    assert "to CUDA1 for each" in said
    assert one.speed == two.speed


@pytest.mark.parametrize(
    ("program", "whole"), [("llama-server", False), ("llama-cli", False), ("llama-completion", True),
                           ("llama-mtmd-cli", True), ("llama-parallel", True), ("llama-diffusion-cli", True)],
)  # fmt: skip
def test_programs_that_do_not_limit_their_logits_reserve_them_of_a_whole_micro_batch(program: str, whole: bool) -> None:
    """llama.cpp common/common.h:462, n_outputs_max: 0 is a whole batch, and only servers and speculation say less."""
    rig, model = resolve(parse_hardware("RTX 3090, 64GB")), build("Qwen3-0.6B", "q8_0")
    report = check(f"{program} -m m.gguf -c 8192 -ub 2048 -ngl 99 -fa on", "llama.cpp", model, rig)

    assert (report.memory.devices[0].compute_mib > 1000) is whole


@pytest.mark.parametrize(
    ("nodes", "gib"), [("0", 96), ("0-3", 384), ("0,4", 192), ("0,0", 96), ("0-7", 768), ("all", 768), ("3-0", 768)]
)
def test_numactl_leaves_the_ram_of_the_nodes_that_it_names(nodes: str, gib: int) -> None:
    """Names that numactl refuses (`3-0`) limit nothing here."""
    cpu = Cpu(model="EPYC 9355", sockets=2, numa_nodes=8)
    rig = resolve(Hardware(gpus=[], cpu=cpu, ram=Ram(total_gb=768)))
    command = f"numactl -m {nodes} llama-server -m m.gguf -c 4096"
    report = check(command, "llama.cpp", build("Qwen3-0.6B", "q8_0"), rig)

    assert report.memory.devices[-1].capacity_mib == gib * 1024


@pytest.mark.parametrize(
    ("before", "ram", "rule"),
    [("", 256, "bound-memory-too-small"), ("[Service]\nMemoryMax=64G\nExecStart=", 512, "ram-too-small")],
    ids=["numactl", "the unit"],
)
def test_ram_that_is_withheld_is_short_once_with_what_withholds_it(before: str, ram: int, rule: str) -> None:
    rig = resolve(Hardware(gpus=[], cpu=Cpu(model="EPYC 9355", sockets=2), ram=Ram(total_gb=ram)))
    command = f"{before}numactl -m 0 llama-server -m m.gguf -c 4096"
    report = check(command, "llama.cpp", build("Qwen3-235B-A22B", "q4_K_M"), rig)

    assert [f.rule for f in report.findings if f.rule in ("ram-too-small", "bound-memory-too-small")] == [rule]
