"""Buffers that people posted from real cards, each with the rules of the build of its day."""

from __future__ import annotations

import statistics

import pytest

from bench.memory_published import CACHE_TARGET, COMPUTE_TARGET, NOT_EXPLAINED, Figure, cache_cause, caches, computes
from tests.memory_published import published_rows

FIGURES = caches()
LAYOUTS = {
    "issue572-Panchovix-1": 1086,  # without attn_kv_b
    "disc258-ubergarm-6": 1025,  # attn_kv_b alone
    "pr386-ubergarm-1": 1147,  # both; between ik_llama.cpp's pulls 394 and 409 only files without it ran as -mla 1
}


@pytest.fixture(scope="module")
def posted() -> list[Figure]:
    return computes()[0]


def test_the_posted_caches_are_read() -> None:
    assert len(FIGURES) > 130
    assert sum(abs(figure.error) <= CACHE_TARGET for figure in FIGURES) > 0.97 * len(FIGURES)


@pytest.mark.parametrize(("log", "n_tensors"), LAYOUTS.items())
def test_latent_attention_is_laid_out_as_in_the_file_with_as_many_tensors(log: str, n_tensors: int) -> None:
    (row,) = (row for row in published_rows() if row.id == log)
    assert len(row.model().tensors) == n_tensors


@pytest.mark.parametrize("figure", [f for f in FIGURES if abs(f.error) > CACHE_TARGET], ids=lambda f: f.row.id)
def test_a_posted_cache_of_another_size_has_a_cause(figure: Figure) -> None:
    assert cache_cause(figure) != NOT_EXPLAINED


@pytest.mark.parametrize(("device", "share"), [("GPU", 0.92), ("host", 0.75)])
def test_posted_compute_buffers_are_those_of_the_build_of_their_day(
    posted: list[Figure], device: str, share: float
) -> None:
    errors = [abs(f.error) for f in posted if f.device == device]
    assert statistics.median(errors) < 0.001
    assert sum(error <= COMPUTE_TARGET for error in errors) > share * len(errors)
