"""The types of `/v1/hosts`: hosts, as their owners and everybody else see them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.config import Engine
from service.engine.hardware import Hardware

HostState: TypeAlias = Literal["waiting", "active", "paused", "revoked"]
Visibility: TypeAlias = Literal["public", "private"]
Sha256: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Short: TypeAlias = Annotated[str, Meta(max_length=200)]
# An account's name, or a pattern with `*` for any characters, which can cover a group with a common prefix.
Accounts: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9*][A-Za-z0-9._:@*-]{0,119}$")]
MAX_MODELS = 500
MAX_ENGINES = 32


class EngineBuild(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One build of an engine on a host. `sha256`: of its benchmark program; `options`: those that its help lists."""

    engine: Engine
    sha256: Sha256
    version: Short | None = None
    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    backends: Annotated[tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=16)] = ()
    options: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=1000)] = ()


class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GGUF file on a host, without its path. `header_sha256`: of the bytes up to the end of the tensor table.

    `sha256`: of the whole file, once the host has computed it.
    """

    name: Annotated[str, Meta(pattern=r"^[^/\\\x00-\x1f]{1,200}$")]
    size: Annotated[int, Meta(ge=1)]
    header_sha256: Sha256
    sha256: Sha256 | None = None


class Downloads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host may download: repos (`owner/name` or `owner/*`), and how many GiB of disk in all."""

    repos: Annotated[tuple[Short, ...], Meta(max_length=100)] = ()
    max_gib: Annotated[float, Meta(ge=0, le=1 << 20)] = 0


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host's description of itself. Nothing in it identifies a machine, a user, a path or a serial number.

    `hardware.gpus` are in the agent's own order, one entry per card; runs refer to cards by that index. `accounts`: the
    accounts that a public host measures for besides its owner.
    """

    agent: Short
    hardware: Hardware
    engines: Annotated[tuple[EngineBuild, ...], Meta(max_length=MAX_ENGINES)] = ()
    models: Annotated[tuple[ModelFile, ...], Meta(max_length=MAX_MODELS)] = ()
    downloads: Downloads = Downloads()
    max_minutes: Annotated[int, Meta(ge=1, le=1440)] = 60
    paused: bool = False
    accounts: Annotated[tuple[Accounts, ...], Meta(max_length=100)] = ("*",)


def are_named(accounts: Iterable[str], name: str) -> bool:
    """Return whether an account's name matches one of these patterns."""
    return any(fnmatchcase(name, one) for one in accounts)


class EnrolmentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for an enrolment code. A private host measures only for its owner."""

    visibility: Visibility = "private"


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """A single-use code for one machine, and the command to type there."""

    code: str
    expires_at: str
    command: str


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A registered machine. `mine` and the fields after it are for its owner only; others see pseudonym and rig."""

    id: str
    pseudonym: str
    state: HostState
    visibility: Visibility
    hardware: Hardware | None
    engines: list[EngineBuild]
    seen_at: str | None
    runs: int
    gpu_hours: float
    mine: bool = False
    agent: str | None = None
    models: list[ModelFile] = []
    downloads: Downloads | None = None
    created_at: str | None = None
    key_fingerprint: str | None = None


class HostChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An owner's change to a host: `active` approves a waiting host, or ends a pause."""

    state: Literal["active", "paused"] | None = None
    visibility: Visibility | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a token: `GET /v1/account`."""

    name: str
    scopes: list[str]
