"""What the owner of a host lets it do: one TOML file on the host, which has the last word over every run.

Everything left out has the safest value: no engine, no model, no download.
"""

from __future__ import annotations

import tomllib
from datetime import time
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.decoding import wrong_value
from service.engine.errors import AdvisorError
from service.wire.measuring.hosts import Accounts, Downloads, Sha256

MAX_POLICY_BYTES = 256 << 10

Folder: TypeAlias = Annotated[str, Meta(pattern=r"^(/|~/|[A-Za-z]:\\)[^\x00-\x1f]{0,1000}$")]
Hours: TypeAlias = Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")]
# Its number in nvidia-smi's list, or its UUID.
Gpu: TypeAlias = Annotated[int, Meta(ge=0, le=63)] | Annotated[str, Meta(pattern=r"^GPU-[0-9a-f-]{8,40}$")]


class InvalidPolicy(AdvisorError):
    """The policy file cannot be read: nothing runs until it can."""

    problem: ClassVar[str] = "invalid-policy"


class EnginePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which engines may run: programs in `folders`; where `sha256` is not empty, only those of them.

    `readable`: what they may read besides the system's folders, their own libraries and the model.
    """

    folders: tuple[Folder, ...] = ()
    sha256: tuple[Sha256, ...] = ()
    readable: tuple[Folder, ...] = ()


class ModelPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where models are: GGUF files in `folders` and below them."""

    folders: tuple[Folder, ...] = ()


class DownloadPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be fetched from Hugging Face: `repos` (`owner/name` or `owner/*`), `max_gib` in all, into `folder`.

    `max_gib_per_day`: fetched within 24 hours (None: no limit). `evict`: what goes where room is needed.
    """

    repos: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]{0,95}/([A-Za-z0-9_][\w.-]{0,95}|\*)$")], ...] = ()
    max_gib: Annotated[float, Meta(ge=0, le=1 << 20)] = 0
    folder: Folder | None = None
    max_gib_per_day: Annotated[float, Meta(ge=0, le=1 << 20)] | None = None
    evict: Literal["never", "least-recently-used"] = "never"


class AskerPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For whom a public host measures besides its owner: `accounts` by name, `*` standing for any characters, so that a
    group is a list or a common beginning. `approve`: what the owner approves by hand before it runs."""

    accounts: Annotated[tuple[Accounts, ...], Meta(max_length=100)] = ("*",)
    approve: Literal["none", "accounts", "runs"] = "none"


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file.

    `gpus`: the cards that may be used (None: all). `hours`: local times between which runs may start and go on, such as
    `22:00-07:00` (empty: always). `max_minutes`: of one run, loading counted. `max_temperature`: of a GPU in degrees
    Celsius, `max_watts`: of one GPU; a run ends above them. `foreign_mib_percent`: of a card's memory that other
    programs may have in use when a run starts. `pause_file`: nothing runs while it is there. `log_file`: what ran here.
    `allow_root`: the agent may run as root. `allow_unconfined`: engines may run where nothing keeps them from the
    network or from other files.

    `max_ram_gib`: that an engine may hold, mapped files counted; `max_threads`: that a run may compute with.
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

    Raises InvalidPolicy when it is missing, too large or no TOML, or a value is wrong: it says which.
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
    """Return the policy that a TOML text says; `name` is what errors call it. Raises InvalidPolicy."""
    try:
        tables: dict[str, Any] = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPolicy(f"{name}: no TOML: {error}") from None
    try:
        policy = msgspec.convert(tables, Policy)
    except msgspec.ValidationError as error:
        what, field, choices = wrong_value(error, Policy)
        raise InvalidPolicy(f"{name}: {field or 'the file'}: {what}", field=field, choices=choices) from None
    if policy.downloads.repos and (policy.downloads.folder is None or not policy.downloads.max_gib):
        raise InvalidPolicy(f"{name}: downloads.repos needs downloads.folder and downloads.max_gib")
    if policy.downloads.folder and not _is_searched(policy, policy.downloads.folder):
        raise InvalidPolicy(f"{name}: downloads.folder must lie in one of models.folders, where models are looked for")
    return policy


def _is_searched(policy: Policy, text: str) -> bool:
    return any(folder(text).is_relative_to(folder(searched)) for searched in policy.models.folders)


def folder(text: str) -> Path:
    """Return a folder of the policy as a path: `~/` is the home of the user that the agent runs as."""
    return Path(text).expanduser()


def is_within_hours(policy: Policy, now: time) -> bool:
    """Return whether `now` (local time) lies in one of the policy's spans; a span may go over midnight."""
    return not policy.hours or any(_covers(span, now) for span in policy.hours)


def _covers(span: str, now: time) -> bool:
    start, end = (time.fromisoformat(part) for part in span.split("-"))
    return start <= now < end if start < end else now >= start or now < end


def allows_engine(policy: Policy, sha256: str) -> bool:
    """Return whether a program with this hash, found in a folder of the policy, may run."""
    return not policy.engines.sha256 or sha256 in policy.engines.sha256


def allows_gpu(policy: Policy, index: int, uuid: str | None) -> bool:
    """Return whether a card may be used: `index` is its number in nvidia-smi's list."""
    return policy.gpus is None or index in policy.gpus or (uuid is not None and uuid.lower() in _uuids(policy))


def _uuids(policy: Policy) -> set[str]:
    return {gpu.lower() for gpu in policy.gpus or () if isinstance(gpu, str)}


def allows_repo(policy: Policy, repo: str) -> bool:
    """Return whether files of a repo may be downloaded (names are compared as the Hub does: without case)."""
    name, owner = repo.lower(), repo.lower().partition("/")[0]
    return any(allowed.lower() in (name, f"{owner}/*") for allowed in policy.downloads.repos)


def as_downloads(policy: Policy) -> Downloads:
    """Return what the service is told of the downloads that are allowed: no path."""
    return Downloads(repos=policy.downloads.repos, max_gib=policy.downloads.max_gib)


def pause_path(policy: Policy, state: Path) -> Path:
    """Return the file whose presence pauses the host: `pause` in the state folder unless the policy says another."""
    return folder(policy.pause_file) if policy.pause_file else state / "pause"


def log_path(policy: Policy, state: Path) -> Path:
    """Return the file of what ran here: `ran.jsonl` in the state folder unless the policy says another."""
    return folder(policy.log_file) if policy.log_file else state / "ran.jsonl"


def example() -> str:
    """Return a policy file to begin with, every setting at its default and explained, as a comment."""
    return _EXAMPLE


_EXAMPLE = """\
# What this host may do. The agent reads this file again before every run; it has the last word over the service.
# A line that begins with # is not in force: what it shows is the default, or an example where it says so.

# Cards that may be used: numbers as nvidia-smi lists them, or UUIDs. Left out: all.
# gpus = [0, 1]                     # example

# Local times between which runs may start and go on. Empty: always.
# hours = []
# hours = ["22:00-07:00"]           # example

# Minutes that one run may take, loading the model counted.
# max_minutes = 30

# A run ends when a GPU is hotter (degrees Celsius) or takes more power (watts, left out: no limit).
# max_temperature = 90
# max_watts = 400                   # example

# GiB of RAM that an engine may hold (a run ends above it), and threads that a run may compute with. Left out: no limit.
# max_ram_gib = 200                 # example
# max_threads = 32                  # example

# What all runs within 24 hours may take: GPUs times hours, and energy of the GPUs. Left out: no limit.
# max_gpu_hours_per_day = 8         # example
# max_kwh_per_day = 5               # example

# Nothing starts while other programs hold more than this of a card's memory.
# foreign_mib_percent = 5

# Nothing runs while this file is there (`advisor host pause` makes it). Left out: `pause` in the state folder.
# pause_file = "/run/advisor/pause" # example

# What ran here, one JSON object a line. Left out: `ran.jsonl` in the state folder.
# log_file = "/var/log/advisor.jsonl" # example

# The agent refuses to run as root, and where nothing would keep engines from the network and from other files, unless
# these say so.
# allow_root = false
# allow_unconfined = false

[engines]
# Folders with builds of ik_llama.cpp and llama.cpp (the `bin` that holds llama-sweep-bench or llama-bench).
# Without one nothing can be measured.
folders = []
# folders = ["~/ik_llama.cpp/build/bin", "~/llama.cpp/build/bin"] # example
# Only programs with these hashes (`sha256sum llama-sweep-bench`). Empty: every one in the folders.
# sha256 = []
# Engines see the folders of the system, of their own libraries and of the model, nothing else. Others that they need:
# readable = ["/data/cuda-12.8"]    # example

[models]
# Folders with GGUF files, searched with all that is below them.
folders = []
# folders = ["~/models"]            # example

[downloads]
# Hugging Face repos that runs may fetch from, and GiB of disk for it in all. Empty: nothing is ever downloaded.
# repos = []
# repos = ["ubergarm/*", "unsloth/Qwen3-30B-A3B-GGUF"] # example
# max_gib = 0
# Where they are put: a folder in one of [models].
# folder = "~/models/advisor"       # example
# GiB that may be fetched within 24 hours. Left out: no limit.
# max_gib_per_day = 100             # example
# What is deleted where room is needed: nothing, or ("least-recently-used") the fetched files not used for longest.
# evict = "never"

[askers]
# Accounts that a public host measures for besides its owner: all, none ([]), or by name; * stands for any characters.
# accounts = ["*"]
# accounts = ["alice", "slack:T0123ABCD:*"] # example
# What must be approved first with `advisor host approve`: "none", "accounts" (each once) or "runs" (each one).
# approve = "none"
"""
