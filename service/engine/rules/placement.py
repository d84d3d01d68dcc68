"""Whole layers in RAM, and experts on the slower of two unlike cards."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.config import Flags
from service.engine.rules.case import Case
from service.engine.rules.rule import WORTH_SAYING, Found, rule

_COUNT = "what--ngl--cmoe-and--ncmoe-count"


@rule(
    "layers-in-ram", "warning", _COUNT, "ik_llama.cpp pull request 232 (attention on the GPU: TG 1.58 times as fast); "
    "computed: memory and speed with all layers on GPUs", fix="-ngl 999, with -ot exps=CPU where experts do not fit",
    about="speed",
)  # fmt: skip
def layers_in_ram(case: Case) -> Iterator[Found]:
    """`-ngl` leaves whole layers in RAM, attention and cache too, or only the head, where all would fit.

    Of a mixture of experts, everything but its experts.
    """
    n = case.flags.n_gpu_layers
    if not case.devices or n > case.model.n_layer or n < 0:
        return
    for fixed, text in _all_layers(case):
        if not case.fits(fixed):
            continue
        pp, tg = case.gain(run=case.run_of(fixed))
        if tg >= WORTH_SAYING:
            what = (
                "the output head"
                if n == case.model.n_layer and case.spec.memory.head_moves_last
                else _counted(sum(where == case.cpu for where in case.placement.layers))
            )
            words = text.rpartition("; ")[2]
            message = f"-ngl {n} leaves {what} in RAM: with {words} TG would be about {tg:.1f} times as fast"
            yield Found(f"{message}, PP {pp:.1f} times, and everything fits", text, pp=pp, tg=tg)
        return


def _counted(n: int) -> str:
    return f"{n} layer{'' if n == 1 else 's'}"


def _all_layers(case: Case) -> Iterator[tuple[Flags, str]]:
    whole = msgspec.structs.replace(case.flags, n_gpu_layers=999)
    yield whole, "-ngl 999"
    if case.model.moe_layers and not case.flags.cpu_moe:
        yield (
            msgspec.structs.replace(whole, overrides=(), n_cpu_moe=0, cpu_moe=True),
            "leave out -ot, -ncmoe and -cmoe; -ngl 999 -ot exps=CPU",
        )
