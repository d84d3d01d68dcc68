"""A command on a machine: what its rules look at. Everything is computed, also where it would be refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import msgspec

from service.engine.advice import DeviceMemory
from service.engine.builds import TODAY
from service.engine.commands import ParsedCommand
from service.engine.commands.tables import Tool
from service.engine.config import CPU, Device, Engine, Flags, Override, Placement
from service.engine.errors import InvalidFlags
from service.engine.hardware import Rig
from service.engine.memory import Companion, Memory, matching_names, predict_memory, report
from service.engine.memory.spec import Allocator, micro_batch
from service.engine.memory.split_modes import split_refused
from service.engine.model import Model
from service.engine.overrides import MAX_RULES
from service.engine.rules.beside import NOTHING, Beside, companions_of
from service.engine.rules.devices import chosen_devices, with_lab_bytes
from service.engine.speed import Speed, predict_speed
from service.engine.units import MIB

_SLOTS = re.compile(r"(?:^|\s)(?:-np|--parallel)[\s=]")

_MOST_REFUSED = 16
_LAYERS = frozenset(("-ngl", "--gpu-layers", "--n-gpu-layers"))
_SHARED = ("-kvu", "--kv-unified")


class WrittenRule(msgspec.Struct, frozen=True):
    """One `-ot` rule as written; `names`: the tensors it matches, None with `refused`: why the engine stops at it."""

    written: Override
    names: tuple[str, ...] | None
    refused: str | None = None


class Case(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """A command, the model, the machine, and what the engine makes of them.

    `flags` are those of the command without what the engine would refuse, with the devices of its rules renamed by
    their place in `devices`. `reserve`: bytes that a proposed change must leave free on each of them.
    """

    parsed: ParsedCommand
    model: Model
    rig: Rig
    devices: tuple[Device, ...]
    unknown_devices: tuple[str, ...]
    rules: tuple[WrittenRule, ...]
    flags: Flags
    allocator: Allocator
    tool: Tool
    beside: Beside = NOTHING
    reserve: tuple[int, ...]

    @property
    def engine(self) -> Engine:
        """The engine that the command is for."""
        return self.parsed.engine

    @property
    def ik(self) -> bool:
        """Whether that is ik_llama.cpp."""
        return self.engine == "ik_llama.cpp"

    @property
    def cpu(self) -> int:
        """The index of the CPU in a placement."""
        return len(self.devices)

    @property
    def fit_places(self) -> bool:
        """Whether llama.cpp's `-fit` places the model: common/fit.cpp gives up when -ngl, -ts or an override is set."""
        flags = self.parsed.flags
        stated = (
            flags.overrides or flags.cpu_moe or flags.n_cpu_moe or flags.tensor_split or _LAYERS & {*self.parsed.used}
        )
        return not self.ik and self.parsed.fit and bool(self.devices) and not stated

    @cached_property
    def memory(self) -> Memory:
        """The memory of every device."""
        return self.predict(self.flags)

    @property
    def placement(self) -> Placement:
        """Where everything is."""
        return self.memory.placement

    @cached_property
    def table(self) -> list[DeviceMemory]:
        """The memory of every device in MiB with the names of the cards, the CPU last; no reserve is taken off."""
        return self.table_of(self.memory)

    @property
    def n_ubatch(self) -> int:
        """The tokens of the largest micro-batch that can run."""
        return micro_batch(self.engine, self.model, self.flags)

    @cached_property
    def threshold(self) -> int:
        """Tokens from which experts in RAM are copied to the first GPU for a batch.

        ik_llama.cpp ggml-cuda.cu:5180: 32 * n_expert / n_expert_used; llama.cpp ggml-cuda.cu:5636: 32.
        """
        used = max(self.model.n_expert_used, 1)
        by_experts = self.ik and self.model.n_expert and self.parsed.build.rules.memory.threshold_by_experts
        return -(-32 * self.model.n_expert // used) if by_experts else 32

    @cached_property
    def experts_in_ram(self) -> tuple[str, ...]:
        """The routed experts that are in RAM."""
        return tuple(
            name for name, device in self.placement.tensors.items() if device == self.cpu and "_exps.weight" in name
        )

    def predict(self, flags: Flags) -> Memory:
        """Return the memory with other flags on the same devices. Raises InvalidFlags."""
        return self._predict(flags, self.tool)

    def _predict(self, flags: Flags, tool: Tool) -> Memory:
        free = [device.free for device in self.devices]
        build = self.parsed.build
        rules = build.rules.memory if build.date else None
        return predict_memory(self.engine, self.model, flags, free, allocator=self.allocator, tool=tool, rules=rules)

    @cached_property
    def companions(self) -> tuple[Companion, ...]:
        """The memory of what the command loads beside the model."""
        return companions_of(
            self.parsed, self.model, self.flags, self.memory, self.devices, self.rig, self.beside, self.allocator
        )

    def table_of(self, memory: Memory) -> list[DeviceMemory]:
        """Return a memory in MiB, as `table`."""
        rows = report(memory, self.devices, [0] * len(self.devices), self.rig.ram_bytes, self.companions)
        names = [self.rig.cards[device.gpu].name for device in self.devices]
        return [*(msgspec.structs.replace(row, gpu=name) for row, name in zip(rows, names, strict=False)), rows[-1]]

    def fits(self, flags: Flags) -> bool:
        """Return whether everything fits with other flags, and every card keeps free what it has to.

        Of llama.cpp in its benchmark as well, which keeps logits of a whole batch: a change that cannot be measured is
        not proposed.
        """
        if not self._leaves_reserve(self.predict(flags)):
            return False
        if self.ik or self.tool == "bench":
            return True
        return self._leaves_reserve(self._predict(msgspec.structs.replace(flags, n_parallel=1), "bench"))

    def _leaves_reserve(self, memory: Memory) -> bool:
        rows = self.table_of(memory)
        kept = zip(rows, self.reserve, strict=False)
        return all(row.fits for row in rows) and all(row.free_mib >= n_bytes / MIB for row, n_bytes in kept)

    def speed(self, n_kv: int = 0, *, flags: Flags | None = None, placement: Placement | None = None) -> Speed:
        """Return the speed at a depth; with other flags or another placement, nothing else changed."""
        placed, flags = placement or self.placement, flags or self.flags
        build_date = self.parsed.build.date
        return predict_speed(self.engine, self.model, flags, placed, self.rig, self.devices, n_kv, build_date)

    def gain(
        self, n_kv: int = 0, *, flags: Flags | None = None, placement: Placement | None = None
    ) -> tuple[float, float]:
        """Return how many times faster prompts and tokens are at a depth with other flags or another placement."""
        mended = self.speed(n_kv, flags=flags, placement=placement)
        now = self.speed(n_kv)
        return mended.pp.expected / now.pp.expected, mended.tg.expected / now.tg.expected

    def moved(self, tensors: dict[str, int]) -> Placement:
        """Return the placement with some tensors on other devices."""
        return msgspec.structs.replace(self.placement, tensors=self.placement.tensors | tensors)


def case_of(
    parsed: ParsedCommand, model: Model, rig: Rig, command: str, allocator: Allocator, beside: Beside = NOTHING,
    reserve_mib: int | Sequence[int] | None = None,
) -> Case:  # fmt: skip
    """Return the case of a parsed command. `allocator` "lab": as predict_memory has it.

    `reserve_mib`: what a proposed change must leave free, one number or one a card of the rig; None: the usual.
    The lab's figures of llama.cpp are llama-fit-params': a whole batch of logits, and one slot where none is asked for.
    """
    devices, unknown = chosen_devices(parsed, rig)
    if allocator == "lab":
        devices = with_lab_bytes(devices)
    rules = _rules(parsed.flags.overrides, model, devices)
    flags, tool = parsed.flags, parsed.tool
    if allocator == "lab" and parsed.engine == "llama.cpp":
        tool = "bench"
        if not _SLOTS.search(command):
            flags = msgspec.structs.replace(
                flags, n_parallel=1, other=tuple(o for o in flags.other if o not in _SHARED)
            )
    return Case(
        parsed=parsed,
        model=model,
        rig=rig,
        devices=devices,
        unknown_devices=unknown,
        rules=rules,
        flags=_with_loadable_split(
            _usable(_with_latent_default(flags, parsed, model), rules, model, devices), parsed, model
        ),
        allocator=allocator,
        tool=tool,
        beside=beside,
        reserve=rig.reserves([device.gpu for device in devices], reserve_mib),
    )


def _with_loadable_split(flags: Flags, parsed: ParsedCommand, model: Model) -> Flags:
    if parsed.engine == "llama.cpp" and split_refused(model, flags):
        return msgspec.structs.replace(flags, split_mode="layer")
    return flags


def _with_latent_default(flags: Flags, parsed: ParsedCommand, model: Model) -> Flags:
    """Write out an older build's default of `-mla`."""
    default = parsed.build.rules.memory.mla
    if parsed.engine != "ik_llama.cpp" or model.mla is None or flags.mla is not None or default == TODAY.mla:
        return flags
    return msgspec.structs.replace(flags, mla=default)


def _rules(written: Sequence[Override], model: Model, devices: Sequence[Device]) -> tuple[WrittenRule, ...]:
    """Match every rule; after a few bad ones no more are tried, for each may take its whole time limit."""
    found: list[WrittenRule] = []
    for rule in written:
        if sum(one.refused is not None for one in found) < _MOST_REFUSED:
            found.append(_rule(rule, model, devices))
        else:
            found.append(WrittenRule(rule, None, f"not read, for {_MOST_REFUSED} rules before it are refused"))
    return tuple(found)


def _rule(rule: Override, model: Model, devices: Sequence[Device]) -> WrittenRule:
    try:
        _position(rule.device, devices)
        return WrittenRule(rule, matching_names(model, rule.pattern))
    except InvalidFlags as refused:
        return WrittenRule(rule, None, refused.detail)


def _position(name: str, devices: Sequence[Device]) -> int:
    """Return the place of a device in the engine's list. Vulkan's names stand for any card's: we keep one list."""
    if name == CPU:
        return len(devices)
    for i, device in enumerate(devices):
        if name in (device.name, f"Vulkan{i}"):
            return i
    there = ", ".join([CPU, *(device.name for device in devices)])
    raise InvalidFlags(f"there is no device {name[:64]!r}; there are {there}", field="-ot")


def _usable(flags: Flags, rules: Sequence[WrittenRule], model: Model, devices: Sequence[Device]) -> Flags:
    """Return the flags without what the engine stops at. Rules name devices by their place in the list."""
    kept = [rule for rule in rules if rule.names is not None][:MAX_RULES]
    places = [(rule.written.pattern, _position(rule.written.device, devices)) for rule in kept]
    overrides = tuple(Override(pattern, CPU if i == len(devices) else f"CUDA{i}") for pattern, i in places)
    main = flags.main_gpu if flags.main_gpu is not None and 0 <= flags.main_gpu < len(devices) else None
    n_batch = flags.n_batch if flags.n_batch > 0 else Flags().n_batch
    return msgspec.structs.replace(
        flags,
        overrides=overrides,
        n_batch=n_batch,
        n_ubatch=flags.n_ubatch if flags.n_ubatch > 0 else (n_batch if flags.n_ubatch == 0 else Flags().n_ubatch),
        n_gpu_layers=flags.n_gpu_layers if flags.n_gpu_layers >= 0 else 999,
        n_cpu_moe=max(flags.n_cpu_moe, 0),
        threads=flags.threads if flags.threads is None or flags.threads > 0 else None,
        main_gpu=main,
        n_ctx=flags.n_ctx if flags.n_ctx > 0 else model.n_ctx_train,
        tensor_split=flags.tensor_split[: len(devices)],
    )
