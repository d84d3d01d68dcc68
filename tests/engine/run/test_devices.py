"""Which cards a command sees, and of which build of the engine it speaks."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.hardware_text import parse_hardware
from service.engine.run.devices import backend_named, visible_cards
from service.flows.advice.checked import rig_of

FOUR = resolve(parse_hardware("4x RTX 3090, EPYC 7532, 256GB"))
RADEONS = "2x RX 7900 XTX, Ryzen 9 7950X, 64GB"


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("docker run --gpus '\"device=1\"' x/llama.cpp:server -c 8", (1,)),
        ("docker run --gpus '\"device=1,3\"' x/llama.cpp:server -c 8", (1, 3)),
        ("docker run --gpus '\"device=1,3\"' -e CUDA_VISIBLE_DEVICES=1 x/llama.cpp:server -c 8", (3,)),
        ("docker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=2 x/llama.cpp:server -c 8", (2,)),
        ("docker run --gpus all x/llama.cpp:server -c 8", (0, 1, 2, 3)),
        ("GGML_VK_VISIBLE_DEVICES=1 llama-server -c 8", (0, 1, 2, 3)),
    ],
)
def test_a_container_sees_the_cards_that_it_is_given_under_numbers_of_its_own(
    command: str, seen: tuple[int, ...]
) -> None:
    assert visible_cards(parse(command, "llama.cpp").env, FOUR) == seen


@pytest.mark.parametrize(
    ("command", "backend"),
    [
        ("llama-server -dev Vulkan0,Vulkan1 -c 8", "vulkan"),
        ("llama-server -dev ROCm1 -c 8", "rocm"),
        ("llama-server -ot 'exps=CPU' -ot 'ffn=HIP0' -c 8", "rocm"),
        ("GGML_VK_VISIBLE_DEVICES=0 llama-server -c 8", "vulkan"),
        ("./build-vulkan/bin/llama-server -c 8", "vulkan"),
        (r"C:\llama-b6000-bin-win-hip-x64\llama-server.exe -c 8", "rocm"),
        ("docker run --device /dev/dri ghcr.io/ggml-org/llama.cpp:server-vulkan -m /m.gguf -c 8", "vulkan"),
        ("docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda13 -m /m.gguf -c 8", "cuda"),
        ("docker run --gpus all ghcr.io/ggml-org/llama.cpp:server -m /m.gguf -c 8", None),
        ("/home/vulkanfan/llama-server -c 8", None),
        ("llama-server -ot exps=CPU -c 8", None),
        ("llama-server -dev none -c 8", None),
        ("llama-server -dev CUDA0,Vulkan1 -c 8", None),
    ],
)
def test_the_build_of_a_command_is_known_by_its_devices(command: str, backend: str | None) -> None:
    assert backend_named(parse(command, "llama.cpp")) == backend


def test_a_command_for_a_vulkan_build_sees_vulkan_devices_and_one_for_cuda_only_nvidias_cards() -> None:
    def rig(command: str, hardware: str) -> list[tuple[str, str]]:
        return [(card.name, card.backend) for card in rig_of(hardware, parsed=parse(command, "llama.cpp")).cards]

    radeon, geforce = "AMD Radeon RX 7900 XTX", "NVIDIA GeForce RTX 3090"
    assert rig("llama-server -c 8", RADEONS) == [(radeon, "rocm")] * 2
    assert rig("llama-server -dev Vulkan1 -c 8", RADEONS) == [(radeon, "vulkan")] * 2
    mixed = f"RTX 3090 + {RADEONS}"
    assert rig("llama-server -dev CUDA0 -c 8", mixed) == [(geforce, "cuda")]
    assert {backend for _, backend in rig("llama-server -c 8", mixed)} == {"vulkan"}
    assert visible_cards({"GGML_VK_VISIBLE_DEVICES": "1"}, rig_of(f"{RADEONS}, vulkan")) == (1,)
    of_ik = rig_of(mixed, parsed=parse("llama-server -c 8 -fmoe", "ik_llama.cpp"))
    assert [card.name for card in of_ik.cards] == [geforce], "the only card that the engine drives"


ARCS = resolve(parse_hardware("4x Arc A770 16GB, EPYC 7532, 256GB, sycl"))


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("ONEAPI_DEVICE_SELECTOR=level_zero:0 llama-server -c 8", (0,)),
        ("ONEAPI_DEVICE_SELECTOR='level_zero:1,3' llama-server -c 8", (1, 3)),
        ("ONEAPI_DEVICE_SELECTOR='level_zero:2;level_zero:0' llama-server -c 8", (0, 2)),
        ("ZE_AFFINITY_MASK=2 llama-server -c 8", (2,)),
        ("ONEAPI_DEVICE_SELECTOR=level_zero:gpu llama-server -c 8", (0, 1, 2, 3)),
        ("ONEAPI_DEVICE_SELECTOR='level_zero:*' llama-server -c 8", (0, 1, 2, 3)),
    ],
)
def test_the_selector_of_oneapi_shows_cards_by_their_number(command: str, seen: tuple[int, ...]) -> None:
    assert visible_cards(parse(command, "llama.cpp").env, ARCS) == seen
