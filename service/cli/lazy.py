"""Parsers of verbs, whose modules are imported only on use."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line; the list of all options is for `--help`."""

    def error(self, message: str) -> NoReturn:
        """Exit with the error, and the option or command that may be meant."""
        meant = self._meant(message)
        said = message.removeprefix("argument ")
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
        parser.epilog, parser.formatter_class = epilog(verb), argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=module.run)


EXAMPLES = {
    "advise": (
        "advisor advise unsloth/Qwen3-235B-A22B-GGUF -H 'RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600'",
        "advisor advise ./models/model.gguf -H '2x RTX 4090, 64GB' --goal agent --context 65536",
        "(nvidia-smi; lscpu; free -h) | advisor advise Qwen/Qwen3-0.6B-GGUF -H -",
    ),
    "inspect": ("advisor inspect unsloth/Qwen3-235B-A22B-GGUF", "advisor inspect ./models/ --json"),
    "check": (
        "advisor check 'llama-server -m model.gguf -ngl 99 -ot exps=CPU' -H 'RTX 3090, 64GB' --model OWNER/NAME:Q4_K_M",
    ),
    "validate": (
        "advisor validate @advice.json --print",
        "advisor validate @advice.json --here --engine-dir ~/llama.cpp/build/bin --models ~/models",
    ),
    "submit": ("advisor submit bench.log --service https://HOST -H 'RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600'",),
    "hardware": (
        "advisor hardware",
        "advisor hardware '2x5090, EPYC 9355, 512GB DDR5-4800 x8'",
        "advisor hardware --measure",
    ),
    "up": (
        "advisor up unsloth/Qwen3-30B-A3B-GGUF -H 'RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600' --dry-run",
        "advisor up models/Qwen3-0.6B-Q8_0.gguf --engine-dir ~/llama.cpp/build/bin",
    ),
    "watch": (
        "advisor watch http://127.0.0.1:8080 --command 'llama-server -m model.gguf --metrics'",
        "advisor watch server.log --command 'llama-server -m model.gguf' --once",
    ),
    "mcp": ("advisor mcp", "advisor mcp --service https://HOST"),
    "token": ("advisor token create alice --scope submit,validate", "advisor token list"),
    "bots": ("advisor bots discord register", "advisor bots slack manifest > manifest.json"),
    "calibrate": ("advisor calibrate --dry", "advisor calibrate --json"),
    "admin": ("advisor admin backup advisor.backup", "advisor admin hosts --json"),
    "doctor": ("advisor doctor", "advisor doctor --json"),
    "serve": ("advisor serve",),
    "host": ("advisor host enrol https://HOST --code CODE", "advisor host run", "advisor host status"),
    "completion": ('eval "$(advisor completion bash)"',),
}


def epilog(verb: str) -> str:
    """Return a command's examples, for the end of its help."""
    return "\n".join(("examples:", *(f"  {line}" for line in EXAMPLES[verb])))
