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

What `advisor check` looks for in a command, and what no advised command does. Each finding has the name of its rule, a
severity, a message, the source and, if there is one, a fix. `error`: the engine refuses it, or memory runs out;
`warning`: it costs speed, or does not do what it seems to do; `info`: good to know. A finding may be milder than stated
here if the command loses nothing by it. A rule reports nothing if it makes no difference for the model and machine at
hand. Gains in messages come from the speed model, with only the flags or the placement corrected; gains below
{worth:.0%} are not reported.

{count} rules; today's builds are {builds}. The {others} at the end say nothing of the command itself: they come from
figures or logs. This file is written by `make openapi`.
"""
_GIVEN = "the figures or the log given with a command. More: [check.md](check.md)"
OF_FIGURES = {
    "slower-than-expected": (
        "warning",
        "A speed given is below the interval computed, at more than half of the depths given.",
        _GIVEN,
    ),
    "faster-than-expected": (
        "info",
        "A speed given is above the interval computed, at more than half of the depths given.",
        _GIVEN,
    ),
    "log-differs": (
        "warning",
        "A buffer, the graph splits or the offloaded layers in the log are not those computed: it is the log of "
        "another command, model, order of devices or build.",
        _GIVEN,
    ),
    "log-of-another-model": (
        "warning",
        "The log names another architecture than the model's: nothing is compared.",
        _GIVEN,
    ),
    "log-without-buffers": (
        "info",
        "The log lacks the sizes of buffers, which the engine prints only if asked.",
        _GIVEN,
    ),
    "log-request-unused": (
        "info",
        "Requests in the log whose times are not comparable: tokens were drafted, or another request ran at the same "
        "time. Their number, and why.",
        _GIVEN,
    ),
    "logs-differ": (
        "warning",
        "In the logs of three rigs or more, a buffer differs from the one computed for the build, architecture and "
        "back end, and more rigs differ than agree. It says which buffer, by how much, and that memory may be off by "
        "that much.",
        "the logs that a service has. More: [trust.md](trust.md#what-logs-teach)",
    ),
}
"""Findings that no rule makes: severity, what they say, and where they come from."""


def rules_markdown() -> str:
    """Return docs/rules.md."""
    builds = " and ".join(f"{today(engine).label} of {engine}" for engine in ENGINES)
    titles = {slug(title): title for title in headings(GUIDE.read_text())}
    introduction = _INTRODUCTION.format(
        count=len(all_rules()), builds=builds, worth=WORTH_SAYING - 1, others=len(OF_FIGURES)
    )
    others = (
        f"## {name}\n\n**{severity}**\n\n{what}\n\nSource: {source}\n"
        for name, (severity, what, source) in OF_FIGURES.items()
    )
    return "\n".join((introduction, *(_section(one, titles) for one in all_rules()), *others))


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
