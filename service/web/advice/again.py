"""An advice asked again with a change: the card's controls, as fields of a form."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from service.engine.errors import InvalidInput
from service.engine.goal import Goal
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.hardware_text import parse_hardware
from service.flows.advice.requests import as_goal
from service.web.pages.forms import Form, converted
from service.wire.advice.advice import AdviceRequest


def changed_request(asked: AdviceRequest, goal: Goal | None, form: Form) -> AdviceRequest:
    """Return `asked` with what the form changes: cpu, ram, display, context, preset. `goal`: as it was answered.

    Raises InvalidInput and its kinds for what is not understood.
    """
    return replace(asked, hardware=_hardware(asked.hardware, form), goal=_goal(asked, goal, form))


def _goal(asked: AdviceRequest, goal: Goal | None, form: Form) -> Any:
    stated: dict[str, Any] = asdict(as_goal(asked.goal))
    if (preset := form.value("preset")) and goal is not None:  # another order, for the same use
        stated = {**stated, **asdict(goal), "preset": preset, "min_tg": None, "min_pp": None}
    if context := form.value("context"):
        stated["context"] = context
    return converted({"goal": stated, "repo": asked.repo, "hardware": "no GPU"}, AdviceRequest).goal


def _hardware(machine: Hardware | str, form: Form) -> Hardware:
    known = parse_hardware(machine) if isinstance(machine, str) else machine
    said = [form.value(name) for name in ("cpu", "ram") if form.value(name)]
    if said:
        host = parse_hardware(", ".join(["no GPU", *said]))
        if host.gpus:
            raise InvalidInput(
                "this field takes the CPU or RAM: to change GPUs, ask again from the start", field="hardware.cpu"
            )
        for name, found in (("cpu", host.cpu), ("ram", host.ram)):
            if form.value(name) and found is None:
                raise InvalidInput(f"{form.value(name)[:80]!r} is not understood here", field=f"hardware.{name}")
        ram = {name: value for name, value in asdict(host.ram or Ram()).items() if value is not None}
        known = replace(known, cpu=host.cpu or known.cpu, ram=replace(known.ram or Ram(), **ram))
    return replace(known, gpus=_with_display(known.gpus)) if form.value("display") else known


def _with_display(gpus: list[Gpu]) -> list[Gpu]:
    """The first card drives a display; of several alike, one does where they can be told apart."""
    if not gpus:
        return gpus
    first, rest = gpus[0], gpus[1:]
    if first.count > 1 and not (first.uuids or first.pci_order or first.device_order):
        return [replace(first, count=1, display=True), replace(first, count=first.count - 1), *rest]
    return [replace(first, display=True), *rest]
