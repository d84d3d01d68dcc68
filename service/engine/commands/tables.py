"""Options of the engines' programs: which of them set which field of Flags, and which others exist.

`options.json` lists every name that today's programs know, by whether a value follows: ik_llama.cpp 8337e4cd3
(common/common.cpp `gpt_params_find_arg`, examples/llama-bench/llama-bench.cpp) and llama.cpp 0c1e57098 (`--help`).
"""

from __future__ import annotations

from functools import cache
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine
from service.engine.engines import all_engines, engine_spec
from service.engine.tables import table_of

MODEL_REPO = ("-hf", "-hfr", "--hf-repo")  # names of the option for the model's repo,
MODEL_URL = ("-mu", "--model-url")  # and of that for its address

Kind: TypeAlias = Literal["int", "text", "cache", "on", "off", "special", "tests"]


class Option(msgspec.Struct, frozen=True):
    """An option with a field of Flags. `names`: spellings of both engines, old ones too; the first known is printed.

    Kinds: a whole number, a text, a cache type, a switch that turns the field on or off (bare, or with 0|1 where the
    program wants a value), llama-bench's token counts, or one with a meaning of its own (`OptionReader`).
    """

    field: str
    kind: Kind
    names: tuple[str, ...]


class _Tables(msgspec.Struct, frozen=True):
    """`flag_options.json`. `flags`: options with a field of Flags; `tests`: of llama-bench only, what is measured.

    `affecting`: options without a field of their own that change memory, placement or speed: kept in Flags.other,
    printed again (docs/parameters.md of ik_llama.cpp, `--help` of both). `retired`, `retired_with_value`: options
    without a field that today's programs no longer have, or refuse with a hint. `two_values`: two values follow.
    """

    flags: tuple[Option, ...]
    tests: tuple[Option, ...]
    affecting: frozenset[str]
    retired: tuple[str, ...]
    retired_with_value: tuple[str, ...]
    two_values: frozenset[str]


_TABLES = table_of("flag_options.json", _Tables)
OPTIONS, TESTS, AFFECTING, TWO_VALUES = _TABLES.flags, _TABLES.tests, _TABLES.affecting, _TABLES.two_values
RETIRED = dict.fromkeys(_TABLES.retired, False) | dict.fromkeys(_TABLES.retired_with_value, True)
"""Whether a value follows."""


def environment_options(engine: Engine, program: str) -> dict[str, str]:
    """Return the environment variables that stand for an option of the program, by that option's name.

    No llama-bench reads any (`env:` in the help of llama.cpp's programs; arg.cpp:787).
    """
    return {} if program == "llama-bench" else engine_spec(engine).commands.options.environment


class _Kobold(msgspec.Struct, frozen=True):
    same: dict[str, str]
    caches: dict[str, str]
    old: dict[str, str]
    read: tuple[str, ...]


class _OtherPrograms(msgspec.Struct, frozen=True):
    """`other_programs.json`. `names`: by the word that starts them, or the module after `python -m`.

    `koboldcpp`: its options (koboldcpp.py) that are the `same` as one of llama-server, and its numbers of cache types;
    those with an `old` name; and those that are `read` as well. A batch is both logical and physical there.
    """

    names: dict[str, str]
    koboldcpp: _Kobold


@cache
def other_programs() -> _OtherPrograms:
    """Return what other programs than the engines' are called, and what their options are here."""
    return table_of("other_programs.json", _OtherPrograms)


@cache
def known_options(engine: Engine, program: str) -> dict[str, bool]:
    """Return every option name that today's `program` of `engine` accepts: whether a value follows it.

    A program that is not listed (llama-cli, llama-perplexity, …) takes the options of the engine's llama-server.
    """
    programs = engine_spec(engine).commands.options.programs
    names = programs.get(program, programs["llama-server"])
    return dict.fromkeys(names.value.split(), True) | dict.fromkeys(names.bare.split(), False)


def other_owner(engine: Engine, program: str, name: str) -> str | None:
    """Return whose option it is: of the engine's other programs, or of the other engine's program of that name."""
    if name in engine_spec(engine).commands.options.elsewhere.split():
        return f"other programs of {engine}"
    others = (one.name for one in all_engines() if one.name != engine)
    return next((other for other in others if name in known_options(other, program)), None)


def may_be_own(engine: Engine, program: str, name: str) -> bool:
    """Return whether an option that llama-server lacks may be one of this program, of which no list is known."""
    listed = program in engine_spec(engine).commands.options.programs
    return not listed and other_owner(engine, program, name) is not None


@cache
def newer_options(engine: Engine, program: str) -> dict[str, bool]:
    """Return the options of `program` that came after the newest build known here: whether a value follows each."""
    names = engine_spec(engine).commands.options.newer
    if program == "llama-bench":
        return {}
    return dict.fromkeys(names.value.split(), True) | dict.fromkeys(names.bare.split(), False)


@cache
def option_named(name: str, bench: bool) -> Option | None:
    """Return the option of Flags (or, for llama-bench, of its tests) that is spelled `name` in any build."""
    return next((o for o in ((*TESTS, *OPTIONS) if bench else OPTIONS) if name in o.names), None)


def option_names(name: str) -> tuple[str, ...]:
    """Return every spelling of the option that is spelled `name` in any build; only `name` if it has no field."""
    option = option_named(name, bench=False)
    return option.names if option and name in option.names else (name,)
