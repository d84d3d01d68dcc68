"""How an engine is built for the cards of a machine."""

from __future__ import annotations

import pytest

from service.engine.advice import BuildLine
from service.engine.catalogue import resolve
from service.engine.commands.building import build_line, packages
from service.engine.config import CacheType, Flags
from service.engine.hardware import Backend, Gpu, Hardware, Ram
from tests.models import build

QWEN = build("Qwen3-14B", "q4_K_M")


def built_for(card: str, backend: Backend | None = None) -> BuildLine:
    rig = resolve(Hardware(gpus=[Gpu(name=card)], ram=Ram(total_gb=64), backend=backend))
    return build_line("llama.cpp", QWEN, Flags(), rig.cards)


# llama.cpp docs/backend/SYCL.md (0c1e57098): II. Build, III. Run the inference
def test_a_build_with_sycl_begins_with_the_environment_of_oneapi_which_the_server_needs_too() -> None:
    built = built_for("Arc B580")
    _, source, configure = built.line.split("\n")
    assert source == "source /opt/intel/oneapi/setvars.sh"
    assert "-DGGML_SYCL=ON" in configure
    assert built.notes[0].startswith("each shell or unit that starts the server needs `source /opt/intel")
    assert "setvars" not in built_for("RX 7900 XTX").line + built_for("RTX 3090").line


# llama.cpp .github/workflows/release.yml (0c1e57098): ubuntu-24-rocm, ubuntu-24-sycl
@pytest.mark.parametrize(
    ("card", "archive", "needs"),
    [("Arc B580", "llama-*-bin-ubuntu-sycl-fp32-x64.tar.gz", "oneAPI 2026.1"),
     ("RX 7900 XTX", "llama-*-bin-ubuntu-rocm-10.0-x64.tar.gz", "ROCm 10.0")],
)  # fmt: skip
def test_the_archives_for_linux_are_named_with_what_they_need(card: str, archive: str, needs: str) -> None:
    (note,) = [one for one in built_for(card).notes if archive in one]
    assert needs in note
    assert not [one for one in built_for("RTX 3090").notes if "releases" in one]


@pytest.mark.parametrize(
    ("card", "line"),
    [
        ("Tesla P40", "# use CUDA 12: CUDA 13 no longer compiles for cards before Turing (Tesla P40)"),
        # github.com/ROCm/legacy-rocm-build/issues/4625: rocBLAS of 6.4.0 has no files for gfx906, 6.3 has
        ("MI50 32GB", "# use ROCm 6.3: later ones come without rocBLAS files for gfx906 (AMD Instinct MI50)"),
        # llama.cpp docs/build.md (HIP): 10.3.0 on RDNA2
        ("RX 6700 XT", "export HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("RX 6800 XT", None),
        ("RTX 3090", None),
    ],
)
def test_what_cards_need_that_their_maker_left_behind_comes_before_the_build(card: str, line: str | None) -> None:
    built = built_for(card)
    assert built.line.split("\n")[0].startswith(line or "git clone")
    assert not (line and any("needs no build" in note for note in built.notes))


# llama.cpp .github/workflows/release.yml: gpu_targets of ubuntu-22-rocm and windows-hip, none of them gfx900, 906, 1010
@pytest.mark.parametrize(
    ("card", "packaged"),
    [("MI50 32GB", False), ("RX Vega 64", False), ("RX 5700 XT", False), ("RX 6800 XT", True), ("RX 9070 XT", True)],
)
def test_amds_cards_get_an_archive_if_it_has_code_for_them(card: str, packaged: bool) -> None:
    cards = resolve(Hardware(gpus=[Gpu(name=card)], ram=Ram(total_gb=64), backend="rocm")).cards
    assert bool(packages("llama.cpp", cards)) == packaged
    assert any("needs no build" in note for note in built_for(card, "rocm").notes) == packaged


@pytest.mark.parametrize(
    ("card", "archive"),
    [("RX 7900 XTX", "ubuntu-rocm-10.0-x64.tar.gz"), ("Arc B580", "ubuntu-sycl-fp32-x64.tar.gz"), ("RX 6700 XT", "")],
)
def test_the_archive_for_linux_is_a_package_with_vulkan_besides(card: str, archive: str) -> None:
    cards = resolve(Hardware(gpus=[Gpu(name=card)], ram=Ram(total_gb=64))).cards
    lines = [package.line for package in packages("llama.cpp", cards) if package.shell == "posix"]
    assert len(lines) == bool(archive)
    for line in lines:
        assert archive in line.split("\n")[0]
        assert "conda install -c conda-forge llama.cpp, which uses Vulkan" in line


def test_an_amd_card_that_vulkan_drives_has_a_package_with_vulkan() -> None:
    cards = resolve(Hardware(gpus=[Gpu(name="RX 5700 XT")], ram=Ram(total_gb=64))).cards
    assert all("with Vulkan" in package.name for package in packages("llama.cpp", cards))
    assert packages("llama.cpp", cards)


# ik_llama.cpp 8337e4cd3 ggml-cuda/fattn-vec-f32.cu:147-156: the pairs of types that are compiled without the option
@pytest.mark.parametrize(
    ("card", "types", "asked"),
    [("Tesla P40", ("q6_0", "q6_0"), True), ("Tesla P40", ("q8_0", "q8_0"), False),
     ("Tesla P40", ("f16", "f16"), False), ("V100 SXM2 32GB", ("q6_0", "q6_0"), False),
     ("RTX 3090", ("q6_0", "q6_0"), False)],
)  # fmt: skip
def test_all_kernels_of_flash_attention_are_compiled_where_a_card_needs_one_of_them(
    card: str, types: tuple[CacheType, CacheType], asked: bool
) -> None:
    cards = resolve(Hardware(gpus=[Gpu(name=card)], ram=Ram(total_gb=64))).cards
    flags = Flags(cache_type_k=types[0], cache_type_v=types[1])
    assert ("GGML_CUDA_FA_ALL_QUANTS" in build_line("ik_llama.cpp", QWEN, flags, cards).line) == asked
