"""The CPU's side: threads, sockets, huge pages, locked memory, and the order of devices."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.commands.limits import CPU_SET, CPUS, PASSED, VARIABLES, cpus_given, memory_limit
from service.engine.memory.growth import CHECKPOINTS, PROMPTS, bounds, growth_of
from service.engine.rules.case import Case
from service.engine.rules.rule import MMAP, UNASKED, Found, rule
from service.engine.run.environment import INTERLEAVE, bound_ram, prefix_of
from service.engine.units import GIB, MIB

_THREADS = "threads-and-sockets"
_READ_BY_ROW = ("token_embd.", "per_layer_token_embd.")  # a row a token, whatever their size
_HYBRID = ("alder lake", "raptor lake", "meteor lake", "arrow lake", "lunar lake")  # as the catalogue names them
_NUMA = ("distribute", "isolate", "numactl")


def _in_ram(case: Case) -> int:
    """Bytes of weights that the CPU multiplies, 0 where they are a small part of the model."""
    n_bytes = sum(
        case.model.by_name[name].nbytes
        for name, device in case.placement.tensors.items()
        if device == case.cpu and name in case.model.by_name and not name.startswith(_READ_BY_ROW)
    )
    return n_bytes if n_bytes > case.model.n_bytes // 20 else 0


@rule(
    "too-many-threads", "warning", _THREADS,
    "ik_llama.cpp discussion 223; with GPUs, 128 threads on 64 cores generated 0.25 to 0.62 times as fast as 64 in "
    "four models (pauldmartinphd/llm-performance-engineering-notebook)",
    fix="-t with the number of physical cores; -tb may be larger",
)  # fmt: skip
def too_many_threads(case: Case) -> Iterator[Found]:
    """More threads than cores, where the CPU does work for every token."""
    n, cores = case.flags.threads, case.rig.physical_cores
    if n is not None and n > cores and _in_ram(case):
        hybrid = case.rig.cpu_generation in _HYBRID
        why = f"generation does not gain from SMT{' or efficiency cores' if hybrid else ''}"
        if n >= 2 * cores and case.devices:
            why = "with every hardware thread computing, the one that drives the GPUs has to wait"
        assumed = case.rig.cpu_model is None and any(one.field == "hardware.cpu" for one in case.rig.assumed)
        kind = "performance" if hybrid else "physical"
        message = f"-t {n} is more than the {cores} {kind} cores{' (assumed)' if assumed else ''}: {why}"
        yield Found(message, f"-t {cores}", severity="info" if assumed else None)


@rule(
    "container-limits", "info", UNASKED,
    "systemd.resource-control(5), docker-run(1), compose-spec deploy.md",
)  # fmt: skip
def container_limits(case: Case) -> Iterator[Found]:
    """What a container or unit limits: the memory bounds the RAM here, and its CPUs the cores; variables from a file
    are not counted."""
    env, limit = case.parsed.env, memory_limit(case.parsed.env)
    cores = case.whole.physical_cores
    cpus = cpus_given(env, case.parsed.prefix, cores)
    if limit is not None and limit <= case.rig.ram_bytes:
        bounded = not any(card.unified for card in case.rig.cards)
        counted = "the figures count no more" if bounded else "not counted, because GPUs share it"
        yield Found(f"the container or unit may take {limit / MIB:,.0f} MiB of RAM: {counted}")
    if cpus is not None and cpus < cores:
        threads = "" if case.flags.threads or not _in_ram(case) else "; without -t the engine may start more threads"
        yield Found(
            f"the container, unit, taskset or numactl gives {cpus:g} of {cores} cores: figures are with these{threads}"
        )
    elif cpus is None and (stated := env.get(CPUS) or env.get(CPU_SET)):
        yield Found(f"the limit of the CPU ({stated[:20]}) is not counted: speeds are with all cores")
    if path := env.get(VARIABLES):
        yield Found(f"{path[:80]} is not read: the figures are without the variables in it")
    if names := env.get(PASSED):
        yield Found(f"{names[:200]}: set outside this text, if at all; the figures are without them")


@rule(
    "odd-threads", "info", _THREADS, "ik_llama.cpp discussion 223 (63 threads 1.7 to 1.9 t/s, 64 threads 3.6 to 4.1)",
    fix="an even -t",
)  # fmt: skip
def odd_threads(case: Case) -> Iterator[Found]:
    """An odd number of threads, where the CPU does work for every token."""
    n, cores = case.flags.threads, case.rig.physical_cores
    if n is not None and 1 < n <= cores and n % 2 and _in_ram(case):
        yield Found(f"-t {n} is odd: odd counts were much slower in measurements", f"-t {n - 1}")


@rule(
    "numa-unset", "warning", _THREADS,
    "ik_llama.cpp discussion 396 (40 t/s bound to one socket, 27 with --numa distribute, 10 with --numa isolate)",
    fix="numactl -N 0 -m 0 where one socket's memory holds the weights, else numactl --interleave=all and "
    "--numa distribute; /proc/sys/kernel/numa_balancing 0",
)  # fmt: skip
def numa_unset(case: Case) -> Iterator[Found]:
    """Weights in the RAM of two sockets, with nothing that sets which socket reads which."""
    bound = any("numactl" in word or "taskset" in word for word in case.parsed.prefix)
    weights, sockets, nodes = _in_ram(case), case.rig.sockets, case.rig.nodes_a_socket
    if sockets < 2 or not nodes or weights < GIB or case.rig.os != "linux":
        return
    if bound or case.flags.numa in ("distribute", "numactl"):
        return
    one = case.rig.ram_bytes // sockets
    size = f"{weights / GIB:,.0f} GiB in RAM"
    if weights < one:
        message = f"{size} would fit on one of {sockets} sockets ({one / GIB:,.0f} GiB) but are read across all of them"
        fix = f"{' '.join(prefix_of('numactl', nodes))} before the command"
    else:
        message = f"{size} do not fit on one of {sockets} sockets ({one / GIB:,.0f} GiB), and are spread by chance"
        fix = f"{' '.join(INTERLEAVE)} before the command; --numa distribute"
    yield Found(f"{message} (and /proc/sys/kernel/numa_balancing should be 0)", fix)


def bound_too_small(case: Case) -> int | None:
    """Return the bytes that `numactl -m` allows, where they are too few on a machine that has enough; else None."""
    bound = bound_ram(case.parsed.prefix, case.whole)
    return bound if bound and bound < case.table[-1].total_mib * MIB <= case.whole.ram_bytes else None


@rule(
    "bound-memory-too-small", "error", _THREADS,
    "numactl(8), --membind: memory of other nodes is not used, however little there is on these",
    fix="-m with all nodes of a socket that holds the model, else numactl --interleave=all and --numa distribute",
)  # fmt: skip
def bound_memory_too_small(case: Case) -> Iterator[Found]:
    """`numactl -m` with NUMA nodes that have less RAM than the command takes, on a machine that has enough."""
    bound, whole, needs = bound_too_small(case), case.whole, case.table[-1].total_mib * MIB
    if bound is None:
        return
    numa = "numactl" if needs <= whole.ram_bytes // whole.sockets else "distribute"
    yield Found(
        f"numactl -m allows {bound / GIB:,.0f} of the {whole.ram_bytes / GIB:,.0f} GiB of RAM, and "
        f"{needs / GIB:,.0f} are needed",
        f"{' '.join(prefix_of(numa, whole.nodes_a_socket))} before the command; --numa {numa}",
    )


@rule(
    "numa-value-unknown", "error", _THREADS, "ik_llama.cpp common/common.cpp:2287; llama.cpp common/arg.cpp",
    fix="--numa distribute, isolate or numactl", refused="options",
)  # fmt: skip
def numa_value_unknown(case: Case) -> Iterator[Found]:
    """`--numa` takes one of three values in both engines."""
    if case.flags.numa is not None and case.flags.numa not in _NUMA:
        yield Found(f"--numa {case.flags.numa[:40]}: choose from {', '.join(_NUMA)}", "--numa distribute")


@rule(
    "locked-memory-too-large", "error", MMAP, "mlock(2): more than the RAM cannot be locked (llama_mlock)",
    fix="leave out --mlock, or leave out -lm, or a smaller quantisation",
)  # fmt: skip
def locked_memory_too_large(case: Case) -> Iterator[Found]:
    """`--mlock` (llama.cpp: `-lm mlock`) for more than the RAM there is; a warning where the amount was assumed."""
    row = case.table[-1]
    if case.flags.mlock and not row.fits:
        guessed = case.assumes_memory(case.cpu)
        needs, has = row.total_mib / 1024, f"{row.capacity_mib / 1024:,.1f}{' (assumed)' if guessed else ''}"
        yield Found(
            f"{needs:,.1f} GiB would be locked in RAM, but there are {has}; swap does not help",
            severity="warning" if guessed else None,
        )


@rule(
    "ram-grows", "info", MMAP,
    "llama-server --help of both engines: -cram, 8192 MiB by default, 32 checkpoints a slot; llama.cpp "
    "tools/server/server-context.cpp, ik_llama.cpp examples/server/server-context.cpp, create_checkpoint",
    fix="-cram and, where checkpoints are kept, -ctxcp (ik_llama.cpp: -ctx-ckpt) with what is left",
)  # fmt: skip
def ram_grows(case: Case) -> Iterator[Found]:
    """RAM that a server allocates while it runs: cached prompts, and checkpoints of state that it cannot rewind.

    A warning where the machine has less, also for the GPU that shares it; nothing where the command bounds it to less.
    """
    row = case.table[-1]
    build = case.parsed.build
    if case.parsed.program != "llama-server" or not row.fits or (build.date and not build.has("llama-server", "-cram")):
        return
    left = int((row.free_mib - (row.total_high_mib - row.total_mib)) * MIB)
    growth = growth_of(case.engine, case.model, case.flags, build.date)
    words = [_as_written(case, option) for option in bounds(case.engine, growth, left)]
    if not words and (growth.checkpoints < GIB or {*PROMPTS, *CHECKPOINTS} & {*case.parsed.used}):
        return
    prompts = "prompts" if growth.prompts is None else f"{growth.prompts / GIB:,.1f} GiB of cached prompts"
    parts = [f"{prompts} (-cram)"] if growth.prompts != 0 else []
    if growth.checkpoints:
        slots = f" for each of {growth.slots} slots" if growth.slots > 1 else ""
        option = case.spec.memory.checkpoint_option
        parts.append(f"{growth.a_slot} checkpoints of {growth.checkpoint / MIB:,.1f} MiB{slots} ({option})")
    amount = "RAM without a limit" if growth.prompts is None else f"{growth.total / GIB:,.1f} GiB more RAM"
    message = f"while it runs, the server may take {amount}: {' and '.join(parts)}"
    tight = f"; {left / GIB:,.1f} GiB are left" if words else ""
    yield Found(message + tight, " ".join(words), severity="warning" if words else None)


def _as_written(case: Case, option: str) -> str:
    """An option with its value, in the spelling that the command has: only that one is replaced."""
    name, _, value = option.partition(" ")
    names = PROMPTS if name in PROMPTS else CHECKPOINTS
    return f"{next((used for used in case.parsed.used if used in names), name)} {value}"


@rule(
    "device-order-unknown", "info", "which-card-is-cuda0", "CUDA programming guide, environment variables",
    fix="paste `nvidia-smi -L` as hardware",
)  # fmt: skip
def device_order_unknown(case: Case) -> Iterator[Found]:
    """The numbers of unlike cards mean nothing while their order is unknown."""
    if case.order_guessed:
        order = ", ".join(f"{d.name} = {case.rig.cards[d.gpu].name}" for d in case.devices)
        yield Found(f"CUDA_DEVICE_ORDER=PCI_BUS_ID, but the PCI order of these cards was not given; assumed: {order}")
