"""A config: engine + flags, everything needed to write a command; and the placement that the engine makes of it.

Flags are the single truth. The placement, the memory and the speed of a command are functions of (engine, model,
flags, devices): what is printed parses back to the same Flags and hence to the same figures.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

Engine: TypeAlias = Literal["ik_llama.cpp", "llama.cpp"]
ENGINES: tuple[Engine, ...] = ("ik_llama.cpp", "llama.cpp")
Tool: TypeAlias = Literal["server", "bench"]
Allocator: TypeAlias = Literal["cuda", "lab"]
# Files of other programs that start servers (`commands/config_files.py`).
FileFormat: TypeAlias = Literal["llama-swap", "preset", "compose", "env", "systemd"]
CPU = "CPU"
# The `-ctk` and `-ctv` values of either engine (common.cpp of ik_llama.cpp, arg.cpp of llama.cpp).
CacheType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1", "q6_0", "q8_KV"]
CACHE_TYPES: tuple[CacheType, ...] = get_args(CacheType)


class Override(msgspec.Struct, frozen=True):
    """One `-ot` rule: an ECMAScript regex searched in the tensor name, and a device such as `CPU` or `CUDA0`."""

    pattern: str
    device: str


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that change memory, speed or placement, by today's meaning. None: the engine's own default.

    `n_ctx` is the total over all slots. `mmap` None is the engine's default (on in both, but ik_llama.cpp turns it
    off when a tensor is overridden to the CPU). `op_offload` False: no weights in RAM are copied to a GPU for batches.
    `layers_in_ram`: first layers that ik_llama.cpp's `--fit` leaves there, with their caches; no option says so.
    """

    n_ctx: int = 4096
    n_batch: int = 2048
    n_ubatch: int = 512
    n_gpu_layers: int = 999
    layers_in_ram: int = 0
    split_mode: str = "layer"
    tensor_split: tuple[float, ...] = ()
    main_gpu: int | None = None
    overrides: tuple[Override, ...] = ()
    cpu_moe: bool = False
    n_cpu_moe: int = 0
    no_kv_offload: bool = False
    flash_attn: Literal["on", "off", "auto"] = "on"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    mla: int | None = None
    attn_max_batch: int | None = None
    fused_moe: bool = True
    runtime_repack: bool = False
    op_offload: bool = True
    n_logits: int | None = None
    n_parallel: int = 1
    threads: int | None = None
    threads_batch: int | None = None
    mmap: bool | None = None
    mlock: bool = False
    numa: str | None = None
    jinja: bool = False
    other: tuple[str, ...] = ()

    @property
    def first_gpu(self) -> int:
        """The GPU that takes weights from RAM for a batch: the first, with `-sm none` the one in use."""
        return (self.main_gpu or 0) if self.split_mode == "none" else 0

    @property
    def written_split(self) -> tuple[float, ...]:
        """The shares that a command states as `-ts`: none where `--fit` finds them at startup."""
        return () if self.layers_in_ram else self.tensor_split


class Device(msgspec.Struct, frozen=True):
    """One GPU as an engine lists it. `gpu` is the index into the hardware's expanded GPUs; sizes in bytes."""

    name: str
    gpu: int
    free: int
    total: int


class Placement(msgspec.Struct, frozen=True):
    """Where everything is: values are indices into the devices, `len(devices)` is the CPU.

    `tensors`: device by tensor name (next-token tensors that are not loaded are left out; a tied output head is
    listed as `output.weight`). `layers`: the default device of each block. `caches`: that of each block's KV cache or
    state (None: no cache). `head`: that of the output head.
    """

    n_devices: int
    tensors: dict[str, int]
    layers: tuple[int, ...]
    caches: tuple[int | None, ...]
    head: int
