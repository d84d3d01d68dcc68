"""Parsers of verbs, whose modules are imported only on use."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn


class _Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Verbs whose own `--help` begins with what the list of them says."""

    def add_parser(self, name: str, **options: Any) -> Any:
        said = options.get("help", "")
        return super().add_parser(name, description=f"{said[:1].upper()}{said[1:]}.", **options)


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line; the list of all options is for `--help`."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.register("action", "parsers", _Verbs)

    def error(self, message: str) -> NoReturn:
        """Exit with the error, and the option or command that may be meant."""
        meant = self._meant(message)
        said = message.removeprefix("argument ")
        for kind, words in (("int", "a whole number"), ("float", "a number")):
            said = re.sub(rf"invalid {kind} value: ('.*')", rf"\1 is not {words}", said)
        self.exit(2, f"{self.prog}: {said}{meant}; see {self.prog} --help\n")

    def _meant(self, message: str) -> str:
        unknown = re.match(r"(?:unrecognized arguments:|argument COMMAND: invalid choice:) '?([^\s']{2,40})", message)
        near = get_close_matches(unknown[1], self._names(), n=1) if unknown else []
        return f": did you mean {near[0]}?" if near else ""

    def _names(self) -> list[str]:
        """Return the verbs, and the options of the verb in use."""
        verbs = next((a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction)), {})
        read = (verb for verb in verbs.values() if isinstance(verb, LazyParser) and verb.add is None)
        return [*verbs, *(option for verb in read for option in verb._option_string_actions)]


class LazyParser(Parser):
    """A parser whose arguments are added by `add`, on first use."""

    add: Callable[[argparse.ArgumentParser], None] | None = None

    def load(self) -> None:
        """Add the arguments, once."""
        add, self.add = self.add, None
        if add is not None:
            add(self)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """Parse like argparse, after adding the verb's arguments."""
        self.load()
        return super().parse_known_args(args, namespace)


def add_verb(verb: str, parser: argparse.ArgumentParser) -> None:
    """Add a verb's arguments: its module has `add_arguments(parser)` and `run(arguments) -> int`."""
    module = import_module(f"service.cli.{verb}")
    module.add_arguments(parser)
    if parser.epilog is None:
        parser.epilog = "\n".join(("examples:", *(f"  {line}" for line in examples(verb))))
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=module.run)


def examples(verb: str) -> list[str]:
    """Return a command's examples, those lines of `examples.txt` that call it."""
    lines = Path(__file__).with_name("examples.txt").read_text("utf-8").splitlines()
    return [line for line in lines if f"advisor {verb} " in f"{line} "]
