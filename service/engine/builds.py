"""Builds of the engines, named by a date, a number or a commit: what changed when, and what held for each.

`history.json` in an engine's folder says by hand, each with its source, what changed when. Rules are what differs
between builds: defaults, the meaning of flags, and how memory is laid out. Every rule's default is today's behaviour; a
rule of one engine means nothing to the other.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import msgspec

from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.errors import InvalidInput


class MemoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """Switches of placement, graphs and buffers.

    `f32_masks`: with flash attention too the mask is f32, and cast.

    ik_llama.cpp. `mask_padding`: its rows are a multiple
    of this. `chunks_at_once`: keys and values of all `-amb` steps of latent attention live together. `halved_heads`:
    the steps halve the heads. `fused_sums`: experts are weighted and summed in one operation. `fused_dense`: up and
    gate of dense layers are one operation. `threshold_by_experts`: experts are copied to a GPU only for batches that
    hit most of them. `n_copies`: pipeline copies. `layers_by_bytes`: layers are divided by bytes, else by count.
    `mla`, `attn_max_batch`: the defaults of `-mla` and `-amb`, `least_batch` what `-amb` is raised to.
    `expert_layers`: which layers `-ncmoe` means. `partial_latent`: `-ngl` below all layers forces `-mla 3`.
    `only_in_ram`: types of weights that no GPU multiplies by. `latent_without_kv_b`: what becomes of files of latent
    attention without attn_kv_b: it is made of what they have, -mla 1 is forced, or they are refused.
    `copies_fused_experts`: a fused up and gate in RAM is copied to a GPU for a batch. `copies_with_repack`: with
    -rtr too experts are copied. `pins_overridden`: RAM is page-locked where an override puts weights there.
    `up_before_gate`: in which order they come where they are two operations.

    Both. `copies_used_experts`: of experts in RAM only those that a batch uses are copied to a GPU. `pipeline`: several
    GPUs that hold the whole model work on several micro-batches at a time, with copies of what crosses between them.
    `gives_up_pipeline`: where these do not fit, the engine goes on without.

    `described`: the graphs of the time are those of today but for these switches.

    llama.cpp. `whole_logits`: the server reserves logits of a whole batch. `head_first`: the output head is the first
    that `-ngl` moves. `window_caches`: windowed layers keep their window only. `latent_cache`: latent attention keeps
    its latent rows, those and values, or K and V of every head. `quantised_only_with_128`: NVIDIA's and AMD's cards
    attend to a quantised cache only with heads of 128. `caches_without_kernel`: types of caches that they do not attend
    to at all.
    """

    f32_masks: bool = False
    mask_padding: int = 16
    chunks_at_once: bool = False
    halved_heads: bool = False
    fused_sums: bool = True
    fused_dense: bool = True
    threshold_by_experts: bool = True
    n_copies: int = 1
    layers_by_bytes: bool = True
    expert_layers: Literal["last", "share from the first", "first"] = "last"
    partial_latent: bool = True
    mla: int = 3
    attn_max_batch: int = 256
    least_batch: int = 128
    only_in_ram: tuple[str, ...] = ()
    latent_without_kv_b: Literal["made", "forces -mla 1", "refused"] = "made"
    copies_fused_experts: bool = True
    copies_used_experts: bool = True
    copies_with_repack: bool = True
    pipeline: bool = True
    gives_up_pipeline: bool = True
    pins_overridden: bool = True
    up_before_gate: bool = True
    whole_logits: bool = False
    head_first: bool = True
    window_caches: bool = True
    described: bool = True
    latent_cache: Literal["rows", "rows and values", "heads"] = "rows"
    quantised_only_with_128: bool = False
    caches_without_kernel: tuple[str, ...] = ()


class BuildRules(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults of a build's programs, and its memory.

    `flash_attn`, `fused_moe`, `n_gpu_layers`, `fit`: where the command says nothing. `auto_slots`: slots of llama.cpp's
    server without `-np`. `flash_attn_value`: what follows `-fa`: on, off or auto (needed), nothing (none), or there is
    no `-fa` (gone). `loads_projector`: the server does, where the command names one, `finds_projector`: also that of
    the repo of `-hf`, `finds_head`: for `draft-mtp` also its file of next-token layers. `encoder`: the attention of a
    projector's encoder is flash attention, or has the scores of one head at a time, or of all at once. `image_tokens`,
    `gemma4_image_tokens`: of the largest image, of any model and of Gemma 4. `fits_projector`: `-fit` leaves room for
    the projector, `fits_drafts`: for what drafts. `drafts_unasked`: a draft model is used without `--spec-type`.
    `negating_variables`: `LLAMA_ARG_NO_…` turns its option off whatever its value is.
    `draft_per_slot`: each slot has a context of the draft model. `own_draft_settings`: it has ik_llama.cpp's defaults,
    but for its own options, flash attention and cache types.
    """

    flash_attn: Literal["on", "off", "auto"] = "on"
    flash_attn_value: Literal["needed", "none", "gone"] = "needed"
    fused_moe: bool = True
    n_gpu_layers: int = 999
    fit: bool = False
    auto_slots: int = 1
    loads_projector: bool = True
    finds_projector: bool = False
    finds_head: bool = False
    encoder: Literal["flash", "heads", "whole"] = "heads"
    image_tokens: int = 4096
    gemma4_image_tokens: int = 280
    fits_projector: bool = False
    fits_drafts: bool = False
    drafts_unasked: bool = False
    negating_variables: bool = False
    draft_per_slot: bool = False
    own_draft_settings: bool = False
    memory: MemoryRules = MemoryRules()


TODAY = MemoryRules()


class BuildChange(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an engine does differently since `date`. `before`: the rules that held until then."""

    date: str
    what: str
    before: dict[str, bool | int | str | list[str]]
    source: str


class Today(msgspec.Struct, frozen=True):
    """The build whose rules this project follows. `oldest`: the first day whose rules are known.

    `label`: what answers call it; `commit`: its first nine digits. `date`: from this day on a build counts as today's.
    """

    label: str
    commit: str
    date: str
    oldest: str


class Recorded(msgspec.Struct, frozen=True):
    """`history.json`. `numbers`: of builds with their dates; `options`: of the server, `bench_options`: of llama-bench,
    when each came, went and came again; all where they are not read from the engine's repository.
    """

    today: Today
    changes: tuple[BuildChange, ...]
    numbers: tuple[tuple[int, str], ...] = ()
    options: dict[str, str] = {}
    bench_options: dict[str, str] = {}


class History(msgspec.Struct, frozen=True, dict=True, kw_only=True, eq=False):
    """The builds of one engine.

    `numbers`: known numbers with their dates, ascending; `commits`: the date of every known commit, by its first eight
    digits or nine. `options`: by program, the days on which an option came, went, and came again; a program that is
    not named has those of llama-server. `defaults`: the rules of today's build.
    """

    today: Today
    changes: tuple[BuildChange, ...]
    numbers: tuple[tuple[int, str], ...]
    commits: dict[str, str]
    options: dict[str, dict[str, str]]
    defaults: BuildRules

    def lifetimes(self, program: str) -> dict[str, list[str]]:
        """Return the days on which each option of a program came, went, and came again."""
        return self._lifetimes[program if program in self.options else "llama-server"]

    @cached_property
    def _lifetimes(self) -> dict[str, dict[str, list[str]]]:
        return {
            program: {name: dates.split() for name, dates in options.items()}
            for program, options in self.options.items()
        }

    def rules_at(self, date: str | None) -> BuildRules:
        """Return what held for a build of a date (None: today's): every change since is undone, the newest first."""
        since = sorted((c for c in self.changes if date is not None and c.date > date), key=lambda c: c.date)
        if len(since) not in self._rules:
            self._rules[len(since)] = self._without(since[::-1])
        return self._rules[len(since)]

    @cached_property
    def _rules(self) -> dict[int, BuildRules]:
        """By the number of changes that are undone."""
        return {0: self.defaults}

    def _without(self, changes: Sequence[BuildChange]) -> BuildRules:
        build: dict[str, object] = {}
        memory: dict[str, object] = {}
        for change in changes:
            for name, value in change.before.items():
                if isinstance(value, list):
                    memory[name] = (*memory.get(name, ()), *value)  # type: ignore[misc]
                else:
                    (memory if name in MemoryRules.__struct_fields__ else build)[name] = value
        defaults = {name: getattr(self.defaults, name) for name in BuildRules.__struct_fields__}
        return msgspec.convert({**defaults, **build, "memory": memory}, BuildRules)


MAX_BUILD_TEXT = 64
_EXAMPLE = "a date such as 2025-05-11 is always understood"
_NUMBER = re.compile(r"b?(\d{3,6})")
_COMMIT = re.compile(r"[0-9a-f]{6,40}")
_DATE = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])")
# What `--version` and llama-bench print: `version: 9187 (0253fb21f)`, `build: 0253fb21f (9187)`.
_PRINTED = re.compile(r"(?:version|build)?\s*:?\s*([0-9a-f]{3,40})\s*\(([0-9a-f]{3,40})\)")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EARLIEST = "2000-01-01"  # stands for a build before all known ones
_NEWER_NUMBERS, _NEWER_MONTHS = 2_000, 24  # after the newest known build, in which others are believed to exist


class BuildAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A build of an engine, one of: `date` 2025-05-11 or 2025-05, `number` that of `--version`, `commit` its hash."""

    date: str | None = None
    number: int | None = None
    commit: str | None = None


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A build of an engine. `date` None: today's build, or a newer one. `about`: its exact date is not known.

    `older`: it is from before the oldest known build, whose date and rules it has. `label`: what answers call it.
    `max_copies`: GGML_SCHED_MAX_COPIES that it was built with, or runs as if it were; None: not known, the usual.
    """

    engine: Engine
    label: str
    date: str | None = None
    about: bool = False
    newer: bool = False
    older: bool = False
    max_copies: int | None = None

    @property
    def doubt(self) -> str | None:
        """Why its rules are not quite known; None where they are."""
        if self.newer:
            return "builds newer than this one are not known here"
        if self.older:
            return "builds before this date are not known here: the oldest known one is used"
        return "its exact date is not known: a nearby build is used" if self.about else None

    @property
    def rules(self) -> BuildRules:
        """What held for it."""
        rules = _history(self.engine).rules_at(self.date)
        if self.max_copies is None:
            return rules
        memory = msgspec.structs.replace(rules.memory, pipeline=self.max_copies > 1, n_copies=self.max_copies)
        return msgspec.structs.replace(rules, memory=memory)

    @property
    def memory_rules(self) -> MemoryRules | None:
        """How it lays memory out; None: as today's build does."""
        return self.rules.memory if self.date or self.max_copies else None

    @property
    def era(self) -> str:
        """The day since which its rules hold; that of the newest known build and a `+` for newer ones."""
        if self.newer:
            return f"{_history(self.engine).today.date}+"
        changes, oldest = _history(self.engine).changes, _history(self.engine).today.oldest
        return max((c.date for c in changes if not self.date or c.date <= self.date), default=oldest)

    @property
    def changes(self) -> tuple[BuildChange, ...]:
        """What changed since, oldest first."""
        return tuple(c for c in _history(self.engine).changes if self.date and c.date > self.date)

    def has(self, program: str, option: str) -> bool | None:
        """Return whether `program` had `option`; None where that is not known to have changed."""
        dates = _history(self.engine).lifetimes(program).get(option)
        return None if dates is None else bisect_right(dates, self.date or "9") % 2 == 1

    def since(self, program: str, option: str) -> str | None:
        """Return the date of the first build from which on, up to this one, `program` has had `option`."""
        dates = [
            date for date in _history(self.engine).lifetimes(program).get(option, ()) if date <= (self.date or "9")
        ]
        return dates[-1] if len(dates) % 2 else None

    def next_change(self, program: str, option: str) -> str | None:
        """Return the date of the first build after this one that gained or lost `option`."""
        dates = _history(self.engine).lifetimes(program).get(option, ())
        return next((date for date in dates if self.date and date > self.date), None)


def resolve_build(engine: Engine, asked: BuildAsked | str | None) -> Build:
    """Return the build that was asked for; None: today's. Raises InvalidInput, saying what would be right."""
    if asked is None:
        return today(engine)
    stated = parse_build(asked) if isinstance(asked, str) else asked
    given = [name for name in ("date", "number", "commit") if getattr(stated, name) is not None]
    if len(given) != 1:
        raise _wrong(f"a build is one of date, number and commit, not {len(given)} of them")
    if stated.date is not None:
        return _of_date(engine, stated.date)
    return _of_commit(engine, stated.commit) if stated.commit is not None else _of_number(engine, stated.number or 0)


def parse_build(text: str) -> BuildAsked:
    """Return a build written as `2025-05-11`, `2025-05`, `b3700`, `3700`, `8337e4cd3`, or as engines print theirs.

    Of `version: 9187 (0253fb21f)` the number is taken, which is known for every build. Raises InvalidInput.
    """
    text = text.strip()[: MAX_BUILD_TEXT + 1]
    if _DATE.fullmatch(text) or _MONTH.fullmatch(text):
        return BuildAsked(date=text)
    if printed := _PRINTED.fullmatch(text.lower()):
        text = next((one for one in printed.groups() if one.isdigit() and len(one) < 6), text)
    if number := _NUMBER.fullmatch(text):
        return BuildAsked(number=int(number[1]))
    if _COMMIT.fullmatch(text.lower()):
        return BuildAsked(commit=text.lower())
    raise _wrong(f"{text!r} is not a date (2025-05-11), number (b3700) or commit (8337e4cd3)")


def rule_since(engine: Engine, rule: str) -> str:
    """Return the date since which a rule of `BuildRules` or `MemoryRules` is as it is today."""
    return max(change.date for change in _history(engine).changes if rule in change.before)


def day_before(date: str) -> str:
    """Return the day before a date (YYYY-MM-DD); before the first of March the 28th of February is near enough."""
    year, month, day = map(int, date.split("-"))
    if day > 1:
        return f"{year}-{month:02}-{day - 1:02}"
    year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    return f"{year}-{month:02}-{28 if month == 2 else _DAYS[month - 1]:02}"


def months_between(earlier: str, later: str) -> int:
    """Return the whole months from one date (YYYY-MM-DD) to another."""
    (year, month, day), (year2, month2, day2) = (map(int, date.split("-")) for date in (earlier, later))
    return (year2 - year) * 12 + month2 - month - (day2 < day)


def date_of_today(engine: Engine) -> str:
    """Return the date of the build whose rules this project follows."""
    return _history(engine).today.date


def today(engine: Engine) -> Build:
    """Return the build whose rules and defaults this project follows."""
    return Build(engine=engine, label=_history(engine).today.label)


def commit_of_today(engine: Engine) -> str:
    """Return the commit of the build whose rules this project follows, by its first nine digits."""
    return _history(engine).today.commit


def _history(engine: Engine) -> History:
    return engine_spec(engine).history


def _wrong(what: str, choices: tuple[str, ...] = ()) -> InvalidInput:
    return InvalidInput(f"{what}: {_EXAMPLE}", field="build", choices=choices)


def _of_date(engine: Engine, text: str, label: str | None = None, *, about: bool = False) -> Build:
    if _MONTH.fullmatch(text):
        return _of_date(engine, f"{text}-15", text, about=True)
    if not _is_date(text):
        raise _wrong(f"{text[:40]!r} is not a date")
    newest, oldest = _history(engine).today.date, _history(engine).today.oldest
    if text > newest and months_between(newest, text) >= _NEWER_MONTHS:
        raise _wrong(f"{engine}'s builds known here are of {oldest} to {newest}, none is of {label or text}")
    if text < oldest:
        return Build(engine=engine, label=f"{label or text}, treated as one of {oldest}", date=oldest, older=True)
    if text >= newest:
        return msgspec.structs.replace(today(engine), newer=text > newest)
    named = f"{label} of {'about ' if about else ''}{text}" if label else f"of {text}"
    return Build(engine=engine, label=named, date=text, about=about)


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    return match is not None and int(match[3]) <= _DAYS[int(match[2]) - 1]


def _between(start: str, end: str, share: float) -> str:
    """Return the day at `share` of the way, give or take one."""
    first, last = ((int(day[:4]) * 12 + int(day[5:7]) - 1) * 31 + int(day[8:]) - 1 for day in (start, end))
    months, day = divmod(first + round((last - first) * share), 31)
    return f"{months // 12}-{months % 12 + 1:02}-{min(day + 1, _DAYS[months % 12]):02}"


def _of_number(engine: Engine, number: int) -> Build:
    numbers = _history(engine).numbers
    first, last = numbers[0], numbers[-1]
    if 0 < number < first[0]:
        return _of_date(engine, _EARLIEST, f"b{number}")
    if not first[0] <= number <= last[0] + _NEWER_NUMBERS:
        raise _wrong(f"{engine}'s builds known here are numbered {first[0]} to {last[0]}, none is {number}")
    if number >= last[0]:
        return msgspec.structs.replace(today(engine), newer=number > last[0])
    after = bisect_right(numbers, (number, "9"))
    (low, start), (high, end) = numbers[after - 1], numbers[after]
    if low == number:
        return _of_date(engine, start, f"b{number}")
    day = _between(start, end, (number - low) / (high - low))
    if day >= _history(engine).today.date:
        return today(engine)
    return _of_date(engine, day, f"b{number}", about=True)


def _of_commit(engine: Engine, commit: str) -> Build:
    name = commit.lower()
    if not _COMMIT.fullmatch(name):
        raise _wrong(f"{commit[:48]!r} is not a commit: 6 to 40 hexadecimal digits")
    own = commit_of_today(engine)
    if name[:9] == own or name == own[: len(name)]:
        return today(engine)
    commits = _history(engine).commits
    found = {commits[known] for known in commits if known.startswith(name[:8]) or name.startswith(known)}
    if len(found) != 1:
        what = "is not known here" if not found else "is not unique"
        raise _wrong(f"the commit {name[:12]} of {engine} {what}")
    return _of_date(engine, found.pop(), name[:9])
