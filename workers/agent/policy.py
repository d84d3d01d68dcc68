"""What a host's owner allows: one TOML file on the host, which has the last word on every run.

Everything has a safe default: no engine, no model, no download.
"""

from __future__ import annotations

import tomllib
from datetime import time
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.decoding import wrong_value
from service.engine.errors import AdvisorError
from service.wire.measuring.hosts import Accounts, Downloads, Sha256

MAX_POLICY_BYTES = 256 << 10

Folder: TypeAlias = Annotated[str, Meta(pattern=r"^(/|~/|[A-Za-z]:\\)[^\x00-\x1f]{0,1000}$", examples=["/srv/models"])]
Hours: TypeAlias = Annotated[
    str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$", examples=["22:00-07:00"])
]
# A GPU's number in nvidia-smi's list, or its UUID.
Gpu: TypeAlias = Annotated[int, Meta(ge=0, le=63)] | Annotated[str, Meta(pattern=r"^GPU-[0-9a-f-]{8,40}$")]


class InvalidPolicy(AdvisorError):
    """The policy file cannot be read; nothing runs until it can."""

    problem: ClassVar[str] = "invalid-policy"


class EnginePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which engines may run: programs in `folders`; if `sha256` is not empty, only those with one of these hashes.

    `readable`: what they may read besides the system's folders, their own libraries and the model.
    """

    folders: tuple[Folder, ...] = ()
    sha256: tuple[Sha256, ...] = ()
    readable: tuple[Folder, ...] = ()


class ModelPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where models are: GGUF files in `folders` and below them."""

    folders: tuple[Folder, ...] = ()


class DownloadPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be downloaded from Hugging Face: `repos` (`owner/name` or `owner/*`), in all `max_gib`, into `folder`.

    `max_gib_per_day`: within 24 hours (None: no limit). `evict`: what to delete if room is needed.
    """

    repos: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]{0,95}/([A-Za-z0-9_][\w.-]{0,95}|\*)$")], ...] = ()
    max_gib: Annotated[float, Meta(ge=0, le=1 << 20)] = 0
    folder: Folder | None = None
    max_gib_per_day: Annotated[float, Meta(ge=0, le=1 << 20)] | None = None
    evict: Literal["never", "least-recently-used"] = "never"


class AskerPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For whom besides its owner a public host measures: `accounts` by name, with `*` for any characters, so a common
    prefix can stand for a group. `approve`: what the owner approves by hand before it runs."""

    accounts: Annotated[tuple[Accounts, ...], Meta(max_length=100)] = ("*",)
    approve: Literal["none", "accounts", "runs"] = "none"


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file.

    `gpus`: the cards that may be used (None: all). `hours`: local times when runs may start and continue, such as
    `22:00-07:00` (empty: always). `max_minutes`: per run, including loading. `max_temperature` (degrees Celsius) and
    `max_watts`: of any one GPU; a run ends above them. `foreign_mib_percent`: the share of a card's memory that other
    programs may be using when a run starts. `pause_file`: nothing runs while it exists. `log_file`: the journal of what
    ran. `allow_root`: the agent may run as root. `allow_unconfined`: engines may run even if nothing keeps them from
    the network or other files.

    `max_ram_gib`: what an engine may hold, including mapped files; `max_threads`: for a run's computation.
    `max_gpu_hours_per_day`, `max_kwh_per_day` (of the cards): of all runs within 24 hours. None: no limit.
    """

    engines: EnginePolicy = EnginePolicy()
    models: ModelPolicy = ModelPolicy()
    downloads: DownloadPolicy = DownloadPolicy()
    askers: AskerPolicy = AskerPolicy()
    gpus: tuple[Gpu, ...] | None = None
    hours: tuple[Hours, ...] = ()
    max_minutes: Annotated[int, Meta(ge=1, le=1440)] = 30
    max_temperature: Annotated[int, Meta(ge=30, le=120)] = 90
    max_watts: Annotated[int, Meta(ge=20, le=2000)] | None = None
    foreign_mib_percent: Annotated[float, Meta(ge=0, le=100)] = 5
    pause_file: Folder | None = None
    log_file: Folder | None = None
    max_ram_gib: Annotated[float, Meta(gt=0, le=1 << 20)] | None = None
    max_threads: Annotated[int, Meta(ge=1, le=4096)] | None = None
    max_gpu_hours_per_day: Annotated[float, Meta(ge=0, le=24 * 64)] | None = None
    max_kwh_per_day: Annotated[float, Meta(ge=0, le=10_000)] | None = None
    allow_root: bool = False
    allow_unconfined: bool = False


def read_policy(path: Path) -> Policy:
    """Return the policy of the file at `path`.

    Raises InvalidPolicy if it is missing, too large, not TOML, or has a wrong value, which the error names.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_POLICY_BYTES + 1)
    except OSError as error:
        raise InvalidPolicy(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_POLICY_BYTES:
        raise InvalidPolicy(f"{path}: larger than {MAX_POLICY_BYTES >> 10} KiB")
    return decode_policy(data, str(path))


def decode_policy(data: bytes, name: str) -> Policy:
    """Return the policy in a TOML text; errors call it `name`. Raises InvalidPolicy."""
    try:
        tables: dict[str, Any] = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPolicy(f"{name}: not TOML: {error}") from None
    try:
        policy = msgspec.convert(tables, Policy)
    except msgspec.ValidationError as error:
        what, field, choices = wrong_value(error, Policy)
        raise InvalidPolicy(f"{name}: {field or 'the file'}: {what}", field=field, choices=choices) from None
    if policy.downloads.repos and (policy.downloads.folder is None or not policy.downloads.max_gib):
        raise InvalidPolicy(f"{name}: downloads.repos needs downloads.folder and downloads.max_gib")
    into, searched = policy.downloads.folder, policy.models.folders
    if into and not any(folder(into).is_relative_to(folder(one)) for one in searched):
        raise InvalidPolicy(f"{name}: downloads.folder must be in one of models.folders, where models are looked for")
    return policy


def folder(text: str) -> Path:
    """Return a folder of the policy as a path; `~/` is the home of the agent's user."""
    return Path(text).expanduser()


def is_within_hours(policy: Policy, now: time) -> bool:
    """Return whether `now` (local time) is within the policy's hours; a span may cross midnight."""
    return not policy.hours or any(_covers(span, now) for span in policy.hours)


def _covers(span: str, now: time) -> bool:
    start, end = (time.fromisoformat(part) for part in span.split("-"))
    return start <= now < end if start < end else now >= start or now < end


def allows_engine(policy: Policy, sha256: str) -> bool:
    """Return whether a program with this hash, in a folder of the policy, may run."""
    return not policy.engines.sha256 or sha256 in policy.engines.sha256


def allows_gpu(policy: Policy, index: int, uuid: str | None) -> bool:
    """Return whether a card may be used. `index`: its number in nvidia-smi's list."""
    named = {str(gpu).lower() for gpu in policy.gpus or ()}
    return policy.gpus is None or str(index) in named or (uuid or "").lower() in named


def allows_repo(policy: Policy, repo: str) -> bool:
    """Return whether files of a repo may be downloaded. Like the Hub, it ignores case."""
    name, owner = repo.lower(), repo.lower().partition("/")[0]
    return any(allowed.lower() in (name, f"{owner}/*") for allowed in policy.downloads.repos)


def as_downloads(policy: Policy) -> Downloads:
    """Return what the service is told of the allowed downloads: no path."""
    return Downloads(repos=policy.downloads.repos, max_gib=policy.downloads.max_gib)


def pause_path(policy: Policy, state: Path) -> Path:
    """Return the file whose presence pauses the host: by default `pause` in the state folder."""
    return folder(policy.pause_file) if policy.pause_file else state / "pause"


def log_path(policy: Policy, state: Path) -> Path:
    """Return the journal of what ran: by default `ran.jsonl` in the state folder."""
    return folder(policy.log_file) if policy.log_file else state / "ran.jsonl"


def example() -> str:
    """Return a policy file to start from: every setting commented out, at its default and explained."""
    return (resources.files("workers.agent") / "policy.toml").read_text("utf-8")
