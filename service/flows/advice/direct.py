"""Advice without a server: the command line reads a repo, or files on this disk, by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import asdict

from service.engine.advise import advise
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Rig
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical
from service.engine.planner.explaining.what_if import check_questions
from service.engine.side_by_side import even_share, room_left, side_by_side
from service.flows.advice.opening import opened
from service.flows.advice.reading import Pace, counted, models_for
from service.settings import Settings
from service.wire.advice.advice import Advice
from service.wire.advice.card import card_of

_READ = 0.3  # share of an advice's time that reading the headers takes, the first time


def advise_directly(
    settings: Settings, repo: str, hardware: str, goal: GoalRequest, constraints: Constraints, revision: str | None,
    what_if: Sequence[str] = (), show: Callable[[float, str], None] = lambda share, text: None,
) -> Advice:  # fmt: skip
    """Return the advice for a repo, or for the GGUF files at a path. Raises AdvisorError.

    `show` is called with the progress, 0 to 1, and what is being done.
    """
    machine = canonical(parse_hardware(hardware))
    check_questions(machine, what_if)

    def show_reading(stage: str, done: int, of: int) -> None:
        show(_READ * (done - 1) / of, counted(stage, done, of))

    with opened(settings, repo, revision) as (hub, listing, reference):
        models = models_for(hub, listing, reference, constraints, show_reading)
    pace = Pace(lambda text, share: show(_READ + (1 - _READ) * share, text))
    body = models.advised(advise, machine, goal, constraints, what_if, report=pace)
    known = {**asdict(body), "card": card_of(body)}
    return Advice(id="local", state="ready", repo=listing.repo or repo, revision=listing.revision, **known)


def advise_together(
    repos: Sequence[str], rig: Rig, constraints: Constraints, advised: Callable[[str, Constraints], Advice]
) -> list[Advice]:
    """Return advices, in the order of `repos`, whose first configs all fit in memory at the same time.

    `advised` makes one advice. Each model is planned in the memory that those before it leave: the smallest goes
    first; if one then fails, the order of `repos` is tried; if that fails too, each gets an even share of every device.
    An advice without configs means that nothing fits in its share, or on the machine at all.
    """
    alone = [advised(repo, constraints) for repo in repos]
    if not all(advice.configs for advice in alone) or _fit(alone, rig):
        return alone
    by_size = sorted(range(len(repos)), key=lambda i: sum(d.total_mib for d in alone[i].configs[0].devices))
    for order in (by_size, list(range(len(repos)))):
        found: dict[int, Advice] = {}
        for i in order:
            limits = room_left([advice.configs[0] for advice in found.values()], rig, constraints)
            advice = advised(repos[i], limits) if limits else _without_configs(alone[i])
            if not advice.configs:
                break
            found[i] = advice
        else:
            return [found[i] for i in range(len(repos))]
    share = even_share(len(repos), rig, constraints)
    return [advised(repo, share) if share else _without_configs(one) for repo, one in zip(repos, alone, strict=True)]


def _without_configs(advice: Advice) -> Advice:
    return msgspec.structs.replace(
        advice, configs=[], card=None, headline="No: the other models leave no memory for it."
    )


def _fit(advices: Sequence[Advice], rig: Rig) -> bool:
    configs = {str(i): advice.configs[0] for i, advice in enumerate(advices)}
    return side_by_side(configs, rig).together == [list(configs)]
