"""What reading and writing commands asks of an engine: its options, how it spells them, how it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from service.engine.engines.drafting import drafting_asked
from service.engine.engines.tables import Options

if TYPE_CHECKING:  # nothing is loaded for the interface: these rooms ask the engines themselves
    from service.engine.advice import BuildOption, Package
    from service.engine.builds import BuildRules
    from service.engine.config import CacheType, Flags, Tool
    from service.engine.engines.drafting import Drafting
    from service.engine.hardware import Card
    from service.engine.model import Model

Effect: TypeAlias = Literal["devices", "option", "copies", "none"]


class EngineCommands(ABC):
    """How an engine's commands are written and read. Words are unquoted.

    Facts, with what they mean:

    - `options`: every option of its programs. `retired`: options that only builds of it ever had, by which a command is
      known as its own. `program_names`: parts of a program's name or path by which it is known.
    - `image`: of its container: name, Dockerfile (`{}`: the back end) and target, in its repository.
      `image_lacks_blackwell`: unless it is built with a newer CUDA than its own.
    - `bench_defaults`: fields of Flags whose default in llama-bench is another than in the server.
    - `first_rule_wins`: `-cmoe` and `-ncmoe` are rules like `-ot`, of which the first that matches wins; else they come
      last. `bench_rule_separator`: what llama-bench splits the rules of one `-ot` at.
    - `bench_reads_numbers`: llama-bench reads `-fa` as a number, and any word after it that is none as 0.
      `bench_fits`: options by which llama-bench places the model as the server does by itself.
    - `draft_takes_rules`: a draft model takes the rules and, unless given, the cache types of the model, and one slot.
    - `speculations`: values of `--spec-type`. `draft_kinds`: those that draft with a model of its own, by a word in its
      name or architecture, "" for any other. `loads_idle_draft`: a draft model is loaded also where none of them is.
      `next_tokens_in_one_slot`: with more, next-token layers and a draft model for them are not used.
    - `drafting`: the options that draft with next-token layers of a file, by architecture, as publications have them.
    - `server_caps_context`: its server uses no more of a slot than the model was trained for, unless YaRN is asked for.
      Else it takes longer prompts, but ends an answer there whose request sets no `max_tokens`.
    - `rotates_keys`: the option that rotates keys of a quantised cache, where that is not done unasked.
    - `yarn_lifts_cap_from`: the date from which YaRN's options alone lift it in its builds; older ones need
      `--override-kv` too.
    - `latent_flags`: fields of Flags that a config for latent attention sets. `smaller_caches`: types of K and V to try
      where f16 and q8_0 do not fit, larger ones first. `rotates_caches_from`: the date from which its builds rotate
      quantised caches by themselves, None if they do not: then 4 bits lose little.
    - `instead_of_building`: by back end, what makes a build needless on a machine that has what it takes.
    - `option_variables`: how environment variables begin that say what options say. `variables_read_last`: the programs
      that read them after the command's own options, which they replace; the others read them before.
    - `flash_attn_words`: what `-fa` takes for on, off and auto.
      `variables`: others that it alone reads, and what the figures take from them; None: it does not read this one.
    """

    options: Options
    retired: frozenset[str] = frozenset()
    program_names: tuple[str, ...] = ()
    image: tuple[str, str, str]
    bench_defaults: Mapping[str, object] = MappingProxyType({})
    image_lacks_blackwell: bool = False
    first_rule_wins: bool = False
    bench_rule_separator: str = ","
    bench_reads_numbers: bool = False
    bench_fits: frozenset[str] = frozenset()
    draft_takes_rules: bool = False
    speculations: frozenset[str]
    draft_kinds: Mapping[str, str]
    loads_idle_draft: bool = False
    next_tokens_in_one_slot: bool = False
    drafting: Mapping[str, str] = MappingProxyType({})
    server_caps_context: bool = False
    yarn_lifts_cap_from: str | None = None
    rotates_keys: str | None = None
    latent_flags: Mapping[str, int] = MappingProxyType({})
    smaller_caches: tuple[tuple[str, str], ...] = (("q4_0", "q4_0"),)
    rotates_caches_from: str | None = None
    instead_of_building: Mapping[str, str] = MappingProxyType({})
    option_variables = "LLAMA_ARG_"
    variables_read_last: tuple[str, ...] = ()
    flash_attn_words: Mapping[str, str]
    variables: Mapping[str, Effect | None] = MappingProxyType({})

    @abstractmethod
    def cache_types(self, tool: Tool) -> tuple[CacheType, ...]:
        """Return the values of `-ctk` and `-ctv` that a tool takes."""

    def fit(self, tool: Tool, flags: Flags) -> list[str]:
        """Return the words that keep a complete placement from being changed, or by which the engine finds it."""
        return []

    def of_variable(self, option: str, value: str, known: Mapping[str, bool], rules: BuildRules) -> list[str]:
        """Return the words that a variable stands for which holds `value` for an option.

        `known`: today's options, and whether a value follows each.
        """
        if known.get(option) and not (option == "-fa" and rules.flash_attn_value == "none"):
            return [option, value]
        if value.lower() in ("1", "on", "true", "enabled"):
            return [option]
        return [no for no in (f"--no-{option.lstrip('-')}", f"-no-{option.lstrip('-')}") if no in known][:1]

    @abstractmethod
    def load_mode(self, flags: Flags) -> list[str]:
        """Return the words for `mmap` and `mlock`."""

    @abstractmethod
    def no_op_offload(self, tool: Tool) -> list[str]:
        """Return the words by which no weights in RAM are copied to a card."""

    @abstractmethod
    def slots(self, tool: Tool, n_parallel: int) -> list[str]:
        """Return the words for so many slots."""

    @abstractmethod
    def overrides(self, tool: Tool, rules: Sequence[str]) -> list[str]:
        """Return the words for `-ot` rules, each `REGEX=DEVICE`."""

    def speculation(self, kind: str) -> str | None:
        """Return what its `--spec-type` calls a kind that either engine knows, or None."""
        plain = kind.replace("_", "-")
        simple = {"draft": "draft-simple", "draft-simple": "draft"}.get(plain, plain)
        alike = (kind, plain, f"draft-{plain}", plain.removeprefix("draft-"), simple)
        return next((one for one in alike if one in self.speculations), None)

    def infers_drafting(self, kind: str, draft: Model | None) -> bool:
        """Return whether a draft model of this kind is used though no kind is asked for. `draft` None: not known."""
        return False

    def drafting_today(self, words: Sequence[str], with_draft: str | None) -> tuple[str, tuple[str, ...]]:
        """Return the options by which today's program drafts as the words of a command ask, and older ones that they
        replace; "" where there are none. `with_draft`: the kind for the draft model, where one is loaded."""
        asked = drafting_asked(words)
        named = [] if asked is None else [self.speculation(kind) for kind in asked.kinds]
        kinds = [kind for kind in named if kind is not None]
        if asked is None or len(kinds) < len(named):
            return "", ()
        if with_draft and not {*kinds} & {*self.draft_kinds.values()}:
            kinds.append(with_draft)
        return self.written_drafting(kinds, asked) if kinds else ("", ())

    @abstractmethod
    def written_drafting(self, kinds: Sequence[str], asked: Drafting) -> tuple[str, tuple[str, ...]]:
        """Return `drafting_today` for these kinds."""

    def older_defaults(self, flags: Flags, rules: BuildRules, words: Sequence[str]) -> list[str]:
        """Return what the words of a command lack for an older build, whose defaults are other ones."""
        return []

    def packages(self, backend: str) -> tuple[Package, ...]:
        """Return the ready-made engines for cards of a back end, the official ones first.

        `cpu`: for no cards; `cuda 12`: for cards that CUDA 13 no longer compiles for.
        """
        return ()

    def cuda_options(self, model: Model, flags: Flags, cards: Sequence[Card]) -> Iterator[BuildOption]:
        """Yield the options of its CUDA build that this model and these flags want."""
        yield from ()

    def has_kernels(self, model: Model, pair: Sequence[str], cards: Sequence[Card]) -> bool:
        """Return whether a usual build has flash attention for a cache with these types of K and V on all cards with
        free memory."""
        return True

    def image_serves(self, arguments: Sequence[str], capabilities: Sequence[float]) -> bool:
        """Return whether its image can run a server with these arguments on cards of these compute capabilities."""
        return True
