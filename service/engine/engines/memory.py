"""The interface of an engine for memory prediction. The defaults are what most engines built on ggml do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from re import Pattern
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # nothing is loaded for the interface: these rooms ask the engines themselves
    from service.engine.builds import MemoryRules
    from service.engine.config import Flags, Placement, Tool
    from service.engine.layers import Layer
    from service.engine.memory.cache import CacheTensor
    from service.engine.memory.contents import Contents
    from service.engine.memory.figures import Memory
    from service.engine.memory.graph import Graph
    from service.engine.memory.spec import GraphSpec
    from service.engine.model import Mla, Model, Recurrent
    from service.engine.run.resolved import ResolvedRun

    CacheTensors = tuple[CacheTensor, ...]


class EngineMemory(ABC):
    """How an engine places a model and what it allocates. Sizes in bytes; the CPU is device `placement.n_devices`.

    Facts, with what they mean:

    - `padding_without_flash_attention`: `-c` is rounded up to a multiple of this where flash attention is off (of 256
      where it is on); `without_flash_attention`: architectures that never use it.
    - `inputs_stay_in_ram`: no override moves the token embedding. `on_first_layer`: tensors that are placed with the
      first layer. `loaded_anyway`: by architecture, tensors of next-token layers that are loaded even without drafting.
    - `caches_next_tokens`: next-token layers that are loaded have a cache in the model's own context.
    - `rope_factors_for_each`: each layer, or each device, has its copy of the rope factors.
    - `repeats_expert_biases`: where an override moves only an expert's weight, its bias is stored there a second time.
    - `repacks_at_load`: `-rtr` interleaves what is in RAM. `fuses_up_and_gate`: one operation multiplies by both if
      they have one type. `up_before_gate`: the order of the two operations if not.
    - `tries_flash_attention`: `-fa auto` is off where a layer's attention would not run on its own device.
    - `reserves_single_tokens`: the graph of one token a slot is reserved too. `reserves_before_policy`: buffers are
      reserved before `-op` is read. `checks_kernels`: the scheduler asks a card whether it has a kernel for an
      operation, and keeps each layer's norms on the layer's device. `most_split_inputs`: copies to one split of the
      graph, None where their number is not limited.
    - `head_moves_last`: `-ngl` moves the output head to a card after all layers, else before them.
    - `split_modes`: the values of `-sm`; `together`: those with which all cards share every layer, on CUDA cards of
      `together_capability` or newer, in builds of `together_from` or later. `shares_quantised_from`: the date from
      which its builds do so with a quantised cache, None where its speed there is unknown.
    - `counts_experts_from_first`: `-ncmoe N` on one card is layers 0 to N-1, not the last N with experts.
    - `divides_by`: what `-ngl` without `-ts` divides layers by, in words.
    - `latent_ignores_v`: a latent cache has no values, so that `-ctv` has no effect. `latent_needs_sizes`: attention
      is latent only in files that name the sizes of absorbed heads. `tools_alike`: server and benchmark take the same
      memory. `limits_logits_from`: the date from which an option says how many tokens' logits are kept, None if there
      is none.
    - `pipeline_copies`: of a build without options, None where the build's rules say. `pools_results`: fused experts
      and caches that are copied to f16 take memory of the pool, which no buffer size shows.
    - `checkpoints_windows`: its server keeps checkpoints of sliding windows, not of recurrent states alone.
      `checkpoint_option`: what bounds them.
    """

    padding_without_flash_attention: int = 256
    without_flash_attention: frozenset[str] = frozenset()
    inputs_stay_in_ram: bool = False
    on_first_layer: frozenset[str] = frozenset()
    loaded_anyway: Mapping[str, Pattern[str]] = MappingProxyType({})
    caches_next_tokens: bool = False
    rope_factors_for_each: Literal["layer", "device"] = "device"
    repeats_expert_biases: bool = False
    repacks_at_load: bool = False
    fuses_up_and_gate: bool = False
    up_before_gate: bool = False
    tries_flash_attention: bool = False
    reserves_single_tokens: bool = False
    reserves_before_policy: bool = False
    checks_kernels: bool = False
    most_split_inputs: int | None = None
    head_moves_last: bool = False
    split_modes: tuple[str, ...] = ("none", "layer")
    together: tuple[str, ...] = ()
    together_capability: float = 0.0
    together_from: str = ""
    shares_quantised_from: str | None = None
    counts_experts_from_first: bool = True
    divides_by: str = "free memory, counted in layers"
    latent_ignores_v: bool = False
    latent_needs_sizes: bool = False
    tools_alike: bool = False
    limits_logits_from: str | None = None
    pipeline_copies: int | None = None
    pools_results: bool = False
    checkpoints_windows: bool = False
    checkpoint_option: str = "-ctxcp"

    @abstractmethod
    def latent_mode(self, model: Model, flags: Flags, rules: MemoryRules) -> int:
        """Return the mode of the latent cache (`-mla` where the engine has it, else 1), 0 for plain K and V."""

    @abstractmethod
    def graph_spec(self, model: Model, flags: Flags, tool: Tool, *, rules: MemoryRules) -> GraphSpec:
        """Return what the worst-case graph of these flags depends on. Raises InvalidFlags for unknown cache types."""

    @abstractmethod
    def describe_graph(self, model: Model, spec: GraphSpec, kept: tuple[int, ...] | None) -> tuple[Graph, bool]:
        """Return the graph, of the layers `kept` only unless None; and whether the architecture has a description.

        Raises MissingTensor where no description fits the tensors, GraphTooLarge.
        """

    @abstractmethod
    def keys_values(self, model: Model, layer: Layer, spec: GraphSpec) -> CacheTensors:
        """Return K and V of a layer; () for one without heads."""

    @abstractmethod
    def latent_rows(self, mla: Mla, layer: Layer, spec: GraphSpec) -> CacheTensors:
        """Return the latent cache of a layer."""

    @abstractmethod
    def recurrent_state(self, recurrent: Recurrent, model: Model, layer: Layer, spec: GraphSpec) -> CacheTensors:
        """Return the window of the convolution and the state of a recurrent layer."""

    @abstractmethod
    def indexer_keys(self, model: Model, spec: GraphSpec) -> CacheTensors:
        """Return the keys of `size` elements by which sparse attention chooses rows."""

    @abstractmethod
    def has_indexer(self, model: Model, layer: int) -> bool:
        """Return whether a layer of sparse attention chooses rows itself; else it takes those of the last that did."""

    @abstractmethod
    def place_layers(
        self, model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
    ) -> tuple[list[int], dict[str, int]]:  # fmt: skip
        """Return the device of each layer and, last, of the output head; and of each tensor that a flag moves.

        Raises InvalidFlags for overrides that the engine refuses.
        """

    @abstractmethod
    def split_layers(self, model: Model, flags: Flags, free: Sequence[int]) -> list[int]:
        """Return the device of each layer and of the head by `-ngl` and `-ts` alone, as today's build divides them."""

    def slot_sizes(self, model: Model, flags: Flags) -> tuple[list[float], float] | None:
        """Return the bytes that count for each layer and, last, the head where layers are divided by bytes, else None.

        The second figure counts for each card once.
        """
        return None

    def ignores_overrides(self, flags: Flags) -> bool:
        """Return whether `-ot` rules have no effect with these flags."""
        return False

    @abstractmethod
    def works_together(self, model: Model, flags: Flags, n_cards: int) -> bool:
        """Return whether the first of the modes `together` is known to run the model with these caches on the cards."""

    def split_refused(self, model: Model, flags: Flags) -> str | None:
        """Return why the engine does not load the model with these flags' `-sm`, None where it does."""
        return None

    def stops_at_graph(self, run: ResolvedRun) -> str | None:
        """Return why the engine stops at its first graph though the model is loaded, None where it does not.

        Raises InvalidFlags.
        """
        return None

    def attends_in_ram(self, run: ResolvedRun, layer: Layer) -> bool:
        """Return whether the CPU attends to a layer's cache, also if it is on a card, which has no kernel for it."""
        return False

    def loaded(self, model: Model, flags: Flags, placement: Placement) -> tuple[Model, Placement]:
        """Return the model with the tensors that loading makes of others, and where they are."""
        return model, placement

    @abstractmethod
    def shares_tied_head(self, contents: Contents) -> bool:
        """Return whether a tied output head takes no memory of its own besides the token embedding."""

    def derived_bytes(self, model: Model, layer: int, mode: int) -> int:
        """Return the bytes of the matrices that loading makes of a latent layer's tensors in a latent mode."""
        return 0

    def predict_split(self, run: ResolvedRun) -> Memory | None:
        """Return the memory where it is not a sum over a placement by layers, None where it is."""
        return None

    def roughly_split(self, model: Model, flags: Flags, basis: str) -> str | None:
        """Return how roughly the memory of a split that is not by layers is computed; None where it is known.

        `basis`: how certain the figures of this command are.
        """
        return "its memory is computed as for -sm layer"

    @abstractmethod
    def basis(self, contents: Contents, *, older: bool) -> str:
        """Return how certain the figures of a described graph are: measured, source only or approximate.

        `older`: by the rules of an older build.
        """

    def copied_for_batch(self, contents: Contents, *, experts: bool) -> bool:
        """Return whether buffers are reserved for weights in RAM that the worst-case batch would copy to a card."""
        return contents.flags.op_offload
