"""The public shapes of `/v1/leaderboard` and of the pages of models, rigs and contributors."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.config import Engine
from service.engine.measured.classes import Platform
from service.wire.measuring.runs import TrustTier
from service.wire.results.results import AnyDay, Published, Result, ResultOrigin

Sort: TypeAlias = Literal["tg", "pp", "newest", "bits"]
Depth: TypeAlias = Literal[0, 4096, 16384, 32768, 65536]
Slug: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Cursor: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
MOST_ROWS = 100
BoardTrust: TypeAlias = Literal["self-reported", "published", "agent-run", "replicated"]
PROVEN: BoardTrust = "published"
"""What the board says by default: what proven hosts measured, and what is cited from public threads."""


class BoardQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of the leaderboard: query parameters of `/v1/leaderboard` and of the page.

    `depth`: tokens in the cache at which speeds are compared. `trust`: at least this; `published`: what this project
    cites from public threads, and the tiers `agent-run` and `replicated`; `self-reported`: unverified results too, that
    anybody can send. `arch`: the model's family, as its header names it. `rig`: cards, by slug; `vram`, `ram`: classes
    in GiB, `platform`: by channels of memory. `since`: measured on this day or later. `q`: words that names of model,
    cards or variant have.
    """

    sort: Sort = "tg"
    depth: Depth = 0
    trust: BoardTrust = PROVEN
    model: Slug | None = None
    arch: Slug | None = None
    variant: Slug | None = None
    engine: Engine | None = None
    rig: Slug | None = None
    vram: Annotated[int, Meta(ge=0, le=1 << 16)] | None = None
    ram: Annotated[int, Meta(ge=0, le=1 << 16)] | None = None
    platform: Platform | None = None
    since: AnyDay | None = None
    q: Annotated[str, Meta(max_length=200)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 25
    cursor: Cursor | None = None


class BoardRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result that leads a model on a rig with an engine, tokens a second at the depth asked for.

    `low` to `high`: of all `n_results` of this variant on such a rig, of the phase that is sorted by (else TG).
    `predicted_low` to `predicted_high`: the 80 % interval that was predicted of it, null where nothing was;
    `plausible`: whether it lies within three standard deviations of that.
    """

    result: str
    model: str
    model_slug: str
    arch: str
    n_params: int | None
    n_active: int | None
    variant: str
    bpw: float | None
    engine: Engine
    build: str | None
    rig: str
    rig_slug: str
    vram_mib: int
    cpu: str | None
    ram_gib: int | None
    platform: Platform
    tg_tps: float | None
    pp_tps: float | None
    n_results: int
    low: float
    high: float
    predicted_low: float | None = None
    predicted_high: float | None = None
    plausible: bool | None = None
    tier: TrustTier
    origin: ResultOrigin
    published: Published | None
    contributor: str | None
    measured_at: str


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the leaderboard. `next`: the cursor of the following page, None on the last."""

    query: BoardQuery
    rows: list[BoardRow]
    next: str | None = None


class NamedSlug(msgspec.Struct, frozen=True, kw_only=True):
    """A name on the board, and what stands for it in addresses and filters."""

    slug: str
    name: str


class BoardChoices(msgspec.Struct, frozen=True, kw_only=True):
    """What the leaderboard can be filtered by: names on it, by alphabet, and classes."""

    models: list[NamedSlug]
    rigs: list[NamedSlug]
    variants: list[str]
    archs: list[str]
    depths: list[int]
    vram: list[int]
    ram: list[int]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a model has in one variant or on one rig, or a rig with one model: TG in tokens a second at a depth.

    `best_tps` is the fastest, `low_tps` the slowest of `n_results`. `size_gib`: of the files of a variant.
    """

    slug: str
    name: str
    best_tps: float
    low_tps: float
    n_results: int
    bpw: float | None = None
    size_gib: float | None = None


class ModelPage(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model: the variants that people run, the rigs they run it on, and the results that lead.

    `unproven`: the fastest that nothing bears out.
    """

    slug: str
    name: str
    arch: str | None
    n_params: int | None
    n_active: int | None
    depth: int
    depths: list[int]
    n_results: int
    variants: list[Share]
    rigs: list[Share]
    leading: list[BoardRow]
    unproven: list[BoardRow] = []


class HardwarePage(msgspec.Struct, frozen=True, kw_only=True):
    """What a rig runs: models with their speeds, and the results that lead.

    `unproven`: the fastest that nothing bears out.
    """

    slug: str
    name: str
    vram_mib: int | None
    depth: int
    depths: list[int]
    n_results: int
    models: list[Share]
    leading: list[BoardRow]
    unproven: list[BoardRow] = []


class HostFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a public host has done."""

    pseudonym: str
    contributor: str
    rig: str | None
    state: str
    runs: int
    gpu_hours: float
    n_results: int


class Contributor(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody gave: results by tier, public hosts, and what these measured."""

    pseudonym: str
    since: str
    n_results: dict[str, int]
    hosts: list[HostFigures]
    newest: list[Result]
