"""The types of `/v1/leaderboard` and of the pages of models, rigs and contributors."""

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
"""The board's default: results of proven hosts, and those cited from public threads."""


class BoardQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of `/v1/leaderboard` and of its page.

    `depth`: tokens in the cache at which speeds are compared. `trust`: the minimum; `published` means results cited
    from public threads and the tiers `agent-run` and `replicated`; `self-reported` includes unverified results, which
    anybody can send. `arch`: the model's family, as its header names it. `model`, `rig`: by slug or name; `vram`,
    `ram`: classes in GiB; `platform`: by memory channels. `since`: measured on this day or later. `q`: words
    in the names of model, cards or variant.
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
    """The fastest result of a model on a rig with an engine, in tokens per second at the depth asked for.

    `low` to `high`: range of all `n_results` of this variant on such a rig, for the phase sorted by (else TG).
    `predicted_low` to `predicted_high`: its predicted 80 % interval, null without a prediction; `plausible`: whether
    the result is within three standard deviations of that.
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
    """A name on the board, and its slug in addresses and filters."""

    slug: str
    name: str


class BoardChoices(msgspec.Struct, frozen=True, kw_only=True):
    """Values to filter the leaderboard by: names on it, alphabetically, and classes."""

    models: list[NamedSlug]
    rigs: list[NamedSlug]
    variants: list[str]
    archs: list[str]
    depths: list[int]
    vram: list[int]
    ram: list[int]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A model's results in one variant or on one rig, or a rig's with one model: TG in tokens per second at a depth.

    `best_tps` is the fastest, `low_tps` the slowest of `n_results`. `size_gib`: of a variant's files.
    """

    slug: str
    name: str
    best_tps: float
    low_tps: float
    n_results: int
    bpw: float | None = None
    size_gib: float | None = None


class ModelPage(msgspec.Struct, frozen=True, kw_only=True):
    """A model's results: its variants, the rigs it runs on, and the fastest results.

    `unproven`: the fastest that nothing confirms.
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
    """A rig's results: models with their speeds, and the fastest results.

    `unproven`: the fastest that nothing confirms.
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
    """A public host's figures."""

    pseudonym: str
    contributor: str
    rig: str | None
    state: str
    runs: int
    gpu_hours: float
    n_results: int


class Contributor(msgspec.Struct, frozen=True, kw_only=True):
    """A contributor: results by tier, public hosts, and the newest results."""

    pseudonym: str
    since: str
    n_results: dict[str, int]
    hosts: list[HostFigures]
    newest: list[Result]
