"""Defaults that are not what one expects, and switches that change the answers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.commands import option_value
from service.engine.rules.case import Case
from service.engine.rules.rule import Found, rule
from service.engine.units import MIB

_UNASKED = "what-the-engines-do-unasked"
_LEAST = 256 * MIB
_GROUPED = frozenset({"bailingmoe2", "bailingmoe3"})
_FIT = "llama.cpp pull request 16653; common/fit.cpp: it gives up when -ngl, -ts or -ot is set"


@rule("fit-left-on", "warning", _UNASKED, _FIT, only="llama.cpp", mend="-fit off")
def fit_left_on(case: Case) -> Iterator[Found]:
    """llama.cpp's `-fit` is on by default: with a placement given it moves nothing, but may shrink a context."""
    if case.parsed.fit and case.devices and not case.fit_places and not case.parsed.flags.n_ctx:
        yield Found(
            "-fit is on by default: with a placement given it moves nothing, but may shrink a context without -c"
        )


@rule("fit-places-itself", "info", _UNASKED, _FIT, only="llama.cpp", mend="-fit off for the placement shown here")
def fit_places_itself(case: Case) -> Iterator[Found]:
    """With no placement given, `-fit` may place tensors itself."""
    if case.fit_places:
        yield Found(
            "-fit is on: the engine may place tensors itself; the figures are those of the command with -fit off"
        )


@rule(
    "fit-with-overrides", "error", _UNASKED, "ik_llama.cpp src/llama.cpp:4281-4289", only="ik_llama.cpp",
    mend="leave out --fit, or -ot, -cmoe and -ncmoe",
)  # fmt: skip
def fit_with_overrides(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `--fit` throws when anything else places tensors."""
    flags = case.flags
    if case.parsed.fit and (flags.overrides or flags.cpu_moe or flags.n_cpu_moe):
        yield Found("--fit beside -ot, -cmoe or -ncmoe: the engine throws, the model is not loaded")


@rule(
    "slots-by-default", "info", _UNASKED, "llama.cpp tools/server/server.cpp: n_parallel -1 is 4 with a shared cache",
    only="llama.cpp", mend="-np 1, if one user asks at a time",
)  # fmt: skip
def slots_by_default(case: Case) -> Iterator[Found]:
    """llama.cpp's server has four slots: told where one would need clearly less memory."""
    if case.parsed.program != "llama-server" or {"-np", "--parallel"} & set(case.parsed.used):
        return
    if case.flags.n_parallel <= 1 or case.parsed.build.date or not case.devices:
        return
    one = case.predict(msgspec.structs.replace(case.flags, n_parallel=1))
    saved = sum(a.kv + a.compute - b.kv - b.compute for a, b in zip(case.memory.devices, one.devices, strict=True))
    if saved >= _LEAST:
        yield Found(f"without -np the server has {case.flags.n_parallel} slots: one needs {saved / MIB:,.0f} MiB less")


@rule(
    "logits-of-every-token", "info", _UNASKED, "ik_llama.cpp pull request 1560; n_vocab * n_ubatch logits",
    only="ik_llama.cpp", mend="-wgt 1",
)  # fmt: skip
def logits_of_every_token(case: Case) -> Iterator[Found]:
    """ik_llama.cpp keeps room for the logits of a whole micro-batch: told where memory is short without it."""
    if case.parsed.program != "llama-server" or case.flags.n_logits is not None or case.parsed.build.date:
        return
    if all(row.fits for row in case.table[:-1]):
        return
    less = case.predict(msgspec.structs.replace(case.flags, n_logits=1))
    saved = [a.compute - b.compute for a, b in zip(case.memory.devices, less.devices, strict=True)][:-1]
    if saved and max(saved) >= _LEAST:
        name = case.devices[saved.index(max(saved))].name
        yield Found(
            f"logits are kept for every token of a micro-batch: -wgt 1 frees {max(saved) / MIB:,.0f} MiB on {name}"
        )


@rule(
    "fewer-experts", "warning", _UNASKED, "ik_llama.cpp pull request 239; discussion 459 (-ser 4,1: TG 7.2 to 10.1)",
    only="ik_llama.cpp", mend="leave out -ser",
)  # fmt: skip
def fewer_experts(case: Case) -> Iterator[Found]:
    """`-ser` leaves out experts: faster, and other answers than the model's."""
    value = option_value(case.flags.other, ("-ser", "--smart-expert-reduction"))
    least = (value or "").split(",")[0]
    if not least.lstrip("-").isdigit():
        return
    if not case.model.moe_layers or int(least) >= case.model.n_expert_used:
        message = f"-ser {value[:20] if value else ''} does nothing: a token uses {case.model.n_expert_used} experts"
        yield Found(message, severity="info")
    elif int(least) >= 0:
        used = case.model.n_expert_used
        yield Found(
            f"-ser {value[:20] if value else ''} uses as few as {least} of {used} experts: faster, other answers"
        )


@rule(
    "grouped-routing-without-effect", "info", _UNASKED, "ik_llama.cpp src/llama-build-context.cpp:1516",
    only="ik_llama.cpp", mend="leave it out",
)  # fmt: skip
def grouped_routing_without_effect(case: Case) -> Iterator[Found]:
    """`-ger` is done for Ling and Ring (bailingmoe2, bailingmoe3) only."""
    asked = {"-ger", "--grouped-expert-routing"} & {option.split()[0] for option in case.flags.other}
    if asked and case.model.architecture not in _GROUPED:
        yield Found(f"{min(asked)} does nothing: {case.model.architecture} is not routed by groups here")
