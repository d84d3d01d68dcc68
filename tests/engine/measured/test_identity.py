"""What results are filed under."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.hardware_text import parse_hardware
from service.engine.measured.identity import (
    model_identity,
    model_name,
    model_slug,
    plain,
    rig_identity,
    short_name,
    size_of,
    slug_of,
)
from tests.models import build


@pytest.mark.parametrize(
    ("repo", "name"),
    [
        ("ubergarm/DeepSeek-R1-0528-GGUF", "DeepSeek-R1-0528"),
        ("bartowski/Qwen_Qwen3-30B-A3B-GGUF", "Qwen3-30B-A3B"),
        ("bartowski/zai-org_GLM-4.5-GGUF", "GLM-4.5"),
        ("mradermacher/Foo-8B-i1-GGUF", "Foo-8B"),
        ("someone/Qwen3-8B-Q4_K_M-GGUF", "Qwen3-8B"),
        ("unsloth/Llama-3.2-1B-Instruct-BF16", "Llama-3.2-1B-Instruct"),
        ("someone/gguf", "gguf"),
    ],
)
def test_quantisations_of_one_model_have_one_name(repo: str, name: str) -> None:
    assert model_name(repo) == name


def test_a_size_that_the_name_does_not_say_is_in_the_slug() -> None:
    assert model_slug("DeepSeek-R1-0528", 671_026_000_000) == "deepseek-r1-0528-671b"
    assert model_slug("Qwen3-8B", 8_190_735_360) == "qwen3-8b"


def test_a_small_model_is_not_filed_under_the_name_of_a_large_one() -> None:
    assert model_slug("Qwen3-235B-A22B", 600_000_000) == "qwen3-235b-a22b-0.6b"


@pytest.mark.parametrize(
    ("n_params", "words"), [(268_000_000, "268m"), (596_000_000, "0.6b"), (4_020_000_000, "4b"), (1_026e9, "1026b")]
)
def test_sizes_are_written_as_people_write_them(n_params: float, words: str) -> None:
    assert size_of(int(n_params)) == words


def test_a_mixture_of_experts_tells_what_a_token_uses() -> None:
    found = model_identity("unsloth/Qwen3-30B-A3B-GGUF", build("Qwen3-30B-A3B", "*=q4_K"))
    assert found.slug == "qwen3-30b-a3b"
    assert (found.n_params, found.n_active) == (30_532_122_624, 3_353_032_704)


@pytest.mark.parametrize(
    ("text", "gpus", "slug"),
    [
        ("2x5090 + 2x4090, EPYC 9355, 768GB", "2x RTX 5090 + 2x RTX 4090", "2x-rtx-5090-2x-rtx-4090"),
        ("RTX 5060 Ti 16GB, 64 GB", "RTX 5060 Ti 16GB", "rtx-5060-ti-16gb"),
        ("no GPU, 2x EPYC 9654, 1536GB", "no GPU", "cpu-epyc-9654"),
        ("Apple M3 Ultra 512GB", "Apple M3 Ultra", "apple-m3-ultra-512gb"),
    ],
)
def test_a_rig_is_filed_under_its_cards(text: str, gpus: str, slug: str) -> None:
    hardware = parse_hardware(text)
    found = rig_identity(hardware, resolve(hardware))
    assert (found.gpus, found.slug) == (gpus, slug)


def test_sockets_and_memory_of_a_rig_are_told() -> None:
    hardware = parse_hardware("no GPU, 2x EPYC 9654, 1536GB")
    found = rig_identity(hardware, resolve(hardware))
    assert (found.cpu, found.ram_gib, found.vram_mib) == ("2x EPYC 9654", 1536, 0)


def test_makers_are_left_out_of_names() -> None:
    assert short_name("NVIDIA GeForce RTX 3090") == "RTX 3090"
    assert short_name("Apple M3 Max 30-core GPU") == "Apple M3 Max 30-core GPU"


def test_names_that_somebody_made_up_become_plain_text() -> None:
    assert plain("a\x1b[31m\u202eb\n c") == "a[31mb c"
    assert slug_of("<script>@everyone/../") == "script-everyone"
    assert slug_of("\u0000") == "unnamed"
