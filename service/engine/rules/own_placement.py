"""An engine's own placement (llama.cpp's `-fit`, ik_llama.cpp's `--fit`): what it chooses, and what we would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.rules.case import Case
from service.engine.rules.fitting import other_placements
from service.engine.rules.rule import UNASKED, Found, rule
from service.engine.tensor_names import layer_of

_SOURCES = "llama.cpp common/fit.cpp, ik_llama.cpp src/llama.cpp:4281-4610, computed with the devices' free memory"


@rule("fit-places-itself", "info", UNASKED, _SOURCES, fix="a placement without it, where one is as fast")
def fit_places_itself(case: Case) -> Iterator[Found]:
    """With no placement given, `-fit` places the model: what it chooses; and another placement, where it is faster."""
    if case.fit_places and not case.fit_fails:
        option = "-fit is on and" if case.spec.fit_places else "--fit"
        message = f"{option} gives {_chosen(case)}; the figures are of that placement"
        whole = case.flags.n_gpu_layers > case.model.n_layer and not case.flags.layers_in_ram
        all_there = whole and not case.flags.overrides
        yield Found(message, "") if all_there else Found(message, changes=lambda: _instead_of_fit(case))


@rule("fit-finds-no-placement", "error", UNASKED, "ik_llama.cpp src/llama.cpp:4281-4610 (Unable to auto-fit model)")
def fit_finds_no_placement(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `--fit` stops where the rest does not fit with all experts in RAM."""
    if case.fit_fails:
        message = "--fit finds no placement, and the engine stops: the figures are without it"
        yield Found(message, changes=lambda: _instead_of_fit(case))


def _chosen(case: Case) -> str:
    flags, layers = case.flags, case.model.n_layer - case.model.n_layer_nextn
    in_ram = len({layer_of(name) for name in case.experts_in_ram})
    context = f", -c {flags.n_ctx}" if flags.n_ctx != case.parsed.flags.n_ctx else ""
    if flags.layers_in_ram:
        text = f"{flags.layers_in_ram} layers in RAM, the others on {'the GPU' if case.cpu == 1 else 'the GPUs'}"
    elif flags.n_gpu_layers > layers + 1:
        text = f"{'all layers' if in_ram else 'everything'} on {'the GPU' if case.cpu == 1 else 'the GPUs'}"
    else:
        text = f"-ngl {flags.n_gpu_layers}"
    if flags.tensor_split and case.spec.fit_places:
        text += f" -ts {','.join(f'{share:.0f}' for share in flags.tensor_split)}"
    if flags.overrides:
        text += f" and {len(flags.overrides)} -ot rule{'s' if len(flags.overrides) > 1 else ''}"
    return f"{text}{context}" + (f", experts of {in_ram} layers in RAM" if in_ram else "")


def _instead_of_fit(case: Case) -> Iterator[Sequence[str]]:
    """Yield placements for a command that leaves them to the engine, whose own then is off."""
    without = "-fit off" if case.spec.fit_places else "leave out --fit"
    off = case.changed(without)
    if off is not None:
        fits = all(row.fits for row in off.table)
        yield [without] if fits else [f"{without}; {text}" for text in other_placements(off)]
