"""A command that someone uses, in any spelling found in the wild, parsed into Flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import pairwise, takewhile

import msgspec

from service.engine.builds import Build, BuildAsked, parse_build, resolve_build
from service.engine.commands.changes import Words
from service.engine.commands.read_files import LeftOut, only_command
from service.engine.commands.reader import INTEGER, VARIABLE, BenchTests, OptionReader
from service.engine.commands.shell import OPTION, PRINTED_DASHES, commented, expanded, repairs, split_commands
from service.engine.commands.tables import (
    MODEL_REPO,
    MODEL_URL,
    RETIRED,
    environment_options,
    known_options,
    option_named,
    other_programs,
)
from service.engine.commands.unwrap import as_bash, of_one_program, out_of_container
from service.engine.config import ENGINES, Engine, Flags, Tool
from service.engine.engines import all_engines, engine_spec
from service.engine.errors import InvalidFlags, InvalidInput
from service.engine.hardware import Assumption

# Every program that takes the engines' options. Those that evaluate whole batches of logits count as benchmarks.
SERVER_PROGRAMS = (
    "llama-server", "llama-cli", "llama-completion", "llama-mtmd-cli", "llama-run", "llama-simple", "llama-speculative",
    "llama-speculative-simple", "llama-embedding", "llama-parallel", "server", "main", "llama-fit-params",
    "llama-diffusion-cli", "llama-tts",
)  # fmt: skip
BENCH_PROGRAMS = ("llama-bench", "llama-sweep-bench", "llama-batched-bench", "llama-perplexity", "llama-imatrix")
# Those that do not limit the rows of logits (llama.cpp common/common.h:462, n_outputs_max), and so reserve them for a
# whole micro-batch. llama-server limits them, and so do llama-cli, which runs a server, and programs that draft tokens.
_RESERVE_ALL_LOGITS = frozenset([
    *BENCH_PROGRAMS, "llama-completion", "llama-mtmd-cli", "llama-simple", "llama-embedding", "llama-parallel",
    "llama-diffusion-cli", "llama-tts",
])  # fmt: skip
_LLAMA_PROGRAMS = tuple(name for name in (*SERVER_PROGRAMS, *BENCH_PROGRAMS) if name.startswith("llama-"))
_MOST_UNKNOWN = 100  # words, for each of which a change is tried on top of the others
_NEAR = 0.85  # of a program's name (difflib's ratio): `lama-server` is 0.96
# A program under a name of one's own: `ik_llama-server`, `llama-server-cuda`.
_RENAMED = re.compile(rf"(?:^|[-_.])({'|'.join(_LLAMA_PROGRAMS)})(?:$|[-_.])")
_PARSERS = ("llama-server", "llama-bench")  # those that read options: every other program takes the first one's

_PRINTED_DASH = re.compile(rf"[{PRINTED_DASHES}]{{1,2}}([A-Za-z][\w-]*(?:=.*)?)", re.S)
_BUILD_IN_PATH = re.compile(r"(?<![A-Za-z0-9])b(\d{4,5})(?=[-_.]?[^/\\]*[/\\])")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_BENCH_SIGNS = frozenset(["-pg", "-gp", "-mmp", "--n-prompt", "--n-gen", "--n-depth", "-o", "-oe", "-embd"])
_SWEEP_SIGNS = frozenset(["-wb", "--warmup-batch", "-nrep", "--sweep-stride"])
_MODELS = frozenset(("-m", "--model", *MODEL_URL, *MODEL_REPO))
_MOST_OTHERS, _SHOWN = 3, 80  # of several commands: how many are named, and characters of each
_MODEL_VARIABLES = ("LLAMA_ARG_MODEL=", "LLAMA_ARG_HF_REPO=")
_MOST_BEFORE = 32  # words before a program
_LENDING = ("rpc-server", "ggml-rpc-server", "llama-rpc-server")  # tools/rpc of llama.cpp, examples/rpc of ik_llama.cpp
_LISTS = ("-ub", "-t", "-b", "-ngl", "-p", "-n", "-d")


class RefusedValue(msgspec.Struct, frozen=True):
    """A value that no engine accepts. `detail`: what is wrong with it; `choices`: what would be accepted."""

    option: str
    detail: str
    choices: tuple[str, ...]


class ParsedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed command.

    `flags.n_ctx` 0 means the context that the model was trained with; `flags.other` keeps options without a field that
    change memory or speed. `rest`: other options that today's program knows. `unknown`: words that it would refuse.
    `old`: names that were understood and that today's program does not have. `varied`: llama-bench options with several
    values, of which `flags` has the first. `fit`: the engine may place tensors itself. `prefix`: `numactl …`.
    `refused`: values that no engine takes; the flags are as if they were not there. `tests`: what llama-bench measures,
    None for other programs. `used`: the names of all options, as written but for their underscores. `build`: the build
    whose defaults are taken. `words`: what all this was read from. `repaired`: what a shell reads otherwise than it is
    meant; `commented`: the comment that has options behind it. `left_out`: what is not counted of another program's.
    `others`: the text's further commands. `guessed`: only the options tell the engine.
    """

    engine: Engine
    tool: Tool
    program: str
    model_path: str | None
    flags: Flags
    env: dict[str, str]
    prefix: tuple[str, ...]
    rest: tuple[str, ...]
    unknown: tuple[str, ...]
    old: tuple[str, ...]
    varied: tuple[str, ...]
    fit: bool
    alias: str | None
    tests: BenchTests | None
    used: tuple[str, ...]
    build: Build
    words: Words
    refused: tuple[RefusedValue, ...] = ()
    repaired: tuple[str, ...] = ()
    commented: str = ""
    left_out: tuple[LeftOut, ...] = ()
    others: tuple[str, ...] = ()
    guessed: bool = False

    @property
    def reserves_as(self) -> Tool:
        """The tool that reserves as many rows of logits as the program: `bench` those of a whole micro-batch."""
        return "bench" if self.program in _RESERVE_ALL_LOGITS else "server"


def parse(
    command: str, engine: Engine | None = None, *, program: str | None = None, build: BuildAsked | str | None = None
) -> ParsedCommand:
    """Return `command` parsed for `engine` (None: guessed from its program, options and `build`).

    `program`: the one that a command without any is for; `build`: the one whose defaults apply (None: the one that the
    program's path or image names, else today's). Raises
    InvalidInput for an unknown build, InvalidFlags for what only a shell could expand.
    """
    found = only_command(command)
    typed = as_bash(found.command)
    commands = split_commands(typed)
    chosen, others = _chosen(_programs(commands))
    words = _divide([_typed(word) for word in expanded(chosen)])
    named = engine or found.engine or _engine_named(words.program or program or "", words.before)
    build = build_named(words.program or "") if build is None else build
    of = named or _guess_engine(words.options, build)
    parsed = parse_words(words, resolve_build(of, build), program)
    if len(parsed.unknown) > _MOST_UNKNOWN:
        too_many = f"{len(parsed.unknown)} words are no options of llama.cpp or ik_llama.cpp"
        raise InvalidFlags(too_many, field="command")
    return msgspec.structs.replace(
        parsed,
        guessed=named is None,
        repaired=repairs(typed) if typed == command else (),
        commented=commented(typed),
        left_out=found.left_out,
        others=(*others, *found.others),
    )


def parse_words(words: Words, build: Build, program: str | None = None) -> ParsedCommand:
    """Return the words of a command parsed for a build of an engine. `program`: as in `parse`."""
    before, named, options = words
    assignments = (word.partition("=") for word in before if _ASSIGNMENT.match(word))
    env = {name: value for name, _, value in assignments}
    engine, program = build.engine, _program_meant(named) if named else program or _guess_program(options)
    dialect, stood_for = engine_spec(engine).commands, _environment_words(build, program, env)
    last = program in dialect.variables_read_last
    options = tuple(_with_presets_in_full(options, dialect.options.presets))
    reader = OptionReader(build, program, [*options, *stood_for] if last else [*stood_for, *options])
    reader.read()
    others = tuple(word for word in before if not _ASSIGNMENT.match(word))
    return ParsedCommand(
        engine=engine,
        tool="bench" if reader.program in BENCH_PROGRAMS else "server",
        program=reader.program,
        model_path=reader.model_path,
        flags=reader.flags(),
        env=env,
        prefix=others if named else (),
        rest=tuple(reader.rest),
        unknown=(*(() if named else others), *([named] if named and not _runs_one(named) else ()), *reader.unknown),
        old=tuple(dict.fromkeys(reader.old)),
        varied=tuple(reader.varied),
        fit=reader.fit,
        alias=reader.alias,
        tests=reader.tests() if reader.bench else None,
        used=tuple(dict.fromkeys(reader.used)),
        build=build,
        words=words,
        refused=tuple(RefusedValue(wrong.field or "", wrong.detail, wrong.choices) for wrong in reader.refused),
    )


def base_name(word: str) -> str:
    """Return a program's name without its folder and `.exe`."""
    return re.split(r"[/\\]", word)[-1].removesuffix(".exe")


def _is_program(word: str) -> bool:
    return base_name(word) in SERVER_PROGRAMS or base_name(word) in BENCH_PROGRAMS


def _runs_one(word: str) -> bool:
    """Whether a word is a program, or one under a name of one's own."""
    return _is_program(word) or _RENAMED.search(base_name(word)) is not None


def _program_meant(word: str) -> str:
    """Return the program that a word names, or is one wrong letter or two away from (`lama-server`)."""
    name = base_name(word)
    if _is_program(word):
        return name
    if renamed := _RENAMED.search(name):
        return renamed[1]
    near = get_close_matches(name, _LLAMA_PROGRAMS, n=1, cutoff=_NEAR)
    return near[0] if near else name


def build_named(program: str) -> BuildAsked | None:
    """Return the build that a program's folder names, or the tag of the image that it is in: `llama-b6100-bin-…`."""
    named = _BUILD_IN_PATH.search(program)
    asked = BuildAsked(number=int(named[1])) if named else None
    return asked if asked and any(_build_of(one, asked) for one in ENGINES) else None


def assumed_command(parsed: ParsedCommand, field: str) -> list[Assumption]:
    """Say which of a text's commands was taken, and how the others begin; nothing of a text with one."""
    if not parsed.others:
        return []
    named = ", ".join(f"`{_shortened(other)}`" for other in parsed.others[:_MOST_OTHERS])
    more = f" and {len(parsed.others) - _MOST_OTHERS} more" if len(parsed.others) > _MOST_OTHERS else ""
    why = f"the first of {len(parsed.others) + 1} commands in the text; neither checked nor counted: {named}{more}"
    return [Assumption(field, _shortened(parsed.words.line), why, "everything")]


def _shortened(line: str) -> str:
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def _typed(word: str) -> str:
    """Return an option with ASCII dashes: word processors replace one or two of them by a long dash."""
    printed = _PRINTED_DASH.fullmatch(word)
    if printed is None:
        return word
    known = {name for engine in ENGINES for name in known_options(engine, "llama-server")}
    one, two = f"-{printed[1]}", f"--{printed[1]}"
    return one if one.partition("=")[0] in known or len(printed[1]) == 1 else two


def _chosen(commands: list[list[str]]) -> tuple[list[str], list[str]]:
    """Return the words of the command that runs a model, out of several, and the lines of others that run one too.

    The first that names a model counts, or has options, or starts a program. Variables that earlier commands export are
    put before it. If a shell is given it in quotes, it is taken out of them.
    """
    running = [words for words in commands if _program_index(words) is not None or _is_renamed(words)]
    told = max(map(_tells, running), default=0)
    first, *others = [words for words in running if _tells(words) == told] or [[]]
    before = commands[: commands.index(first)] if first and told else commands
    exported = [word for words in before if words[:1] == ["export"] for word in words[1:] if _ASSIGNMENT.match(word)]
    if first and told:
        return [*exported, *first], [" ".join(words) for words in others if words != first]
    for words in commands:
        for word in words:
            if " " in word.strip() and _names_a_program(word):
                chosen, more = _chosen(_programs(split_commands(word)))
                return [*exported, *takewhile(_ASSIGNMENT.match, words), *chosen], more
    for words in commands:
        if any(base_name(word) in _LENDING for word in words[:_MOST_BEFORE]):
            raise InvalidFlags(
                "this starts an RPC server, which lends the devices of its machine and has no model: a check needs the "
                "command of the llama-server that has --rpc",
                field="command",
            )
        if other := other_program(words):
            raise InvalidFlags(
                f"this is a command of {other}, which has its own options and placement: give a llama.cpp command "
                "such as `llama-server -m a.gguf -ngl 99`, or ask for advice on the model",
                field="command",
            )
        if OPTION.match(words[0].lstrip("(")) or any(_is_option(_typed(word.lstrip("("))) for word in words):
            return words, []
    if first:
        return [*exported, *first], []
    raise InvalidFlags(
        "the command has no program and no option of llama.cpp: give one such as `llama-server -m a.gguf -ngl 99`",
        field="command",
    )


def _is_option(word: str) -> bool:
    """Whether a word is an option of a program of either engine, today's or an older one's."""
    name = word.partition("=")[0]
    name = name.replace("_", "-") if name.startswith("--") else name
    known = (known_options(one.name, program) for one in all_engines() for program in ("llama-server", "llama-bench"))
    return name in RETIRED or option_named(name, bench=True) is not None or any(name in names for names in known)


def _tells(words: Sequence[str]) -> int:
    """How much a command says: 2 where it names a model, 1 where it has an option after its program, 0 otherwise."""
    options = words[(_program_index(list(words)) or 0) + 1 :]
    if _MODELS.intersection(options) or any(word.startswith(_MODEL_VARIABLES) for word in words):
        return 2
    return int(any(map(OPTION.match, options)))


def _programs(commands: list[list[str]]) -> list[list[str]]:
    """Return the commands with the program that a container starts, or that newer builds' one program stands for."""
    return [words for one in commands if (words := of_one_program(out_of_container(one)))]


def _names_a_program(text: str) -> bool:
    """Whether a word in quotes is a command line with options, as `ssh host '…'` and `bash -c '…'` are given."""
    words = text.split()
    return any(_is_program(word) for word in words[:_MOST_BEFORE]) and any(map(OPTION.match, words))


def _program_index(words: list[str]) -> int | None:
    """Return the index of the program: never after an option, except for those of a launcher such as `numactl -N 0`."""
    if words and OPTION.match(words[0]):
        return None
    return next((i for i, word in enumerate(words) if _is_program(word)), None)


def _is_renamed(words: list[str]) -> bool:
    """Whether the word before the first option is a program under a name of one's own."""
    first = next((i for i, word in enumerate(words) if OPTION.match(word)), 0)
    return first > 0 and _RENAMED.search(base_name(words[first - 1])) is not None


def _divide(words: list[str]) -> Words:
    index = _program_index(words)
    if index is not None:
        return Words(tuple(words[:index]), words[index], tuple(words[index + 1 :]))
    first = next(i for i, word in enumerate(words) if OPTION.match(word.lstrip("(")))
    if VARIABLE.fullmatch(words[max(first - 1, 0)]):  # `"$LLAMA" -m a.gguf`, set elsewhere: it can only be the program
        return Words(tuple(words[: first - 1]), _guess_program(words[first:]), tuple(words[first:]))
    if first and _program_meant(words[first - 1]) in _LLAMA_PROGRAMS:
        return Words(tuple(words[: first - 1]), words[first - 1], tuple(words[first:]))
    return Words(tuple(words[:first]), None, tuple(words[first:]))


def _with_presets_in_full(options: Iterable[str], presets: Mapping[str, str]) -> Iterator[str]:
    """Yield the options, each preset with what it stands for behind it, which later options change."""
    for word in options:
        yield word
        yield from presets.get(word, "").split()


def _environment_words(build: Build, program: str, env: dict[str, str]) -> list[str]:
    """Return the options that environment variables stand for in a build."""
    commands, words = engine_spec(build.engine).commands, list[str]()
    known = known_options(build.engine, program)
    for variable, option in environment_options(build.engine, program).items():
        came = commands.options.environment_since.get(variable, "")
        if variable in env and (build.date or "9") >= came and build.has(program, option) is not False:
            words += commands.of_variable(option, env[variable], known, build.rules)
    return words


def _engine_named(program: str, before: Iterable[str]) -> Engine | None:
    """The engine that a program's name or path tells, or a variable before it that no other reads."""
    variables = {word.partition("=")[0] for word in before}
    reading = [one.name for one in all_engines() if variables.intersection(one.commands.options.environment)]
    named = (one.name for one in all_engines() if any(part in program for part in one.commands.program_names))
    return next(named, reading[0] if len(reading) == 1 else None)


def _guess_engine(options: Sequence[str], build: BuildAsked | str | None) -> Engine:
    """The engine that knows most of the options, the last of equals, out of those that have the build."""
    there = {engine: found for engine in ENGINES if (found := _build_of(engine, build)) is not None}
    # The same number is of another day in each engine: it does not say which options were there.
    asked = parse_build(build) if isinstance(build, str) else build
    dated = asked is not None and asked.number is None
    count = {one: known_words(one, options, there.get(one) if dated else None) for one in there or ENGINES}
    return max(reversed(list(count)), key=lambda engine: count[engine])


def _build_of(engine: Engine, asked: BuildAsked | str | None) -> Build | None:
    try:
        return resolve_build(engine, asked)
    except InvalidInput:
        return None


def known_words(engine: Engine, words: Sequence[str], build: Build | None = None) -> int:
    """Return how many of a command's words are options of the engine's programs: in a build, or (None) in any."""
    spec, today = engine_spec(engine), resolve_build(engine, None)
    always = spec.commands.retired | _shared_options()
    modes = spec.memory.split_modes
    others = sum(name in ("-sm", "--split-mode") and mode not in modes for name, mode in pairwise(words))

    def is_known(word: str, program: str) -> bool:
        there = (build or today).has(program, word)
        return word in known_options(engine, program) if there is None else there or build is None

    return sum(word in always or any(is_known(word, program) for program in _PARSERS) for word in words) - others


@cache
def _shared_options() -> frozenset[str]:
    """Every engine's: options that a fork had before it went its own way. Today's of the other may lack them."""
    shared: set[str] = set()
    for one in all_engines():
        for program in _PARSERS if one.forked else ():
            days = one.history.lifetimes(program)
            names = {*days, *known_options(one.name, program)}
            shared |= {name for name in names if days.get(name, [""])[0] <= (one.forked or "")}
    return frozenset(shared)


def _guess_program(options: Sequence[str]) -> str:
    pairs = list(pairwise(options))
    lists = any(name in _LISTS and "," in value for name, value in pairs)
    if lists or any(name == "-p" and INTEGER.fullmatch(value) for name, value in pairs):
        return "llama-bench"
    if _BENCH_SIGNS.intersection(options):
        return "llama-bench"
    return "llama-sweep-bench" if _SWEEP_SIGNS.intersection(options) else "llama-server"


_PYTHON = re.compile(r"(?:python|py)[0-9.]*|uv|uvx|pipx")
_WEBUI = "server.py"  # text-generation-webui (README, "Command-line flags")


def other_program(words: Sequence[str]) -> str | None:
    """Return the name of the program that a command starts if it is a known one that is not llama.cpp's, else None."""
    bases = [base_name(word.lower()) for word in words]
    start = next((i for i, word in enumerate(words) if "=" not in word and bases[i] not in _LAUNCHERS), None)
    if start is None:
        return None
    names = other_programs().names
    if bases[start] in names:
        return names[bases[start]]
    if not _PYTHON.fullmatch(bases[start]):
        return None
    if _WEBUI in bases:
        return "text-generation-webui"
    behind = (word.partition(".")[0] for word in bases[start + 1 : start + 4])
    return next((names[word] for word in behind if word in names), None)


_LAUNCHERS = frozenset(("sudo", "env", "exec", "nohup", "nice", "time", "$", ">"))
