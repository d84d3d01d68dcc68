"""Completions while a user types a repo, model or hardware: from what was read here, and the catalogue."""

from __future__ import annotations

import re

from service.engine.catalogue.rows import known_gpus
from service.flows.advice.repos import latest_listing
from service.flows.chat.chat_accounts import remembered_rig
from service.flows.context import Context
from service.flows.results.leaderboard import choices
from service.store.advice import listings

MOST = 25
_MAKER = re.compile(r"^NVIDIA (?:GeForce )?")
_LAST = re.compile(r"^(?P<before>(?:.*[+,])?\s*)(?P<count>\d{1,2}\s?x\s*)?(?P<name>[^+,]*)$", re.IGNORECASE | re.DOTALL)


def completions(context: Context, kind: str, typed: str, account: str) -> list[str]:
    """Return completions for an option of this kind: `repo`, `model` or `hardware`; none for any other kind."""
    typed = typed.replace("\0", "")  # no database accepts it
    if kind == "repo":
        return repos(context, typed)
    if kind == "model":
        return models(context, typed)
    return hardware(context, typed, account) if kind == "hardware" else []


def repos(context: Context, typed: str) -> list[str]:
    """Return repos read here whose name contains what is typed; after a colon, the repo's variants."""
    repo, colon, variant = typed.strip().partition(":")
    if not colon:
        return listings.repos_like(context.engine, repo, MOST)
    listing = latest_listing(context, repo)
    names = [one.name for one in listing.variants] if listing else []
    return [f"{repo}:{name}" for name in names if variant.lower() in name.lower()][:MOST]


def models(context: Context, typed: str) -> list[str]:
    """Return models on the leaderboard whose name contains what is typed."""
    names = [one.name for one in choices(context).models]
    return [name for name in names if typed.strip().lower() in name.lower()][:MOST]


def hardware(context: Context, typed: str, account: str) -> list[str]:
    """Return what is typed with its last card completed; for empty input, the remembered rig."""
    if not typed.strip():
        known = remembered_rig(context, account)
        return [known] if known else []
    match = _LAST.match(typed)
    if match is None or not match["name"].strip():
        return []
    words = match["name"].lower().split()
    names = dict.fromkeys(_MAKER.sub("", row.name) for row in known_gpus())
    fitting = [name for name in names if all(word in name.lower().replace("-", " ") for word in words)]
    before = f"{match['before']}{match['count'] or ''}"
    return [f"{before}{name}" for name in sorted(fitting, key=len)][:MOST]
