"""docs/cli.md, written from the command line's own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from service.cli import COMMANDS, command_line
from service.cli.lazy import LazyParser

_INTRODUCTION = """\
# Command line

`advisor COMMAND --help` prints the same in a terminal. The exit code is 0 on success, 1 if the task cannot be done
(nothing fits, nothing was measured, a part is faulty), and 2 if the input is wrong. `advisor host run` exits with 78 if
the machine is not enrolled. Settings come from the environment ([settings.md](settings.md)).

`pip install .` in a checkout is enough for {bare}; `validate --here` and
`advisor host` need `'.[agent]'`, and all others `'.[server]'`. What is read from the Hub is cached in the user's cache
folder (`XDG_CACHE_HOME`, or else `~/.cache/offload-advisor`), unless `ADVISOR_CACHE_DIR` or `ADVISOR_STATE_DIR` names
another one. Colours are used only in terminals, and `NO_COLOR=1` turns them off.

This file is written by `make openapi`.
"""


def cli_markdown() -> str:
    """Return docs/cli.md."""
    bare = ", ".join(f"`advisor {command.verb}`" for command in COMMANDS if not command.extra)
    return "\n".join((_INTRODUCTION.format(bare=bare), *_sections(command_line(), "")))


def _sections(one: argparse.ArgumentParser, help_text: str) -> Iterator[str]:
    """Return the sections of a command and of all below it."""
    if isinstance(one, LazyParser):
        one.load()
    below = [action for action in one._actions if isinstance(action, argparse._SubParsersAction)]
    if help_text:
        rows = [_row(action) for action in one._actions if not isinstance(action, _UNSAID)]
        yield "\n\n".join(filter(None, (f"## {one.prog}", _sentence(help_text), _usage(one), _table(rows)))) + "\n"
    for action in below:
        texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, child in action.choices.items():
            yield from _sections(child, texts[name])


_UNSAID = (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)


def _usage(one: argparse.ArgumentParser) -> str:
    words = [_word(action) for action in one._actions if not isinstance(action, argparse._HelpAction)]
    optional = any(a.option_strings and not a.required and not isinstance(a, _UNSAID) for a in one._actions)
    return f"`{' '.join((one.prog, *filter(None, words), *(['[OPTION …]'] if optional else [])))}`"


def _word(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return "COMMAND"
    if action.option_strings:
        return _named(action) if action.required else ""
    optional = action.nargs in ("?", "*")
    return f"[{_named(action)}]" if optional else _named(action)


def _row(action: argparse.Action) -> tuple[str, str]:
    text = action.help or ""
    if action.choices and not all(str(choice) in text for choice in action.choices):
        text = f"{text}: {', '.join(map(str, action.choices))}" if text else ", ".join(map(str, action.choices))
    return f"`{_named(action)}`", text + (" (required)" if action.option_strings and action.required else "")


def _named(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return value if isinstance(action.metavar, str) else action.dest
    names = ", ".join(sorted(action.option_strings, key=len, reverse=True))
    return names if action.nargs == 0 else f"{names} {value}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a Markdown table of arguments, or nothing."""
    lines = [f"| {name} | {text.replace('|', '/')} |" for name, text in rows]
    return "\n".join(("| argument | meaning |", "| --- | --- |", *lines)) if lines else ""
