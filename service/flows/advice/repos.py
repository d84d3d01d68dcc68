"""Listings of repos: asked of the Hub once per commit, kept in the database, one reader per repo at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec
from redis.exceptions import RedisError
from redis.lock import Lock

from service.flows.advice.reading import read_models
from service.flows.advice.repo_view import view
from service.flows.context import Context, Records
from service.hub.errors import RepoWithoutGguf
from service.hub.listing import RepoListing
from service.hub.references import RepoReference, parse_reference
from service.hub.variants import ANY_NUMBER, choose
from service.store.advice import listings
from service.wire.advice.repo import RepoView, model_view

BRANCH_MEMORY = timedelta(minutes=10)
_CLAIM_SECONDS = 5.0  # renewed while the reader lives; a dead one delays the next by no more
_WAIT_SECONDS = 300
_MAIN = "main"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RepoListing).decode


def known_revision(context: Context, reference: RepoReference) -> str | None:
    """Return the commit that a reference means, None if only the Hub can tell."""
    if reference.is_pinned:
        return reference.revision
    since = context.clock() - BRANCH_MEMORY
    return listings.branch_revision(context.engine, reference.repo, reference.revision or _MAIN, since)


def known_repos(context: Records, limit: int) -> list[str]:
    """Return at most `limit` repos that were read here, latest read first."""
    return listings.repos_like(context.engine, "", limit)


def list_repo(context: Context, reference: RepoReference) -> RepoListing:
    """Return the repo's listing at the commit that the reference means now. Raises the Hub's errors."""
    known = known_revision(context, reference)
    stored = stored_listing(context, reference.repo, known) if known else None
    if stored is not None:
        return stored
    try:
        listing = context.hub.list_repo(reference)
    except RepoWithoutGguf as error:
        read_here = listings.repos_like(context.engine, reference.name)
        error.choices = tuple(dict.fromkeys((*error.choices, *read_here)))
        raise
    if listing.revision is not None:
        now, branch = context.clock(), reference.revision or _MAIN
        listings.save_listing(context.engine, reference.repo, listing.revision, _encode(listing), now)
        listings.remember_branch(context.engine, reference.repo, branch, listing.revision, now)
    return listing


def stored_listing(context: Records, repo: str, revision: str) -> RepoListing | None:
    """Return the stored listing of a commit, None if there is none or it has an older format."""
    return _listing(listings.read_listing(context.engine, repo, revision))


def latest_listing(context: Context, repo: str) -> RepoListing | None:
    """Return the latest stored listing of a repo, None if there is none or it has an older format."""
    return _listing(listings.read_latest(context.engine, repo))


def _listing(kept: bytes | None) -> RepoListing | None:
    try:
        return None if kept is None else _decode(kept)
    except msgspec.DecodeError:
        return None


def list_admitted(context: Context, reference: RepoReference, admit_new_repo: Callable[[], None]) -> RepoListing:
    """Return `list_repo`, after calling `admit_new_repo`, which may raise, for a repo never read here."""
    if not listings.is_known(context.engine, reference.repo):
        admit_new_repo()
    return list_repo(context, reference)


@contextmanager
def listed(
    context: Context, reference: RepoReference, admit_new_repo: Callable[[], None]
) -> Iterator[RepoListing]:  # fmt: skip
    """Yield `list_admitted`, as the repo's only reader for the block. Raises the Hub's errors."""
    with reading(context, reference.repo):
        yield list_admitted(context, reference, admit_new_repo)


@contextmanager
def reading(context: Context, repo: str) -> Iterator[None]:
    """Be the repo's only reader for the block, so that whatever it reads serves all who wait.

    Correctness does not depend on it: without Redis, or after a claim ran out, two readers read and write the same.
    """
    lock = context.redis.lock(
        f"reading:{repo}", timeout=_CLAIM_SECONDS, blocking_timeout=_WAIT_SECONDS, thread_local=False
    )
    if not _quietly(lock.acquire):
        yield
        return
    over = threading.Event()
    heart = threading.Thread(target=_keep, args=(lock, over), daemon=True)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()
        _quietly(lock.release)


def _keep(lock: Lock, over: threading.Event) -> None:
    while not over.wait(_CLAIM_SECONDS / 4):
        _quietly(lock.reacquire)


def _quietly(act: Callable[[], object]) -> bool:
    try:
        return bool(act())
    except (RedisError, OSError):
        return False


def inspect(
    context: Context,
    repo: str,
    revision: str | None = None,
    variant: str | None = None,
    admit_new_repo: Callable[[], None] = lambda: None,
) -> RepoView:
    """Return a repo's variants and the model of one of them, `variant` or else the first.

    `admit_new_repo` is called before any work on a repo never read here, and may raise. Raises InvalidInput,
    UnknownVariant and the Hub's errors.
    """
    reference = parse_reference(repo, revision)
    with listed(context, reference, admit_new_repo) as listing:
        chosen = choose(listing, reference, [variant] if variant else None, ANY_NUMBER, "variant")[:1]
        read = read_models(context.hub, listing, chosen).variants[0]
    return view(listing, reference, model_view(read.name, read.model))
