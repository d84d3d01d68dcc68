"""The shapes of an answer: devices, speed, configs, refusals. The same Structs serve advice, check and results."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine, Flags
from service.engine.finding import Finding
from service.engine.goal import Goal
from service.engine.hardware import Assumption, Hardware

Shell: TypeAlias = Literal["posix", "powershell"]


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device in MiB, as the engine prints its parts. `CPU` is the sum of all host buffers.

    `overhead_mib` is what no engine prints (CUDA context, pools). `fits`: `total_high_mib` fits into the capacity
    (what is free on the card, no reserve taken off). `free_mib` is capacity minus total; `companions_mib` is what a
    draft model, next-token layers and a projector take, counted in the totals; `basis` names the weakest class of
    knowledge used: exact | measured | source only | approximate.
    """

    device: str
    gpu: str | None
    weights_mib: float
    kv_mib: float
    compute_mib: float
    output_mib: float
    overhead_mib: float
    total_mib: float
    total_low_mib: float
    total_high_mib: float
    capacity_mib: float
    reserve_mib: float
    free_mib: float
    fits: bool
    basis: str
    companions_mib: float = 0.0


class SpeedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Speed at one depth in tokens per second; low and high bound an 80 % interval."""

    n_kv: int
    pp_tps: float
    pp_low: float
    pp_high: float
    tg_tps: float
    tg_low: float
    tg_high: float
    basis: str

    @property
    def after(self) -> str:
        """The depth in words: `after 4,000 tokens`, or `with an empty cache`."""
        return f"after {self.n_kv:,} tokens" if self.n_kv else "with an empty cache"


class AtOnce(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a second of several requests at once, each with `n_kv` tokens in its cache: `tps` of all together, with
    an 80 % interval, and of `each`."""

    requests: int
    n_kv: int
    tps: float
    low: float
    high: float
    each: float


class Reason(msgspec.Struct, frozen=True):
    """Why something was chosen: the rule's id, and a sentence."""

    rule: str
    text: str


OF_BENCHMARK = "smaller-benchmark"
"""The rule of a reason that is about the benchmark alone."""


class BuildOption(msgspec.Struct, frozen=True):
    """An option of CMake, why it is given, and where that is known from."""

    option: str
    reason: str
    source: str


class BuildLine(msgspec.Struct, frozen=True):
    """How to build an engine: lines for bash, the options in them with their reasons, and what else to know."""

    line: str
    options: tuple[BuildOption, ...]
    notes: tuple[str, ...] = ()


class Package(msgspec.Struct, frozen=True):
    """A ready-made engine: for which shells (POSIX or PowerShell), from whom, the lines that install it, its source.

    `needs`: what it runs with only if that is installed already; without it the engine is built.
    """

    shell: Shell
    name: str
    line: str
    source: str
    needs: str = ""


class OldestBuild(msgspec.Struct, frozen=True):
    """The oldest build that a command as written runs on: its date (YYYY-MM-DD), and the words that need it."""

    date: str
    needs: tuple[str, ...]


class Commands(msgspec.Struct, frozen=True):
    """Lines to paste, quoted for bash: download the files, run the server, run the engine's benchmark tool.

    The server in other forms: `powershell`, `docker` (with the line that builds the image), `systemd` (a unit's text).
    `packages`: ready-made engines for these cards, the official ones first. `build`: how to build the engine.
    `oldest_build`: what the server's line needs, None where it is not known to need
    a newer one than all that are known; `older`: its spelling for builds before that, where those may still be in use.
    """

    download: str
    server: str
    bench: str
    powershell: str = ""
    docker: str = ""
    systemd: str = ""
    packages: tuple[Package, ...] = ()
    build: BuildLine | None = None
    oldest_build: OldestBuild | None = None
    older: str | None = None


BestAt: TypeAlias = Literal["bits", "time", "pp", "tg", "context"]
Pick: TypeAlias = Literal["balanced", "quality", "fast", "simple"]


class NamedPick(msgspec.Struct, frozen=True, kw_only=True):
    """What a config was picked as, and in one sentence why.

    `balanced` is the answer and comes first; `quality`: the least loss at a usable speed; `fast`: much faster for a
    moderate loss; `simple`: the shortest command that costs little. Each is there only where it differs from
    the answer. `next_better`: what the next better variant would need of the machine, None where there is none.
    """

    name: Pick
    why: str
    next_better: str | None = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A config run in another way, which others measured and nobody on this machine: so it is no config of its own.

    `drafting`: with the file's next-token layers (MTP); `expert-cache`: all experts in RAM, those in use on the GPU
    too. `server`, `powershell`: the complete command; `devices`: its memory, by the same model as the config's.
    `times`: its tokens a second over the config's, lowest and highest as published; `tg_tps`: that of the config at
    the goal's depth.
    """

    name: Literal["drafting", "expert-cache"]
    server: str
    powershell: str
    devices: list[DeviceMemory]
    times: tuple[float, float]
    tg_tps: tuple[float, float]
    basis: str


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """How a speed compares with another: `tps` more tokens per second (negative: fewer), `times` as fast.

    `low` and `high` bound `times` with 80 %: what is known of the comparison, which leaves out shared errors.
    `called`: which of the two is faster is right at least three times of four.
    """

    tps: float
    times: float
    low: float
    high: float
    called: bool


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a command and what it adds, after those before it: tokens per second, and GiB by device."""

    change: str
    tg_tps: float
    pp_tps: float
    gib: dict[str, float]
    why: str


class VersusMine(msgspec.Struct, frozen=True, kw_only=True):
    """A config against the command in use, at the goal's depth.

    `seconds_saved`: of the goal's time. `gib`: more memory used, by device. The figures of `changes` add up to those of
    the whole.
    """

    tg: Gain
    pp: Gain
    seconds_saved: float
    gib: dict[str, float]
    changes: list[Change]


class SmallerBenchmark(msgspec.Struct, frozen=True, kw_only=True):
    """The benchmark of a config that fits as a server, but not as a benchmark with the same micro-batch.

    `n_ubatch`: the benchmark's micro-batch, in tokens. `speed`: predicted with that.
    """

    n_ubatch: int
    speed: list[SpeedPoint]


class Mine(msgspec.Struct, frozen=True, kw_only=True):
    """The command in use, as `check` sees it. `findings`: its errors and warnings. `unknown`: words not understood.

    `rank`: its place among the configs (1: nothing found is better), None where it cannot do what the goal asks: then
    `verdict` says why. `smaller_benchmark`: where its benchmark needs a smaller micro-batch to fit.
    """

    verdict: str
    engine: Engine
    build: str
    variant: str
    flags: Flags
    unknown: list[str]
    devices: list[DeviceMemory]
    fits: bool
    speed: list[SpeedPoint]
    goal_seconds: tuple[float, float, float]
    findings: list[Finding]
    rank: int | None
    smaller_benchmark: SmallerBenchmark | None = None


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    """The best config on a changed machine. `component`: GPU, RAM, RAM speed, link, CPU, system, or several.

    `hardware`: the changed machine in shorthand. `speed`: at the goal's depth. `tg`, `pp`, `seconds_saved`: against the
    present first config, same variant; None where there is none, or nothing of it fits. `tg_per_gib`: tokens per second
    gained a GiB of VRAM and RAM added. `also`: another variant that a request about that machine would put first.
    `notes`: what else a buyer should know, in words. `refused`: why there is no config.
    """

    change: str
    component: str
    hardware: str
    vram_gib: float
    ram_gib: float
    engine: Engine | None = None
    variant: str | None = None
    strategy: str | None = None
    gpus: int = 0
    speed: SpeedPoint | None = None
    goal_seconds: tuple[float, float, float] | None = None
    tg: Gain | None = None
    pp: Gain | None = None
    seconds_saved: float | None = None
    tg_per_gib: float | None = None
    pp_per_gib: float | None = None
    also: str | None = None
    notes: list[str] = []
    refused: str | None = None


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question about other hardware. `upgrades`: one, or the usual ones, the best first.

    `restricted`: what is compared with what, and what of the search was left out to be quick.
    """

    asked: str
    text: str
    upgrades: list[Upgraded]
    restricted: str


class Weighed(msgspec.Struct, frozen=True):
    """What of a config counts in the ranking besides its speeds and its loss (`docs/planner.md`).

    `usual`: times the goal's seconds that requests with usual prompts take. `ram_used`: the share of the RAM that a
    model may have. `raises_limit`: the system must be told first to let the GPU use more of a shared memory.
    `to_build`: of an engine that nobody packages for this system, which may be `windows`. `cards_left`: the share of
    all cards' memory that it leaves with usual buffers; 0 with weights in RAM, a fifth at most of memory that GPU and
    CPU share (`shared`).
    `is_mixture`: it has experts. `untested`: of an engine whose authors do not test it on NVIDIA cards that old.
    `other_engine`: the command in use is for the other engine.
    """

    usual: float = 1.0
    ram_used: float = 0.0
    raises_limit: bool = False
    to_build: bool = False
    windows: bool = False
    cards_left: float = 0.0
    is_mixture: bool = True
    shared: bool = False
    untested: bool = False
    other_engine: bool = False


class AdvisedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One ranked config. `goal_seconds`: time of the goal's prompt and output at its depth, [low, expected, high].

    `speed` ends at the goal's depth; `deeper`: from there to the full context of one request. `token_ms`: what the
    time of a token at the goal's depth is spent on, in milliseconds.
    `bpw` counts all weights, `bpw_active` those that a token reads; `imatrix`: the header names an importance matrix.
    `loss_percent`: by how much quantisation raises perplexity over the 16-bit model, [low, expected, high] of an 80 %
    interval, estimated from the types of the header's tensors; None in answers from before there was an estimate.
    `on_front`: no other config here is at least as good in bits, PP, TG and largest context, and better in one of them;
    `best_at`: in what none here is better. `tied_with`: of the first, ranks of those that might be first as well with
    2 % more or less of an input; of these, the first's.
    `at_once`: of as many requests as the goal has at once, None for one. `build`: of the engine, that figures and
    spelling are for.
    `weighed`: what else it is ranked by. `is_mine`: the command in use, which nothing found beats. `pick`: what it
    was picked as, None for the others. `proposals`: other ways to run it, which others measured.
    `smaller_benchmark`: where its benchmark needs a smaller micro-batch than the server to fit.
    `measured`: by depth, where it was measured; `measured_match` `exact`: on the same GPUs, CPU and RAM, then ranks and
    `goal_seconds` are by that; `near`: with another CPU or RAM, which changes neither.
    """

    id: str
    rank: int
    engine: Engine
    build: str = ""
    variant: str
    bpw: float
    strategy: str
    flags: Flags
    commands: Commands
    devices: list[DeviceMemory]
    speed: list[SpeedPoint]
    goal_seconds: tuple[float, float, float]
    max_context: int
    deeper: list[SpeedPoint] = []
    token_ms: dict[str, float] = {}
    bpw_active: float = 0.0
    imatrix: bool = False
    loss_percent: tuple[float, float, float] | None = None
    on_front: bool = False
    best_at: list[BestAt] = []
    tied_with: list[int] = []
    reasons: list[Reason] = []
    notes: list[str] = []
    versus_next: str | None = None
    measured: list[SpeedPoint] = []
    measured_match: Literal["exact", "near"] | None = None
    weighed: Weighed = Weighed()
    is_mine: bool = False
    versus_mine: VersusMine | None = None
    pick: NamedPick | None = None
    at_once: AtOnce | None = None
    proposals: list[Proposal] = []
    smaller_benchmark: SmallerBenchmark | None = None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A variant and engine that cannot be advised: why, by how much, and the smallest change that would fix it.

    `kind`: memory (it does not fit), engine (the engine cannot run it at all), unreadable (its header is damaged, or it
    lacks shards).
    """

    variant: str
    engine: Engine
    reason: str
    kind: Literal["memory", "engine", "unreadable"] = "unreadable"
    short_by_mib: int | None = None
    smallest_change: str | None = None


class Loser(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of config that is not among the ranked ones, and why: the nearest of `alike` candidates of that kind.

    `differs`: what sets it apart from the other configs of its variant and engine. `seconds`: of the goal's request, as
    computed (`placed`), or at best; None where it does not fit.
    """

    engine: Engine
    variant: str
    strategy: str
    gpus: list[str]
    differs: str
    seconds: float | None
    placed: bool
    why: str
    alike: int


class Versions(msgspec.Struct, frozen=True):
    """What advice was computed with; part of its key."""

    engine_model: str
    calibration: str
    catalogue: str
    engines: dict[str, str]


class AdviceBody(msgspec.Struct, frozen=True, kw_only=True):
    """What `advise()` computes: ranked configs, refusals, and everything that was assumed on the way.

    `headline` is the sentence that a newcomer understands; `considered` counts the candidates whose speed was bounded,
    `placed` those of them whose placement, memory and speed were computed in full. `model_slug`: under what results of
    this model are filed; `architecture`: what its header names, None in answers from before that was kept.
    """

    headline: str
    hardware: Hardware
    assumed: list[Assumption]
    goal: Goal
    configs: list[AdvisedConfig]
    refused: list[Refusal]
    considered: int
    placed: int = 0
    losers: list[Loser] = []
    versions: Versions
    mine: Mine | None = None
    what_if: list[WhatIf] = []
    model_slug: str | None = None
    architecture: str | None = None
