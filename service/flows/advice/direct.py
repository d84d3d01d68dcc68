"""Advice without a server: the command line reads a repo, or files on this disk, and answers itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import asdict

from service.engine.advise import advise
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware_text import canonical, parse_hardware
from service.engine.planner.explaining.what_if import check_questions
from service.flows.advice.in_use import models_for
from service.flows.advice.opening import opened
from service.flows.advice.pace import Pace, counted
from service.settings import Settings
from service.wire.advice.advice import Advice
from service.wire.advice.card import card_of

_READ = 0.3  # of the time of an advice: what reading the headers takes, the first time


def advise_directly(
    settings: Settings, repo: str, hardware: str, goal: GoalRequest, constraints: Constraints, revision: str | None,
    what_if: Sequence[str] = (), show: Callable[[float, str], None] = lambda share, text: None,
) -> Advice:  # fmt: skip
    """Return the advice for a repo, or for the GGUF files at a path. Raises AdvisorError.

    `show` is called with how far it is, 0 to 1, and what is being done.
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
