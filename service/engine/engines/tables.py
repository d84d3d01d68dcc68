"""The tables in an engine's folder: the architectures it knows, its options, its history."""

from __future__ import annotations

import msgspec

from service.engine.tables import table_of


class Names(msgspec.Struct, frozen=True):
    """Names of options, divided by blanks: those that a value follows, and those that none does."""

    value: str
    bare: str


class Options(msgspec.Struct, frozen=True):
    """`options.json`: every option that today's programs know. A program that is not listed has llama-server's.

    `environment`: the variables that stand for an option, by its name; `environment_since`: from which day on, where no
    build reads them from the first. `newer`: options that came after the newest
    build known here, by the engine's own list of a later day, which the file names; llama-bench has none of them.
    `elsewhere`: options that only programs without a list here have. `today`: what to write for an option that its
    programs no longer have under that name. `presets`: what an option stands for that sets several others.
    """

    programs: dict[str, Names]
    environment: dict[str, str] = {}
    environment_since: dict[str, str] = {}
    newer: Names = Names("", "")
    elsewhere: str = ""
    today: dict[str, str] = {}
    presets: dict[str, str] = {}


class _Listed(msgspec.Struct, frozen=True):
    facts: dict[str, str]
    architectures: dict[str, str]
    since: dict[str, tuple[str, str]] = {}
    newer: dict[str, str] = {}


class Architectures:
    """The architectures that an engine knows (src/llama-arch.cpp), and what is special about some of them.

    `architectures.json` of its folder names the facts, each with its meaning and source, and those that hold. `newer`:
    those that a build after the newest one described here knows, and which.
    """

    def __init__(self, package: str) -> None:
        listed = table_of("architectures.json", _Listed, package)
        self.facts = tuple(listed.facts)
        self.known = frozenset(listed.architectures)
        self.newer, self._since = listed.newer, listed.since
        self._having = {
            fact: frozenset(name for name, facts in listed.architectures.items() if fact in facts.split())
            for fact in listed.facts
        }

    def since(self, name: str) -> tuple[str, str] | None:
        """Return two days: no build from before the first knows the architecture, every one from the second on does.

        None where all builds described here do. Sources: ik_llama.cpp's history; of llama.cpp the releases of
        llama-cpp-python and xllamacpp with a copy of it. Two weeks are left between: pull requests run before they are
        merged, and copies are older than their release.
        """
        return self._since.get(name)

    def learned_after(self, name: str, date: str | None) -> str | None:
        """Return the day from which every build knows the architecture, where one of `date` does not; else None."""
        since = self._since.get(name)
        return since[1] if since and date and date < since[0] else None

    def having(self, fact: str) -> frozenset[str]:
        """Return the architectures of which a fact holds; none where the engine has no such fact."""
        return self._having.get(fact, frozenset())
