"""docs/rules.md, written from the list of rules."""

from __future__ import annotations

from pathlib import Path

from service.engine.builds import today
from service.engine.config import ENGINES
from service.engine.rules.all_rules import all_rules
from service.engine.rules.rule import WORTH_SAYING, Rule

GUIDE = Path(__file__).parent.parent / "docs" / "offloading.md"
_INTRODUCTION = """\
# Rules

What `advisor check` looks for in a command, and what no advice breaks. Each finding has its rule's name, a severity, a
message, a fix where there is one, and the source. `error`: the engine refuses it, or memory runs out; `warning`: it
costs speed or does not do what it looks like; `info`: good to know. A finding may be milder than stated here where this
command loses nothing. A rule is silent where it changes nothing for the model and the machine at hand; gains in
messages are the speed model's, with the flags or the placement corrected and nothing else changed, from {worth:.0%} on.

{count} rules; today's builds are {builds}.
`slower-than-expected`, `faster-than-expected`, `log-differs`, `log-of-another-model` and `log-without-buffers` come
from figures that were given with a command ([check.md](check.md)). `logs-differ`, a warning, comes from a service:
logs of three rigs or more print a buffer that is not as computed for such a build, architecture and back end, and more
rigs do than do not ([trust.md](trust.md#what-logs-teach)); it says which, by how much, and that memory may be off by
that. This file is written by `make openapi`.
"""


def rules_markdown() -> str:
    """Return docs/rules.md."""
    builds = " and ".join(f"{today(engine).label} of {engine}" for engine in ENGINES)
    titles = {slug(title): title for title in headings(GUIDE.read_text())}
    introduction = _INTRODUCTION.format(count=len(all_rules()), builds=builds, worth=WORTH_SAYING - 1)
    return "\n".join((introduction, *(_section(one, titles) for one in all_rules())))


def headings(page: str) -> list[str]:
    """Return the headings of the second level of a Markdown page."""
    return [line.removeprefix("## ").strip() for line in page.splitlines() if line.startswith("## ")]


def slug(title: str) -> str:
    """Return the anchor that Markdown renderers make of a heading."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _section(one: Rule, titles: dict[str, str]) -> str:
    engines = "both engines" if len(one.engines) > 1 else one.engines[0]
    facts = f"**{one.severity}**, {engines}, {_versions(one)}"
    fix = f"\n\nFix: {one.fix}." if one.fix else ""
    link = f"[{titles[one.paragraph]}](offloading.md#{one.paragraph})"
    return f"## {one.id}\n\n{facts}\n\n{one.what}{fix}\n\nSource: {one.source}. More: {link}\n"


def _versions(one: Rule) -> str:
    bounds = (f"since {one.since}" if one.since else "", f"until {one.until}" if one.until else "")
    return "builds " + " ".join(bound for bound in bounds if bound) if any(bounds) else "all builds"
