"""Which GPUs an engine started with a command sees, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from service.engine.calibration import Calibration
from service.engine.catalogue import engine_devices, is_one_machine, resolve, rigs_of
from service.engine.commands.changes import ALL_FOR_THE_CONTAINER
from service.engine.commands.parse import ParsedCommand
from service.engine.commands.reader import VARIABLE
from service.engine.commands.unwrap import IN_CONTAINER
from service.engine.config import Device
from service.engine.engines import engine_spec
from service.engine.errors import InvalidHardware
from service.engine.hardware import Hardware, Rig
from service.engine.run.settings import option_value
from service.engine.units import MIB

# Variables that say which cards are seen, by the back end that reads them (HIP programming guide, "environment
# variables"; llama.cpp ggml-vulkan.cpp, ggml_vk_instance_init; docs/backend/SYCL.md).
_VISIBLE: dict[str, tuple[str, ...]] = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "vulkan": ("GGML_VK_VISIBLE_DEVICES",),
    "sycl": ("ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK"),
}
VISIBLE = tuple(dict.fromkeys(name for names in _VISIBLE.values() for name in names))
_OWN_VARIABLE = {
    "CUDA_VISIBLE_DEVICES": "cuda",
    "HIP_VISIBLE_DEVICES": "rocm",
    "ROCR_VISIBLE_DEVICES": "rocm",
    "GGML_VK_VISIBLE_DEVICES": "vulkan",
    "ZE_AFFINITY_MASK": "sycl",
    "ONEAPI_DEVICE_SELECTOR": "sycl",
}
SELECTOR = "ONEAPI_DEVICE_SELECTOR"
# `level_zero:0,2`, `level_zero:0;level_zero:2`: cards by number; other forms (`level_zero:gpu`) show all.
_SELECTED = re.compile(r"level_zero:\d{1,2}(?:[,;](?:level_zero:)?\d{1,2})*")
_DEVICE = re.compile(r"(cuda|rocm|hip|vulkan|sycl|metal|mtl)\d*", re.I)
_BACKENDS = {"hip": "rocm", "mtl": "metal"}
_BUILT_FOR = re.compile(r"(?<![a-z])(cuda|rocm|hip|vulkan|sycl|metal)(?![a-z])")  # `build-vulkan/bin/…`
_DEVICE_OPTIONS = ("-dev", "--device")
_OTHERS_DEVICES = ("-devd", "--device-draft", "--spec-draft-device", "-mmdev", "--mmproj-device")
_SHOWN = 40  # characters of a value
_LAB_FREE = 25_276_502_016  # bytes free on each device of the rig of the lab data


def visible_cards(env: Mapping[str, str], rig: Rig) -> tuple[int, ...]:
    """Return the indices of the rig's cards that the environment shows, in the runtime's order.

    Numbers are nvidia-smi's with CUDA_DEVICE_ORDER=PCI_BUS_ID where that order is known, else ours. As in the CUDA
    programming guide ("CUDA environment variables"), the first entry that names no card hides all that follow.
    """
    name = _variable(env, rig)
    shown = None if name is None else env[name]
    numbers = _numbers(env, rig)
    if shown is None:
        return tuple(sorted(numbers.values(), key=lambda i: _place(numbers, i)))
    found: list[int] = []
    for entry in _entries(shown):
        card = _card(entry, numbers, rig)
        if card is None or card in found:
            break
        found.append(card)
    return tuple(sorted(found) if name in _VISIBLE["sycl"] else found)  # oneAPI's choose, and leave the order


def _entries(shown: str) -> list[str]:
    return [part.strip() for part in re.sub(r"level_zero:", "", shown).replace(";", ",").split(",")]


def backend_named(parsed: ParsedCommand) -> str | None:
    """Return the back end of the build that a command is written for, by its devices (`-dev Vulkan0`), its variables,
    or the path or image of its program.

    None where these name none, or several.
    """
    words = [option_value(parsed.flags.other, (name,)) or "" for name in (*_DEVICE_OPTIONS, *_OTHERS_DEVICES)]
    words += [rule.device for rule in parsed.flags.overrides]
    devices = [m[1].lower() for word in words for part in word.split(",") if (m := _DEVICE.fullmatch(part.strip()))]
    named = {_BACKENDS.get(device, device) for device in devices}
    named = named or {backend for name, backend in _OWN_VARIABLE.items() if name in parsed.env}
    path = _BUILT_FOR.findall((parsed.words.program or "").lower())
    named = named or {_BACKENDS.get(one, one) for one in path}
    return named.pop() if len(named) == 1 else None


def rig_of_command(hardware: Hardware, parsed: ParsedCommand, fitted: Calibration | None = None) -> Rig:
    """Return the machine as the command's build sees it, if the command names that build's back end, or its engine
    drives only some of the cards.

    It has only the cards that this back end drives; none where the engine drives none of them and `-ngl 0` asks for
    none. Raises as `catalogue.resolve` does.
    """
    rigs = rigs_of(hardware, fitted)
    backend = None if hardware.backend else backend_named(parsed)
    if backend is None or not rigs[-1].cards:
        runs, whole = engine_spec(parsed.engine).backends, rigs[-1]
        if parsed.flags.n_gpu_layers == 0 and not any(card.backend in runs for rig in rigs for card in rig.cards):
            return msgspec.structs.replace(whole, cards=(), unused=whole.cards)
        return next((rig for rig in reversed(rigs) if {card.backend for card in rig.cards} <= runs), whole)
    own = next((rig for rig in rigs if {card.backend for card in rig.cards} == {backend}), None)
    if own is None and backend == "vulkan":
        return resolve(msgspec.structs.replace(hardware, backend="vulkan"), fitted)
    if own is None and backend == "rocm":
        own = _with_rocm(hardware, fitted)
    return own or rigs[-1]


def _with_rocm(hardware: Hardware, fitted: Calibration | None = None) -> Rig | None:
    """The machine with ROCm, which may have been built for cards that it does not support; None for other cards."""
    try:
        return resolve(msgspec.structs.replace(hardware, backend="rocm"), fitted)
    except InvalidHardware:
        return None


def rig_of_devices(hardware: Hardware, names: Sequence[str]) -> Rig:
    """Return the machine as a build sees it that lists devices of these names. Raises as `catalogue.resolve` does."""
    rigs = rigs_of(hardware)
    found = {_BACKENDS.get(kind, kind) for name in names if (m := _DEVICE.fullmatch(name)) and (kind := m[1].lower())}
    one = is_one_machine(rigs)
    if found == {"rocm"} and len(rigs) == 1 and (built := _with_rocm(hardware)):
        return built
    return next((rig for rig in rigs if one and {card.backend for card in rig.cards} == found), rigs[-1])


def _variable(env: Mapping[str, str], rig: Rig) -> str | None:
    """The variable, of those that are set, by which the rig's back end chooses cards."""
    names = _VISIBLE.get(rig.cards[0].backend, ()) if rig.cards else VISIBLE
    return next(
        (
            name
            for name in names
            if name in env
            and not VARIABLE.fullmatch(env[name])
            and (name != SELECTOR or _SELECTED.fullmatch(env[name].strip()))
        ),
        None,
    )


def showing(name: str, cards: Iterable[int | str]) -> str:
    """Return the value of a variable that shows these cards, by number or UUID."""
    return ("level_zero:" if name == SELECTOR else "") + ",".join(map(str, cards))


def _inside(given: str, numbers: Mapping[int, int], rig: Rig) -> dict[int, int]:
    """Cards by their number in a container that is given some of them: by number in nvidia-smi, or UUID."""
    listed = {card.pci_index: i for i, card in enumerate(rig.cards)} if rig.order_known else {}
    outside = {n: i for n, i in listed.items() if n is not None} or dict(enumerate(range(len(rig.cards))))
    cards = {_card(entry.strip(), outside, rig) for entry in given.split(",")}
    kept = [i for _, i in sorted(numbers.items()) if given == "all" or i in cards]
    return dict(enumerate(kept))


def first_unknown_card(env: Mapping[str, str], rig: Rig) -> str | None:
    """Return the variable and the entry from which on cards are hidden by mistake; "" and -1 hide them on purpose."""
    name = _variable(env, rig)
    if name is None or not rig.cards:
        return None
    entries = _entries(env[name])
    seen = len(visible_cards(env, rig))
    return f"{name}: {entries[seen][:60]}" if entries[seen:] and entries[seen] not in ("", "-1") else None


def _numbers(env: Mapping[str, str], rig: Rig) -> dict[int, int]:
    """Cards by the number that the runtime gives them; in a container those that it is given."""
    if env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" and rig.order_known:
        numbers = {card.pci_index: i for i, card in enumerate(rig.cards) if card.pci_index is not None}
    else:
        numbers = {i: i for i in range(len(rig.cards))}
    return _inside(env[IN_CONTAINER], numbers, rig) if IN_CONTAINER in env else numbers


def _place(numbers: Mapping[int, int], card: int) -> int:
    return next((number for number, index in numbers.items() if index == card), card)


def _card(entry: str, numbers: Mapping[int, int], rig: Rig) -> int | None:
    if entry.isascii() and entry.isdigit():
        return numbers.get(int(entry[:4]))
    return next((i for i, card in enumerate(rig.cards) if card.uuid and entry and card.uuid.startswith(entry)), None)


def with_lab_bytes(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices, those of the measuring rig with the bytes that it really had free.

    The lab data gives its 25,276,502,016 bytes as 24,105 MiB. llama.cpp divides layers by free memory in 32-bit floats:
    which of several equal cards gets the layer on the border depends on the bytes.
    """
    return tuple(
        msgspec.structs.replace(device, free=_LAB_FREE) if abs(device.free - _LAB_FREE) < MIB else device
        for device in devices
    )


def chosen_devices(parsed: ParsedCommand, rig: Rig) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return the devices in the engine's order, `-dev` applied, and the names in `-dev` that do not exist."""
    there = engine_devices(rig, parsed.engine, visible_cards(parsed.env, rig))
    asked = option_value(parsed.flags.other, _DEVICE_OPTIONS)
    if asked is None:
        return there, ()
    names = [name.strip() for name in asked.replace("/", ",").split(",") if name.strip()]
    by_name = {device.name: device for device in there}
    known = dict.fromkeys(name for name in names if name in by_name)
    wrong = tuple(name for name in names if name not in by_name and name not in ("none", "auto"))
    devices = there if names == ["auto"] else tuple(by_name[name] for name in known)
    return devices, wrong


class Hidden(NamedTuple):
    """Cards of the rig that a command hides from its engine: by what, and the change of the command that shows them."""

    cards: tuple[int, ...]
    by: str
    change: str


def hidden_cards(parsed: ParsedCommand, rig: Rig, devices: Sequence[Device]) -> Hidden | None:
    """Return the cards that a variable, an option or the container of a command hides, None where nothing does.

    `devices`: those that it leaves; with `-sm none` the engine uses one of them. Cards that were shown stay first.
    """
    env, main = parsed.env, parsed.flags.main_gpu or 0
    alone = parsed.flags.split_mode == "none" and 0 <= main < len(devices)
    used = {device.gpu for device in (devices[main : main + 1] if alone else devices)}
    outside = {key: value for key, value in env.items() if key != IN_CONTAINER}
    numbers, seen = _numbers(outside, rig), visible_cards(env, rig)
    hidden = tuple(card for _, card in sorted(numbers.items()) if card not in used and rig.cards[card].free)
    by, changes = list[str](), list[str]()
    if set(hidden) - set(_numbers(env, rig).values()):
        changes.append(ALL_FOR_THE_CONTAINER)
        by.append(f"the container, which is given GPU {env[IN_CONTAINER][:_SHOWN]}")
    name = _variable(env, rig)
    if name is not None and set(hidden) - set(seen):
        order = (*seen, *(card for card in hidden if card not in seen))
        value = showing(name, (_place(numbers, card) for card in order))
        changes.append(f"{name}={value} before the command")
        by.append(f"{name}={env[name][:_SHOWN]}")
    for option in (one for one in parsed.used if one in _DEVICE_OPTIONS):
        changes.append(f"leave out {option}")
        by.append(f"{option} {(option_value(parsed.flags.other, (option,)) or '')[:_SHOWN]}".rstrip())
    if parsed.flags.split_mode == "none":
        changes.append("-sm layer")
        by.append("-sm none")
    return Hidden(hidden, " and ".join(by), "; ".join(changes)) if hidden and changes else None
