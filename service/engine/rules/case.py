"""A command on a machine: what its rules look at. Everything is computed, also where it would be refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property

import msgspec

from service.engine.advice import DeviceMemory
from service.engine.builds import TODAY
from service.engine.commands.changes import changed
from service.engine.commands.companions import draft_of
from service.engine.commands.limits import cpus_given, memory_limit
from service.engine.commands.parse import ParsedCommand, parse_words
from service.engine.config import CPU, Allocator, Device, Engine, Flags, Override, Placement, Tool
from service.engine.engines import engine_spec
from service.engine.engines.spec import EngineSpec, FitAsked
from service.engine.errors import InvalidFlags
from service.engine.hardware import Rig
from service.engine.memory.companions import Companion
from service.engine.memory.figures import Memory
from service.engine.memory.overhead import free_at_start
from service.engine.memory.predict import as_started, predict_memory
from service.engine.memory.report import device_table
from service.engine.model import Model
from service.engine.overrides import MAX_RULES
from service.engine.rules.companion_headers import (
    NO_COMPANIONS,
    CompanionHeaders,
    companions_of,
    drafting_companions,
    projector_companion,
)
from service.engine.run.devices import chosen_devices, with_lab_bytes
from service.engine.run.environment import Environment, binding_of, bound_ram, environment_of, within_ram
from service.engine.run.overrides import matching_names
from service.engine.run.resolved import ResolvedRun, resolve_run
from service.engine.speed.drive import DriveReads, drive_reads, from_drive, weights_in_ram
from service.engine.speed.predict import Speed, predict_speed
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
    their place in `devices`. `fit_fails`: `--fit` finds no placement. `reserve_mib`: as in `case_of`. `whole`: the
    machine without the limit of `rig` by a container or numactl.
    """

    parsed: ParsedCommand
    model: Model
    rig: Rig
    whole: Rig
    devices: tuple[Device, ...]
    unknown_devices: tuple[str, ...]
    rules: tuple[WrittenRule, ...]
    flags: Flags
    allocator: Allocator
    tool: Tool
    fit_fails: bool = False
    companion_headers: CompanionHeaders = NO_COMPANIONS
    reserve_mib: int | Sequence[int] | None

    @property
    def reserve(self) -> tuple[int, ...]:
        """Bytes that a proposed change must leave free on each device."""
        return self.rig.reserves([device.gpu for device in self.devices], self.reserve_mib)

    @property
    def engine(self) -> Engine:
        return self.parsed.engine

    @property
    def spec(self) -> EngineSpec:
        return engine_spec(self.engine)

    @property
    def latent_cache(self) -> bool:
        return self.run.mla > 0

    @property
    def cpu(self) -> int:
        """The index of the CPU in a placement."""
        return len(self.devices)

    def device_name(self, index: int) -> str:
        """Return the name of a device of a placement, as the engine has it."""
        return CPU if index == self.cpu else self.devices[index].name

    @property
    def fit_places(self) -> bool:
        return self.spec.fit is not None and self.parsed.fit and bool(self.devices) and not _places(self.parsed)

    @property
    def streams(self) -> int:
        """How many caches of their own the slots have."""
        return _streams(self.flags)

    @property
    def context_each(self) -> int:
        """Tokens that one request may have: of a server whose slots share no cache, a slot's part of the context."""
        return self.flags.n_ctx // self.streams

    @cached_property
    def memory(self) -> Memory:
        return predict_memory(self.run)

    @property
    def placement(self) -> Placement:
        return self.run.placement

    @cached_property
    def table(self) -> list[DeviceMemory]:
        """The memory of every device in MiB with the names of the cards, the CPU last; no reserve is taken off."""
        return device_table(self.memory, self.devices, [0] * len(self.devices), self.rig, self.companions)

    @property
    def all_fits(self) -> bool:
        return all(row.fits for row in self.table)

    @property
    def n_ubatch(self) -> int:
        """The tokens of the largest micro-batch that can run."""
        return self.run.n_ubatch

    @cached_property
    def run(self) -> ResolvedRun:
        return self.run_of(self.flags)

    def run_of(self, flags: Flags) -> ResolvedRun:
        """Return the run of other flags on the same devices, once for each.

        A build that gives up pipeline parallelism runs as one without it. Raises InvalidFlags.
        """
        known = self._runs.get(flags)
        if known is None:
            known = self._runs[flags] = self._resolved(flags)
        return known

    @cached_property
    def _runs(self) -> dict[Flags, ResolvedRun]:
        return {}

    def _resolved(self, flags: Flags, placement: Placement | None = None) -> ResolvedRun:
        run = resolve_run(
            self.engine, self.model, flags, self.rig, self.devices, self.parsed.build, self.environment,
            tool=self.tool, allocator=self.allocator, placement=placement,
        )  # fmt: skip
        return as_started(run)

    @property
    def gives_up_pipeline(self) -> bool:
        """Whether copies for pipeline parallelism would not fit, and the engine goes on without it."""
        return self.run.build.max_copies == 1

    @cached_property
    def environment(self) -> Environment:
        prefix, numa = self.parsed.prefix, self.parsed.flags.numa
        return environment_of(self.engine, self.parsed.env, binding_of(prefix, numa, self.rig.nodes_a_socket))

    @cached_property
    def threshold(self) -> int:
        """Tokens from which experts in RAM are copied to the first GPU for a batch."""
        return self.run.treatment.copies.expert_tokens

    @cached_property
    def experts_in_ram(self) -> tuple[str, ...]:
        return tuple(
            name for name, device in self.placement.tensors.items() if device == self.cpu and "_exps.weight" in name
        )

    @property
    def copies_experts(self) -> bool:
        """Whether experts in RAM are copied to the first GPU for a whole micro-batch of a prompt."""
        offered = bool(self.experts_in_ram and self.devices) and self.flags.op_offload
        return offered and self.n_ubatch >= self.threshold

    def assumes_memory(self, device: int) -> bool:
        """Return whether nobody stated how much memory a device has: that of the machine is assumed, and it is that."""
        known = all(one.field != "hardware.ram.total_gb" for one in self.rig.assumed)
        return not known and (device == self.cpu or self.rig.cards[self.devices[device].gpu].unified)

    @property
    def order_guessed(self) -> bool:
        """Whether unlike cards are numbered by their PCI order, and nobody stated it."""
        by_bus = self.parsed.env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" and not self.rig.order_known
        return by_bus and len({card.name for card in self.rig.cards}) > 1

    @property
    def pages_to_ram(self) -> bool:
        """Whether what a card has no room for goes to RAM (ggml-cuda.cu: cudaMallocManaged where it is set)."""
        return "GGML_CUDA_ENABLE_UNIFIED_MEMORY" in self.parsed.env

    @property
    def has_remote(self) -> bool:
        """Whether other machines take a part (`--rpc`): what is computed for this one alone is no error then."""
        return any(option.startswith(("--rpc ", "-rpc ")) for option in self.flags.other)

    @property
    def lacking(self) -> set[str]:
        """Options of the command that the program's build does not have."""
        return {name for name in self.parsed.used if self.lacks(name)}

    def lacks(self, option: str) -> bool:
        """Return whether the program's build is known not to have an option."""
        return self.parsed.build.has(self.parsed.program, option) is False

    def surely_short(self, device: int) -> bool:
        """Return whether a device has too little also at the least that is expected.

        Metal lets a command take more than macOS recommends, up to the RAM (llama.cpp ggml-metal-device.m:1505).
        """
        row, room = self.table[device], self.table[device].capacity_mib
        if device < self.cpu and self.rig.cards[self.devices[device].gpu].backend == "metal":
            room = max(room, self.table[-1].capacity_mib - self.table[-1].total_mib)
        return row.total_low_mib > room

    def predict(self, flags: Flags) -> Memory:
        """Return the memory with other flags on the same devices. Raises InvalidFlags."""
        return predict_memory(self.run_of(flags))

    @cached_property
    def companions(self) -> tuple[Companion, ...]:
        """The memory of what the command loads besides the model."""
        return companions_of(self.parsed, self.run, self.memory, self.companion_headers)

    def table_with(self, flags: Flags) -> list[DeviceMemory]:
        """Return the table with other flags on the same devices, companions with them. Raises InvalidFlags."""
        run, memory = self.run_of(flags), self.predict(flags)
        companions = companions_of(self.parsed, run, memory, self.companion_headers) if self.companions else ()
        return device_table(memory, self.devices, [0] * len(self.devices), self.rig, companions)

    def missing(self, flags: Flags) -> list[float]:
        """Return the MiB that each card lacks with other flags, also for what it has to keep free; up to 0: nothing."""
        *cards, host = self.table_with(flags)
        rows = ((row, kept / MIB - row.free_mib) for row, kept in zip(cards, self.reserve, strict=False))
        pool = self.rig.one_pool  # what leaves the GPU stays in its memory
        return [max(r.total_high_mib - r.capacity_mib, less, -host.free_mib if pool else less) for r, less in rows]

    def fits(self, flags: Flags) -> bool:
        """Return whether everything fits with other flags, and every card keeps free what it has to."""
        return self.table_with(flags)[-1].fits and max(self.missing(flags), default=0) <= 0

    def fits_where(self, before: Case) -> bool:
        """Return whether everything fits that did before, by the devices' names: a change may hide some of them."""
        too_small = {row.device for row in before.table if not row.fits}
        return all(row.fits or row.device in too_small for row in self.table)

    def speed(self, n_kv: int = 0, *, flags: Flags | None = None, run: ResolvedRun | None = None) -> Speed:
        """Return the speed at a depth; with other flags where everything stays in its place, or of another run.

        Where RAM is too small for weights that are mapped, with the time for reading them from the drive.
        """
        run = run or (self._resolved(flags, self.placement) if flags is not None else self.run)
        speed = predict_speed(run, n_kv)
        reads = self._reads(run)
        return from_drive(speed, reads) if reads else speed

    @cached_property
    def from_drive(self) -> DriveReads | None:
        """What is read from the drive as the command is; None where everything fits, or what does not is not mapped."""
        return self._reads(self.run) if all(row.fits for row in self.table[:-1]) else None

    def _reads(self, run: ResolvedRun) -> DriveReads | None:
        """What is read from the drive with the weights where `run` has them; None where RAM keeps the command's."""
        if self.table[-1].fits:
            return None
        moved = sum(weights_in_ram(run)) - sum(weights_in_ram(self.run))
        return drive_reads(run, self.memory.total(self.cpu).expected + moved - self.rig.usable_ram)

    def gain(self, n_kv: int = 0, *, flags: Flags | None = None, run: ResolvedRun | None = None) -> tuple[float, float]:
        """Return how many times faster prompts and tokens are at a depth; `flags` and `run` as in `speed`."""
        fixed = self.speed(n_kv, flags=flags, run=run)
        now = self.speed(n_kv)
        return fixed.pp.expected / now.pp.expected, fixed.tg.expected / now.tg.expected

    def changed(self, change: str) -> Case | None:
        """Return the case of the command with a change made; None for advice that changes no command.

        Raises InvalidFlags where the changed command cannot be read.
        """
        words = self.parsed.words
        written = changed(words._replace(program=words.program or self.parsed.program), change)
        if written is None:
            return None
        return self.with_command(parse_words(written, self.parsed.build), written.line)

    def with_command(self, parsed: ParsedCommand, line: str) -> Case:
        """Return the case of another command with the same model and machine. `line`: as it is written."""
        draft = self.companion_headers.draft if draft_of(parsed) is not None else None
        headers = msgspec.structs.replace(self.companion_headers, draft=draft)
        return case_of(parsed, self.model, self.whole, line, self.allocator, headers, self.reserve_mib)


def _limited(rig: Rig, parsed: ParsedCommand) -> Rig:
    """Return the machine with the RAM and the cores that the command's container, unit or numactl lets it take."""
    cpus = cpus_given(parsed.env, parsed.prefix, rig.physical_cores)
    if cpus is not None and cpus < rig.physical_cores:
        rig = msgspec.structs.replace(rig, physical_cores=max(int(cpus), 1), efficient_cores=0)
    limits = (memory_limit(parsed.env), bound_ram(parsed.prefix, rig))
    return within_ram(rig, min((one for one in limits if one is not None), default=None))


def case_of(
    parsed: ParsedCommand, model: Model, rig: Rig, command: str, allocator: Allocator,
    companion_headers: CompanionHeaders = NO_COMPANIONS, reserve_mib: int | Sequence[int] | None = None,
) -> Case:  # fmt: skip
    """Return the case of a parsed command.

    `reserve_mib`: what a proposed change must leave free, one number or one a card of the rig; None: the usual.
    The lab's figures of llama.cpp are llama-fit-params': a whole batch of logits, and one slot where none is asked for.
    """
    parsed, whole = _with_metal_default(parsed, rig), rig
    rig = _limited(whole, parsed)
    devices, unknown = chosen_devices(parsed, rig)
    if allocator == "lab":
        devices = with_lab_bytes(devices)
    rules = _rules(parsed.flags.overrides, model, devices)
    flags, tool = parsed.flags, parsed.reserves_as
    if allocator == "lab" and not engine_spec(parsed.engine).memory.tools_alike:
        tool = "bench"
        if not _SLOTS.search(command):
            flags = msgspec.structs.replace(
                flags, n_parallel=1, other=tuple(o for o in flags.other if o not in _SHARED)
            )
    usable = _with_loadable_split(
        _usable(_with_latent_default(flags, parsed, model), rules, model, devices), parsed, model
    )
    fitted = _as_fitted(usable, parsed, model, rig, devices, allocator, tool, companion_headers)
    return Case(
        parsed=parsed,
        model=model,
        rig=rig,
        whole=whole,
        devices=devices,
        unknown_devices=unknown,
        rules=rules,
        flags=fitted or usable,
        fit_fails=fitted is None,
        allocator=allocator,
        tool=tool,
        companion_headers=companion_headers,
        reserve_mib=reserve_mib,
    )


def _places(parsed: ParsedCommand) -> bool:
    """Whether a command places the model: llama.cpp's -fit gives up at -ngl and -ts too (common/fit.cpp)."""
    flags = parsed.flags
    if flags.overrides or flags.cpu_moe or flags.n_cpu_moe:
        return True
    bench = parsed.program == "llama-bench"  # which fits without them
    return engine_spec(parsed.engine).fit_places and not bench and bool(flags.tensor_split or _LAYERS & {*parsed.used})


def _as_fitted(
    flags: Flags, parsed: ParsedCommand, model: Model, rig: Rig, devices: Sequence[Device], allocator: Allocator,
    tool: Tool, companion_headers: CompanionHeaders,
) -> Flags | None:  # fmt: skip
    """Return the flags that the engine's own placement leaves, where it is on; None where it finds none.

    Room for a projector is left free on its card (llama.cpp tools/server/server-context.cpp:1044), and what drafts is
    counted with the model, at the context that is tried (common/common.cpp:1204, common/fit.cpp:205). With `-sm none`
    only the main GPU is looked at (llama.cpp src/llama.cpp: it is the model's one device).
    """
    fit = engine_spec(parsed.engine).fit
    if fit is None or not parsed.fit or allocator == "lab" or not devices:
        return flags
    run = resolve_run(parsed.engine, model, flags, rig, devices, parsed.build, tool=tool, allocator=allocator)
    cards = [flags.first_gpu] if flags.split_mode == "none" else range(len(devices))

    @cache
    def drafting(n_ctx: int) -> list[int]:
        with_all = run.with_flags(msgspec.structs.replace(flags, n_ctx=n_ctx))
        found = drafting_companions(parsed, with_all, [0] * len(devices), companion_headers)
        counted = found if parsed.build.rules.fits_drafts else []
        return [sum(one.weights[i] + one.kv[i] + int(one.compute[i].expected) for one in counted) for i in cards]

    def used(tried: Flags) -> list[int]:
        found, beside = predict_memory(run.with_flags(tried)).devices, drafting(tried.n_ctx)
        pairs = zip(cards, beside, strict=True)
        return [found[i].weights + found[i].kv + found[i].compute + more for i, more in pairs]

    free = [free_at_start(rig.cards[device.gpu]) for device in devices]
    images = projector_companion(parsed, flags, devices, companion_headers)
    if images is not None and parsed.build.rules.fits_projector:
        taken = zip(images.weights, images.compute, strict=True)
        free = [n - weights - int(compute.expected) for n, (weights, compute) in zip(free, taken, strict=False)]
    # `-c 0` raises the least context of `-fit` to the maximum (llama.cpp common/arg.cpp, --ctx-size).
    whole = model.n_ctx_train * _streams(flags) if {"-c", "--ctx-size"} & {*parsed.used} else 0
    asked = FitAsked(
        model=model, flags=flags, n_ctx=max(parsed.flags.n_ctx, 0) or whole, free=[free[i] for i in cards],
        placed=_places(parsed), streams=_streams(flags), used=used,
    )  # fmt: skip
    return fit(asked)


def _streams(flags: Flags) -> int:
    return 1 if {*_SHARED} & {*flags.other} else max(flags.n_parallel, 1)


def _with_loadable_split(flags: Flags, parsed: ParsedCommand, model: Model) -> Flags:
    if engine_spec(parsed.engine).memory.split_refused(model, flags):
        return msgspec.structs.replace(flags, split_mode="layer")
    return flags


def _with_metal_default(parsed: ParsedCommand, rig: Rig) -> ParsedCommand:
    """Without `-ngl`, builds with Metal offload all layers; those with CUDA did not always.

    llama_model_default_params of both engines: 999 with GGML_USE_METAL, which the programs leave where -ngl is not
    given (llama.cpp common/common.cpp, common_model_params_to_llama; pull 15434 made it the default of all builds).
    """
    if _LAYERS & {*parsed.used} or not any(card.backend == "metal" for card in rig.cards):
        return parsed
    return msgspec.structs.replace(parsed, flags=msgspec.structs.replace(parsed.flags, n_gpu_layers=999))


def _with_latent_default(flags: Flags, parsed: ParsedCommand, model: Model) -> Flags:
    """Write out an older build's default of `-mla`."""
    default = parsed.build.rules.memory.mla
    if model.mla is None or flags.mla is not None or default == TODAY.mla:
        return flags
    return msgspec.structs.replace(flags, mla=default)


def _rules(written: Sequence[Override], model: Model, devices: Sequence[Device]) -> tuple[WrittenRule, ...]:
    """Match every rule; after a few bad ones no more are tried, for each may take its whole time limit."""
    found: list[WrittenRule] = []
    for rule in written:
        if sum(one.refused is not None for one in found) < _MOST_REFUSED:
            found.append(_rule(rule, model, devices))
        else:
            found.append(WrittenRule(rule, None, f"not read, as {_MOST_REFUSED} rules before it were refused"))
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


def with_first_rule(flags: Flags, rule: Override) -> Flags:
    """Return the flags with one more rule before the others, of which as many count as are read here."""
    return msgspec.structs.replace(flags, overrides=(rule, *flags.overrides)[:MAX_RULES])


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
