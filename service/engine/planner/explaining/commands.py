"""The commands of a config, to paste: download, build, server and benchmark, with the devices that they may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import commonpath, dirname

import msgspec

from service.engine.advice import Commands, DeviceMemory, OldestBuild
from service.engine.builds import Build, BuildAsked, day_before, resolve_build
from service.engine.catalogue import engine_devices
from service.engine.commands.building import build_line, download, model_path, packages
from service.engine.commands.forms import docker, powershell, systemd
from service.engine.commands.render import bash, is_young, launch, oldest_build, render
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags
from service.engine.hardware import Rig
from service.engine.memory.growth import bounds, growth_of
from service.engine.model import Model
from service.engine.planner.pricing.fit import Problem
from service.engine.planner.ranking.rank import Contender
from service.engine.rules.cache import rotation_saves
from service.engine.run.devices import SELECTOR, showing
from service.engine.run.environment import prefix_of
from service.engine.units import MIB

MODELS_DIR = "models"
# Compute capabilities of Xavier and Orin: what CUDA 12 compiles for ARM servers, packages and images, is none of theirs
# (conda-forge.org/docs/how-to/advanced/cuda/tegra).
_TEGRA = (7.2, 8.7)
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES", "sycl": SELECTOR}


class Files(msgspec.Struct, frozen=True):
    """Where a variant is: its Hub repo (None: files on this disk) and the paths of its shards inside it, in order.

    `projector`: the path of a projector that is loaded with it.
    """

    repo: str | None
    revision: str | None
    paths: tuple[str, ...]
    projector: str | None = None


def environment(rig: Rig, cards: Sequence[int]) -> dict[str, str]:
    """Return the variables that show an engine exactly `cards`, in our order.

    Nothing is set when all cards are used and their order is the runtime's own (fastest first). Cards left unused are
    hidden: both engines create a context on every card they see.
    """
    variable = _VISIBLE.get(rig.cards[0].backend) if rig.cards else None
    if variable is None:
        return {}
    chosen = [rig.cards[c] for c in cards]
    if chosen and all(card.uuid for card in chosen):
        return {variable: ",".join(card.uuid or "" for card in chosen)}
    if chosen and variable == "CUDA_VISIBLE_DEVICES" and all(card.pci_index is not None for card in chosen):
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", variable: ",".join(str(card.pci_index) for card in chosen)}
    if tuple(cards) == tuple(range(len(rig.cards))) or (variable == SELECTOR and not cards):
        return {}
    return {variable: showing(variable, cards)}


def on_these(engine: Engine, flags: Flags, rig: Rig, cards: Sequence[int]) -> Flags:
    """Return the flags, with what keeps an engine to `cards` where no variable does (`environment`).

    `-sm none` for one of several like cards under Vulkan: it names none of them, as the driver orders them, and the
    engine leaves out integrated GPUs before it takes the first. `-dev none` for none: with `-ngl 0` alone, prompts are
    computed on a GPU that is there (llama.cpp src/llama.cpp, llama_model_load_from_file_impl). `-dev` with the names of
    all where a Vulkan build would run as well: on the cards of other makers too, or at another speed, without a word.
    """
    backend = rig.cards[0].backend if rig.cards else "cuda"
    runs_all = "vulkan" in engine_spec(engine).backends
    if cards and runs_all and backend != "vulkan" and rig.build_named:
        names = ",".join(device.name for device in engine_devices(rig, engine, cards))
        return msgspec.structs.replace(flags, other=(*flags.other, f"-dev {names}"))
    if backend in ("cuda", "rocm") or backend not in engine_spec(engine).backends:
        return flags
    if not cards:
        return msgspec.structs.replace(flags, other=(*flags.other, "-dev", "none"))
    is_one = len(cards) == 1 < len(rig.cards) and backend == "vulkan"
    return msgspec.structs.replace(flags, split_mode="none") if is_one else flags


def commands(
    engine: Engine, model: Model, flags: Flags, files: Files, rig: Rig, cards: Sequence[int], models_dir: str | None,
    asked: Build | None = None, server_options: Sequence[str] = (), bench_ubatch: int | None = None,
) -> Commands:  # fmt: skip
    """Return the commands of a config on `cards` of `rig`: download, server in all forms, benchmark, build.

    `asked`: the build in use, whose spelling they have; if it is stated, there is no command for building one.
    `server_options`: options for the server alone. `bench_ubatch`: the benchmark's micro-batch, by default the same.
    """
    stated = asked is not None and asked.date is not None
    folder, env = models_dir or MODELS_DIR, environment(rig, cards)
    path = model_path(files.repo, files.paths, folder) if files.repo else files.paths[0]
    prefix, flags = prefix_of(flags.numa, rig.nodes_a_socket), on_these(engine, flags, rig, cards)
    flags = _with_rotated_keys(engine, model, flags, asked)
    measured = msgspec.structs.replace(flags, n_ubatch=bench_ubatch or flags.n_ubatch)
    if files.projector:
        images = model_path(files.repo, (files.projector,), folder) if files.repo else files.projector
        flags = msgspec.structs.replace(flags, other=(*flags.other, f"--mmproj {images}"))
    bounded = msgspec.structs.replace(flags, other=(*flags.other, *server_options))
    server = launch(engine, "server", bounded, model_path=path, env=env, prefix=prefix, build=asked)
    oldest = None if stated else oldest_build(engine, server.program, server.arguments, model.architecture)
    pins, backend = _pins(engine, flags, rig), rig.cards[0].backend if rig.cards else "cpu"
    # A Mac has no systemd, and gives a container no GPU.
    mac = any(card.backend == "metal" for card in (*rig.cards[:1], *rig.unused))
    used, arm = [rig.cards[card] for card in cards], rig.windows and rig.isa == "neon"
    tegra = backend == "cuda" and rig.cards[0].compute_capability in _TEGRA
    capabilities = [c.compute_capability for c in rig.cards if c.backend == "cuda" and c.compute_capability]
    wanted = (*files.paths, files.projector) if files.projector else files.paths
    mounted = folder if files.repo else _common_folder(path, files.projector or path)
    return Commands(
        download=download(files.repo, wanted, folder, revision=files.revision) if files.repo else "",
        server=bash(server),
        bench=render(engine, "bench", measured, model_path=path, env=env, prefix=prefix, build=asked),
        powershell=powershell(server),
        docker="" if mac or tegra else docker(engine, server, backend, mounted, pins=pins, capabilities=capabilities),
        systemd="" if mac else systemd(server, f"{engine}: {path.rsplit('/', 1)[-1]}", pins=pins),
        packages=() if tegra or stated else packages(engine, used),
        build=None if stated else build_line(engine, model, flags, used, windows_on_arm=arm),
        oldest_build=oldest,
        older=None if stated else _older(engine, model, flags, oldest, path, env, prefix),
    )


def _with_rotated_keys(engine: Engine, model: Model, flags: Flags, asked: Build | None) -> Flags:
    """The flags with the option that rotates keys of few bits, where the build has it and they lose much without."""
    option, build = engine_spec(engine).commands.rotates_keys, asked or resolve_build(engine, None)
    if option is None or option in flags.other or not build.since("llama-server", option):
        return flags
    if not rotation_saves(model, flags.cache_type_k):
        return flags
    return msgspec.structs.replace(flags, other=(*flags.other, option))


def _common_folder(*paths: str) -> str:
    """The deepest folder that all these files are below."""
    return commonpath([dirname(path) for path in paths]) or "."


def lines_of(
    contender: Contender, flags: Flags, files: Files, models_dir: str | None, host: DeviceMemory,
    bench_ubatch: int | None = None,
) -> Commands:  # fmt: skip
    """Return the commands of a contender with these flags; `host`: the memory that they take in RAM.

    What the server may allocate while it runs is bounded to what is left of the RAM that a model may take; with today's
    builds only, whose defaults are known.
    """
    problem, engine, model = contender.problem, contender.engine, contender.problem.model
    left = 0 if contender.candidate.strategy == "experts from a drive" else _left_of(problem, host)
    bounded = () if problem.date else bounds(engine, growth_of(engine, model, flags), left)
    cards = contender.candidate.cards
    return commands(engine, model, flags, files, problem.rig, cards, models_dir, problem.build, bounded, bench_ubatch)


def _left_of(problem: Problem, host: DeviceMemory) -> int:
    """The bytes of RAM that a server may take as it runs: without those that others need, or that the user keeps."""
    free = int((host.free_mib - host.total_high_mib + host.total_mib) * MIB)
    limits = problem.limits
    of_projector = 0 if limits.reserve else limits.projector  # which `host` has counted
    return free - (problem.rig.ram_bytes - limits.host - of_projector)


def _pins(engine: Engine, flags: Flags, rig: Rig) -> bool:
    """Whether weights in RAM are locked: by `--mlock`, or pinned for copies to a card."""
    moved = bool(flags.overrides or flags.cpu_moe or flags.n_cpu_moe)
    pinned = moved if engine_spec(engine).offload.pins_overridden else flags.mmap is False
    return flags.mlock or (pinned and any(card.backend == "cuda" for card in rig.cards))


def _older(
    engine: Engine, model: Model, flags: Flags, oldest: OldestBuild | None, path: str, env: Mapping[str, str],
    prefix: Sequence[str],
) -> str | None:  # fmt: skip
    """The server's command for builds older than `oldest`, if such are still in use and have all that it needs."""
    if oldest is None or not is_young(engine, oldest):
        return None
    before = resolve_build(engine, BuildAsked(date=day_before(oldest.date)))
    since = engine_spec(engine).architectures.since(model.architecture)
    if since and day_before(oldest.date) < since[1]:
        return None
    try:
        return render(engine, "server", flags, model_path=path, env=env, prefix=prefix, build=before)
    except InvalidFlags:
        return None
