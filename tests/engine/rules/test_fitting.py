"""What is proposed for a command that does not fit."""

from __future__ import annotations

from itertools import pairwise

import pytest

from service.engine.catalogue import resolve
from service.engine.check.report import CheckReport
from service.engine.check.run import check
from service.engine.hardware_text import parse_hardware
from service.engine.rules.companion_headers import NO_COMPANIONS, CompanionHeaders
from tests.models import build
from tests.projectors import encoder_header, gemma3_header

WITH_8B = CompanionHeaders(draft=build("Qwen3-8B", "q4_K_M"))


def checked(options: str, model: str, hardware: str, beside: CompanionHeaders = NO_COMPANIONS) -> CheckReport:
    rig = resolve(parse_hardware(hardware))
    command = f"llama-server -m m.gguf -fa on {options}"
    return check(command, "llama.cpp", build(model, "q4_K_M"), rig, companion_headers=beside)


def fix(report: CheckReport) -> str:
    (found,) = {one.fix for one in report.findings if one.rule == "does-not-fit"}
    return found or ""


@pytest.mark.parametrize(
    ("options", "model", "hardware", "step", "beside"),
    [
        ("-ngl 99 -c 40000 -ctk q8_0 -ctv q8_0", "Qwen3-32B", "RTX 3090, 64GB DDR5", 1_024, NO_COMPANIONS),
        ("-ngl 99 -c 60000 -ctk q8_0 -ctv q8_0 -np 4", "Qwen3-32B", "RTX 3090, 64GB DDR5", 4_096, NO_COMPANIONS),
        ("-ngl 99 -c 131072 -ctk q8_0 -ctv q8_0 -np 4 -md d.gguf", "Qwen3-32B", "RTX 5090, 64GB DDR5", 4_096, WITH_8B),
    ],
)
def test_a_smaller_context_is_the_largest_that_keeps_the_reserve(
    options: str, model: str, hardware: str, step: int, beside: CompanionHeaders
) -> None:
    report = checked(options, model, hardware, beside)
    context = int(fix(report).removeprefix("-c "))
    assert context % step == 0
    written = options.split()
    now = next(value for option, value in pairwise(written) if option == "-c")
    for tokens, keeps in ((context, True), (context + step, False)):
        (card, _) = checked(options.replace(f"-c {now}", f"-c {tokens}"), model, hardware, beside).memory.devices
        assert (card.fits and card.free_mib >= 512) is keeps


@pytest.mark.parametrize("options", ["-ngl 99", "-ngl 99 -np 1", ""])
def test_the_whole_context_asked_for_with_c_0_is_not_shortened(options: str) -> None:
    """`-c 0` raises fit's least context to the maximum (llama.cpp common/arg.cpp, `--ctx-size`)."""
    unset, whole = (checked(f"{options}{more}", "Qwen3-32B", "RTX 3090, 64GB DDR5") for more in ("", " -c 0"))
    caches = [sum(device.kv_mib for device in report.memory.devices) for report in (unset, whole)]
    assert caches[0] < 0.5 * caches[1]
    assert caches[1] == pytest.approx(10_240, rel=0.01)  # 40,960 tokens of 256 KiB
    rules = {one.rule for one in whole.findings}
    assert "context-unset" in rules
    assert "fit-left-on" not in rules


def test_a_context_that_fit_shortens_is_not_said_to_cover_the_training_context() -> None:
    rules = {one.rule for one in checked("-ngl 99", "Qwen3-32B", "RTX 3090, 64GB DDR5").findings}
    assert "fit-left-on" in rules
    assert "context-unset" not in rules


@pytest.mark.parametrize("hardware", ["M3 Max 64GB", "Strix Halo 64GB", "DGX Spark"])
def test_experts_are_not_moved_to_ram_that_is_the_gpus_own(hardware: str) -> None:
    """It frees nothing there."""
    model = "GLM-4.6" if hardware == "DGX Spark" else "GLM-4.5-Air"
    report = checked("-ngl 99 -c 131072 -fit off", model, hardware)
    found = {one.rule: one.fix for one in report.findings}
    assert "does-not-fit" in found
    assert "experts-left-on-gpu" not in found
    assert "=CPU" not in f"{found['does-not-fit']}{report.fixed}"


def test_a_context_beyond_training_is_cut_to_it_where_that_fits() -> None:
    assert fix(checked("-ngl 99 -c 1048576 -np 1", "Qwen3-8B", "RTX 5090, 64GB DDR5")) == "-c 40960"


def test_where_no_change_keeps_the_reserve_one_that_fits_says_how_little_it_leaves() -> None:
    rig = resolve(parse_hardware("RTX 3090, 64GB DDR5"))
    command = "llama-server -m m.gguf -fa on -ngl 99 -c 40000 -ctk q8_0 -ctv q8_0"
    report = check(command, "llama.cpp", build("Qwen3-32B", "q4_K_M"), rig, reserve_mib=24_000)
    (found,) = [one for one in report.findings if one.rule == "does-not-fit"]
    assert fix(report) == "-c 38912"
    assert (found.gain or "").startswith("fits with only ")


@pytest.mark.parametrize(
    ("options", "model", "expected"),
    [
        ("-ngl all -c 40000 -np 2 -kvu --swa-full", "Gemma-4-31B", "leave out --swa-full"),
        ("-ngl 99 -c 32768 --swa-full", "Gemma-3-27B", "leave out --swa-full"),
        ("-ngl 99 -c 65536 --swa-full", "Gemma-4-31B", "leave out --swa-full; -ctk q8_0 -ctv q8_0"),
    ],
)
def test_windows_that_cache_the_whole_context_are_given_up_before_anything_else(
    options: str, model: str, expected: str
) -> None:
    assert fix(checked(options, model, "RTX 3090, 64GB DDR5")) == expected


@pytest.mark.parametrize(
    ("options", "model", "hardware", "expected"),
    [
        ("-ngl 99 -c 16384 -md d.gguf -ngld 99", "Qwen3-30B-A3B", "RTX 4090, 64GB DDR5", "leave out -md and -ngld"),
        ("-ngl 99 -c 24000 -md d.gguf", "Qwen3-32B", "RTX 5090, 64GB DDR5", "-ctkd q8_0 -ctvd q8_0"),
        ("-ngl 99 -c 32768 -md d.gguf", "Qwen3-32B", "RTX 5090, 64GB DDR5", "leave out -md"),
        (
            "-ngl 99 -c 32768 --spec-type draft-simple -md d.gguf", "Qwen3-32B", "RTX 5090, 64GB DDR5",
            "leave out --spec-type and -md",
        ),
        (
            "-ngl 99 -c 65536 -np 4 -md d.gguf", "Qwen3-32B", "RTX 5090, 64GB DDR5",
            "leave out -md; -ctk q8_0 -ctv q8_0",
        ),
    ],
)  # fmt: skip
def test_a_draft_model_gives_way_before_precision_context_and_layers(
    options: str, model: str, hardware: str, expected: str
) -> None:
    assert fix(checked(options, model, hardware, WITH_8B)) == expected


def test_a_small_draft_model_goes_to_ram_where_it_costs_little_there() -> None:
    small = CompanionHeaders(draft=build("Qwen3-0.6B", "q4_K_M"))
    options = "-ngl 28 -c 6144 -md d.gguf"
    assert fix(checked(options, "Llama-3.3-70B", "RTX 4060 Ti 16GB, 64GB DDR5", small)) == "-ngld 0"


def test_a_projector_in_ram_leaves_room_for_more_layers() -> None:
    images, card = CompanionHeaders(projector=gemma3_header()), "RTX 4060 Ti 16GB, 64GB DDR5"
    proposed = fix(checked("-ngl 99 -c 8192 --mmproj p.gguf", "Gemma-3-27B", card, images))
    layers = int(proposed.removeprefix("--no-mmproj-offload; -ngl "))
    beside = checked(f"-c 8192 --mmproj p.gguf -ngl {layers}", "Gemma-3-27B", card, images)
    assert not beside.fits


# ik_llama.cpp issue 1348: a server that fitted its card ended at an image of 1 MB
def test_images_have_fewer_tokens_where_only_the_largest_one_does_not_fit() -> None:
    images = CompanionHeaders(projector=encoder_header("qwen3vl_merger", 1152, 4304, patch=16))
    rig = resolve(parse_hardware("RTX 3090, 64GB DDR5"))
    command = "llama-server -m m.gguf -ngl 99 -c 114688 -np 1 --mmproj p.gguf"
    report = check(command, "ik_llama.cpp", build("Qwen3.5-27B", "q4_K_M"), rig, companion_headers=images)
    assert fix(report) == "--image-max-tokens 1024"
    assert report.verdict.startswith("May not fit")


def test_flash_attention_is_tried_with_every_other_change() -> None:
    rig = resolve(parse_hardware("2x RTX 3090, 128GB DDR4"))
    command = "llama-server -m m.gguf -ngl 99 -c 131072 -np 4 -fa off"
    report = check(command, "ik_llama.cpp", build("Qwen3-32B", "q4_K_M"), rig)
    assert fix(report) == "-fa on; -ctk q8_0 -ctv q8_0"
    assert report.fixed_figures is not None
    assert report.fixed_figures.fits


def test_what_no_one_change_mends_is_mended_by_a_quantised_cache_with_another() -> None:
    report = checked("-ngl 99 -c 131072 -np 1", "GLM-4.5-Air", "RTX 3090, 64GB DDR5")
    assert fix(report).startswith("-ctk q8_0 -ctv q8_0; -ot ")
    assert report.fixed_figures is not None
    assert report.fixed_figures.memory.devices[0].free_mib >= 512
