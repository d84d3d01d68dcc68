"""Published runs (tests/data/perf.jsonl) as what the speed model takes, in groups that share a machine or an author."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from bench.corrections import (
    BUILD_DATES,
    COMMANDS,
    CORES,
    CPUS,
    DISTRUSTED,
    FUSED,
    LATENT,
    MIXES,
    RAMS,
    REPACKED,
)
from service.engine.builds import BuildAsked
from service.engine.catalogue import engine_devices, resolve
from service.engine.commands import parse
from service.engine.config import Device, Engine, Flags, Override, Placement
from service.engine.errors import AdvisorError
from service.engine.hardware import Hardware, Rig
from service.engine.memory import place
from service.engine.model import Model
from tests.models import build

DATA = Path(__file__).parent.parent / "tests" / "data" / "perf.jsonl"
DEPTHS_A_CASE = 7
# Of the groups, those whose name hashes to this number of five are held out: never fitted, looked at once, at the end.
_HELD_OUT, _PARTS = 2, 5

# Until then -op counted operations otherwise, and 26, 27 and 29 were all matrix products of weights.
OPERATIONS_MOVED = "2025-09-01"


class Setup(msgspec.Struct, frozen=True):
    """A case made into what the speed model takes. `group`: every run that shares its machine or its author."""

    case: dict[str, Any]
    group: str
    engine: Engine
    model: Model
    flags: Flags
    rig: Rig
    devices: tuple[Device, ...]
    build_date: str

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


def author_of(case_id: str) -> str:
    """Return who published a case: the middle of its id."""
    return re.sub(r"^(?:disc|pr|issue|lpr)\d+-|-\w+$", "", case_id)


def is_held_out(group: str) -> bool:
    """Return whether a group is kept out of every fit, by the hash of its name."""
    return int(hashlib.sha256(group.encode()).hexdigest(), 16) % _PARTS == _HELD_OUT


def groups_of(cases: list[dict[str, Any]]) -> dict[str, str]:
    """Return the group of each author: authors who ran on one machine (CPU and GPUs of the same names) are joined."""
    owners: dict[str, set[str]] = {}
    for case in cases:
        hardware = case["hardware"]
        cpu = (hardware.get("cpu") or {}).get("model")
        if cpu:
            gpus = sorted({gpu["name"] for gpu in hardware.get("gpus") or []})
            owners.setdefault(f"{cpu} {gpus}", set()).add(author_of(case["id"]))
    joined = {author: {author} for author in {author_of(case["id"]) for case in cases}}
    for authors in owners.values():
        together = set().union(*(joined[a] for a in authors))
        for author in together:
            joined[author] = together
    return {author: "+".join(sorted(together)) for author, together in joined.items()}


@cache
def setups(path: Path = DATA) -> tuple[tuple[Setup, ...], tuple[str, ...]]:
    """Return the setups of all cases that are trusted and can be read, and why others are left out."""
    cases = [msgspec.json.decode(line) for line in path.read_text().splitlines()]
    groups, found, left_out = groups_of(cases), [], []
    for case in cases:
        if case["id"] in DISTRUSTED:
            left_out.append("distrusted")
            continue
        try:
            found.append(setup_of(case, groups[author_of(case["id"])]))
        except AdvisorError as error:
            left_out.append(f"{type(error).__name__}: {error.detail[:60]}")
    return tuple(found), tuple(left_out)


def setup_of(case: dict[str, Any], group: str) -> Setup:
    """Return the setup of a case. Raises AdvisorError for a command or hardware that cannot be read."""
    command = case["command"] or f"{case['tool']} -m model.gguf"
    for words, meaning in COMMANDS:
        command = command.replace(words, meaning)
    date = BUILD_DATES.get(case["id"], case["date"])
    parsed = parse(command, case["engine"], program=case["tool"], build=BuildAsked(date=date))
    flags = in_words(parsed.flags, command, date)
    if case["id"].startswith(FUSED):
        flags = msgspec.structs.replace(flags, fused_moe=True)
    if case["id"] in LATENT:
        flags = msgspec.structs.replace(flags, mla=3)
    if case["id"] in REPACKED:
        flags = msgspec.structs.replace(flags, runtime_repack=True)
    rig = resolve(_hardware(case))
    if parsed.prefix[:1] == ("numactl",) and re.search(r"(?:-N|--cpunodebind)", " ".join(parsed.prefix)):
        rig = one_socket(rig)
    order = stated_order(rig, case["hardware"].get("notes") or "")
    model = build(case["model"]["shape"], MIXES.get(case["id"], case["model"]["mix"]))
    return Setup(case, group, case["engine"], model, flags, rig, engine_devices(rig, case["engine"], order), date)


def _hardware(case: dict[str, Any]) -> Hardware:
    hardware = dict(case["hardware"])
    hardware["gpus"] = hardware.get("gpus") or []
    author = case["id"].rpartition("-")[0]
    if not (hardware.get("cpu") or {}).get("model") and author in CPUS:
        hardware["cpu"] = CPUS[author]
        hardware["ram"] = RAMS.get(author, hardware.get("ram"))
    if author in CORES:
        hardware["cpu"] = hardware["cpu"] | {"physical_cores": CORES[author]}
    return msgspec.convert(hardware, Hardware)


def one_socket(rig: Rig) -> Rig:
    """Return the share of a machine that `numactl -N` leaves: one of its sockets."""
    n = rig.sockets
    return msgspec.structs.replace(
        rig, sockets=1, physical_cores=rig.physical_cores // n, cpu_bandwidth_gbs=rig.cpu_bandwidth_gbs / n
    )


def in_words(flags: Flags, command: str, date: str) -> Flags:
    """Return the flags with what a command says in words, leaves out, and in operations that had other numbers.

    A fragment without `-ngl` is of a command that had it: without, no GPU would have been used.
    """
    words, changes = command.split(), dict[str, Any]()
    if not set(words) & {"-ngl", "--n-gpu-layers", "--gpu-layers"}:
        changes["n_gpu_layers"] = 999
    if date < OPERATIONS_MOVED and any(o.startswith("-op 26,0,27,0,29,0") for o in flags.other):
        changes["op_offload"] = False
    if "all experts on the CPU" in command:
        changes["overrides"] = (Override("exps", "CPU"),)
    if "-ooae" in words:
        changes["other"] = (*flags.other, "-ooae")
    return msgspec.structs.replace(flags, **changes)


def stated_order(rig: Rig, notes: str) -> tuple[int, ...]:
    """Return the cards in the order of a note such as `CUDA order 5090,4090`, else fastest first."""
    found = re.search(r"CUDA order ([\w,]+)", notes)
    names, left = (found[1].split(",") if found else []), list(range(len(rig.cards)))
    if len(names) != len(left):
        return tuple(left)
    return tuple(left.pop(next(i for i, c in enumerate(left) if name in rig.cards[c].name)) for name in names)


def kind_of(placement: Placement) -> str:
    """Return the class of a placement, as the tables name it."""
    host = placement.n_devices
    weights = [d for name, d in placement.tensors.items() if "_norm" not in name and "token_embd" not in name]
    if not host:
        return "CPU only"
    return ("one GPU" if host == 1 else "several GPUs") + (" + CPU" if host in weights else "")


def tests_of(setup: Setup, every: bool) -> Iterator[Test]:
    """Yield the published speeds of a case, at most seven depths of a sweep (or all).

    The first prompt of a sweep without a warm-up batch is cold, and left out but for `every`.
    """
    rows, case = setup.case["rows"], setup.case
    count = len(rows)
    spread = {0, 1, 2, count // 4, count // 2, 3 * count // 4, count - 1} & set(range(count))
    chosen = range(count) if every else sorted(spread)[:DEPTHS_A_CASE]
    warm = "--warmup-batch" in (case["command"] or "")
    for index in chosen:
        n_prompt, n_token, n_kv, _, pp, _, tg = rows[index]
        flags = setup.flags
        if case["tool"] == "llama-sweep-bench":
            n = int(n_prompt)
            flags = msgspec.structs.replace(flags, n_ubatch=n, n_batch=max(n, flags.n_batch))
        placement = setup.placed(flags)
        if every or index or warm or count <= 2:
            yield Test(setup, "PP", int(n_prompt), int(n_kv), pp, flags, placement)
        yield Test(setup, "TG", int(n_token), int(n_kv), tg, flags, placement)
    for entry in case["bench"] or []:
        found = re.fullmatch(r"(pp|tg)(\d+)", entry["test"])
        if found:
            yield _bench_test(setup, entry, found[1].upper(), int(found[2]))


def _bench_test(setup: Setup, entry: dict[str, Any], phase: str, n: int) -> Test:
    changes = {"n_ubatch": entry.get("n_ubatch"), "threads": entry.get("threads"), "n_gpu_layers": entry.get("ngl")}
    flags = msgspec.structs.replace(setup.flags, **{k: v for k, v in changes.items() if v is not None})
    return Test(setup, phase, n, entry.get("n_depth") or 0, entry["t_s"], flags, setup.placed(flags))
