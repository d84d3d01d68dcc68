"""Random commands on random cards: what the rig measures beyond the recorded lines."""

from __future__ import annotations

import random
from collections.abc import Sequence

_MODELS = ("Qwen3-0.6B", "Qwen3-8B", "Qwen3-30B-A3B", "GLM-4.5-Air", "Gemma-3-12B", "Llama-3.1-8B", "gpt-oss-120b",
           "Qwen3-Next-80B-A3B", "Qwen3-14B")  # fmt: skip
_MIXES = ("q4_K_M", "iq4_xs", "q8_0", "exps=iq3_xxs,attn=q8_0,*=q6_K")
_RULES = (["-ot", "exps=CPU"], ["-ncmoe", "12"], ["-cmoe"], ["-ncffn", "9"], ["-ncffn", "30"], ["-ot", "ffn=CPU"])
_IK_MODELS = ("Qwen3-0.6B", "Qwen3-8B", "Qwen3-30B-A3B", "GLM-4.5-Air", "Gemma-3-27B", "Llama-3.1-8B", "gpt-oss-120b",
              "Qwen3-Next-80B-A3B", "DeepSeek-R1-0528", "DeepSeek-V2-Lite", "Kimi-K2-Instruct", "Llama-4-Scout",
              "MiniMax-M2", "Mixtral-8x22B")  # fmt: skip
_IK_RULES = (["-ot", "exps=CPU"], ["-ncmoe", "12"], ["-cmoe"], ["-ot", "ffn_down_exps=CPU"], ["-ot", "ffn=CPU"],
             ["-ot", r"blk\.(1|2)[0-9]\.ffn_.*=CPU"])  # fmt: skip
_SPLIT = ("Qwen3-0.6B", "Qwen3-8B", "Qwen3-30B-A3B", "GLM-4.5-Air", "Llama-3.1-8B", "gpt-oss-20b")  # for -sm graph

Command = tuple[str, str, str, tuple[int, ...], tuple[str, ...]]


def random_run(rng: random.Random, engine: str, models: Sequence[str] = ()) -> Command:
    """Return model (one of `models` if given), mix, tool, the cards' free MiB and the words of a command.

    Weights never fit less than they have to: cards are large, so that only what the command says decides.
    """
    if engine == "llama.cpp":
        return _llama_cpp(rng, models or _MODELS)
    return _ik_llama_cpp(rng, models or _IK_MODELS, models or _SPLIT)


def _cards(rng: random.Random) -> tuple[int, ...]:
    gpus = rng.choice((1, 1, 2, 3, 4))
    if rng.random() < 0.6:
        return (rng.choice((47_900, 95_000)),) * gpus
    return tuple(rng.randrange(60_000, 99_000) for _ in range(gpus))


def _shares(rng: random.Random, cards: Sequence[int], chance: float) -> list[str]:
    """-ts for some commands of several cards."""
    if len(cards) == 1 or rng.random() >= chance:
        return []
    return ["-ts", ",".join(str(rng.randrange(1, 6)) for _ in cards)]


def _llama_cpp(rng: random.Random, models: Sequence[str]) -> Command:
    cards = _cards(rng)
    args = ["-c", rng.choice(("4096", "8192", "16384", "32768")), "-ub", rng.choice(("128", "512", "1024", "2048"))]
    args += ["-b", "2048", "-ngl", rng.choice(("999", "999", "999", "20", "7"))]
    args += ["-fa", rng.choice(("on", "on", "off", "auto"))]
    if args[-1] == "on" and rng.random() < 0.4:
        kind = rng.choice(("q8_0", "q4_0"))
        args += ["-ctk", kind, "-ctv", kind]
    if rng.random() < 0.6:
        args += rng.choice(_RULES)
    args += [*_shares(rng, cards, 0.3), "-np", rng.choice(("1", "1", "2", "4"))]
    return rng.choice(models), rng.choice(_MIXES), "server", cards, tuple(args)


def _ik_llama_cpp(rng: random.Random, models: Sequence[str], split: Sequence[str]) -> Command:
    cards = _cards(rng)
    graph = len(cards) > 1 and rng.random() < 0.3
    model = rng.choice(split if graph else models)
    args = ["-c", rng.choice(("4096", "5000", "16384", "32768")), "-ub", rng.choice(("128", "512", "1024", "2048"))]
    args += ["-b", rng.choice(("512", "2048", "4096")), "--no-mmap"]
    args += ["-ngl", "999"] if graph else ["-ngl", rng.choice(("999", "999", "999", "20", "7"))]
    flash = graph or rng.random() < 0.8
    args += [] if flash else ["-fa", "off"]
    if flash and rng.random() < 0.4:
        kind = rng.choice(("q8_0", "q6_0", "q4_0"))
        args += ["-ctk", kind, "-ctv", kind]
    if model.startswith(("DeepSeek", "Kimi")):
        args += ["-mla", rng.choice(("1", "2", "3"))] + (["-amb", "512"] if rng.random() < 0.5 else [])
    if rng.random() < 0.5:  # with -sm graph a layer's experts have to stay together
        args += rng.choice([rule for rule in _IK_RULES if not graph or "ffn_down_exps=CPU" not in rule])
    args += ["-sm", "graph"] if graph else rng.choice(([], [], ["-no-fmoe"], ["-nkvo"], ["-mqkv"]))
    return model, rng.choice(_MIXES), "sweep", cards, (*args, *_shares(rng, cards, 0.3))
