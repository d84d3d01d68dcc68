"""A config as a command for bash, in the spelling of today's builds or of an older one; the oldest build it runs on.

What changed when is in `history.json` and `builds.json`: options that came and went, and what follows `-fa`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypedDict, Unpack

import msgspec

from service.engine.advice import OldestBuild
from service.engine.builds import Build, date_of_today, months_between, resolve_build, rule_since
from service.engine.commands.reader import BenchTests
from service.engine.commands.shell import quote
from service.engine.commands.tables import OPTIONS, Option, known_options
from service.engine.config import Engine, Flags, Override, Tool
from service.engine.engines import engine_spec
from service.engine.engines.spec import EngineSpec
from service.engine.errors import InvalidFlags

_DEFAULTS = Flags()
# Printed always: their defaults differ between engines, builds or tools, or a reader looks for them first.
_ALWAYS = frozenset(["n_ctx", "n_batch", "n_ubatch", "n_gpu_layers"])
_SERVER_ONLY = frozenset(["jinja", "n_parallel", "threads_batch", "n_logits"])
_BENCH_TOKENS = 64
_YOUNG_MONTHS = 6  # builds up to this age are taken to be in use


class Launch(msgspec.Struct, frozen=True):
    """A command as unquoted words: variables, a prefix that runs the program, the program, its arguments."""

    env: dict[str, str]
    prefix: tuple[str, ...]
    program: str
    arguments: tuple[str, ...]

    @property
    def options(self) -> set[str]:
        """The options among the arguments: words that begin with a dash and a letter, as no value does."""
        return {word for word in self.arguments if word.startswith("-") and word.lstrip("-")[:1].isalpha()}


class Around(TypedDict, total=False):
    """The parts of a command that are not flags.

    `prefix` is put before the program (`numactl …`); `program` defaults to the tool's name. `alias`, `host` and `port`
    are the server's, `tests` llama-bench's: by default three depths up to `n_ctx`. `build`: whose spelling it is, by
    default today's.
    """

    env: Mapping[str, str]
    prefix: Sequence[str]
    program: str | None
    alias: str | None
    host: str | None
    port: int | None
    tests: BenchTests | None
    build: Build | None


def render(engine: Engine, tool: Tool, flags: Flags, *, model_path: str, **around: Unpack[Around]) -> str:
    """Return the command that runs `flags` on the engine's server or benchmark tool, quoted for bash, in one line.

    As `launch`. Raises InvalidFlags for a value that the engine cannot be given.
    """
    return bash(launch(engine, tool, flags, model_path=model_path, **around))


def launch(engine: Engine, tool: Tool, flags: Flags, *, model_path: str, **around: Unpack[Around]) -> Launch:
    """Return the words that run `flags` on the engine's server or benchmark tool.

    What a benchmark tool has no option for (slots, chat templates) is left out. Raises InvalidFlags for a value that
    the engine cannot be given.
    """
    name = engine_spec(engine).programs[tool]
    known = known_options(engine, name)
    words = ["-m", model_path]
    if tool == "server":
        words += _option("--alias", around.get("alias"))
    if name == "llama-bench":
        words += _tests(flags, around.get("tests"))
    for field in _FIELDS:
        words += _words(engine, tool, field, flags, known)
    for extra in flags.other:
        if tool == "server" or extra.partition(" ")[0] in known:
            option, *value = extra.split(" ", 1)
            if name == "llama-bench" and option in ("-dev", "--device"):  # it would run a test with each of them
                value = [one.replace(",", "/") for one in value]
            words += [option, *value]
    if tool == "server":
        words += _option("--host", around.get("host")) + _option("--port", around.get("port"))
    build = around.get("build")
    if build is not None and build.date:
        words = respelled(words, engine, name, flags, build)
    program = around.get("program") or name
    return Launch(dict(around.get("env", {})), tuple(around.get("prefix", ())), program, tuple(words))


def _option(name: str, value: str | int | None) -> list[str]:
    return [name, str(value)] if value else []


def bash(command: Launch) -> str:
    """Return a launch as one line for bash. `-ot` rules are always quoted, because they look like shell patterns."""
    words = [f"{key}={quote(value)}" for key, value in command.env.items()]
    words += [quote(word) for word in (*command.prefix, command.program)]
    before = ""
    for word in command.arguments:
        words.append(("'" + word.replace("'", "'\"'\"'") + "'") if before == "-ot" else quote(word))
        before = word
    return " ".join(words)


# Fields that are written elsewhere, or together with another field that belongs to them.
_ELSEWHERE = ("model_path", "alias", "cache_type_v", "no_flash_attn", "mlock", "load_mode", "op_policy")
_FIELDS = tuple(dict.fromkeys(option.field for option in OPTIONS if option.field not in _ELSEWHERE))


def _words(engine: Engine, tool: Tool, field: str, flags: Flags, known: Mapping[str, bool]) -> list[str]:
    """Return the words for one field; none for the program's default."""
    special = _special(engine_spec(engine), tool, field, flags)
    if special is not None:
        return special
    value = getattr(flags, field, None)
    if value == getattr(_DEFAULTS, field, None) and field not in _ALWAYS:
        return []
    for option in OPTIONS:
        name = next((n for n in option.names if n in known), None)
        if option.field == field and name and (words := _spell(option, name, value, known[name])):
            return words
    if tool == "bench" and field in (*_SERVER_ONLY, "n_ctx"):
        return []
    raise InvalidFlags(f"{engine} has no option for {field} = {value!r}", field=f"flags.{field}")


def _spell(option: Option, name: str, value: object, takes_value: bool) -> list[str]:
    if option.kind in ("on", "off"):
        right = value is (option.kind == "on")
        if takes_value:
            return [name, "1" if right else "0"]
        return [name] if right else []
    return [name, str(value)]


def _special(spec: EngineSpec, tool: Tool, field: str, flags: Flags) -> list[str] | None:
    """Return the words for a field that needs a special form; None for any other field."""
    commands, is_llama_bench = spec.commands, spec.programs[tool] == "llama-bench"
    match field:
        case "cache_type_k":
            return _cache_types(spec, tool, flags)
        case "flash_attn":
            return ["-fa", flags.flash_attn]
        case "fit":
            explicit = any(extra.split(" ")[0] in ("-fit", "--fit") for extra in flags.other)
            return [] if explicit else commands.fit(tool, flags)
        case "mmap":
            return commands.load_mode(flags)
        case "op_offload":
            return [] if flags.op_offload else commands.no_op_offload(tool)
        case "n_parallel":
            return commands.slots(tool, flags.n_parallel)
        case "cpu_moe":
            return [] if not flags.cpu_moe else ["-ncmoe", "999"] if is_llama_bench else ["-cmoe"]
        case "jinja":
            return ["--jinja"] if flags.jinja and tool == "server" else []
        case "n_gpu_layers" if flags.layers_in_ram:
            return []  # `--fit` finds it, too
        case "tensor_split":
            shares = ("/" if is_llama_bench else ",").join(
                str(int(s)) if s == int(s) else repr(s) for s in flags.written_split
            )
            return ["-ts", shares] if shares else []
        case "overrides":
            return commands.overrides(tool, [_rule(rule) for rule in flags.overrides])
    return None


def _cache_types(spec: EngineSpec, tool: Tool, flags: Flags) -> list[str]:
    words, choices = [], spec.commands.cache_types(tool)
    for name, value in (("-ctk", flags.cache_type_k), ("-ctv", flags.cache_type_v)):
        if value not in choices:
            raise InvalidFlags(f"{name} {value}: {spec.programs[tool]} has no such type", field=name, choices=choices)
        words += [] if value == "f16" else [name, value]
    return words


def _rule(rule: Override) -> str:
    if any(char in rule.pattern for char in ",=;") or any(char in rule.device for char in ",;"):
        raise InvalidFlags(
            f"-ot rule {rule.pattern}={rule.device}: ',', ';' and '=' split rules", field="flags.overrides"
        )
    return f"{rule.pattern}={rule.device}"


def _tests(flags: Flags, tests: BenchTests | None) -> list[str]:
    """llama-bench allocates prompt + depth tokens: the deepest test has the config's own context."""
    if flags.n_ctx < 1:
        raise InvalidFlags("llama-bench needs a context, not the trained one", field="flags.n_ctx")
    prompt = min(flags.n_ubatch, flags.n_ctx)
    deepest = flags.n_ctx - prompt
    depths = tuple(sorted({0, deepest // 2, deepest}))
    chosen = tests or BenchTests(prompts=(prompt,), generations=(min(_BENCH_TOKENS, prompt),), depths=depths)
    counts = (("-p", chosen.prompts), ("-n", chosen.generations), ("-d", chosen.depths))
    return [word for name, values in counts for word in (name, ",".join(map(str, values or (0,))))]


def respelled(words: Sequence[str], engine: Engine, program: str, flags: Flags, build: Build) -> list[str]:
    """Return the words of today's command in the spelling of `build`.

    Raises InvalidFlags, naming the option, for an option that this build has no equivalent of.
    """
    kept: list[str] = []
    skip = False
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if skip:
            skip = False
            continue
        if word not in _OLDER or _reads(build, program, word):
            if word.startswith("-") and not word[1:2].isdigit() and build.has(program, word) is False:
                came = build.next_change(program, word)
                raise InvalidFlags(f"a build {build.label} has no {word}: it came on {came}", field="build")
            kept.append(word)
            continue
        kept += _older(word, value, build)
        skip = word in _TAKE_VALUES
    return kept + engine_spec(engine).commands.older_defaults(flags, build.rules, kept)


def _reads(build: Build, program: str, option: str) -> bool:
    """Whether the build takes the option with the same meaning as today's."""
    if option == "-fa":
        return program == "llama-bench" or build.rules.flash_attn_value == "needed"
    return build.has(program, option) is not False


def _older(word: str, value: str, build: Build) -> list[str]:
    """Return the words for an older build instead: none where it does that by default.

    Without a value `-fa` switches it on; where it is gone, `-no-fa` switches it off. `-lm` was `--no-mmap` and
    `--mlock` (llama.cpp pulls 20834 and 28334).
    """
    if word == "-fa" and build.rules.flash_attn_value == "gone":
        return ["-no-fa"] if value == "off" else []
    if word == "-fa":
        return [] if value == "off" else ["-fa"]
    if word == "-lm":
        return (["--mlock"] if "mlock" in value else []) + ([] if "mmap" in value else ["--no-mmap"])
    return ["-ot", "exps=CPU"] if word == "-cmoe" else []


_OLDER = ("-fa", "-lm", "-fit", "-no-fmoe", "-no-ooae", "-cmoe")
_TAKE_VALUES = _OLDER[:3]


def oldest_build(engine: Engine, program: str, words: Sequence[str], architecture: str) -> OldestBuild | None:
    """Return the oldest build that knows the model's architecture and every option of a command in today's spelling,
    by the history kept here.

    None where none of these is known to be newer than the oldest build known here.
    """
    today = resolve_build(engine, None)
    dates: dict[str, list[str]] = {}
    if since := engine_spec(engine).architectures.since(architecture):
        dates[since[1]] = [f"the architecture {architecture}"]
    for word in words:
        came = today.since(program, word) if word.startswith("-") else None
        if came:
            dates.setdefault(came, []).append(word)
    if "-fa" in words and program != "llama-bench":
        dates.setdefault(rule_since(engine, "flash_attn_value"), []).append("-fa with a value")
        dates = {date: [need for need in needs if need != "-fa"] for date, needs in dates.items()}
    memory = engine_spec(engine).memory
    for name, value in pairwise(words):
        if name == "-sm" and value in memory.together:
            dates.setdefault(memory.together_from, []).append(f"-sm {value}")
    if not dates:
        return None
    newest = max(dates)
    return OldestBuild(newest, tuple(dict.fromkeys(dates[newest])))


def is_young(engine: Engine, oldest: OldestBuild) -> bool:
    """Return whether that build is less than six months older than today's, so that builds before it may be in use."""
    return months_between(oldest.date, date_of_today(engine)) < _YOUNG_MONTHS
