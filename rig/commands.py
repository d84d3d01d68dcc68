"""Random commands on random cards: what the rig measures beyond the recorded lines; and what flags they run with."""

from __future__ import annotations

import random
from collections.abc import Sequence

from service.engine.commands.parse import ParsedCommand
from service.engine.config import Flags
from service.engine.engines import engine_spec
from service.engine.engines.spec import FitAsked
from service.engine.model import Model
from service.engine.units import MIB
from tests import models as shapes

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
_FIT_MODELS = ("Qwen3-30B-A3B", "GLM-4.5-Air", "gpt-oss-120b", "gpt-oss-20b", "Qwen3-Next-80B-A3B", "DeepSeek-R1-0528",
               "DeepSeek-V2-Lite", "Kimi-K2-Instruct", "Llama-4-Scout", "MiniMax-M2", "Mixtral-8x22B", "Hunyuan-A13B",
               "Gemma-4-26B-A4B", "Step-3.5-Flash", "Qwen3.5-35B-A3B", "GLM-5", "Qwen3-8B", "Llama-3.3-70B",
               "Gemma-3-27B", "Gemma-4-31B", "Seed-OSS-36B", "Qwen3.5-27B")  # fmt: skip
_FIT_SPLIT = (*_SPLIT, "Llama-3.3-70B", "Hunyuan-A13B")

Command = tuple[str, str, str, tuple[int, ...], tuple[str, ...]]


def random_run(rng: random.Random, engine: str, models: Sequence[str] = ()) -> Command:
    """Return model (one of `models` if given), mix, tool, the cards' free MiB and the words of a command.

    Weights never fit less than they have to: cards are large, so that only what the command says decides.
    """
    if engine == "llama.cpp":
        return _llama_cpp(rng, models or _MODELS)
    return _ik_llama_cpp(rng, models or _IK_MODELS, models or _SPLIT)


def random_fit(rng: random.Random) -> Command:
    """Return a command of ik_llama.cpp with `--fit`, on cards that hold a ninth of the model or up to a third more.

    llama.cpp's `-fit` is held to llama-fit-params (tests/engine/built/test_fit.py).
    """
    model, mix, gpus = rng.choice(_FIT_MODELS), rng.choice(_MIXES), rng.choice((1, 1, 2, 2, 3, 4))
    size = shapes.build(model, mix).n_bytes // MIB
    cards = tuple(rng.randrange(size // (9 * gpus), int(size * 1.3 / gpus)) + 3_000 for _ in range(gpus))
    args = ["--fit", "-c", rng.choice(("4096", "5000", "16384", "32768")), "-ub", rng.choice(("512", "1024", "2048"))]
    args += ["-b", "2048", "--no-mmap", *rng.choice(([], [], ["-fa", "off"], ["-ctk", "q8_0", "-ctv", "q8_0"]))]
    args += rng.choice(([], [], ["--fit-margin", "2500"], ["-gfm", "0,512"], ["-gfm", f"{gpus - 1},4000"]))
    if model in _FIT_SPLIT and gpus > 1 and "off" not in args and rng.random() < 0.5:
        return model, mix, "sweep", cards, (*args, "-sm", "graph")
    args += rng.choice(([], [], ["-ngl", "7"], ["-no-fmoe"], ["-nkvo"], ["-mqkv"]))
    if model.startswith(("DeepSeek", "Kimi", "GLM-5")):
        args += ["-mla", rng.choice(("1", "2", "3"))] + (["-amb", "512"] if rng.random() < 0.5 else [])
    return model, mix, "sweep", cards, (*args, *_shares(rng, cards, 0.2))


def flags_run_with(parsed: ParsedCommand, model: Model, free: Sequence[int]) -> Flags | None:
    """Return the flags that a command runs with: what ik_llama.cpp's `--fit` leaves, None where it finds no placement.

    llama.cpp's `-fit` is off on the rig. `free`: bytes on each card.
    """
    fit = engine_spec(parsed.engine).fit
    if fit is None or engine_spec(parsed.engine).fit_places or not parsed.fit:
        return parsed.flags
    flags = parsed.flags
    return fit(FitAsked(model=model, flags=flags, n_ctx=flags.n_ctx, free=free, placed=False, streams=1, used=_unused))


def _unused(_: Flags) -> list[int]:
    return []  # ik_llama.cpp measures nothing


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
    if model.startswith(("DeepSeek", "Kimi", "Ling-3")):
        args += ["-mla", rng.choice(("1", "2", "3"))] + (["-amb", "512"] if rng.random() < 0.5 else [])
    if rng.random() < 0.5:  # with -sm graph a layer's experts have to stay together
        args += rng.choice([rule for rule in _IK_RULES if not graph or "ffn_down_exps=CPU" not in rule])
    args += ["-sm", "graph"] if graph else rng.choice(([], [], ["-no-fmoe"], ["-nkvo"], ["-mqkv"]))
    return model, rng.choice(_MIXES), "sweep", cards, (*args, *_shares(rng, cards, 0.3))
