"""Parsers of verbs whose modules are imported only when the verb is used."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from service.cli.examples import EXAMPLES, epilog


class LazyParser(argparse.ArgumentParser):
    """The parser of one verb. `module` has `add_arguments(parser)` and `run(arguments) -> int`."""

    module: str | None = None
    runs_as = "run"  # under which name of the parsed arguments the module's `run` is found

    def load(self) -> None:
        """Have the module add the verb's arguments, once."""
        if self.module is not None:
            module, self.module = import_module(self.module), None
            module.add_arguments(self)
            if self.epilog is None and (verb := module.__name__.rpartition(".")[2]) in EXAMPLES:
                self.epilog, self.formatter_class = epilog(verb), argparse.RawDescriptionHelpFormatter
            self.set_defaults(**{self.runs_as: module.run})

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """As argparse's own, with the verb's arguments."""
        self.load()
        return super().parse_known_args(args, namespace)
