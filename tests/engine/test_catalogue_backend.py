"""The back end that drives the cards is a fact of the hardware: stated, or that of their maker, said aloud."""

from __future__ import annotations

import pytest
from msgspec import convert
from msgspec.structs import replace

from service.engine.advise import VariantModel, advise
from service.engine.catalogue import card_order, engine_devices, is_one_machine, resolve, rigs_of
from service.engine.commands.parse import parse
from service.engine.errors import InvalidHardware
from service.engine.goal import Constraints, GoalRequest, Preset
from service.engine.hardware import Backend, Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.engine.planner.explaining.commands import Files
from service.engine.run.devices import rig_of_command, rig_of_devices
from tests.models import build


def _machine(name: str, backend: Backend | None = None) -> Hardware:
    return Hardware(gpus=[Gpu(name=name)], backend=backend)


@pytest.mark.parametrize(
    ("name", "own", "device"),
    [
        ("AMD Radeon RX 7900 XTX", "rocm", "ROCm0"),
        ("Intel Arc B580", "sycl", "SYCL0"),
        ("NVIDIA GeForce RTX 4090", "cuda", "CUDA0"),
    ],
)
def test_a_card_is_driven_by_its_maker_s_back_end_or_by_vulkan(name: str, own: str, device: str) -> None:
    rig, vulkan = resolve(_machine(name)), resolve(_machine(name, "vulkan"))
    assert (rig.cards[0].backend, vulkan.cards[0].backend) == (own, "vulkan")
    assert engine_devices(rig, "llama.cpp", (0,))[0].name == device
    assert engine_devices(vulkan, "llama.cpp", (0,))[0].name == "Vulkan0"


# AMD's system requirements and ROCm/legacy-rocm-build issue 4625 (gfx1010, gfx1012, gfx900); RDNA 2 runs as gfx1030
@pytest.mark.parametrize(
    ("name", "generation"),
    [
        *((f"RX {n}", "RDNA 1") for n in ("5700 XT", "5600 XT", "5500 XT", "5300M")),
        *((f"Radeon Pro W5{n}00", "RDNA 1") for n in (5, 7)),
        *((name, "the first Vega (gfx900)") for name in ("RX Vega 56", "RX Vega 64", "MI25", "Radeon Pro WX 9100")),
    ],
)
def test_cards_beyond_rocm_are_driven_by_vulkan_unless_rocm_is_stated(name: str, generation: str) -> None:
    rig = resolve(_machine(name))
    assert engine_devices(rig, "llama.cpp", (0,))[0].name == "Vulkan0"
    said = next(a for a in rig.assumed if a.field == "hardware.backend")
    assert (said.value, f"ROCm does not support {generation};" in said.why) == ("vulkan", True)
    stated = resolve(_machine(name, "rocm"))
    assert stated.cards[0].backend == "rocm"
    assert rig_of_devices(_machine(name), ["ROCm0"]) == stated
    assert rig_of_devices(_machine(name), ["Vulkan0"]) == rig
    command = parse("llama-server -m a.gguf -dev ROCm0", "llama.cpp")
    assert rig_of_command(_machine(name), command).cards == stated.cards


@pytest.mark.parametrize("name", ["RX 6600", "RX 6700 XT", "RX 6500 XT", "MI50 32GB", "Radeon VII", "RX 7600"])
def test_cards_on_which_rocm_works_are_driven_by_it(name: str) -> None:
    assert resolve(_machine(name)).cards[0].backend == "rocm"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("RX 6800 + RX 580", "ROCm does not support the RX 580, so that all cards work"),
        ("RX 6800 + RX 5700 XT", "ROCm does not support the RX 5700 XT, so that all cards work"),
        ("RTX 3090 + 2x Tesla K80 12GB", "CUDA does not support the Tesla K80, so that all cards work"),
        ("RTX 3090 + RX 580", "cards of several vendors work"),
        ("RTX 3090 + RX 7900 XTX", "cards of several vendors work"),
        ("RTX 3090 + GTX 780 + RX 7900 XTX", "cards of several vendors work"),
    ],
)
def test_the_reason_for_vulkan_is_the_true_one(text: str, why: str) -> None:
    for rig in rigs_of(parse_hardware(text)):
        assert [a.why for a in rig.assumed if a.field == "hardware.gpus.backend"] == [
            f"{why} together only in a Vulkan build"
        ]


def test_a_config_on_cards_of_one_vendor_names_no_other() -> None:
    files = Files("a/b", "0" * 40, ("a.gguf",))
    variants = [VariantModel(mix, files, build("Qwen3-14B", mix)) for mix in ("q4_K_M", "q8_0")]
    hardware = parse_hardware("RX 6800 16GB + RX 580 8GB, Ryzen 5 3600, 32GB")
    body = advise(variants, hardware, GoalRequest(), Constraints())
    said = {reason.rule: reason.text for config in body.configs for reason in config.reasons}
    assert said["one-maker"] == "only RX 6800: a ROCM build does not see the others"
    assert said["vulkan-for-all"].startswith("ROCm does not support the RX 580, so that all cards work together only")


def test_an_assumed_back_end_of_amd_is_said() -> None:
    said = {a.field: a.value for a in resolve(_machine("AMD Radeon RX 7900 XTX")).assumed}
    assert said["hardware.backend"] == "rocm"
    stated = resolve(_machine("AMD Radeon RX 7900 XTX", "rocm")).assumed
    assert "hardware.backend" not in {a.field for a in stated}


def test_a_back_end_that_cannot_drive_the_card_is_refused() -> None:
    with pytest.raises(InvalidHardware, match="rocm or vulkan") as refused:
        resolve(_machine("AMD Radeon RX 7900 XTX", "cuda"))
    assert refused.value.field == "hardware.backend"


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("AMD Radeon 8060S", ["rocm", "vulkan"]),
        ("AMD Radeon 780M", ["vulkan"]),
        ("AMD Radeon RX 7900 XTX", ["rocm"]),
    ],
)
def test_an_amd_gpu_that_shares_the_ram_has_vulkan_and_rocm_where_that_knows_it(name: str, ways: list[str]) -> None:
    rigs = rigs_of(_machine(name))
    assert [rig.cards[0].backend for rig in rigs] == ways
    assert is_one_machine(rigs) == (len(ways) > 1)
    assert {a.field: a.value for a in rigs[-1].assumed}["hardware.backend"] == ways[-1]
    assert [rig.cards[0].backend for rig in rigs_of(_machine(name, "rocm"))] == ["rocm"]


@pytest.mark.parametrize(("model", "device"), [("Qwen3-30B-A3B", "Vulkan0"), ("Qwen3-8B", "SYCL0")])
def test_an_intel_card_has_vulkan_for_mixtures_of_experts_and_sycl_for_others(model: str, device: str) -> None:
    variants = [VariantModel("Q4_K_M", Files("a/b", "0" * 40, ("a.gguf",)), build(model, "q4_k_m"))]
    hardware = Hardware(gpus=[Gpu(name="Intel Arc A770", vram_gib=16)], ram=Ram(total_gb=64))
    body = advise(variants, hardware, GoalRequest(), Constraints())
    assert {config.devices[0].device for config in body.configs} == {device}
    assert device.lower().startswith({a.field: a.value for a in body.assumed}["hardware.backend"])
    stated = advise(variants, replace(hardware, backend="sycl"), GoalRequest(), Constraints())
    assert {config.devices[0].device for config in stated.configs} == {"SYCL0"}


def test_an_answer_is_for_one_build_and_rocm_is_it_where_prompts_are_long() -> None:
    variants = [VariantModel("Q4_K_M", Files("a/b", "0" * 40, ("a.gguf",)), build("Qwen3-30B-A3B", "q4_k_m"))]
    hardware = Hardware(gpus=[Gpu(name="AMD Radeon 8060S")], ram=Ram(total_gb=128))
    for preset, device in (("chat", "Vulkan0"), ("long", "ROCm0")):
        body = advise(variants, hardware, GoalRequest(preset=convert(preset, Preset)), Constraints())
        on_gpu = [config.devices[0].device for config in body.configs if config.strategy == "all on GPU"]
        assert set(on_gpu) == {device}
        assert device.lower().startswith({a.field: a.value for a in body.assumed}["hardware.backend"])
        assert rig_of_devices(hardware, on_gpu).cards[0].backend == device.lower().removesuffix("0")


@pytest.mark.parametrize(
    ("text", "card", "left", "own"),
    [
        ("RTX 4090 + GT 710", "NVIDIA GeForce RTX 4090", "GT 710", "CUDA"),
        ("GT 710 + 2x RTX 3090", "NVIDIA GeForce RTX 3090", "GT 710", "CUDA"),
        ("RX 7900 XTX + RX 550 2GB", "AMD Radeon RX 7900 XTX", "RX 550", "ROCm"),
        ("RX 7900 XTX + RTX 3060 only for the display", "AMD Radeon RX 7900 XTX", "RTX 3060", "ROCm"),
    ],
)
def test_a_card_that_only_another_build_uses_is_left_to_the_display_if_it_is_small_or_full(
    text: str, card: str, left: str, own: str
) -> None:
    hardware = parse_hardware(f"{text}, Ryzen 9 7950X, 64GB")
    (rig,) = rigs_of(hardware)
    assert {one.name for one in rig.cards} == {card}
    assert {one.backend for one in rig.cards} == {own.lower()}
    why = next(a for a in rig.assumed if a.field.endswith(".use"))
    assert why.value == "only the display"
    assert why.why.startswith((f"{own} does not support it", "none of its memory is free"))
    index = next(i for i, gpu in enumerate(hardware.gpus) if left in gpu.name)
    assert why.field == f"hardware.gpus[{index}].use"
    assert len(card_order(hardware)) == len(rig.cards)


@pytest.mark.parametrize(
    "text", ["RX 6800 16GB + RX 580 8GB", "RTX 4090 + 2x Tesla K80 12GB", "RTX 4090 + GT 710, vulkan"]
)
def test_a_card_of_another_build_that_is_worth_it_or_asked_for_is_used(text: str) -> None:
    rig = rigs_of(parse_hardware(f"{text}, Ryzen 9 7950X, 64GB"))[-1]
    assert len(rig.cards) >= 2
    assert {card.backend for card in rig.cards} == {"vulkan"}
