"""The public shapes of `/v1/hosts`: machines that measure, as their owners and everybody else see them."""

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
# A name, or names with `*` for any characters, so that a group is a list or a common beginning.
Accounts: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9*][A-Za-z0-9._:@*-]{0,119}$")]
MAX_MODELS = 500
MAX_ENGINES = 32


class EngineBuild(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One build of an engine on a host. `sha256`: of its benchmark program; `options`: those it says it knows."""

    engine: Engine
    sha256: Sha256
    version: Short | None = None
    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    backends: Annotated[tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=16)] = ()
    options: Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=1000)] = ()


class ModelFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GGUF file on a host, without its path. `header_sha256`: of its bytes up to the end of the tensor table.

    `sha256`: of the whole file, once the host has computed it.
    """

    name: Annotated[str, Meta(pattern=r"^[^/\\\x00-\x1f]{1,200}$")]
    size: Annotated[int, Meta(ge=1)]
    header_sha256: Sha256
    sha256: Sha256 | None = None


class Downloads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an owner lets his host fetch: repos (`owner/name` or `owner/*`), and GiB of disk for it in all."""

    repos: Annotated[tuple[Short, ...], Meta(max_length=100)] = ()
    max_gib: Annotated[float, Meta(ge=0, le=1 << 20)] = 0


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a host says of itself. Nothing here names a machine, a user, a path or a serial number.

    `hardware.gpus` are in the agent's own order, one entry a card; runs name cards by that index. `accounts`: whom a
    public host measures for besides its owner.
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
    """Return whether an account of this name is among those."""
    return any(fnmatchcase(name, one) for one in accounts)


class EnrolmentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an owner asks for before a machine joins. A private host measures only what its owner asks for."""

    visibility: Visibility = "private"


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """A single-use code for one machine, and the line to type there."""

    code: str
    expires_at: str
    command: str


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A registered machine. `mine` and what follows it is for its owner only; others see pseudonym and rig."""

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
    """What an owner changes: `active` approves a waiting host, or ends a pause."""

    state: Literal["active", "paused"] | None = None
    visibility: Visibility | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Whose token this is: `GET /v1/account`."""

    name: str
    scopes: list[str]
