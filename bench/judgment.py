"""Is the first answer one that an expert would paste? `python -m bench.judgment` asks tests/data/judgment*.jsonl.

Each question is a repo as its author publishes it (variants by type mix, header-true), a rig as people write it, and
what is acceptable, with the reason. One row a question; the last lines count the acceptable ones, and say what the
named picks are worth. Those of `judgment_own.jsonl`, and of the other files (rigs and choices of public threads), were
written down before any of them was asked.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.stamp import stamp
from service.engine.advice import AdvisedConfig
from service.engine.advise import VariantModel, advise
from service.engine.goal import Constraints, GoalRequest, Preset
from service.engine.hardware_text import parse_hardware
from service.engine.planner.explaining.commands import Files
from tests.models import build

_DATA = Path(__file__).parent.parent / "tests" / "data"
QUESTIONS = _DATA / "judgment.jsonl"
_UNSLOTH = {
    "UD-IQ1_S": "ffn_down_exps=iq2_xxs,exps=iq1_s,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K",
    "UD-IQ2_XXS": "ffn_down_exps=iq3_xxs,exps=iq2_xxs,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K",
    "UD-Q2_K_XL": "ffn_down_exps=q3_K,exps=q2_K,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K",
    "UD-IQ3_XXS": "ffn_down_exps=iq3_s,exps=iq3_xxs,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K",
    "UD-Q3_K_XL": "ffn_down_exps=q4_K,exps=q3_K,attn=q5_K,ffn=q5_K,token_embd=q4_K,*=q6_K",
    "IQ4_XS": "iq4_xs",
    "Q4_K_M": "q4_k_m",
    "UD-Q4_K_XL": "ffn_down_exps=q5_K,exps=q4_K,attn=q6_K,ffn=q6_K,*=q6_K",
    "Q5_K_M": "q5_k_m",
    "Q6_K": "q6_K",
    "Q8_0": "q8_0",
}
_DENSE = {
    "Q2_K": "q2_K",
    "IQ3_XS": "ffn_down=iq3_s,token_embd=iq3_s,output=q6_K,*=iq3_xxs",
    "Q3_K_M": "q3_k_m",
    "IQ4_XS": "iq4_xs",
    "Q4_K_M": "q4_k_m",
    "Q5_K_M": "q5_k_m",
    "Q6_K": "q6_K",
    "Q8_0": "q8_0",
}
_UBERGARM = {
    "smol-IQ1_KT": "exps=iq1_kt,attn=q6_0,token_embd=iq4_k,*=iq6_k",
    "IQ1_S_R4": "exps=iq1_s_r4,attn=q6_0,*=iq6_k",
    "IQ2_KL": "ffn_down_exps=iq3_k,exps=iq2_kl,attn=q8_0,token_embd=iq4_k,*=iq6_k",
    "IQ2_KS": "ffn_down_exps=iq2_k,exps=iq2_ks,attn=q8_0,token_embd=iq4_k,*=iq6_k",
    "IQ3_KS": "ffn_down_exps=iq4_ks,exps=iq3_ks,attn=q8_0,token_embd=iq6_k,*=q8_0",
    "IQ4_KSS": "ffn_down_exps=iq4_ks,exps=iq4_kss,attn=q8_0,token_embd=iq6_k,*=q8_0",
    "smol-IQ4_KSS": "exps=iq4_kss,attn=q8_0,token_embd=iq6_k,*=q8_0",
    "IQ5_K": "ffn_down_exps=iq6_k,exps=iq5_k,attn=q8_0,token_embd=iq6_k,*=q8_0",
}
_R1 = ("IQ1_S_R4", "IQ2_KS", "IQ3_KS", "IQ4_KSS", "IQ5_K")
_GLM = ("smol-IQ1_KT", "IQ2_KL", "IQ3_KS", "IQ4_KSS", "smol-IQ4_KSS", "IQ5_K")
_KIMI = ("smol-IQ1_KT", "IQ2_KS", "IQ2_KL", "IQ3_KS", "IQ4_KSS")
_AIR = ("IQ1_S_R4", "IQ2_KL", "IQ3_KS", "IQ4_KSS", "IQ5_K")
REPOS: dict[str, tuple[str, dict[str, str]]] = {
    "ubergarm/Kimi-K2-Instruct-GGUF": ("Kimi-K2-Instruct", {v: _UBERGARM[v] for v in _KIMI}),
    "unsloth/Kimi-K2-Instruct-GGUF": (
        "Kimi-K2-Instruct",
        {v: _UNSLOTH[v] for v in ("UD-IQ1_S", "UD-Q2_K_XL", "UD-Q3_K_XL", "UD-Q4_K_XL")},
    ),
    "ubergarm/GLM-4.5-Air-GGUF": ("GLM-4.5-Air", {v: _UBERGARM[v] for v in _AIR}),
    "unsloth/GLM-4.6-GGUF": ("GLM-4.6", _UNSLOTH),
    "unsloth/Qwen3-Coder-480B-A35B-Instruct-GGUF": ("Qwen3-Coder-480B-A35B", _UNSLOTH),
    "unsloth/MiniMax-M2-GGUF": ("MiniMax-M2", _UNSLOTH),
    "unsloth/Llama-4-Scout-17B-16E-Instruct-GGUF": ("Llama-4-Scout", _UNSLOTH),
    "ggml-org/gpt-oss-20b-GGUF": ("gpt-oss-20b", {"mxfp4": "exps=mxfp4,*=q8_0"}),
    "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF": ("Llama-3.1-8B", _DENSE),
    "bartowski/Llama-3.2-3B-Instruct-GGUF": ("Llama-3.2-3B", _DENSE),
    "Qwen/Qwen3-8B-GGUF": ("Qwen3-8B", _DENSE),
    "ubergarm/DeepSeek-R1-0528-GGUF": ("DeepSeek-R1-0528", {v: _UBERGARM[v] for v in _R1}),
    "ubergarm/GLM-4.6-GGUF": ("GLM-4.6", {v: _UBERGARM[v] for v in _GLM}),
    "ubergarm/Qwen3-235B-A22B-GGUF": (
        "Qwen3-235B-A22B",
        {v: _UBERGARM[v] for v in ("IQ2_KL", "IQ3_KS", "IQ4_KSS", "IQ5_K")},
    ),
    "ggml-org/gpt-oss-120b-GGUF": ("gpt-oss-120b", {"mxfp4": "exps=mxfp4,*=q8_0"}),
    "unsloth/DeepSeek-R1-0528-GGUF": ("DeepSeek-R1-0528", _UNSLOTH),
    "unsloth/GLM-4.5-Air-GGUF": ("GLM-4.5-Air", _UNSLOTH),
    "unsloth/Qwen3-235B-A22B-Instruct-2507-GGUF": ("Qwen3-235B-A22B", _UNSLOTH),
    "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF": ("Qwen3-30B-A3B", _UNSLOTH),
    "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF": ("Qwen3-Next-80B-A3B", _UNSLOTH),
    "unsloth/gemma-3-27b-it-GGUF": ("Gemma-3-27B", _DENSE),
    "bartowski/Llama-3.3-70B-Instruct-GGUF": ("Llama-3.3-70B", _DENSE),
    "bartowski/Mistral-Large-Instruct-2411-GGUF": ("Mistral-Large-123B", _DENSE),
    "bartowski/Mistral-Small-24B-Instruct-2501-GGUF": ("Mistral-Small-24B", _DENSE),
    "Qwen/Qwen3-32B-GGUF": ("Qwen3-32B", _DENSE),
    "bartowski/Qwen2.5-Coder-32B-Instruct-GGUF": ("Qwen2.5-32B", _DENSE),
    "unsloth/Qwen3.5-27B-GGUF": ("Qwen3.5-27B", _DENSE),
    "unsloth/Qwen3.5-35B-A3B-GGUF": ("Qwen3.5-35B-A3B", _UNSLOTH),
    "unsloth/Qwen3.5-397B-A17B-GGUF": ("Qwen3.5-397B-A17B", _UNSLOTH),
    "unsloth/gemma-4-26B-A4B-it-GGUF": ("Gemma-4-26B-A4B", _UNSLOTH),
    "unsloth/gemma-4-31B-it-GGUF": ("Gemma-4-31B", _DENSE),
    "unsloth/gemma-4-E4B-it-GGUF": ("Gemma-4-E4B", _DENSE),
    "unsloth/GLM-4.7-GGUF": ("GLM-4.7", _UNSLOTH),
    "unsloth/GLM-5-GGUF": ("GLM-5", _UNSLOTH),
    "unsloth/GLM-5.3-Flash-GGUF": ("GLM-5.3-Flash", _UNSLOTH),
    "unsloth/GLM-4.7-Flash-GGUF": ("GLM-4.7-Flash", _UNSLOTH),
    "unsloth/Qwen3.5-122B-A10B-GGUF": ("Qwen3.5-122B-A10B", _UNSLOTH),
    "unsloth/DeepSeek-V4-Flash-GGUF": ("DeepSeek-V4-Flash", _UNSLOTH),
    "ggml-org/Kimi-K3-GGUF": ("Kimi-K3", {"mxfp4": "exps=mxfp4,*=q8_0"}),
    "unsloth/gemma-3-12b-it-GGUF": ("Gemma-3-12B", _DENSE),
    "unsloth/Qwen3-14B-GGUF": ("Qwen3-14B", _DENSE),
    "bartowski/gemma-2-9b-it-GGUF": ("Gemma-2-9B", _DENSE),
    "ggml-org/Nemotron-3-Super-120B-GGUF": ("Nemotron-3-Super-120B-A12B", _UNSLOTH),
    "unsloth/Hunyuan-A13B-Instruct-GGUF": ("Hunyuan-A13B", _UNSLOTH),
    "bartowski/c4ai-command-a-03-2025-GGUF": ("Command-A-111B", _DENSE),
    "unsloth/MiniMax-M3-GGUF": ("MiniMax-M3", _UNSLOTH),
    "LiquidAI/LFM2-8B-A1B-GGUF": ("LFM2-8B-A1B", _UNSLOTH),
    "unsloth/Llama-4-Maverick-17B-128E-Instruct-GGUF": ("Llama-4-Maverick", _UNSLOTH),
    "unsloth/MiMo-V2-Flash-GGUF": ("MiMo-V2-Flash", _UNSLOTH),
    "unsloth/Step-3.5-Flash-GGUF": ("Step-3.5-Flash", _UNSLOTH),
    "unsloth/Ministral-3-14B-Instruct-2512-GGUF": ("Ministral-3-14B", _DENSE),
    "bartowski/phi-4-GGUF": ("Phi-4", _DENSE),
    "unsloth/Nemotron-3-Nano-30B-A3B-GGUF": ("Nemotron-3-Nano-30B-A3B", _UNSLOTH),
    "unsloth/gemma-4-E2B-it-GGUF": ("Gemma-4-E2B", _DENSE),
}


@cache
def variants_of(repo: str) -> tuple[VariantModel, ...]:
    """Return the variants of a repo, as its author names and mixes them."""
    model, mixes = REPOS[repo]
    files = {name: Files(repo, "0" * 40, (f"{name}.gguf",)) for name in mixes}
    return tuple(VariantModel(name, files[name], build(model, mix)) for name, mix in mixes.items())


def answer(question: dict[str, Any]) -> list[AdvisedConfig]:
    """Return the ranked configs of a question."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--goal", default="chat")
    parser.add_argument("--context", type=int)
    parser.add_argument("--parallel", type=int)
    asked = parser.parse_args(question["args"].split())
    goal = GoalRequest(preset=msgspec.convert(asked.goal, Preset), context=asked.context, parallel=asked.parallel)
    return advise(
        list(variants_of(question["repo"])), parse_hardware(question["hardware"]), goal, Constraints()
    ).configs


def faults(configs: list[AdvisedConfig], expected: dict[str, Any]) -> list[str]:
    """Return what an expert would object to in the first config; empty if nothing."""
    if not configs:
        return ["no config"]
    first, gpus = configs[0], configs[0].devices[:-1]
    host = first.devices[-1].total_mib / 1024
    checks: dict[str, Callable[[Any], bool]] = {
        "variants": lambda v: first.variant in v,
        "engine": lambda v: first.engine == v,
        "all_on_gpu": lambda v: (first.strategy == "all on GPU") == v,
        "host_max_gib": lambda v: host <= v,
        "gpu_max_gib": lambda v: sum(d.total_mib for d in gpus) / 1024 <= v,
        "gpu_min_gib": lambda v: sum(d.total_mib for d in gpus) / 1024 >= v,
        "gpu_free_min_gib": lambda v: min(d.free_mib for d in gpus) / 1024 >= v,
        "min_tg": lambda v: first.speed[-1].tg_tps >= v,
        "device": lambda v: all(d.device.startswith(v) for d in gpus),
        "no_ot": lambda v: "-ot " not in first.commands.server,
        "hasnt": lambda v: not any(flag in first.commands.server for flag in v),
        "listed": lambda v: set(v) <= {c.variant for c in configs},
    }
    return [name for name, value in expected.items() if not checks[name](value)]


class Worth(NamedTuple):
    """A pick compared with the first config: its seconds in times, its perplexity in per cent; words of its command."""

    seconds: float
    loss: float
    words: int


def worths(configs: list[AdvisedConfig]) -> Iterator[tuple[str, Worth]]:
    """Yield the name of each pick of an answer and how it compares."""
    for config in configs:
        if config.pick and config.loss_percent and configs[0].loss_percent:
            seconds = config.goal_seconds[1] / configs[0].goal_seconds[1]
            loss = config.loss_percent[1] - configs[0].loss_percent[1]
            yield config.pick.name, Worth(seconds, loss, words_of(config.commands.server))


def words_of(text: str) -> int:
    """Return the number of words in a command, counting those inside paths and patterns."""
    return len(re.findall(r"\w+", text))


def main() -> None:
    """Print a row for each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="ids of questions")
    only = parser.parse_args().only
    print(stamp())
    paths = (QUESTIONS, *sorted(_DATA.glob("judgment_*.jsonl")))
    questions = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    if unknown := set(only or ()) - {question["id"] for question in questions}:
        parser.error(f"no such questions: {', '.join(sorted(unknown))}")
    good = total = 0
    picks: dict[str, list[Worth]] = defaultdict(list)
    for question in questions:
        if only and question["id"] not in only:
            continue
        started = time.process_time()
        configs = answer(question)
        wrong = faults(configs, question["expect"])
        total, good = total + 1, good + (not wrong)
        first = configs[0] if configs else None
        for name, worth in worths(configs):
            picks[name].append(worth)
        what = (
            f"{first.variant} {first.engine} {first.strategy}, TG {first.speed[-1].tg_tps:.1f}, "
            f"host {first.devices[-1].total_mib / 1024:.0f} GiB"
            if first
            else "nothing fits"
        )
        said = f"NOT: {', '.join(wrong)}" if wrong else "good"
        asked = f"{question['repo'].split('/')[1][:-5]} on {question['hardware']} {question['args']}".strip()
        print(f"{question['id']} {asked[:70]:<70} {what} | {said} ({time.process_time() - started:.1f} s)", flush=True)
    print(f"{good} of {total} first answers are acceptable")
    print(
        "medians of the picks, against the first config: times its seconds, % of perplexity more, words of the command"
    )
    for name, found in picks.items():
        seconds, loss, words = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"  {name:<9} in {len(found):>2} answers: x {seconds:.2f}, {loss:+.1f} %, {words:g} words")


if __name__ == "__main__":
    main()
