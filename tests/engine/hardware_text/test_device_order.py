"""The order of unlike cards is what was pasted or said; only where nothing says it, the fastest comes first."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.errors import InvalidHardware
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical, hardware_hash, to_shorthand
from service.engine.planner.explaining.commands import environment

# ikawrakow/ik_llama.cpp issue 521: what the engine printed there.
ISSUE_521 = """ggml_cuda_init: found 7 CUDA devices:
  Device 0: NVIDIA GeForce RTX 5090, compute capability 12.0, VMM: yes
  Device 1: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
  Device 2: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
  Device 3: NVIDIA GeForce RTX 5090, compute capability 12.0, VMM: yes
  Device 4: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
  Device 5: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes
  Device 6: NVIDIA RTX A6000, compute capability 8.6, VMM: yes"""


def order(text: str) -> list[str]:
    """The cards of a rig in its order, by the ends of their names."""
    return [card.name.split()[-1] for card in resolve(parse_hardware(text)).cards]


@pytest.mark.parametrize(
    "text",
    [
        ISSUE_521,
        f"2x 5090 + 2x 4090 + 2x 3090 + A6000, 7800X3D, 192GB\n{ISSUE_521}",
        "Device 0: 5090, 1: 4090, 2: 4090, 3: 5090, 4: 3090, 5: 3090, 6: A6000, 7800X3D, 192GB",
    ],
)
def test_cards_are_in_the_order_of_the_engine_s_own_list(text: str) -> None:
    assert order(text) == ["5090", "4090", "4090", "5090", "3090", "3090", "A6000"]
    again = to_shorthand(parse_hardware(text))
    assert order(again) == order(text)
    assert canonical(parse_hardware(again)).gpus == canonical(parse_hardware(text)).gpus


def test_vulkan_s_own_list_is_read_too() -> None:
    # ggml-org/llama.cpp issue 18317
    lines = "\n".join(
        f"ggml_vulkan: {n} = {name} (RADV NAVI31) (radv) | uma: 0 | fp16: 1 | bf16: 0 | warp size: 64 | int dot: 1"
        for n, name in enumerate(("Radeon RX 7900 XT", "Radeon RX 7900 XTX"))
    )
    assert order(f"ggml_vulkan: Found 2 Vulkan devices:\n{lines}\nRyzen 9 7950X, 64GB") == ["XT", "XTX"]


def test_numbers_said_of_some_cards_leave_the_others_to_the_rest() -> None:
    # discussion 532: nvidia-smi and CUDA number the cards differently
    text = "2x RTX 5090 + 2x RTX 4090, 256GB. CUDA_VISIBLE_DEVICES sees GPUs 2 and 3 as NVIDIA 5090"
    rig = resolve(parse_hardware(text))
    assert [card.name.split()[-1] for card in rig.cards] == ["4090", "4090", "5090", "5090"]
    assert rig.devices_known


def test_several_numbers_with_the_back_ends_name_before_each_are_those_of_one_kind() -> None:
    rig = resolve(parse_hardware("2x 5090, 4x 3090, EPYC 7502, 256GB. CUDA2 and CUDA4 are the 5090s"))
    assert [card.name.split()[-1] for card in rig.cards] == ["3090", "3090", "5090", "3090", "5090", "3090"]


def test_numbers_that_leave_the_order_open_are_asked_about() -> None:
    with pytest.raises(InvalidHardware, match="which number does each other"):
        parse_hardware("5090, 4090, 3090, CUDA 2: 5090")


def test_a_display_on_the_first_card_is_not_that_of_the_last() -> None:
    cards = resolve(parse_hardware("5090 + 4090 (monitor on the first), 256GB")).cards
    assert [card.display for card in cards] == [True, False]


def test_without_any_number_the_fastest_is_first() -> None:
    rig = resolve(parse_hardware("2x 4090 + 2x 5090"))
    assert [card.name.split()[-1] for card in rig.cards] == ["5090", "5090", "4090", "4090"]
    assert not rig.devices_known


def test_a_part_of_the_cards_is_shown_by_the_numbers_of_the_list() -> None:
    rig = resolve(parse_hardware(ISSUE_521))
    assert environment(rig, [0, 3]) == {"CUDA_VISIBLE_DEVICES": "0,3"}
    assert environment(rig, range(7)) == {}


def test_a_description_without_numbers_hashes_as_before_there_were_any() -> None:
    assert hardware_hash(parse_hardware("2x RTX 3090, EPYC 9355, 512GB DDR5-4800 x8")) == BEFORE


BEFORE = "2dc605946d2b05748725e9d2d42f37354929ed955e5b62c9ccfc20e6ec8afe00"
