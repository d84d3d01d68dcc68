"""Downloads a run's files from the Hub by ranges, if the policy allows it, and keeps only what has the right hash.

Only public files are requested, and no token is sent. The agent downloads while no engine runs; engines have no
network.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import httpx

from service.logs import Log
from service.wire.loopback import is_loopback
from service.wire.measuring.agent import RunDocument, RunFile
from workers.agent.client import authorities
from workers.agent.policy import Policy, allows_repo, folder
from workers.agent.preflight import Declined
from workers.agent.usage import UsageOfDay

HUB = "https://huggingface.co"
PART = ".part"
ATTEMPTS = 6
PAUSE_SECONDS = 5.0
_HOSTS, _SUFFIXES = ("huggingface.co", "hf.co"), (".huggingface.co", ".hf.co")
_MAX_REDIRECTS = 5
_BLOCK = 4 << 20
_SPARE_BYTES = 4 << 30  # left free on the disk
_TIMEOUT = httpx.Timeout(30, connect=10)
Stop = Callable[[], str | None]


def is_allowed(document: RunDocument, policy: Policy) -> bool:
    """Return whether the policy lets this host fetch the run's files."""
    return policy.downloads.folder is not None and allows_repo(policy, document.repo)


def download(document: RunDocument, policy: Policy, stop: Stop, usage: UsageOfDay, hub: str = HUB) -> tuple[Path, ...]:
    """Return the paths of the run's files, each downloaded unless it is there already, and its hash verified.

    An interrupted download resumes. `stop` is asked between blocks; `usage`: the bytes fetched today, kept up to date.
    Raises Declined if the policy or disk lacks room, the Hub lacks a file, or its content differs from the run's.
    """
    if policy.downloads.folder is None or not allows_repo(policy, document.repo):
        raise Declined("refused_by_policy", f"this host may not download {document.repo}")
    top = folder(policy.downloads.folder)
    place = top / document.repo.replace("/", "--") / document.revision[:12]
    _require_room(document, policy, top, place, usage)
    with httpx.Client(
        timeout=_TIMEOUT, follow_redirects=False, trust_env=False, verify=authorities(), headers=_HEADERS
    ) as client:
        try:
            fetches = (_Fetch(client, hub, document, file, place / file.path, stop, usage) for file in document.files)
            return tuple(one.run() for one in fetches)
        finally:
            usage.save()


_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "offload-advisor"}


def _require_room(document: RunDocument, policy: Policy, top: Path, place: Path, usage: UsageOfDay) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
        mark(place)
        used, free = bytes_below(top), shutil.disk_usage(place).free
        here = sum(_size(place / file.path) + _size(_part(place / file.path)) for file in document.files)
    except OSError as error:
        raise Declined("refused_by_policy", f"the folder for downloads: {error.strerror or 'no access'}") from None
    wanted = sum(file.size for file in document.files) - here
    _require_days_rest(wanted, policy, usage)
    most = int(policy.downloads.max_gib * 2**30)
    lacking = max(used + wanted - most, wanted + _SPARE_BYTES - free)
    if lacking > 0 and policy.downloads.evict == "least-recently-used":
        gained = make_room(top, lacking, keep=place)
        used, free = used - gained, free + gained
    if used + wanted > most:
        short = (used + wanted - most) / 2**30
        raise Declined("refused_by_policy", f"{short:.1f} GiB more than the {policy.downloads.max_gib:g} for downloads")
    if wanted + _SPARE_BYTES > free:
        raise Declined("refused_by_policy", f"the disk lacks {(wanted + _SPARE_BYTES - free) / 2**30:.1f} GiB for it")


def _require_days_rest(wanted: int, policy: Policy, usage: UsageOfDay) -> None:
    """Raise Declined if it exceeds the limit of a day: for good, or until enough of the last 24 hours has passed."""
    if policy.downloads.max_gib_per_day is None:
        return
    most = int(policy.downloads.max_gib_per_day * 2**30)
    if wanted > most:
        raise Declined(
            "refused_by_policy", f"{wanted / 2**30:.1f} GiB, more than the {most / 2**30:g} of a day's downloads"
        )
    if usage.total().fetched_bytes + wanted > most:
        raise Declined("gave_way", f"this host's {most / 2**30:g} GiB of a day's downloads are used up", transient=True)


class _Fetch:
    """The download of one file."""

    def __init__(
        self, client: httpx.Client, hub: str, document: RunDocument, file: RunFile, path: Path, stop: Stop,
        usage: UsageOfDay,
    ) -> None:  # fmt: skip
        self.client, self.file, self.path, self.stop, self.usage = client, file, path, stop, usage
        self.part = _part(path)
        self.began_before = _size(self.part) > 0
        self.loopback = is_loopback(httpx.URL(hub).host)
        self.url = httpx.URL(f"{hub}/{document.repo}/resolve/{document.revision}/{quote(file.path)}")

    def run(self) -> Path:
        """Return the path of the complete and verified file."""
        if _size(self.path) == self.file.size:
            self.path.replace(self.part)
            self.began_before = True
        self.part.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            try:
                if _size(self.part) < self.file.size:
                    self._read_on()
                return self._kept()
            except (httpx.HTTPError, OSError) as error:
                self._require_going_on()
                if attempt == ATTEMPTS - 1:
                    what = f"{self.path.name} could not be downloaded: {type(error).__name__}"
                    raise Declined("model_missing", what, transient=True) from None
                time.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - so that hosts do not come at once
        raise AssertionError("the last attempt ends it")

    def _require_going_on(self) -> None:
        if why := self.stop():
            raise Declined("stopped", f"the download was stopped: {why}", transient=True)

    def _kept(self) -> Path:
        """Move a complete file to its place if its hash is the run's, and delete it otherwise."""
        digest = hashlib.sha256()
        with self.part.open("rb") as file:
            while block := file.read(_BLOCK):
                self._require_going_on()
                digest.update(block)
        if digest.hexdigest() != self.file.sha256:
            self.part.unlink()
            if self.began_before:
                self.began_before = False
                raise OSError("what an earlier download left behind was damaged")
            raise Declined("model_missing", f"{self.path.name} on the Hub is not the same file as the run's")
        self.part.replace(self.path)
        return self.path

    def _read_on(self) -> None:
        """Request the missing bytes and append them. Raises httpx.HTTPError or OSError if a retry may help."""
        start = _size(self.part)
        headers = {"Range": f"bytes={start}-{self.file.size - 1}"}
        url = self.url
        for _ in range(_MAX_REDIRECTS):
            with self.client.stream("GET", url, headers=headers) as response:
                if not response.is_redirect:
                    self._take(response, start)
                    return
                url = self._after(url, response.headers.get("location", ""))
        raise Declined("model_missing", "the Hub redirects in a loop")

    def _take(self, response: httpx.Response, start: int) -> None:
        if response.status_code in (401, 403, 404, 410, 416):
            raise Declined("model_missing", f"the Hub does not serve {self.path.name}: HTTP {response.status_code}")
        if response.status_code != 206:
            raise httpx.TransportError(f"HTTP {response.status_code}")
        stated = f"bytes {start}-{self.file.size - 1}/{self.file.size}"
        if response.headers.get("content-range") != stated:
            raise Declined("model_missing", f"{self.path.name} on the Hub has another size than the run's")
        left = self.file.size - start
        with self.part.open("ab") as file:
            for block in response.iter_raw():
                left -= len(block)
                if left < 0:
                    raise Declined("model_missing", f"the Hub sends more of {self.path.name} than was asked for")
                file.write(block)
                self.usage.add("fetched_bytes", len(block))
                self._require_going_on()

    def _after(self, url: httpx.URL, location: str) -> httpx.URL:
        """Return a redirect's target: https on a host of the Hub (or loopback, if the Hub is there too)."""
        try:
            target = url.join(location)
        except (httpx.InvalidURL, ValueError):
            raise Declined("model_missing", "the Hub redirects to an address that cannot be read") from None
        host = target.host.lower()
        ours = target.scheme == "https" and (host in _HOSTS or host.endswith(_SUFFIXES)) and not target.userinfo
        if not ours and not (self.loopback and is_loopback(host)):
            raise Declined("model_missing", "the Hub redirects to a host that is not its own")
        return target


def _part(path: Path) -> Path:
    return path.with_name(path.name + PART)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


MARK = ".fetched-by-offload-advisor"
log = Log("agent")


def mark(place: Path) -> None:
    """Mark the folder of a revision as this agent's, used now."""
    (place / MARK).touch()


def touch(files: Iterable[Path]) -> None:
    """Note that files are used now, if they are in a downloaded folder."""
    for place in {parent for file in files for parent in file.parents if (parent / MARK).is_file()}:
        os.utime(place / MARK)


def make_room(top: Path, wanted: int, keep: Path) -> int:
    """Remove downloads below `top`, least recently used first, until `wanted` bytes are freed; `keep` stays.

    Returns the bytes freed. If all of them together are not enough, nothing is removed and 0 returned.
    """
    old = sorted((place for place in _marked(top) if place != keep), key=lambda place: (place / MARK).stat().st_mtime)
    sizes = [bytes_below(place) for place in old]
    if sum(sizes) < wanted:
        return 0
    gained = 0
    for place, size in zip(old, sizes, strict=True):
        if gained >= wanted:
            break
        shutil.rmtree(place)
        gained += size
        log.info("download.evicted", repo=place.parent.name.replace("--", "/"))
    return gained


def _marked(top: Path) -> Iterator[Path]:
    """Yield the marked folders `top`/repo/revision, following no links."""
    for found in top.glob(f"*/*/{MARK}"):
        if not found.parent.is_symlink() and not found.parent.parent.is_symlink():
            yield found.parent


def bytes_below(top: Path) -> int:
    """Return the total size of all files in a folder and below it, skipping files that vanish meanwhile."""
    total = 0
    for where, _, names in os.walk(top):
        for name in names:
            try:
                total += (Path(where) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total
