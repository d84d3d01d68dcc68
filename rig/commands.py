"""Random commands on random cards: what the rig measures beyond the recorded lines."""

from __future__ import annotations

import random

_MODELS = ("Qwen3-0.6B", "Qwen3-8B", "Qwen3-30B-A3B", "GLM-4.5-Air", "Gemma-3-12B", "Llama-3.1-8B", "gpt-oss-120b",
           "Qwen3-Next-80B-A3B", "Qwen3-14B")  # fmt: skip
_MIXES = ("q4_K_M", "iq4_xs", "q8_0", "exps=iq3_xxs,attn=q8_0,*=q6_K")
_RULES = (["-ot", "exps=CPU"], ["-ncmoe", "12"], ["-cmoe"], ["-ncffn", "9"], ["-ncffn", "30"], ["-ot", "ffn=CPU"])


def random_run(rng: random.Random, engine: str) -> tuple[str, str, str, tuple[int, ...], tuple[str, ...]]:
    """Return model, mix, tool, the cards' free MiB and the words of a command of llama.cpp's server.

    Weights never fit less than they have to: cards are large, so that only what the command says decides.
    """
    if engine != "llama.cpp":
        raise SystemExit(f"no random commands for {engine} yet")
    gpus = rng.choice((1, 1, 2, 3, 4))
    free = tuple(
        [rng.choice((47_900, 95_000))] * gpus
        if rng.random() < 0.6
        else [rng.randrange(60_000, 99_000) for _ in range(gpus)]
    )
    args = ["-c", rng.choice(("4096", "8192", "16384", "32768")), "-ub", rng.choice(("128", "512", "1024", "2048"))]
    args += [
        "-b",
        "2048",
        "-ngl",
        rng.choice(("999", "999", "999", "20", "7")),
        "-fa",
        rng.choice(("on", "on", "off", "auto")),
    ]
    if args[-1] == "on" and rng.random() < 0.4:
        kind = rng.choice(("q8_0", "q4_0"))
        args += ["-ctk", kind, "-ctv", kind]
    if rng.random() < 0.6:
        args += rng.choice(_RULES)
    if gpus > 1 and rng.random() < 0.3:
        args += ["-ts", ",".join(str(rng.randrange(1, 6)) for _ in range(gpus))]
    args += ["-np", rng.choice(("1", "1", "2", "4"))]
    return rng.choice(_MODELS), rng.choice(_MIXES), "server", free, tuple(args)
