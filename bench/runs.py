"""Published runs (tests/data/perf.jsonl) as what the speed model takes, in groups that share a machine or an author."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench.corrections import (
    AUTHORS,
    BUILD_DATES,
    COMMANDS,
    CORES,
    CPUS,
    DISTRUSTED,
    FILES,
    FLASH,
    FUSED,
    LATENT,
    MIXES,
    RAMS,
    REPACKED,
    WITH_KV_B,
)
from service.engine.builds import BuildAsked, resolve_build
from service.engine.catalogue import engine_devices, resolve
from service.engine.commands.parse import parse
from service.engine.config import Device, Engine, Flags, Placement
from service.engine.errors import AdvisorError
from service.engine.hardware import Hardware, Rig
from service.engine.model import Model
from service.engine.run.environment import Binding, binding_of
from service.engine.run.placement import place
from service.engine.run.resolved import ResolvedRun, resolve_run
from service.engine.speed.predict import bound_rig
from tests.models import build

_DATA = Path(__file__).parent.parent / "tests" / "data"
DATA = (_DATA / "perf.jsonl", _DATA / "perf_2026.jsonl", _DATA / "perf_2026_11.jsonl", _DATA / "perf_gpu_day.jsonl")
# Of cards that few owners published; bench.calibrate.RARE names the generations that it fits, and it moves no others.
# Authors were divided by the hash of their names, before any look: tests/data/perf_cards_unseen.jsonl is in no fit.
CARDS = _DATA / "perf_cards.jsonl"
_BACKENDS = {"CUDA": "cuda", "ROCm": "rocm", "Vulkan": "vulkan", "SYCL": "sycl", "Metal": "metal"}
DEPTHS_A_CASE = 4
OURS = "gpuday"  # the author of this project's own runs, of models with random weights (docs/gpu-day.md)
# Groups that are held out: never fitted; chosen by the hash of their names before any look.
_HELD_OUT = {"Gaolingx", "binjiechen", "sousekd", "usrlocalben"}

# Until then -op counted operations otherwise, and 26, 27 and 29 were all matrix products of weights.
OPERATIONS_MOVED = "2025-09-01"


class Setup(msgspec.Struct, frozen=True):
    """A case made into what the speed model takes. `group`: every run that shares its machine or its author.

    `binding`: of threads and memory to sockets; `rig`: the part of the `whole` machine that the command reads from.
    """

    case: dict[str, Any]
    group: str
    engine: Engine
    model: Model
    flags: Flags
    rig: Rig
    devices: tuple[Device, ...]
    build_date: str | None
    binding: Binding = "unset"
    whole: Rig | None = None

    def placed(self, flags: Flags) -> Placement:
        """Return the placement of `flags` on this setup."""
        return place(self.engine, self.model, flags, [d.free for d in self.devices])


class Test(msgspec.Struct, frozen=True):
    """One published speed in tokens a second: `phase` TG or PP of `n` tokens on top of `depth`."""

    setup: Setup
    phase: str
    n: int
    depth: int
    observed: float
    flags: Flags
    placement: Placement

    @property
    def run(self) -> ResolvedRun:
        """Return the run that was measured."""
        s = self.setup
        return resolve_run(s.engine, s.model, self.flags, s.rig, s.devices, s.build_date, placement=self.placement)


def author_of(case: dict[str, Any]) -> str:
    """Return who published a case: its id names the thread and the author, or the author's repository first."""
    name = str(case["id"])
    if thread := re.match(r"(?:disc|pr|issue|lpr)\d+-", name):
        return re.sub(r"-\w+$", "", name[thread.end() :])
    thread = re.match(r"ik\d+-", name)
    first = name[thread.end() if thread else 0 :].partition("-")[0]
    return AUTHORS.get(first, first)


def is_held_out(group: str) -> bool:
    """Return whether a group is kept out of every fit."""
    return not _HELD_OUT.isdisjoint(group.split("+"))


def groups_of(cases: list[dict[str, Any]]) -> dict[str, str]:
    """Return the group of each author: authors who ran on one machine (CPU and GPUs of the same names) are joined."""
    owners: dict[str, set[str]] = {}
    for case in cases:
        hardware = case["hardware"]
        cpu = (hardware.get("cpu") or {}).get("model")
        if cpu:
            gpus = sorted({gpu["name"].partition(" (")[0] for gpu in hardware.get("gpus") or []})
            owners.setdefault(f"{cpu} {gpus}", set()).add(author_of(case))
    joined = {author: {author} for author in {author_of(case) for case in cases}}
    for authors in owners.values():
        together = set().union(*(joined[a] for a in authors))
        for author in together:
            joined[author] = together
    return {author: "+".join(sorted(together)) for author, together in joined.items()}


@cache
def setups(paths: tuple[Path, ...] = DATA) -> tuple[tuple[Setup, ...], tuple[str, ...]]:
    """Return the setups of all cases that are trusted and can be read, and why others are left out."""
    cases = [msgspec.json.decode(line) for path in paths for line in path.read_text().splitlines()]
    groups, found, left_out = groups_of(cases), [], []
    for case in cases:
        if case["id"] in DISTRUSTED or "-rpc-" in case["id"] or case["id"].endswith("__rpc"):
            left_out.append("distrusted" if case["id"] in DISTRUSTED else "machines over a network are not modelled")
            continue
        try:
            found.append(setup_of(case, groups[author_of(case)]))
        except AdvisorError as error:
            left_out.append(f"{type(error).__name__}: {error.detail[:60]}")
    return tuple(found), tuple(left_out)


def setup_of(case: dict[str, Any], group: str) -> Setup:
    """Return the setup of a case. Raises AdvisorError for a command or hardware that cannot be read."""
    date = BUILD_DATES.get(case["id"]) or _built(case)
    command = command_of(case, date)
    parsed = parse(command, case["engine"], program=case["tool"], build=BuildAsked(date=date))
    flags = in_words(parsed.flags, command, date)
    if case["id"] in REPACKED:
        flags = msgspec.structs.replace(flags, runtime_repack=True)
    rig = of_backend(_limited(resolve(_hardware(case)), case["hardware"].get("gpus") or []), case.get("backend"))
    binding = binding_of(parsed.prefix, flags.numa)
    whole, rig = rig, bound_rig(rig, binding)
    cards = tuple(range(len(rig.cards)))
    model = build(*_file_of(case))
    return Setup(
        case, group, case["engine"], model, flags, rig, engine_devices(rig, case["engine"], cards), date, binding, whole
    )


def _file_of(case: dict[str, Any]) -> tuple[str, str]:
    """Return the shape and the mix of a case's model."""
    model = case["model"]
    stated = model["shape"] + ("-with-kv_b" if case["id"].startswith(WITH_KV_B) else ""), model["mix"]
    shape, mix = FILES.get((model.get("published"), model.get("quant")), stated)
    return str(shape), str(MIXES.get(case["id"], mix))


def command_of(case: dict[str, Any], date: str) -> str:
    """Return the command of a case as it was run: what words in it say, and what a fragment of it leaves out.

    A fragment without `-ngl` is of a command that had it: without, builds of that time would have used no GPU.
    """
    command = case["command"] or f"{case['tool']} -m model.gguf"
    for words, meaning in COMMANDS:
        command = command.replace(words, meaning)
    command = f"{case['tool']} {command}" if command.startswith("-") else command
    bench, given = case["tool"] == "llama-bench", set(command.split())
    rules = resolve_build(case["engine"], BuildAsked(date=date)).rules
    if not (bench or rules.n_gpu_layers or given & {"-ngl", "--n-gpu-layers", "--gpu-layers"}):
        command += " -ngl 999"
    if case["id"].startswith(FLASH) and "-fa" not in given and rules.flash_attn != "on":
        command += " -fa" if rules.flash_attn_value == "none" and not bench else " -fa 1"
    command += " -fmoe" if case["id"].startswith(FUSED) and not rules.fused_moe else ""
    return command + (" -mla 3" if case["id"] in LATENT else "")


def _hardware(case: dict[str, Any]) -> Hardware:
    hardware = dict(case["hardware"])
    known = ("power_limit_w",)  # not a fact that answers ask for
    hardware["gpus"] = [
        {k: v for k, v in gpu.items() if k not in known and not (k == "pcie" and v == "bottom slot")}
        for gpu in hardware.get("gpus") or []
    ]
    if order := stated_order(hardware["gpus"], hardware.get("notes") or ""):
        hardware["gpus"] = [gpu | {"device_order": order[i]} for i, gpu in enumerate(hardware["gpus"])]
    author = case["id"].rpartition("-")[0]
    if not (hardware.get("cpu") or {}).get("model") and author in CPUS:
        hardware["cpu"] = CPUS[author]
        hardware["ram"] = RAMS.get(author, hardware.get("ram"))
    if author in CORES:
        hardware["cpu"] = hardware["cpu"] | {"physical_cores": CORES[author]}
    return msgspec.convert(hardware, Hardware)


def _built(case: dict[str, Any]) -> str:
    """Return the day of the build that a record names by its number, else that of the record."""
    number = re.search(r"(?:^b?|\()(\d{4,5})(?:$|[ )])", case.get("build") or "")
    day = _day(case["date"])
    if number is None or case["engine"] != "llama.cpp":
        return day
    return resolve_build("llama.cpp", BuildAsked(number=int(number[1]))).date or day


def _day(date: str) -> str:
    """Return the middle of a year or month if only that is known."""
    return f"{date}-07-01" if len(date) == 4 else f"{date}-15" if len(date) == 7 else date


def of_backend(rig: Rig, backend: str | None) -> Rig:
    """Return the machine as driven by the stated back end."""
    name = _BACKENDS.get(backend or "")
    if name is None:
        return rig
    cards = tuple(msgspec.structs.replace(card, backend=name) for card in rig.cards)
    return msgspec.structs.replace(rig, cards=cards)


def _limited(rig: Rig, gpus: Sequence[dict[str, Any]]) -> Rig:
    """Return the machine with the power that a record says its cards were limited to."""
    limits = {gpu.get("power_limit_w") for gpu in gpus}
    if len(limits) != 1 or not (watts := limits.pop()):
        return rig
    cards = tuple(msgspec.structs.replace(card, tdp_w=float(watts)) for card in rig.cards)
    return msgspec.structs.replace(rig, cards=cards)


def in_words(flags: Flags, command: str, date: str) -> Flags:
    """Return the flags with what a command says in words, and in operations that had other numbers."""
    changes = dict[str, Any]()
    if date < OPERATIONS_MOVED and any(o.startswith("-op 26,0,27,0,29,0") for o in flags.other):
        changes["op_offload"] = False
    if "(offload only active experts)" in command:
        changes["other"] = (*flags.other, "-ooae")
    return msgspec.structs.replace(flags, **changes)


def stated_order(gpus: Sequence[dict[str, Any]], notes: str) -> list[list[int]]:
    """Return for each entry its cards' places in a note such as `CUDA order 5090,4090`; [] where there is none."""
    found = re.search(r"CUDA order ([\w,]+)", notes)
    names, left = (found[1].split(",") if found else []), [int(gpu["count"]) for gpu in gpus]
    if len(names) != sum(left):
        return []
    places: list[list[int]] = [[] for _ in gpus]
    for index, name in enumerate(names):
        entry = next(i for i, gpu in enumerate(gpus) if name in gpu["name"] and len(places[i]) < left[i])
        places[entry].append(index)
    return places


def kind_of(placement: Placement) -> str:
    """Return the class of a placement, as the tables name it."""
    host = placement.n_devices
    weights = [d for name, d in placement.tensors.items() if "_norm" not in name and "token_embd" not in name]
    if not host:
        return "CPU only"
    return ("one GPU" if host == 1 else "several GPUs") + (" + CPU" if host in weights else "")


def tests_of(setup: Setup, every: bool) -> Iterator[Test]:
    """Yield the published speeds of a case, at most four depths of a sweep (or all).

    The first prompt of a sweep without a warm-up batch is cold, and left out but for `every`.
    """
    rows, case = setup.case["rows"], setup.case
    count = len(rows)
    spread = {0, 1, count // 3, count - 1} & set(range(count))
    chosen = range(count) if every else sorted(spread)[:DEPTHS_A_CASE]
    warm = "--warmup-batch" in (case["command"] or "")
    for index in chosen:
        n_prompt, n_token, n_kv, _, pp, _, tg = rows[index]
        flags, before = setup.flags, int(n_kv)
        if case["tool"] == "llama-batched-bench":  # its N_KV is the context at the end, its prompt begins at 0
            n_kv, before = 0, int(n_prompt)
        if case["tool"] == "llama-sweep-bench":
            n = int(n_prompt)
            flags = msgspec.structs.replace(flags, n_ubatch=n, n_batch=max(n, flags.n_batch))
        placement = setup.placed(flags)
        if every or index or warm or count <= 2:
            yield Test(setup, "PP", int(n_prompt), int(n_kv), pp, flags, placement)
        yield Test(setup, "TG", int(n_token), before, tg, flags, placement)
    for entry in case["bench"] or []:
        found = re.fullmatch(r"(pp|tg)(\d+)", entry["test"])
        if found:
            yield _bench_test(setup, entry, found[1].upper(), int(found[2]))


def _bench_test(setup: Setup, entry: dict[str, Any], phase: str, n: int) -> Test:
    changes = {"n_ubatch": entry.get("n_ubatch"), "threads": entry.get("threads"), "n_gpu_layers": entry.get("ngl")}
    if entry.get("fa") is not None:
        changes["flash_attn"] = "on" if entry["fa"] else "off"
    depth = entry.get("n_depth") or 0
    flags = msgspec.structs.replace(setup.flags, **{k: v for k, v in changes.items() if v is not None})
    if setup.case["tool"] == "llama-bench":  # each test has a context of its own, of no more than it takes
        flags = msgspec.structs.replace(flags, n_ctx=depth + n)
    return Test(setup, phase, n, depth, entry["t_s"], flags, setup.placed(flags))
