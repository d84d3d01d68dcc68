"""Tables that llama-bench printed become cases that the fit can take."""

from __future__ import annotations

from bench import runs
from bench.harvest import cases, tables

# Figures as posted: ggml-org/llama.cpp discussion 15396 (guide to gpt-oss), first post, RTX PRO 6000 Max-Q, build 6199.
_TABLE = """
ggml_cuda_init: found 1 CUDA devices:
| model                 |      size |  params | backend | ngl | n_ubatch | fa |    test |             t/s |
| --------------------- | --------: | ------: | ------- | --: | -------: | -: | ------: | --------------: |
| gpt-oss 20B MXFP4 MoE | 11.27 GiB | 20.91 B | CUDA | 99 | 2048 | 1 | pp2048 | 9480.55 ± 44.01 |
| gpt-oss 20B MXFP4 MoE | 11.27 GiB | 20.91 B | CUDA | 99 | 2048 | 1 | pp8192 | 8921.62 ± 4.21 |
| gpt-oss 20B MXFP4 MoE | 11.27 GiB | 20.91 B | CUDA | 99 | 2048 | 1 | pp16384 | 8196.12 ± 19.16 |

build: f08c4c0 (6199)
"""
_COMMON = {
    "id": "ggerganov",
    "date": "2025-08-18",
    "engine": "llama.cpp",
    "quality": "high",
    "model": {"shape": "gpt-oss-20b", "mix": "exps=mxfp4,*=q8_0"},
    "hardware": {
        "gpus": [{"name": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "count": 1, "pcie": None}],
        "cpu": None,
        "ram": None,
    },
}


def test_a_table_becomes_one_case_with_its_speeds() -> None:
    (case,) = cases(list(tables(_TABLE)), _COMMON)
    assert case["id"] == "ggerganov-1"
    assert case["backend"] == "CUDA"
    assert case["command"] == "llama-bench -m model.gguf -ngl 99 -fa 1"
    assert [(e["test"], e["n_depth"], e["t_s"]) for e in case["bench"]] == [
        ("pp2048", 0, 9480.55), ("pp8192", 0, 8921.62), ("pp16384", 0, 8196.12),
    ]  # fmt: skip


def test_a_case_can_be_fitted() -> None:
    (case,) = cases(list(tables(_TABLE)), _COMMON)
    found = list(runs.tests_of(runs.setup_of(case, "ggerganov"), every=True))
    assert [(t.phase, t.n, t.depth) for t in found] == [("PP", 2048, 0), ("PP", 8192, 0), ("PP", 16384, 0)]
    assert found[0].flags.n_ubatch == 2048
