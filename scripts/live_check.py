"""Hold the real Hub to what the local one of the tests does: `make live-check`. Needs the network; never part of CI.

For three public repos: the listing, the redirect, ranges, and headers read in full and by jumps; a gated repo, a repo
and a file that are not there, and what is said of rate limits (none is provoked). Prints what is as expected, and what
not; the exit code is 1 where something differs. `HF_ENDPOINT` and `HF_TOKEN` are honoured. Discord and Slack are looked
at where their bots are set up (scripts/live_bots.py), and what only a person can see is printed as a checklist.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial

import httpx
from msgspec.structs import replace

from scripts import live_bots
from scripts.live_bots import Finding
from service.engine.errors import AdvisorError
from service.engine.gguf.header import Header
from service.hub.addresses import ENDPOINT
from service.hub.client import Hub
from service.hub.errors import RepoGated, RepoNotFound
from service.hub.listing import RepoListing
from service.hub.references import parse_repo_reference
from service.hub.retry import seconds_asked

REPOS = ("Qwen/Qwen3-0.6B-GGUF", "bartowski/Llama-3.2-1B-Instruct-GGUF", "unsloth/Qwen3-4B-GGUF")
GATED = "google/gemma-3-4b-it-qat-q4_0-gguf"
MISSING = "offload-advisor/there-is-no-such-repo"
_MOST_VARIANTS = 3


def findings(endpoint: str, token: str | None, repos: tuple[str, ...], gated: str, missing: str) -> Iterator[Finding]:
    """Yield the checks in order. Raises nothing if the Hub answers unexpectedly."""
    with httpx.Client(base_url=endpoint, follow_redirects=False, timeout=30) as client:
        for repo in repos:
            yield from _guarded(f"{repo}: reading", partial(_repo, client, endpoint, token, repo))
        yield from _guarded("errors", lambda: _errors(client, endpoint, repos[0], gated, missing))


def _guarded(what: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except (AdvisorError, httpx.HTTPError, LookupError, ValueError) as error:
        yield Finding(what, False, f"{type(error).__name__}: {error}")


def _repo(client: httpx.Client, endpoint: str, token: str | None, repo: str) -> Iterator[Finding]:
    with_token = Hub(endpoint, token, allow_private=True)
    try:
        listing = with_token.list_repo(parse_repo_reference(repo))
        yield from _listing(client, repo, listing)
        yield from _ranges(client, repo, listing)
        yield from _headers(with_token, repo, listing)
    finally:
        with_token.close()


def _listing(client: httpx.Client, repo: str, listing: RepoListing) -> Iterator[Finding]:
    raw = client.get(f"/api/models/{repo}", params={"blobs": "true"})
    keys = {"sha", "siblings", "private", "gated", "tags"}
    missing = keys - raw.json().keys()
    yield Finding(
        f"{repo}: the listing's fields", not missing, f"missing: {sorted(missing)}" if missing else "all there"
    )
    files = [file for variant in listing.variants for file in variant.files]
    stated = sum(1 for file in files if file.n_bytes and file.sha256)
    yield Finding(f"{repo}: sizes and hashes", stated == len(files) > 0, f"{stated} of {len(files)} files have both")
    limits = {name: raw.headers[name] for name in raw.headers if "ratelimit" in name.lower()}
    understood = not limits or seconds_asked(raw.headers) is not None
    yield Finding(f"{repo}: rate limits as stated", understood, str(limits) if limits else "none are stated")


def _ranges(client: httpx.Client, repo: str, listing: RepoListing) -> Iterator[Finding]:
    file = listing.variants[0].files[0]
    address = f"/{repo}/resolve/{listing.revision}/{file.path}"
    first = client.get(address, headers={"range": "bytes=0-1023"})
    target = first.headers.get("location", "")
    elsewhere = httpx.URL(target).host if target else ""
    yield Finding(
        f"{repo}: the redirect", first.status_code == 302 and bool(target), f"{first.status_code} to {elsewhere}"
    )
    linked = first.headers.get("x-linked-size"), first.headers.get("x-linked-etag", "").strip('"')
    yield Finding(f"{repo}: size and hash in it", linked == (str(file.n_bytes), file.sha256), str(linked))
    for start in (0, 4096):
        reply = client.get(target, headers={"range": f"bytes={start}-{start + 1023}", "accept-encoding": "identity"})
        wanted = 206, f"bytes {start}-{start + 1023}/{file.n_bytes}", 1024
        seen = reply.status_code, reply.headers.get("content-range"), len(reply.content)
        yield Finding(f"{repo}: a range at {start} of the signed address", seen == wanted, str(seen))


def _headers(hub: Hub, repo: str, listing: RepoListing) -> Iterator[Finding]:
    some = listing.variants[:_MOST_VARIANTS]
    by_jump = list(hub.read_headers(listing, some))
    requests, n_bytes = hub.cost.requests, hub.cost.n_bytes
    in_full = list(hub.read_headers(listing, some, in_full=True))
    for variant, jumped, full in zip(some, by_jump, in_full, strict=True):
        same = isinstance(jumped, Header) and replace(jumped, by_jump=False) == full
        seen = f"by jump: {jumped.by_jump}" if isinstance(jumped, Header) else jumped.detail
        yield Finding(f"{repo}: the header of {variant.name}, and again in full", same, seen)
    yield Finding(f"{repo}: cost", True, f"{requests} requests, {n_bytes / 1e6:.2f} MB for {len(some)} variants")


def _errors(client: httpx.Client, endpoint: str, repo: str, gated: str, missing: str) -> Iterator[Finding]:
    anonymous = Hub(endpoint, None, allow_private=True)
    try:
        yield _refused(
            "a repo that is not there", RepoNotFound, lambda: anonymous.list_repo(parse_repo_reference(missing))
        )
        listing = anonymous.list_repo(parse_repo_reference(gated))
        yield Finding("a gated repo is listed as one", listing.gated, f"gated: {listing.gated}")
        yield _refused("a gated file", RepoGated, lambda: anonymous.read_header(listing, listing.variants[0]))
    finally:
        anonymous.close()
    reply = client.get(f"/{repo}/resolve/main/no-such-file.gguf")
    seen = reply.status_code, reply.headers.get("x-error-code")
    yield Finding("a file that is not there", seen == (404, "EntryNotFound"), str(seen))


def _refused(what: str, error: type[AdvisorError], ask: Callable[[], object]) -> Finding:
    try:
        ask()
    except error as refusal:
        return Finding(what, True, type(refusal).__name__)
    except AdvisorError as refusal:
        return Finding(what, False, f"{type(refusal).__name__}: {refusal.detail}")
    return Finding(what, False, "it is answered")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repos", nargs="*", default=REPOS)
    parser.add_argument("--gated", default=GATED)
    parser.add_argument("--discord-channel", metavar="ID", help="send a message there, as the bot")
    parser.add_argument("--slack-channel", metavar="ID", help="send a message there, as the bot")
    arguments = parser.parse_args()
    endpoint, token = os.environ.get("HF_ENDPOINT", ENDPOINT), os.environ.get("HF_TOKEN") or None
    differs = 0
    print(f"{endpoint}, held to what the local Hub of the tests does")
    of_the_hub = findings(endpoint, token, tuple(arguments.repos), arguments.gated, MISSING)
    of_bots = live_bots.findings(arguments.discord_channel, arguments.slack_channel)
    for finding in (*of_the_hub, *of_bots):
        differs += not finding.as_expected
        print(f"{'as expected' if finding.as_expected else 'DIFFERS    '}  {finding.what}: {finding.seen}")
    print(
        "nothing differs"
        if not differs
        else f"{differs} differ: record them in tests/recorded first, and bring the stand-ins in line"
    )
    print("\n".join(live_bots.checklist()))
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
