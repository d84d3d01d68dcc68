"""Advice and inspection without a server: the command line reads a repo, or files on this disk, and answers itself.

Headers are kept in the same folder as the service's, so that the second question costs one request.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import asdict

from service.engine.advise import advise
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware_text import canonical, parse_hardware
from service.engine.planner.explaining.what_if import check_questions
from service.flows.advice.in_use import models_for
from service.flows.advice.pace import Pace
from service.flows.advice.repo_view import whole_view
from service.flows.advice.requests import parse_reference
from service.flows.hub import make_hub
from service.hub import Hub, RepoListing, RepoReference, local_variants
from service.hub.references import HOSTS as HUB_NAMES
from service.hub.references import is_name_alone
from service.hub.seen import SeenRepos
from service.settings import Settings
from service.wire.advice.advice import Advice
from service.wire.advice.card import card_of
from service.wire.advice.repo import CostView, RepoView

_READ = 0.3  # of the time of an advice: what reading the headers takes, the first time
_ON_DISK = RepoReference("local", "files")


def advise_directly(
    settings: Settings, repo: str, hardware: str, goal: GoalRequest, constraints: Constraints, revision: str | None,
    what_if: Sequence[str] = (), show: Callable[[float, str], None] = lambda share, text: None,
) -> Advice:  # fmt: skip
    """Return the advice for a repo, or for the GGUF files at a path. Raises AdvisorError.

    `show` is called with how far it is, 0 to 1, and what is being done.
    """
    machine = canonical(parse_hardware(hardware))
    check_questions(machine, what_if)
    with opened(settings, repo, revision) as (hub, listing, reference):
        models = models_for(hub, listing, reference, constraints, lambda step: show(_READ * _done(step), step))
    pace = Pace(lambda text, share: show(_READ + (1 - _READ) * share, text))
    body = models.advised(advise, machine, goal, constraints, what_if, report=pace)
    known = {**asdict(body), "card": card_of(body)}
    return Advice(id="local", state="ready", repo=listing.repo or repo, revision=listing.revision, **known)


def _done(step: str) -> float:
    """The share of `header 3 of 8` that is done."""
    count = re.search(r"(\d+) of (\d+)", step)
    return (int(count[1]) - 1) / int(count[2]) if count else 0.0


def inspect_directly(settings: Settings, repo: str, revision: str | None) -> RepoView:
    """Return the variants at a repo, path or address, all of them read, and what that took. Raises AdvisorError."""
    started = time.monotonic()
    with opened(settings, repo, revision) as (hub, listing, reference):
        seen = whole_view(hub, listing, reference)
        if listing.repo is None:
            seen = msgspec.structs.replace(seen, repo=repo)
        if listing.repo is None and listing.address is None:
            return seen
        requests = hub.cost.requests + (1 if listing.repo else 0)
        cost = CostView(requests, hub.cost.n_bytes, round(time.monotonic() - started, 3))
        return msgspec.structs.replace(seen, cost=cost)


@contextmanager
def opened(settings: Settings, repo: str, revision: str | None) -> Iterator[tuple[Hub, RepoListing, RepoReference]]:
    """Open the Hub for the block and list a repo, or the files at a path. Raises AdvisorError."""
    with opened_hub(settings) as hub:
        if _is_elsewhere(repo):
            yield hub, hub.list_address(repo), _ON_DISK
        elif Path(repo).exists():
            yield hub, local_variants(Path(repo)), _ON_DISK
        elif _is_path(repo):
            raise InvalidInput(
                f"no such file or folder: {repo[:200]}; name a GGUF file or a folder of them on this machine, "
                "or a repo of the Hub as OWNER/NAME",
                field="repo",
            )
        else:
            reference = _reference(hub, repo, revision)
            _say(f"listing {reference.repo}")
            listing = hub.list_repo(reference)
            if settings.cache_mib:
                repos_seen(settings).keep(listing)
            yield hub, listing, reference


def _reference(hub: Hub, repo: str, revision: str | None) -> RepoReference:
    """Return what `repo` refers to; of a name without an owner the error has what the Hub's search finds."""
    try:
        return parse_reference(repo, revision)
    except InvalidInput as error:
        if not is_name_alone(repo):
            raise
        raise hub.with_nearest(error, repo.strip()) from error


def _is_elsewhere(text: str) -> bool:
    """Whether `text` is an address outside the Hub."""
    try:
        return text.startswith(("http://", "https://")) and urlsplit(text).hostname not in HUB_NAMES
    except ValueError:
        return False


def _is_path(text: str) -> bool:
    """Whether `text` can only be meant as a path: a repo's id has one slash, no such beginning, and no folder here."""
    is_file = text.lower().endswith(".gguf") and ("/" not in text or Path(text).parent.is_dir())
    return text.startswith(("/", "./", "../", "~")) or is_file


@contextmanager
def opened_hub(settings: Settings) -> Iterator[Hub]:
    """Open the Hub for the block, with the headers that this machine has read before."""
    hub = make_hub(settings, allow_private=True)
    try:
        yield hub
    finally:
        hub.close()


def repos_seen(settings: Settings) -> SeenRepos:
    """Return the repos that were listed with these settings."""
    return SeenRepos(settings.headers_dir / "listings")


def _say(step: str) -> None:
    if sys.stderr.isatty():
        print(f"{step} …", file=sys.stderr)
