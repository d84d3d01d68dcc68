"""The shape of a rule, and of what it finds.

A rule's facts are declared once, above the function that looks for it: docs/rules.md is written from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.config import ENGINES, Engine
from service.engine.finding import Finding, Severity
from service.engine.rules.case import Case

# headings of docs/offloading.md
BUILDING = "building-the-engine"
CACHE = "the-cache"
CARDS = "unlike-cards"
LINK = "the-micro-batch-and-the-link"
NO_TEXT = "models-that-write-no-text"
MMAP = "mmap-pinned-memory-and-ram-that-is-too-small"
OVERRIDES = "rules-of--ot"
READ = "what-a-token-reads"
SPLIT_MODES = "layers-or-together--sm"
UNASKED = "what-the-engines-do-unasked"

WORTH_SAYING = 1.1  # times as fast: less than this drowns in the error of the speed model


class Found(NamedTuple):
    """What a rule found. `fix` None: as the rule says, "": there is none. `severity`: another than the rule's.

    `message`: what is wrong, then after "; " what follows from it, which the first sentence of a check leaves out.

    `changes`: yields lists of fixes, worked out only when they are asked for: of the first list in which one is proven
    to help, the best is taken.
    `pp`, `tg`: how many times faster prompts and tokens would be without it, by the speed model (1: unknown).
    """

    message: str
    fix: str | None = None
    pp: float = 1.0
    tg: float = 1.0
    severity: Severity | None = None
    changes: Callable[[], Iterator[Sequence[str]]] | None = None


Look: TypeAlias = Callable[[Case], Iterator[Found]]
About: TypeAlias = Literal["correctness", "speed"]
Refused: TypeAlias = Literal["options", "loading"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. `what`: the condition in words; `fix`: what to write instead; `source`: where it is known from.

    `about`: speed alone, or correctness too; `costs`: what is right may be slower (`rules/proof.py`).
    `engines`: whose commands it is about; those in an engine's folder are about its own. `since`, `until`: it holds for
    builds from and up to these days (None: all). `paragraph`: the heading of docs/offloading.md that explains it.
    `refused`: when the program ends because of an error that it finds: as soon as it reads its options, or while it
    loads the model or reads the first prompt; None where it runs, or only runs out of memory.
    `optional`: the command may be meant as it is: a corrected one is without its fix.
    `look` yields what it finds in a command.
    """

    id: str
    severity: Severity
    what: str
    fix: str | None
    source: str
    paragraph: str
    engines: tuple[Engine, ...]
    since: str | None
    until: str | None
    look: Look
    about: About = "correctness"
    costs: bool = False
    refused: Refused | None = None
    optional: bool = False

    def holds(self, case: Case) -> bool:
        """Return whether the rule is about the engine and the build of a command."""
        date = case.parsed.build.date
        early = date is not None and self.since is not None and date < self.since
        late = self.until is not None and (date is None or date >= self.until)
        return case.engine in self.engines and not early and not late

    def findings(self, case: Case) -> Iterator[tuple[Finding, Found]]:
        """Yield what a user reads, and what it was made of."""
        for found in self.look(case) if self.holds(case) else ():
            fix = self.fix if found.fix is None else found.fix or None
            finding = Finding(
                rule=self.id,
                severity=found.severity or self.severity,
                message=found.message,
                fix=fix,
                source=self.source,
            )
            yield finding, found


def rule(
    name: str, severity: Severity, paragraph: str, source: str, *, fix: str | None = None,
    since: str | None = None, until: str | None = None, about: About = "correctness", costs: bool = False,
    refused: Refused | None = None, optional: bool = False,
) -> Callable[[Look], Rule]:  # fmt: skip
    """Return a decorator that makes a rule of the function below it; the function's docstring is the rule's `what`."""

    def declared(look: Look) -> Rule:
        return Rule(
            id=name,
            severity=severity,
            what=" ".join((look.__doc__ or "").split()),
            fix=fix,
            source=source,
            paragraph=paragraph,
            engines=ENGINES,
            since=since,
            until=until,
            look=look,
            about=about,
            costs=costs,
            refused=refused,
            optional=optional,
        )

    return declared


def rules_in(*modules: ModuleType) -> tuple[Rule, ...]:
    """Return the rules of some modules in the order in which they stand there."""
    return tuple(one for module in modules for one in vars(module).values() if isinstance(one, Rule))
