"""How two configs compare: in tokens per second, in memory, and change by change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, Change, Gain, VersusMine
from service.engine.builds import Build
from service.engine.commands.companions import PROJECTOR
from service.engine.config import Device, Engine, Flags
from service.engine.errors import InvalidFlags
from service.engine.hardware import Rig
from service.engine.memory.figures import Memory
from service.engine.memory.predict import predict_memory
from service.engine.model import Model
from service.engine.planner.ranking.current_command import CurrentCommand
from service.engine.planner.ranking.rank import Contender
from service.engine.run.resolved import resolve_run
from service.engine.speed.interval import Phase
from service.engine.speed.predict import Speed, is_called, predict_speed, versus
from service.engine.speed.work import PARTS, Seconds
from service.engine.units import GIB

OPTION_OF = {
    "n_ctx": "-c", "n_parallel": "-np", "cache_type_k": "-ctk", "cache_type_v": "-ctv", "flash_attn": "-fa",
    "mla": "-mla", "attn_max_batch": "-amb", "fused_moe": "fused experts", "runtime_repack": "-rtr",
    "op_offload": "copies for batches", "n_batch": "-b", "n_ubatch": "-ub", "threads": "-t", "threads_batch": "-tb",
    "mmap": "mmap", "mlock": "mlock", "numa": "--numa", "n_logits": "logits", "n_gpu_layers": "-ngl",
    "split_mode": "-sm", "main_gpu": "-mg", "tensor_split": "-ts", "cpu_moe": "-cmoe", "n_cpu_moe": "-ncmoe",
    "no_kv_offload": "cache in RAM", "layers_in_ram": "layers that --fit leaves in RAM",
}  # fmt: skip
# Flags that are changed together on the way from one command to another, in this order: what the request needs, the
# cache, the batches, the host, then the placement that these leave room for.
_GROUPS: tuple[tuple[str, ...], ...] = (
    ("n_ctx", "n_parallel"), ("cache_type_k", "cache_type_v"), ("flash_attn",), ("mla", "attn_max_batch"),
    ("fused_moe",), ("runtime_repack",), ("op_offload",), ("n_batch", "n_ubatch"), ("threads", "threads_batch"),
    ("mmap", "mlock", "numa"), ("n_logits", "other", "jinja"),
)  # fmt: skip
_PLACING = (
    "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "overrides", "cpu_moe", "n_cpu_moe", "no_kv_offload",
    "layers_in_ram",
)  # fmt: skip
_TOLD = 0.01  # of a token's or a prompt's time: a part that changes less is not named


def gain(ours: Speed, theirs: Speed, phase: Phase, same_engine: bool) -> Gain:
    """Return how much faster `ours` is than `theirs` in one phase, rounded, with the interval of the comparison."""
    ratio = versus(ours, theirs, phase, same_engine)
    after, before = getattr(ours, phase).expected, getattr(theirs, phase).expected
    return Gain(
        tps=_rounded(round(after, 2) - round(before, 2)),
        times=round(ratio.expected, 3),
        low=round(ratio.low, 3),
        high=round(ratio.high, 3),
        called=is_called(ratio),
    )


def versus_current(current: CurrentCommand, contender: Contender, name: str) -> VersusMine:
    """Return how a contender compares with the command in use, change by change. `name`: that of its variant."""
    before, after = _at(current), _goes_to(contender, name)
    if contender.problem.limits.projector:  # the projector that it loads is none of its flags
        kept = tuple(option for option in before.flags.other if option.partition(" ")[0] not in PROJECTOR)
        before = before._replace(flags=replace(before.flags, other=kept))
    first, last = _Figures(current.contender.speed, _gib(current.case.memory, before.devices)), _figures(after)
    same = before.engine == after.engine
    return VersusMine(
        tg=gain(last.speed, first.speed, "tg", same),
        pp=gain(last.speed, first.speed, "pp", same),
        seconds_saved=round(current.contender.seconds.expected - contender.seconds.expected, 2),
        gib=_more(first, last),
        changes=list(_changes(first, _states(before, after), last)),
    )


def current_command_sentence(current: CurrentCommand, configs: Sequence[AdvisedConfig]) -> str:
    """Return the sentence about the command in use that follows the headline."""
    if current.because is not None:
        return f" Your command {current.because}."
    if not configs or configs[0].is_mine:
        return " This is your own command: nothing tried is better."
    versus = configs[0].versus_mine
    if versus is None:
        return ""
    return f" Against your command: TG {gain_text(versus.tg)}; PP {gain_text(versus.pp)}."


def gain_text(found: Gain) -> str:
    """Return a gain in words: `+2.9 t/s (x 1.31, 1.18 to 1.45)`."""
    tps = f"{found.tps:+.1f}" if abs(found.tps) < 100 else f"{found.tps:+,.0f}"
    text = f"{tps} t/s (x {found.times:.2f}, {found.low:.2f} to {found.high:.2f})"
    return text if found.called else f"{text}, too close to call"


class _State(NamedTuple):
    """A step between the command in use and the config: everything that its figures depend on."""

    engine: Engine
    model: Model
    name: str
    flags: Flags
    devices: tuple[Device, ...]
    rig: Rig
    depth: int
    build: Build | None = None


class _Figures(NamedTuple):
    speed: Speed
    gib: Mapping[str, float]

    @property
    def tps(self) -> tuple[float, float]:
        return round(self.speed.tg.expected, 2), round(self.speed.pp.expected, 2)


def _at(current: CurrentCommand) -> _State:
    case, goal = current.case, current.contender.problem.goal
    return _State(
        case.engine, case.model, current.name, case.flags, case.devices, case.rig, goal.depth, case.parsed.build
    )


def _goes_to(contender: Contender, name: str) -> _State:
    problem, flags = contender.problem, contender.fitted.flags
    return _State(
        problem.engine, problem.model, name, flags, problem.devices, problem.rig, problem.goal.depth, problem.build
    )


def _figures(state: _State) -> _Figures:
    """Raises InvalidFlags for a state that the engine would refuse."""
    run = resolve_run(state.engine, state.model, state.flags, state.rig, state.devices, state.build)
    return _Figures(predict_speed(run, state.depth), _gib(predict_memory(run), state.devices))


def _gib(memory: Memory, devices: Sequence[Device]) -> dict[str, float]:
    names = [*(device.name for device in devices), "CPU"]
    return {name: round(memory.total(i).expected / GIB, 2) for i, name in enumerate(names)}


def _states(before: _State, after: _State) -> Iterator[tuple[str, _State]]:
    """Yield the steps from one to the other, each with what changes in words; the last is the config."""
    now = before
    moves = before.devices != after.devices or before.model is not after.model
    if before.model is not after.model or before.engine != after.engine:
        names = (*_PLACING, "mla", "attn_max_batch", "other") if moves else ("mla", "attn_max_batch", "other")
        flags = replace(now.flags, **_fields(after.flags, names))
        label = _whole_label(before, after)
        now = now._replace(
            engine=after.engine,
            build=after.build,
            model=after.model,
            flags=flags,
            devices=after.devices if moves else now.devices,
        )
        yield label, now
    for group in _GROUPS:
        changed = _fields(after.flags, group)
        if changed != _fields(now.flags, group):
            label = _label(now.flags, after.flags, group)
            now = now._replace(flags=replace(now.flags, **changed))
            yield label, now
    if now != after:
        label = _placing_label(now, after)
        yield label, after


def _fields(flags: Flags, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(flags, name) for name in names}


def _whole_label(before: _State, after: _State) -> str:
    parts = [f"{before.name} -> {after.name}, placed again"] if before.model is not after.model else []
    if before.engine != after.engine:
        parts.append(f"{before.engine} -> {after.engine}")
    return ", ".join(parts)


def _label(before: Flags, after: Flags, names: Sequence[str]) -> str:
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    parts = [
        f"{OPTION_OF[name]} {_value(getattr(before, name))} -> {_value(getattr(after, name))}"
        for name in changed
        if name in OPTION_OF
    ]
    if "other" in changed:
        gone, new = set(before.other) - set(after.other), set(after.other) - set(before.other)
        parts += [f"without {text}" for text in sorted(gone)] + [f"with {text}" for text in sorted(new)]
    return ", ".join(parts)[:400]


def _value(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(f"{share:g}" for share in value) or "default"
    return str(value)


def _placing_label(before: _State, after: _State) -> str:
    parts = []
    if before.devices != after.devices:
        parts.append(f"{_names(before.devices)} -> {_names(after.devices)}")
    n_layer = after.model.n_layer + 1
    first, last = (_as_written(s.flags, n_layer) for s in (before, after))
    flags = _label(first, last, _PLACING)
    parts += [flags] if flags else []
    if before.flags.overrides != after.flags.overrides:
        parts.append(f"-ot: {_rules(before.flags)} -> {_rules(after.flags)}")
    return ", ".join(parts) or "placement"


def _as_written(flags: Flags, n_layer: int) -> Flags:
    return replace(flags, n_gpu_layers=min(flags.n_gpu_layers, n_layer), tensor_split=flags.written_split)


def _rules(flags: Flags) -> str:
    n = len(flags.overrides)
    return f"{n or 'no'} rule{'' if n == 1 else 's'}"


def _names(devices: Sequence[Device]) -> str:
    return "no GPU" if not devices else f"{len(devices)} GPU{'' if len(devices) == 1 else 's'}"


def _changes(first: _Figures, states: Iterator[tuple[str, _State]], last: _Figures) -> Iterator[Change]:
    """Yield what each change does to the figures.

    A step that the engine refuses is joined with the next; changes without effect are listed together at the end.
    """
    before, pending, without_effect = first, list[str](), list[str]()
    for label, state in states:
        pending += [label] if label else []
        try:
            after = _figures(state)
        except InvalidFlags:
            continue
        change = _change(", ".join(pending), before, after)
        if change.tg_tps or change.pp_tps or change.gib:
            yield change
        else:
            without_effect += pending
        before, pending = after, []
    if pending:
        yield _change(", ".join(pending), before, last)
    elif without_effect:
        yield Change(change=", ".join(without_effect), tg_tps=0.0, pp_tps=0.0, gib={}, why="no effect on these figures")


def _change(label: str, before: _Figures, after: _Figures) -> Change:
    tg, pp = (a - b for a, b in zip(after.tps, before.tps, strict=True))
    return Change(
        change=label, tg_tps=_rounded(tg), pp_tps=_rounded(pp), gib=_more(before, after), why=_why(before, after)
    )


def _more(before: _Figures, after: _Figures) -> dict[str, float]:
    names = [*(name for name in before.gib if name != "CPU"), *(n for n in after.gib if n not in before.gib), "CPU"]
    found = {name: _rounded(after.gib.get(name, 0.0) - before.gib.get(name, 0.0)) for name in names}
    return {name: gib for name, gib in found.items() if gib}


def _rounded(value: float) -> float:
    return round(value, 2) + 0.0


def _why(before: _Figures, after: _Figures) -> str:
    """The part of a token's and of a prompt's time that changes most."""
    a, b = before.speed, after.speed
    token = _part(a.parts_tg, b.parts_tg, 1000, 1000, "ms a token")
    prompt = _part(a.parts_pp, b.parts_pp, 1000 / a.n_ubatch, 1000 / b.n_ubatch, "s for 1,000 prompt tokens")
    return "; ".join(text for text in (token, prompt) if text) or "memory only"


def _part(before: Seconds, after: Seconds, scale: float, scale_after: float, unit: str) -> str:
    now, then = ({p: parts[p] * by for p in PARTS} for parts, by in ((before, scale), (after, scale_after)))
    part = max(PARTS, key=lambda p: abs(then[p] - now[p]))
    if abs(then[part] - now[part]) < _TOLD * sum(now.values()):
        return ""
    return f"{part}: {now[part]:.3g} -> {then[part]:.3g} {unit}"
