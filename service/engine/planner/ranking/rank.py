"""Which config comes first: the one of the least cost in time and quality, then the rest by the goal's time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from service.engine.advice import Pick, Weighed
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.estimate import Estimate
from service.engine.goal import Goal
from service.engine.planner.pricing.candidate import Candidate
from service.engine.planner.pricing.fit import Fitted, Problem
from service.engine.planner.ranking.utility import Figures, cost
from service.engine.speed.predict import Speed

T = TypeVar("T")
MAX_CONFIGS = 8
_MIN_CONFIGS = 3  # fewer lines leave nothing to compare
_MAX_PER_VARIANT_AND_ENGINE = 2
_Q8_BPW = 8.5  # bits beyond Q8_0 are not counted: no one has shown them to matter
_WORTH_SHOWING = 0.99  # a second config of one variant and engine must save 1 % of the time: so more cards, too
_NO_ALTERNATIVE = 1.5  # another strategy that takes longer than this is none
_OUTCLASSED = 0.9  # of the time
_AS_CHEAP = 0.02  # of cost: less than that, a quantised cache may cost more than it saves and is still shown
SPARE, SPARE_WORTH = 0.2, 0.06  # of the memory of all cards; of cost, some 6 % of the time
_MUCH_FASTER = 1.15  # what a loss of quality must be faster by, to be picked as fast
_LESS_LOSS = 0.2  # per cent of perplexity: less than that is no other quality
DAMAGED = 30.0  # per cent: such a variant gets a line only where there is room
COSTS_LITTLE = 0.15  # of cost: some 15 % of the time
FEWER_WORDS = 0.6
_TOO_SLOW = 8.0  # times the fastest: then a popular variant is no alternative either
_WORD = re.compile(r"\w+")
# What the makers' cards recommend and most downloads are of (bartowski's and unsloth's cards, ubergarm's tables).
POPULAR = re.compile(r"(?:^|[-_.])(?:IQ4_XS|Q4_K_M|Q4_K_XL|Q5_K_M|Q6_K|Q8_0|IQ4_KSS|IQ5_K|mxfp4)$", re.I)
NEGLIGIBLE = 1.02  # a larger micro-batch may cost 2 % of the goal's time, and a tenth of what longer prompts gain
_OF_LONGER_PROMPTS = 0.1


class Squeeze(NamedTuple):
    """A longer command for the same: its flags, and how many times as fast it is."""

    flags: Flags
    gain: float


class Contender(msgspec.Struct, frozen=True, dict=True):
    """A candidate that fits, with its speed at the goal's depth and the time of the goal in seconds.

    `loss`: by how many per cent quantisation is expected to raise perplexity (`ranking_loss`). `typical`:
    the seconds of a request with a usual prompt, by which it is weighed. `name`: the variant's.
    `squeeze`: a longer command that is faster by less than is worth its words.
    """

    engine: Engine
    variant: int
    bpw: float
    loss: float
    candidate: Candidate
    problem: Problem
    fitted: Fitted
    speed: Speed
    seconds: Estimate
    typical: float
    name: str = ""
    squeeze: Squeeze | None = None

    @property
    def n_words(self) -> int:
        """The words in its command that place things, those inside a pattern counted each."""
        return self.n_words_with(self.fitted.flags)

    def n_words_with(self, flags: Flags) -> int:
        """As `n_words`, with these flags in the command instead."""
        patterns = sum(len(_WORD.findall(rule.pattern)) + 2 for rule in flags.overrides)
        switches = (flags.n_cpu_moe, flags.cpu_moe, flags.split_mode != "layer", flags.numa)
        cards = len(self.problem.rig.cards) > len(self.candidate.cards)
        return patterns + len(flags.tensor_split) + 2 * sum(map(bool, switches)) + 2 * cards

    @property
    def raises_limit(self) -> bool:
        """Whether it needs more of a shared memory than the system lets the GPU have without being told."""
        pairs = zip(self.problem.devices, self.fitted.memory.devices, strict=False)
        cards = ((self.problem.rig.cards[device.gpu], i) for i, (device, _) in enumerate(pairs))
        return any(
            card.raised_by and self.fitted.memory.total(i).high + card.reserve > (card.usual_limit or 0)
            for card, i in cards
        )

    @property
    def to_build(self) -> bool:
        """Whether the asker has to build the engine on Windows: nobody packages it.

        A command in use, and a build that was stated by its date, are there already.
        """
        build, rig = self.problem.build, self.problem.rig
        if build is None or build.date is not None or not rig.windows:
            return False
        backend = rig.cards[self.candidate.cards[0]].backend if self.candidate.cards else "cpu"
        return all(one.shell != "powershell" for one in engine_spec(self.engine).commands.packages(backend))

    @cached_property
    def weighed(self) -> Weighed:
        """What counts besides its speeds and its loss."""
        memory, limits = self.fitted.memory, self.problem.limits
        totals = [memory.total(i).expected for i in range(len(memory.devices))]
        return Weighed(
            usual=round(self.typical / max(self.seconds.expected, 1e-9), 4),
            ram_used=round(sum(totals if limits.shared else totals[-1:]) / max(limits.host, 1), 4),
            raises_limit=self.raises_limit,
            to_build=self.to_build,
            cards_left=round(self.cards_left(), 4),
            is_mixture=bool(self.problem.model.moe_layers),
        )

    def cost(self, goal: Goal, pick: Pick | None = None) -> float:
        """Return what it costs by `utility.cost`, as a pick or (None) for the goal: the least is the best."""
        return cost(self._figures, goal, pick)

    def choice(self, goal: Goal, shown: Contender | None = None, memory: float = 1.0) -> Choice:
        """Return what decides whether it comes first. `shown`: with another micro-batch, whose memory counts; `memory`:
        times the memory that all cards have."""
        return Choice(self.cost(goal), self.loss, (shown or self).cards_left(memory), reaches(self.speed, goal))

    def cards_left(self, memory: float = 1.0) -> float:
        """Return the share of all cards' memory (times `memory`) that it leaves; 0 with weights in RAM.

        Of a memory that GPU and CPU share a fifth counts at most: what a model leaves there does not lie idle.
        """
        if self.candidate.strategy != "all on GPU":
            return 0.0
        used = sum(self.fitted.memory.total(i).expected for i in range(len(self.problem.devices)))
        left = 1 - used / max(sum(card.free for card in self.problem.rig.cards) * memory, 1)
        return min(left, SPARE) if self.problem.limits.shared else max(0.0, left)

    @cached_property
    def _figures(self) -> Figures:
        tg, pp = self.speed.tg.expected, self.speed.pp.expected
        given = Given(self.typical, tg, pp, self.loss)
        return figures_of(self.fitted.flags, self.candidate.strategy, self.weighed, given)


class Given(NamedTuple):
    """What a config gives, as predicted or measured: seconds of usual requests, TG and PP at the goal's depth, and per
    cent of perplexity lost."""

    seconds: float
    tg: float
    pp: float
    loss: float


def figures_of(flags: Flags, strategy: str, weighed: Weighed, given: Given, *, known: bool = False) -> Figures:
    """Return what is weighed of a config, whether forecast, placed or advised. `known`: its speeds were measured, so
    that nothing is taken off where all cards work on every layer."""
    factor = 1.0 if known else together_factor(flags, is_mixture=weighed.is_mixture)
    return Figures(
        seconds=given.seconds * factor,
        tg=given.tg / factor,
        pp=given.pp / factor,
        loss=given.loss,
        on_gpu=strategy == "all on GPU",
        ram_used=weighed.ram_used,
        raises_limit=weighed.raises_limit,
        together=factor > 1,
        quantised_cache=flags.cache_type_k != "f16",
        to_build=weighed.to_build,
        dense=not weighed.is_mixture,
    )


class Choice(NamedTuple):
    """What decides which of several comes first: its cost, what it loses, the share of all cards' memory that it leaves
    (0 with weights in RAM), and whether it reaches the goal's minima."""

    cost: float
    loss: float
    left: float
    reaches: bool


def reaches(speed: Speed, goal: Goal) -> bool:
    """Return whether the expected speeds, as they are shown, reach the goal's minima; `speed` is that at its depth."""
    return round(speed.tg.expected, 1) >= (goal.min_tg or 0) and round(speed.pp.expected, 1) >= (goal.min_pp or 0)


class Ranked(NamedTuple):
    """Contenders in the order shown, and which of them was picked as what."""

    order: list[Contender]
    picks: dict[Pick, Contender]


def rank(contenders: list[Contender], goal: Goal) -> Ranked:
    """Return at most eight contenders in order, at most two of one variant and engine.

    First the one of the least cost (`utility.cost`). Then the other picks, then by the goal's time: the first one's
    variant on the other engine, and one of each variant that people ask for or that nothing beats in both quality and
    time. Where these are fewer than three, the fastest others.
    """
    groups = _by_batch(contenders, goal)
    largest = {id(group[0]): _largest_batch(group, goal) for group in groups}
    by_time = _distinct([group[0] for group in groups], goal)
    if not by_time:
        return Ranked([], {})
    first = by_time[first_by([c.choice(goal, largest[id(c)]) for c in by_time], goal)]
    picked = picks(by_time, goal, first)
    named = list({id(c): c for c in picked.values()}.values())
    others = [c for c in by_time if all(c is not k for k in named)]
    twin = [c for c in others if c.variant == first.variant and c.engine != first.engine][:1]
    others.sort(key=lambda c: c.loss > DAMAGED)
    wanted = [*named, *twin, *_one_a_variant(first, by_time, goal)]
    chosen = _limited(list({id(c): c for c in wanted}.values()))
    if len(chosen) < _MIN_CONFIGS:
        chosen = _limited(list({id(c): c for c in [*chosen, *others]}.values()))[:_MIN_CONFIGS]
    rest = [c for c in chosen if all(c is not k for k in named)]
    order = [*named, *sorted(rest, key=lambda c: c.seconds.expected)]
    return Ranked([largest[id(c)] for c in order], {name: largest[id(c)] for name, c in picked.items()})


def picks(by_time: Sequence[Contender], goal: Goal, first: Contender | None = None) -> dict[Pick, Contender]:
    """Return what is picked: `balanced` (`first`, where it is known), and each other one where it differs from that."""
    first = first or first_of(by_time, goal)
    found: dict[Pick, Contender] = {"balanced": first}
    best = min(by_time, key=lambda c: c.cost(goal, "quality"))
    if best.loss < first.loss - _LESS_LOSS and _usable(best, goal):
        found["quality"] = best
    fast = min(by_time, key=lambda c: c.cost(goal, "fast"))
    if fast.seconds.expected * _MUCH_FASTER < first.seconds.expected:
        found["fast"] = fast
    limit = first.cost(goal) + COSTS_LITTLE
    plain = min((c for c in by_time if c.cost(goal) <= limit), key=lambda c: (c.n_words, c.cost(goal)))
    if plain.n_words < first.n_words and plain.n_words <= first.n_words * FEWER_WORDS:
        found["simple"] = plain
    return found


def _usable(contender: Contender, goal: Goal) -> bool:
    """Whether it reaches the goal's minima by half: quality is worth waiting for, within reason."""
    tg, pp = contender.speed.tg.expected, contender.speed.pp.expected
    return tg >= (goal.min_tg or 0) / 2 and pp >= (goal.min_pp or 0) / 2


def _one_a_variant(first: Contender, by_time: Sequence[Contender], goal: Goal) -> list[Contender]:
    """The best of each variant: those that people ask for, then what nothing beats in quality and time, by cost."""
    best: dict[int, Contender] = {}
    for c in sorted(by_time, key=lambda c: c.cost(goal)):
        best.setdefault(c.variant, c)
    shown = lines(list(best.values()), lambda c: Line(c.name, c.loss, c.seconds.expected, c.cost(goal)))
    return [c for c in shown if c is not first]


class Line(NamedTuple):
    """A variant as the list may show it: its name, loss in per cent, seconds and cost."""

    name: str
    loss: float
    seconds: float
    cost: float


def lines(found: Sequence[T], measure: Callable[[T], Line]) -> list[T]:
    """Return what is worth a line: popular variants, and those that none beats in both quality and time; by cost."""
    measured = [(measure(one), one) for one in found]
    quickest = min((line.seconds for line, _ in measured), default=0.0)
    kept = []
    for line, one in measured:
        if line.loss > DAMAGED:
            continue
        beaten = any(k.loss <= line.loss and k.seconds < line.seconds for k, _ in measured)
        popular = POPULAR.search(line.name) is not None and line.seconds < quickest * _TOO_SLOW
        if popular or not beaten:
            kept.append((not popular, line.cost, one))
    return [one for *_, one in sorted(kept, key=lambda row: row[:2])]


def together_factor(flags: Flags, *, is_mixture: bool) -> float:
    """Return by what predicted times count where all cards work on every layer: what publications show it may lack.

    Gains over `-sm layer` were predicted up to 1.13 times too high for dense models, 1.26 for mixtures (docs/speed.md,
    effects of flags). With latent attention they were far off, and it is never first before it was measured.
    """
    if flags.split_mode == "layer":
        return 1.0
    if flags.mla is not None:
        return 10.0
    return 1.3 if is_mixture else 1.15


def counted_bits(bpw: float) -> float:
    """Return the bits per weight that count for quality: up to Q8_0."""
    return min(bpw, _Q8_BPW)


def first_of(contenders: Sequence[Contender], goal: Goal) -> Contender:
    """Return the one that comes first; of equals the one that is faster."""
    by_time = sorted(contenders, key=lambda c: c.seconds.expected)
    return by_time[first_by([c.choice(goal) for c in by_time], goal)]


def first_by(choices: Sequence[Choice], goal: Goal) -> int:
    """Return the index of what comes first: the cheapest, or the one of least loss that costs hardly more and uses
    memory that nobody else does. That is not what is asked for where all that counts is time."""
    best = min(range(len(choices)), key=lambda i: choices[i].cost)
    limit = choices[best].cost + (spare_worth(choices[best].left) if goal.preset != "fastest" else 0.0)
    spending = [i for i, one in enumerate(choices) if one.left >= SPARE and one.reaches and one.cost < limit]
    return min({best, *spending}, key=lambda i: (choices[i].loss, choices[i].cost, i))


def spare_worth(left: float) -> float:
    """Return how much more what spends memory of the cards on quality may cost than the cheapest, which leaves this
    share of it: the more of it would lie idle, a whole card perhaps, the more."""
    return SPARE_WORTH * max(1.0, left / SPARE)


def _by_batch(contenders: Sequence[Contender], goal: Goal) -> list[list[Contender]]:
    """Groups of what differs by the micro-batch alone, the cheapest of each first."""
    alike: dict[object, list[Contender]] = {}
    for c in sorted(contenders, key=lambda c: c.cost(goal)):
        flags = c.fitted.flags
        kind = (c.engine, c.variant, c.candidate.cards, flags.cache_type_k, flags.cache_type_v, flags.split_mode)
        alike.setdefault(kind, []).append(c)
    return list(alike.values())


def _largest_batch(group: Sequence[Contender], goal: Goal) -> Contender:
    """Of what differs by the micro-batch alone: the fastest at long prompts that costs hardly more than the best."""
    best = group[0]
    limit, seconds = math.log(NEGLIGIBLE), best.seconds.expected * NEGLIGIBLE

    def is_near(c: Contender) -> bool:
        gain = math.log(c.speed.pp.expected / best.speed.pp.expected)
        costs_little = c.cost(goal) - best.cost(goal) <= min(limit, _OF_LONGER_PROMPTS * gain)
        return c.candidate.strategy == best.candidate.strategy and costs_little and c.seconds.expected <= seconds

    return max((best, *filter(is_near, group)), key=lambda c: c.speed.pp.expected)


def _distinct(contenders: Sequence[Contender], goal: Goal) -> list[Contender]:
    """By the goal's time, without what is hardly better than a plainer one of the same variant and engine: f16 cache,
    fewer cards."""
    chosen: list[Contender] = []
    for c in sorted(contenders, key=lambda c: (*_complexity(c), c.seconds.expected)):
        same = [k for k in chosen if (k.engine, k.variant) == (c.engine, c.variant)]
        if all(_is_worth(c, k, goal) or _slower_sort(c, k) for k in same):
            chosen.append(c)
    return sorted((c for c in chosen if not _outclassed(c, chosen, goal)), key=lambda c: c.seconds.expected)


def _outclassed(contender: Contender, others: list[Contender], goal: Goal) -> bool:
    """Whether one that differs by its cards alone is better, and so much faster that this one is no alternative."""

    def alike(c: Contender) -> object:
        flags = c.fitted.flags
        return c.engine, c.variant, c.candidate.strategy, flags.cache_type_k, flags.cache_type_v, flags.split_mode

    limit = contender.seconds.expected * _OUTCLASSED
    faster = (c for c in others if c.seconds.expected < limit and c.cost(goal) < contender.cost(goal))
    return any(alike(c) == alike(contender) for c in faster)


def _complexity(contender: Contender) -> tuple[bool, bool, int]:
    flags = contender.fitted.flags
    return flags.cache_type_k != "f16", flags.split_mode != "layer", len(contender.candidate.cards)


def _is_worth(contender: Contender, plainer: Contender, goal: Goal) -> bool:
    """Whether it saves as much time, or cost, as is wanted of it. A quantised cache has its own cost."""
    gain = plainer.cost(goal) - contender.cost(goal)
    if contender.fitted.flags.cache_type_k != plainer.fitted.flags.cache_type_k:
        return gain > -_AS_CHEAP
    return gain > -math.log(_WORTH_SHOWING) or contender.typical < plainer.typical * _WORTH_SHOWING


def _slower_sort(contender: Contender, plainer: Contender) -> bool:
    """Another strategy, clearly slower: a real alternative, which ranks by its time."""
    other = contender.candidate.strategy != plainer.candidate.strategy
    slower = contender.seconds.expected / plainer.seconds.expected
    return other and 1 / _WORTH_SHOWING < slower < _NO_ALTERNATIVE


def _limited(contenders: list[Contender]) -> list[Contender]:
    seen: Counter[tuple[Engine, int]] = Counter()
    chosen = []
    for c in contenders:
        seen[c.engine, c.variant] += 1
        if seen[c.engine, c.variant] <= _MAX_PER_VARIANT_AND_ENGINE:
            chosen.append(c)
    return chosen[:MAX_CONFIGS]
