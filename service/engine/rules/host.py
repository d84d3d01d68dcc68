"""The CPU's side: threads, sockets, huge pages, locked memory, and the order of devices."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.config import CPU
from service.engine.rules.case import Case
from service.engine.rules.rule import Found, rule
from service.engine.units import GIB

_THREADS = "threads-and-sockets"
_MMAP = "mmap-pinned-memory-and-ram-that-is-too-small"
_PROMPT_CACHE_MIB = 8192
_READ_BY_ROW = ("token_embd.", "per_layer_token_embd.")  # a row a token, whatever their size
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
    "too-many-threads", "warning", _THREADS, "ik_llama.cpp discussion 223",
    mend="-t with the number of physical cores; -tb may be larger",
)  # fmt: skip
def too_many_threads(case: Case) -> Iterator[Found]:
    """More threads than cores, where the CPU does work for every token."""
    n, cores = case.flags.threads, case.rig.physical_cores
    if n is not None and n > cores and _in_ram(case):
        message = f"-t {n} is more than the {cores} physical cores: generation does not gain from SMT"
        yield Found(message, f"-t {cores}; -tb may be larger")


@rule(
    "odd-threads", "info", _THREADS, "ik_llama.cpp discussion 223 (63 threads 1.7 to 1.9 t/s, 64 threads 3.6 to 4.1)",
    mend="an even -t",
)  # fmt: skip
def odd_threads(case: Case) -> Iterator[Found]:
    """An odd number of threads, where the CPU does work for every token."""
    n, cores = case.flags.threads, case.rig.physical_cores
    if n is not None and 1 < n <= cores and n % 2 and _in_ram(case):
        yield Found(f"-t {n} is odd: such counts were found much slower", f"-t {n - 1}")


@rule(
    "numa-unset", "warning", _THREADS,
    "ik_llama.cpp discussion 396 (40 t/s bound to one socket, 27 with --numa distribute, 10 with --numa isolate)",
    mend="numactl -N 0 -m 0 where one socket's memory holds the weights, else numactl --interleave=all and "
    "--numa distribute; /proc/sys/kernel/numa_balancing 0",
)  # fmt: skip
def numa_unset(case: Case) -> Iterator[Found]:
    """Weights in the RAM of two sockets, and nothing that says which socket reads which."""
    bound = any("numactl" in word or "taskset" in word for word in case.parsed.prefix)
    weights, sockets = _in_ram(case), case.rig.sockets
    if sockets < 2 or weights < GIB or case.rig.os != "linux" or bound or case.flags.numa in ("distribute", "numactl"):
        return
    one = case.rig.ram_bytes // sockets
    size = f"{weights / GIB:,.0f} GiB in RAM"
    if weights < one:
        message = f"{size}, which one of {sockets} sockets holds ({one / GIB:,.0f} GiB), are read from all of them"
        fix = "numactl -N 0 -m 0 before the command (the socket of the first GPU)"
    else:
        message = f"{size} are more than one of {sockets} sockets holds ({one / GIB:,.0f} GiB), and lie anyhow"
        fix = "numactl --interleave=all before the command, and --numa distribute"
    yield Found(message, f"{fix}; echo 0 > /proc/sys/kernel/numa_balancing")


@rule(
    "numa-value-unknown", "error", _THREADS, "ik_llama.cpp common/common.cpp:2287; llama.cpp common/arg.cpp",
    mend="--numa distribute, isolate or numactl",
)  # fmt: skip
def numa_value_unknown(case: Case) -> Iterator[Found]:
    """`--numa` takes one of three values in both engines."""
    if case.flags.numa is not None and case.flags.numa not in _NUMA:
        yield Found(f"--numa {case.flags.numa[:40]}: it is one of {', '.join(_NUMA)}")


@rule(
    "mmap-needed", "info", _MMAP, "ik_llama.cpp src/llama-mmap.cpp:302, llama-model-loader.cpp:662, "
    "llama-load-tensors.cpp:5309", only="ik_llama.cpp", mend="GGML_CUDA_NO_PINNED=1 before the command, or leave out",
)  # fmt: skip
def mmap_needed(case: Case) -> Iterator[Found]:
    """`-thp`, `--defer-experts` and `--prefetch-experts` work on a mapped file, and something turned mapping off."""
    wanted = {"-thp", "--transparent-huge-pages", "--defer-experts", "--prefetch-experts"} & set(case.flags.other)
    off = _mmap_off(case)
    if wanted and off:
        yield Found(f"{min(wanted)} does nothing: it wants a mapped file, and {off} turns mmap off")


def _mmap_off(case: Case) -> str | None:
    """What turns ik_llama.cpp's mmap off."""
    flags = case.flags
    merging = {"-mqkv", "--merge-qkv", "-muge", "--merge-up-gate-experts", "--merge-up-gate-exps"} & set(flags.other)
    overridden = flags.cpu_moe or flags.n_cpu_moe or any(rule.device == CPU for rule in flags.overrides)
    if flags.mmap is False:
        return "--no-mmap"
    if flags.runtime_repack or merging:
        return "-rtr" if flags.runtime_repack else min(merging)
    pinned = overridden and case.devices and "GGML_CUDA_NO_PINNED" not in case.parsed.env
    return "an override to the CPU (pinned memory)" if pinned and flags.n_gpu_layers > 0 else None


@rule(
    "defer-experts-elsewhere", "info", _MMAP, "ik_llama.cpp src/llama.cpp:4999", only="ik_llama.cpp",
    mend="leave it out",
)  # fmt: skip
def defer_experts_elsewhere(case: Case) -> Iterator[Found]:
    """`--defer-experts` works on Linux, and on experts."""
    if "--defer-experts" in case.flags.other and (case.rig.os != "linux" or not case.model.moe_layers):
        why = f"on {case.rig.os}" if case.rig.os != "linux" else "with a model without experts"
        yield Found(f"--defer-experts does nothing {why}")


@rule(
    "locked-memory-too-large", "error", _MMAP, "mlock(2): more than the RAM cannot be locked (llama_mlock)",
    mend="leave out the locking, or take a smaller quantisation",
)  # fmt: skip
def locked_memory_too_large(case: Case) -> Iterator[Found]:
    """`--mlock` (llama.cpp: `-lm mlock`) for more than there is RAM."""
    row = case.table[-1]
    if case.flags.mlock and not row.fits:
        needs, has = row.total_mib / 1024, row.capacity_mib / 1024
        yield Found(f"{needs:,.1f} GiB are to be locked in RAM, there are {has:,.1f}; swap does not help")


@rule(
    "prompt-cache-in-ram", "info", _MMAP, "ik_llama.cpp and llama.cpp llama-server --help: -cram, 8192 MiB by default",
    mend="-cram 0, or what is left",
)  # fmt: skip
def prompt_cache_in_ram(case: Case) -> Iterator[Found]:
    """Both servers cache prompts in up to 8 GiB of RAM, which is not in the figures."""
    row = case.table[-1]
    left = row.capacity_mib - row.total_high_mib
    given = any(option.split()[0] in ("-cram", "--cache-ram") for option in case.flags.other)
    if (
        case.parsed.program == "llama-server"
        and row.fits
        and left < _PROMPT_CACHE_MIB
        and not given
        and not (case.parsed.build.date)
    ):
        message = f"{left / 1024:,.1f} GiB of RAM are left, and the server may take 8 for prompts that it keeps (-cram)"
        yield Found(message, f"-cram {int(max(left // 2, 0)) // 256 * 256}")


@rule(
    "device-order-unknown", "info", "which-card-is-cuda0", "CUDA programming guide, environment variables",
    mend="paste `nvidia-smi -L` as hardware",
)  # fmt: skip
def device_order_unknown(case: Case) -> Iterator[Found]:
    """Numbers of unlike cards mean nothing while their order is not known."""
    names = {card.name for card in case.rig.cards}
    pci = case.parsed.env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" and not case.rig.order_known
    if len(names) > 1 and pci:
        order = ", ".join(f"{d.name} = {case.rig.cards[d.gpu].name}" for d in case.devices)
        yield Found(f"CUDA_DEVICE_ORDER=PCI_BUS_ID, but the PCI order of these cards was not given; taken: {order}")
