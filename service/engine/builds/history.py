"""What is known of an engine's builds: which there were, what each program's options were when, and what changed.

`history.json` in the engine's folder says by hand, each with its source, what changed when.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from service.engine.builds.rules import BuildRules, MemoryRules


class BuildChange(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an engine does differently since `date`. `before`: the rules that held until then."""

    date: str
    what: str
    before: dict[str, bool | int | str | list[str]]
    source: str


class Today(msgspec.Struct, frozen=True):
    """The build whose rules this project follows. `oldest`: the first day whose rules are known.

    `date`: from this day on a build counts as today's.
    """

    label: str
    date: str
    oldest: str


class Recorded(msgspec.Struct, frozen=True):
    """`history.json`. `numbers`: of builds with their dates; `options`: of the server, `bench_options`: of llama-bench,
    when each came, went and came again; all where they are not read from the engine's repository.
    """

    today: Today
    changes: tuple[BuildChange, ...]
    numbers: tuple[tuple[int, str], ...] = ()
    options: dict[str, str] = {}
    bench_options: dict[str, str] = {}


class History(msgspec.Struct, frozen=True, dict=True, kw_only=True, eq=False):
    """The builds of one engine.

    `numbers`: known numbers with their dates, ascending; `commits`: the date of every known commit, by its first eight
    digits or nine. `options`: by program, the days on which an option came, went, and came again; a program that is
    not named has those of llama-server. `defaults`: the rules of today's build.
    """

    today: Today
    changes: tuple[BuildChange, ...]
    numbers: tuple[tuple[int, str], ...]
    commits: dict[str, str]
    options: dict[str, dict[str, str]]
    defaults: BuildRules

    def lifetimes(self, program: str) -> dict[str, list[str]]:
        """Return the days on which each option of a program came, went, and came again."""
        return self._lifetimes[program if program in self.options else "llama-server"]

    @cached_property
    def _lifetimes(self) -> dict[str, dict[str, list[str]]]:
        return {
            program: {name: dates.split() for name, dates in options.items()}
            for program, options in self.options.items()
        }

    def rules_at(self, date: str | None) -> BuildRules:
        """Return what held for a build of a date (None: today's): every change since is undone, the newest first."""
        since = sorted((c for c in self.changes if date is not None and c.date > date), key=lambda c: c.date)
        if len(since) not in self._rules:
            self._rules[len(since)] = self._without(since[::-1])
        return self._rules[len(since)]

    @cached_property
    def _rules(self) -> dict[int, BuildRules]:
        """By the number of changes that are undone."""
        return {0: self.defaults}

    def _without(self, changes: Sequence[BuildChange]) -> BuildRules:
        build: dict[str, object] = {}
        memory: dict[str, object] = {}
        for change in changes:
            for name, value in change.before.items():
                if isinstance(value, list):
                    memory[name] = (*memory.get(name, ()), *value)  # type: ignore[misc]
                else:
                    (memory if name in MemoryRules.__struct_fields__ else build)[name] = value
        defaults = {name: getattr(self.defaults, name) for name in BuildRules.__struct_fields__}
        return msgspec.convert({**defaults, **build, "memory": memory}, BuildRules)
