"""What every advice must hold, checked from the printed commands alone. Used by the demo and by the tests."""

from __future__ import annotations

from service.engine.advice import AdvisedConfig
from service.engine.catalogue import engine_devices
from service.engine.commands.parse import ParsedCommand, parse
from service.engine.config import Device, Placement
from service.engine.hardware import Rig
from service.engine.memory.predict import predict_memory
from service.engine.memory.report import device_table
from service.engine.model import Model
from service.engine.run.environment import bound_ram, within_ram
from service.engine.run.placement import place
from service.engine.run.resolved import resolve_run


def visible_devices(command: ParsedCommand, rig: Rig) -> tuple[Device, ...]:
    """The devices that an engine started with this command's environment would see."""
    shown = command.env.get("CUDA_VISIBLE_DEVICES", command.env.get("HIP_VISIBLE_DEVICES"))
    selected = command.env.get("ONEAPI_DEVICE_SELECTOR")
    if "-dev none" in " ".join(command.flags.other):
        cards = []
    elif command.flags.split_mode == "none":
        cards = [0]
    elif selected is not None:
        cards = [int(n) for n in selected.removeprefix("level_zero:").split(",")]
    elif shown is None:
        cards = list(range(len(rig.cards)))
    elif command.env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        by_pci = {card.pci_index: i for i, card in enumerate(rig.cards)}
        cards = [by_pci[int(n)] for n in shown.split(",")]
    elif shown.startswith("GPU-"):
        by_uuid = {card.uuid: i for i, card in enumerate(rig.cards)}
        cards = [by_uuid[uuid] for uuid in shown.split(",")]
    else:
        cards = [int(n) for n in shown.split(",") if n]
    return engine_devices(rig, command.engine, tuple(cards))


def placement_of(command: ParsedCommand, model: Model, rig: Rig) -> Placement:
    """Where the engine would put everything when started with this command."""
    return place(command.engine, model, command.flags, [d.free for d in visible_devices(command, rig)])


def problems_of(config: AdvisedConfig, model: Model, rig: Rig) -> list[str]:
    """What is wrong with a config; empty when its printed commands give the printed placement and figures."""
    server = parse(config.commands.server, config.engine)
    bench = parse(config.commands.bench, config.engine)
    devices = visible_devices(server, rig)
    found = [f"the server command has unknown flags {server.unknown}"] if server.unknown else []
    memory = predict_memory(resolve_run(config.engine, model, server.flags, rig, devices))
    reserve = [int(d.reserve_mib * 2**20) for d in config.devices if d.device != "CPU"]
    if device_table(memory, devices, reserve, within_ram(rig, bound_ram(server.prefix, rig))) != config.devices:
        found.append("the server command does not give the printed memory")
    placement = placement_of(server, model, rig)
    if placement_of(bench, model, rig) != placement:
        found.append("the benchmark command places tensors elsewhere than the server command")
    found += _apart(placement)
    found += [f"{d.device} does not fit" for d in config.devices if not d.fits]
    return [f"#{config.rank} {config.variant} {config.engine}: {problem}" for problem in found]


def _apart(placement: Placement) -> list[str]:
    """Layers whose up and gate are on different devices."""
    return [
        f"{name} and its gate are on different devices"
        for name, device in placement.tensors.items()
        if ("ffn_up_exps" in name or "ffn_up." in name)
        and placement.tensors.get(name.replace("ffn_up", "ffn_gate"), device) != device
    ]


def attention_is_on_gpus(placement: Placement) -> bool:
    """Whether attention and cache of every layer are on a GPU."""
    attention = [d for name, d in placement.tensors.items() if ".attn_" in name]
    caches = [d for d in placement.caches if d is not None]
    return all(d < placement.n_devices for d in attention + caches)
