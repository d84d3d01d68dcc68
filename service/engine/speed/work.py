"""Work: what one config makes any devices do: bytes and operations of weights, attention, changes of device.

And the parts of the time that it takes, and how tensor types differ in speed by published tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TypeAlias, get_args

import msgspec

from service.engine.calibration import Part
from service.engine.config import Engine
from service.engine.engines.speed import SpeedChange
from service.engine.model import Mla
from service.engine.run.copies import NEVER
from service.engine.run.weights import Use, WeightRules

PARTS: tuple[Part, ...] = get_args(Part)
Seconds: TypeAlias = dict[Part, float]


def no_time() -> Seconds:
    """Return zero seconds for every part."""
    return dict.fromkeys(PARTS, 0.0)


def overlap(reading: float, computing: float, power: float = 3.0) -> float:
    """Return the time of work that reads and computes at once: near the longer one, the less so the lower `power` is.

    Forms that fit: 3 for the tokens of a CPU, 1.5 for its batches.
    """
    longer = max(reading, computing)
    if longer <= 0:
        return 0.0
    shorter = min(reading, computing) / longer
    return float(longer * (1 + shorter**power) ** (1 / power))


def milliseconds(spent: Seconds) -> dict[str, float]:
    """Return the parts that take any time in milliseconds, rounded to a thousandth."""
    return {part: round(1000 * seconds, 3) for part, seconds in spent.items() if seconds >= 5e-7}


class _Table(msgspec.Struct, frozen=True):
    source: str
    families: dict[str, dict[str, float]]


@cache
def _families() -> Mapping[str, Mapping[str, float]]:
    text = resources.files("service.engine.data").joinpath("type_speeds.json").read_bytes()
    return msgspec.json.decode(text, type=_Table).families


@cache
def time_of_type(engine: Engine, backend: str, generation: str, name: str) -> float | None:
    """Return the time of matrix products of a batch with tensors of type `name`, over that with q4_0.

    `backend`: of a card, or the family of a CPU. The table of the generation counts before that of the back end; None
    where neither has the type.
    """
    for family in (f"{engine} {backend} {generation}", f"{engine} {backend}"):
        speed = _families().get(family, {}).get(name)
        if speed is not None:
            return 1 / speed
    return None


@cache
def quant_class(name: str) -> str:
    """Return the class of a tensor type as calibration names it: k | iqk | iq | iq1 | kt | f."""
    base = name.lower().split("_r")[0]
    if base in ("f32", "f16", "bf16"):
        return "f"
    if base.endswith("_kt"):
        return "kt"
    if base.startswith("iq") and ("_k" in base):
        return "iqk"
    if base.startswith("iq1"):
        return "iq1"
    return "iq" if base.startswith(("iq2", "iq3")) else "k"


class Weights(msgspec.Struct, frozen=True):
    """Weights of one use and kind of type: bytes, elements, tensors. Devices are indices, the CPU last.

    `device` computes with them for a token, and they lie on `stored`: where the two differ they cross at every
    evaluation. From `copied_from` tokens of a batch on, the first GPU computes with them (0: never). `type`: its name;
    `quant`: k | iqk | iq | iq1 | kt | f (k: legacy types too); `legacy`: q4_0, q8_0, iq4_nl. `fused` False: routed
    experts of a layer whose up and gate are two operations.
    """

    device: int
    stored: int
    use: Use
    type: str
    quant: str
    legacy: bool
    interleaved: bool
    copied_from: int
    fused: bool
    n_bytes: int
    n_elements: int
    n_tensors: int

    def is_copied(self, n_tokens: int) -> bool:
        """Return whether a batch of `n_tokens` is computed on the first GPU, where a token is computed on the CPU."""
        return 0 < self.copied_from <= n_tokens


class Attention(msgspec.Struct, frozen=True):
    """`count` layers of one geometry whose cache is on `device`. `copied_from`: the tokens of a batch from which their
    weights in RAM go to the first GPU, and their attention with them (0: never). `fetched_to`: the device that attends,
    if that is another: the cache is copied to it for every token and batch, from RAM to a GPU, or from a GPU to RAM.
    `compressed`: the tokens that each row behind the window stands for, 0 where there is none."""

    device: int
    count: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_swa: int
    copied_from: int
    fetched_to: int | None = None
    compressed: int = 0


class Work(msgspec.Struct, frozen=True):
    """Everything about a config that its speed depends on, except hardware and depth.

    `mla_mode` 0: heads are cached; 1 and 3: the latent is; 2: the latent, without flash attention for one token.
    `cache_k`, `cache_v` in bytes an element; `n_ubatch` tokens of a micro-batch; `state_bytes` of recurrent layers by
    device, CPU last, `recurrent_layers` of which are on GPUs; `delta_bytes`: those in RAM if they are delta nets.
    `hyper_connections`: layers read a mixture of several residual streams.
    `rules`: how weights are treated. `unfused_layers`: layers on GPUs whose routed experts' up and gate are two
    operations. `lacks`: what made later builds faster.
    `parallel_cards` share a layer where all GPUs work on each; `pipeline`: else they may work on several micro-batches.
    `host_changes` between CPU and GPU and `card_changes` between GPUs are those of one evaluation.
    """

    engine: Engine
    n_devices: int
    weights: tuple[Weights, ...]
    attention: tuple[Attention, ...]
    state_bytes: tuple[int, ...]
    delta_bytes: int
    recurrent_layers: int
    hyper_connections: bool
    n_embd: int
    n_expert: int
    n_expert_used: int
    mla: Mla | None
    mla_mode: int
    n_layer: int
    gpu_layers: int
    host_layers: int
    host_changes: int
    card_changes: int
    cache_k: float
    cache_v: float
    flash: bool
    unfused_layers: int
    rules: WeightRules
    split_mode: str
    parallel_cards: int
    pipeline: bool
    n_ubatch: int
    lacks: frozenset[SpeedChange]

    def without_copies(self) -> Work:
        """Return the work where nothing in RAM is copied to a GPU for a batch."""
        return msgspec.structs.replace(
            self,
            weights=tuple(msgspec.structs.replace(w, copied_from=NEVER) for w in self.weights),
            attention=tuple(msgspec.structs.replace(a, copied_from=NEVER) for a in self.attention),
        )

    @property
    def share(self) -> float:
        """The share of the experts that one token uses."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0

    @property
    def recurrent(self) -> bool:
        """Whether some layers keep a state in place of a cache."""
        return any(self.state_bytes)
