"""`-ot` rules on a model: which tensor names a pattern finds, and the device that the first matching rule names."""

from __future__ import annotations

import re
from collections.abc import Collection

from service.engine.config import CPU, Override
from service.engine.errors import InvalidFlags
from service.engine.model import Model
from service.engine.overrides import MAX_RULES
from service.engine.tensor_names import layer_of

_MAX_KEPT = 1024  # patterns remembered a model


def device_index(name: str, n_devices: int) -> int:
    """Return the index that an engine's device name means, `n_devices` for the CPU.

    Raises InvalidFlags for a name that is no default buffer of a device (`CUDA_Host`), or of one that is not there.
    """
    if name == CPU:
        return n_devices
    match = re.fullmatch(r"[A-Za-z]{1,16}([0-9]{1,3})", name)
    index = int(match[1]) if match else 0 if name == "Metal" else -1
    if not 0 <= index < n_devices:
        there = f"the GPUs are numbered 0 to {n_devices - 1}" if n_devices else "there is no GPU"
        raise InvalidFlags(f"-ot names the device {name[:64]!r}, but {there}", field="-ot", choices=(CPU,))
    return index


def overridden(model: Model, rules: tuple[Override, ...], n_devices: int) -> dict[str, int]:
    """Return the device of every tensor name that a rule matches; the first matching rule wins.

    Raises InvalidFlags for too many rules, a pattern that std::regex refuses, or one that takes too long.
    """
    if len(rules) > MAX_RULES:
        raise InvalidFlags(f"{len(rules)} -ot rules: at most {MAX_RULES} are read", field="-ot")
    found: dict[str, int] = {}
    for rule in reversed(rules):
        found |= dict.fromkeys(matching_names(model, rule.pattern), device_index(rule.device, n_devices))
    return found


def matching_names(model: Model, pattern: str) -> tuple[str, ...]:
    """Return the tensor names that contain a match of `pattern`, in file order. Raises InvalidFlags as above."""
    found = _known(model).get(pattern)
    if found is None:
        names = [t.name for t in model.tensors]
        try:
            found = tuple(names[i] for i in model.match(pattern, names))
        except InvalidFlags as refused:
            found = refused.detail
        _remember(model, pattern, found)
    if isinstance(found, str):
        raise InvalidFlags(found, field="-ot")
    return found


def names_in_blocks(model: Model, pattern: str, numbers: str, indices: Collection[int]) -> tuple[str, ...]:
    """Return what `matching_names` finds with `numbers`, which matches exactly these numbers of blocks, for `pattern`'s
    `{}`.

    The pattern is searched for once, with any number. A search for placements writes hundreds that differ in their
    numbers alone; to compile each takes longer than all else about a rule.
    """
    written = pattern.format(numbers)
    if written not in _known(model):
        of_any = [(name, layer_of(name)) for name in matching_names(model, pattern.format("[0-9]+"))]
        if written != pattern and all(layer is not None for _, layer in of_any):
            _remember(model, written, tuple([name for name, layer in of_any if layer in indices]))
    return matching_names(model, written)


def _known(model: Model) -> dict[str, tuple[str, ...] | str]:
    """The names that patterns found in a model, or why a pattern is refused."""
    known: dict[str, tuple[str, ...] | str] = model.__dict__.setdefault("_matching_names", {})
    return known


def _remember(model: Model, pattern: str, found: tuple[str, ...] | str) -> None:
    known = _known(model)
    if len(known) >= _MAX_KEPT:
        known.clear()
    known[pattern] = found
