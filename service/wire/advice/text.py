"""Renders an advice for reading: plain text for curl and terminals, Markdown for chat.

The short form fits one screen (100 columns, 40 lines); `detail="full"` gives everything. Names from headers and repos
are untrusted: control characters are removed, and in Markdown nothing can leave its code block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from service.engine.advice import (
    OF_BENCHMARK,
    AdvisedConfig,
    Change,
    Commands,
    DeviceMemory,
    Mine,
    Proposal,
    Refusal,
    Shell,
    SpeedPoint,
    VersusMine,
)
from service.engine.measured.summary import speed_at
from service.engine.planner.explaining.comparison import gain_text
from service.wire.advice.advice import Advice, Card
from service.wire.advice.card import (
    LANGUAGES,
    card_of,
    fact_of,
    fact_words,
    folded,
    interval_words,
    server_for,
    shell_of,
    speed_words,
    step_lines,
    step_words,
    typed,
)
from service.wire.advice.config_text import at_once_lines, other_lines, standing
from service.wire.advice.what_if_text import what_if_lines
from service.wire.plain_text import MORE, WIDTH, block, clean, cut, quoted, wrapped

HEIGHT = 40
ALSO_LOADED = "totals include what else is loaded (projector, draft model or next-token layers)"
# Values of (wraps, brief, builds), of which the first that fits a screen is used.
_SHORT_FORMS = ((True, False, True), (False, False, True), (False, True, True), (False, True, False))
_SHORT_REFUSALS, _SHORT_REASONS, _NAMED = 4, 2, 3


def render_text(advice: Advice, detail: str = "short", more: str = MORE) -> str:
    """Return the advice as text: all of it if `detail` is `full`, else a screenful; `more`: how all is asked for."""
    shell = shell_of(advice.hardware)
    if detail == "full":
        lines = list(_document(advice, _Form(full=True, wraps=True, target_shell=shell)))
    else:
        forms = [_Form(False, wraps, brief, builds, shell, more) for wraps, brief, builds in _SHORT_FORMS]
        documents = (list(_document(advice, form)) for form in forms)
        lines = next((lines for lines in documents if len(lines) <= HEIGHT), [])
        if not lines:
            *most, last = _document(advice, forms[-1])
            lines = [*most[: HEIGHT - 1], last if advice.url else f"the rest does not fit a screen: see {more}"]
        lines = _completed(lines)
    return "\n".join(clean(line) for line in lines) + "\n"


class _Shortened(str):
    """A line that was cut, with all that it would say."""

    whole: str


def _shortened(text: str) -> str:
    line = _Shortened(cut(text))
    line.whole = text
    return line


def _completed(lines: Sequence[str]) -> list[str]:
    """Return the lines with as many of those that were cut in full, from the top, as the screen has room for."""
    room, found = HEIGHT - len(lines), list[str]()
    for line in lines:
        whole = wrapped(line.whole) if isinstance(line, _Shortened) else [line]
        shown = whole if len(whole) - 1 <= room else [line]
        room -= len(shown) - 1
        found += shown
    return found


class _Form(NamedTuple):
    """How much is shown, and whether long lines are wrapped or cut. `brief`: only what a screen has room for.

    `builds`: show the lines that build an engine.
    """

    full: bool
    wraps: bool
    brief: bool = False
    builds: bool = True
    target_shell: Shell = "posix"
    more: str = MORE

    def lines(self, text: str) -> list[str]:
        return wrapped(text) if self.wraps else [_shortened(text)]

    def all_lines(self, texts: Iterable[str]) -> list[str]:
        return [line for text in texts for line in self.lines(text)]


def render_markdown(advice: Advice, detail: str = "short", more: str = MORE) -> str:
    """Return the advice as Markdown: the headline, commands in code blocks, and the rest in one block of text."""
    if advice.state != "ready":
        return quoted(state_text(advice)) + "\n"
    form = _Form(full=detail == "full", wraps=True, target_shell=shell_of(advice.hardware), more=more)
    parts = [f"**{quoted(advice.headline or '')}**"]
    if advice.computed_again:
        parts.append(f"({advice.computed_again})")
    card = card_of(advice)
    if card is not None:
        parts += [quoted(f"Why this one: {card.why}."), *_markdown_steps(card, form.target_shell)]
        first, speeds = advice.configs[0], speed_lines(card)
        parts.append(block([*device_table(card.devices), "", *at_once_lines(first), *speeds, *measured_lines(first)]))
    for config in advice.configs[1:] if detail == "full" else ():
        parts.append(f"#{config.rank} {quoted(config.variant)}, {config.engine}, {config.bpw:.2f} bpw")
        shell = form.target_shell
        lines = [*folded(config.commands.download, shell), *folded(server_for(shell, config.commands), shell)]
        parts.append(block(lines, LANGUAGES[shell]))
        speeds = [*at_once_lines(config), *speed_table(config.speed)]
        parts.append(block([*device_table(config.devices), "", *speeds, *measured_lines(config)]))
    others = [] if form.full else other_lines(advice.configs, form.brief)
    mine = form.all_lines(mine_lines(advice.mine, advice.configs, form.full)) if advice.mine else []
    rejected = _rejected(advice) if form.full else ()
    asked = form.all_lines(what_if_lines(advice.what_if, form.full))
    rest = [*mine, *others, *asked, *_refusals(advice.refused, form), *rejected, *_assumed(advice, form)]
    if rest:
        parts.append(block(rest[not rest[0] :]))
    parts += _addresses(advice.url)
    return "\n\n".join(parts) + "\n"


def _markdown_steps(card: Card, shell: Shell) -> Iterator[str]:
    for number, step in enumerate(card.steps, 1):
        yield quoted(step_words(number, step))
        if lines := step_lines(step, shell):
            yield block(lines, LANGUAGES[shell])


def state_text(advice: Advice) -> str:
    """Return the state of an unfinished advice, or why it failed."""
    if advice.problem:
        return f"No advice. {advice.problem.title}: {advice.problem.detail}"
    return f"{advice.state}: {advice.progress or 'waiting for a worker'}"


def _document(advice: Advice, form: _Form) -> Iterator[str]:
    if advice.state != "ready":
        yield from wrapped(state_text(advice))
        return
    yield from wrapped(advice.headline or "")
    if advice.computed_again:
        yield from wrapped(f"({advice.computed_again})")
    yield from wrapped(_about(advice, form.full))
    if advice.mine:
        yield from form.all_lines(mine_lines(advice.mine, advice.configs, form.full, form.brief))
    for line in what_if_lines(advice.what_if, form.full):
        yield from form.lines(line) if line.startswith(" ") else wrapped(line)
    card = card_of(advice)
    if card is not None:
        yield from wrapped(f"Why this one: {card.why}.")
        yield ""
        yield from _first(card, advice.configs[0], form)
    for config in advice.configs[1:] if form.full else ():
        yield ""
        yield from _config(config, form)
    if not form.full:
        yield from other_lines(advice.configs, form.brief)
    yield from _refusals(advice.refused, form)
    yield from _rejected(advice) if form.full else ()
    yield from _assumed(advice, form)
    *pages, more = _addresses(advice.url) or [""]
    yield from pages
    yield from [more if form.full else f"{more}?{MORE}"] if more else ()


def _addresses(url: str | None) -> list[str]:
    """Return where an advice is: its page, where `url` is a whole one of the API, and `url`."""
    if not url:
        return []
    page = url.replace("/v1/advice/", "/advice/")
    return [f"page: {page}", url] if page != url and not url.startswith("/") else [url]


def _about(advice: Advice, full: bool) -> str:
    """Return the repo and the goal; the revision, which is in the download too, if it fits the line."""
    goal = advice.goal
    revision = f" @ {advice.revision[:7]}" if advice.revision else ""
    wanted = (
        f"; {goal.preset}: {goal.prompt:,} + {goal.output:,} tokens at {goal.depth:,}, context {goal.context:,}"
        if goal
        else ""
    )
    counted = f"; {advice.considered:,} configs considered, {advice.placed} computed in full" if full else ""
    line = f"{advice.repo}{revision}{wanted}{counted}"
    return line if full or len(line) <= WIDTH else f"{advice.repo}{wanted}"


def _other_forms(commands: Commands, shell: Shell) -> Iterator[str]:
    """Yield the server's command for other shells and systems, and how to build the engine."""
    if commands.build is not None:
        yield from ("", "# build the engine", *commands.build.line.split("\n"))
        for option in commands.build.options:
            yield from wrapped(f"- {option.option}: {option.reason} ({option.source})")
        yield from (f"! {note}" for note in commands.build.notes)
    if commands.oldest_build is not None:
        yield f"runs on builds from {commands.oldest_build.date} or newer ({', '.join(commands.oldest_build.needs)})"
    server = ("bash", commands.server) if shell == "powershell" else ("PowerShell", commands.powershell)
    titles = {"for older builds": commands.older, server[0]: server[1], "Docker": commands.docker}
    for title, text in titles.items():
        if text:
            yield from ("", f"# {title}", *text.split("\n"))
    if commands.systemd:
        yield from ("", "# systemd: /etc/systemd/system/llama.service", *commands.systemd.split("\n"))


def _first(card: Card, config: AdvisedConfig, form: _Form) -> Iterator[str]:
    """Yield the first config's card: install the engine, download, run; memory, speed, reasons."""
    yield _title(config)
    for number, step in enumerate(card.steps, 1):
        hidden = number == 1 and not form.builds and "\n" in typed(step, form.target_shell)
        yield from form.lines(step_words(number, step) + (f"; see {form.more}" if hidden else ""))
        yield from () if hidden else step_lines(step, form.target_shell, WIDTH)
    yield ""
    yield from device_table(card.devices)
    shallower = speed_table(config.speed)[:-2] if form.full else []
    yield from [*shallower, *speed_lines(card)]
    if form.full:
        yield from ("", *_benchmark(config))
        yield from _other_forms(config.commands, form.target_shell)
        yield ""
    yield from _evidence(config, form)


def _config(config: AdvisedConfig, form: _Form) -> Iterator[str]:
    yield _title(config)
    yield ""
    commands = config.commands
    yield from folded(commands.download, form.target_shell, WIDTH)
    yield from folded(server_for(form.target_shell, commands), form.target_shell, WIDTH)
    yield from _benchmark(config)
    yield ""
    yield from device_table(config.devices)
    yield from speed_table(config.speed)
    yield from _evidence(config, form)


def _benchmark(config: AdvisedConfig) -> Iterator[str]:
    """Yield the command of the benchmark, and why it differs from the server's if it does."""
    yield from folded(config.commands.bench, "posix", WIDTH)
    for reason in config.reasons:
        yield from wrapped(f"- {reason.text} [{reason.rule}]") if reason.rule == OF_BENCHMARK else ()


def _evidence(config: AdvisedConfig, form: _Form) -> Iterator[str]:
    """Yield a config's measurements, quality, reasons and notes."""
    yield from form.all_lines(measured_lines(config, form.full))
    if config.loss_percent and not form.brief:
        low, expected, high = config.loss_percent
        yield f"quality: about +{expected:,.1f} % perplexity above 16-bit ({low:,.1f} to {high:,.1f}), by tensor types"
    yield from standing(config) if form.full else ()
    shown = 0 if form.brief else _SHORT_REASONS
    reasons = [reason for reason in config.reasons if reason.rule != OF_BENCHMARK]
    for reason in reasons if form.full else reasons[:shown]:
        yield from form.lines(f"- {reason.text} [{reason.rule}]")
    for proposal in config.proposals:
        line = f"- {proposal_words(proposal)}{'' if form.full else f'; see {form.more}'}"
        yield from [_shortened(line)] if form.brief else form.lines(line)
        yield from _proposed(proposal, form) if form.full else ()
    for note in config.notes:
        yield from [_shortened(f"! {note}")] if form.brief else wrapped(f"! {note}")
    if form.full:
        yield f"largest usual context with this placement: {config.max_context:,} tokens"
        if config.versus_next:
            yield from wrapped(config.versus_next)


def proposal_words(proposal: Proposal) -> str:
    """Return a proposal and its possible gain."""
    (low, high), (slow, fast) = proposal.times, proposal.tg_tps
    gain = f"{low:g} to {high:g} times the tokens per second as published, here {slow:.0f} to {fast:.0f} t/s"
    return f"worth measuring: {_PROPOSED[proposal.name]}, {gain}"


def _proposed(proposal: Proposal, form: _Form) -> Iterator[str]:
    """Yield the source of a proposal's figures, its complete command, and its memory."""
    yield from form.lines(f"  {proposal.basis}")
    line = proposal.powershell if form.target_shell == "powershell" else proposal.server
    yield from folded(line, form.target_shell, WIDTH)
    yield from device_table(proposal.devices)


def _title(config: AdvisedConfig) -> str:
    imatrix = ", imatrix" if config.imatrix else ""
    differs = abs(config.bpw_active - config.bpw) >= 0.005 and config.bpw_active
    active = f" ({config.bpw_active:.2f} active{imatrix})" if differs else imatrix
    return f"#{config.rank} {config.variant}, {config.engine}, {config.bpw:.2f} bpw{active}, {config.strategy}"


_PROPOSED = {
    "drafting": "drafting with the file's next-token layers (MTP)",
    "expert-cache": "all experts in RAM, and those in use cached on the GPU (--moe-cache-mib)",
}


def device_table(devices: list[DeviceMemory]) -> list[str]:
    """Return a table of every device's memory in MiB, as lines."""
    head = f"{'MiB':<8}{'weights':>10}{'cache':>9}{'compute':>9}{'other':>8}{'total':>10}{'free':>10}  of"
    rows = [
        f"{d.device:<8} {d.weights_mib:>9,.0f} {d.kv_mib:>8,.0f} {d.compute_mib:>8,.0f}"
        f" {d.output_mib + d.overhead_mib:>7,.0f} {d.total_mib:>9,.0f} {d.free_mib:>9,.0f}  "
        f"{d.capacity_mib:,.0f}{' ' + d.gpu if d.gpu else ''}"
        for d in devices
    ]
    companions = ", ".join(f"{d.device} {d.companions_mib:,.0f}" for d in devices if d.companions_mib)
    more = [f"{ALSO_LOADED}: {companions}"] if companions else []
    return [cut(line) for line in (head, *rows, *more)]


def speed_table(points: list[SpeedPoint]) -> list[str]:
    """Return a line per depth, and one about the intervals."""
    return [*(speed_words(p, f"at {p.n_kv:>7,} tokens") for p in points), interval_words(points[-1].basis)]


def speed_lines(card: Card) -> list[str]:
    """Return the speed at the goal's depth, and at the full context if that is deeper."""
    full = [speed_words(card.full, f"at {card.full.n_kv:>7,} (full)")] if card.full else []
    return [speed_words(card.now, f"at {card.now.n_kv:>7,} tokens"), *full, interval_words(card.now.basis)]


def _refusals(refused: list[Refusal], form: _Form) -> Iterator[str]:
    if form.full:
        alike: dict[tuple[str, str, str | None], list[str]] = {}
        for r in refused:
            alike.setdefault((r.engine, r.reason, r.smallest_change), []).append(r.variant)
        for (engine, reason, change), names in alike.items():
            fix = f"; to fix it: {change}" if change else ""
            yield from wrapped(f"refused: {', '.join(names)} with {engine}: {reason}{fix}")
        return
    groups: dict[tuple[str, str], list[Refusal]] = {}
    for r in refused:
        groups.setdefault((r.kind, r.engine if r.kind == "engine" else r.variant), []).append(r)
    for (kind, _), group in list(groups.items())[:_SHORT_REFUSALS]:
        yield _shortened(_refused_engine(group) if kind == "engine" else _refused_variant(group))
    if len(groups) > _SHORT_REFUSALS:
        yield f"and {len(groups) - _SHORT_REFUSALS} more refused"


def _refused_engine(group: list[Refusal]) -> str:
    """Return a line on all variants that one engine cannot run, with the reason for the largest."""
    names = ", ".join(r.variant for r in reversed(group)) if len(group) <= _NAMED else f"{len(group)} variants"
    reason = group[-1].reason.removeprefix(f"{group[0].engine} ")
    return f"refused with {group[0].engine}: {names} ({reason})"


def _refused_variant(group: list[Refusal]) -> str:
    """Return a line on one variant refused on one engine or both, with the smaller shortfall and its remedy."""
    nearest = min(group, key=lambda r: r.short_by_mib or 0)
    engines = "" if len(group) > 1 else f" with {nearest.engine}"
    change = f"; to fix it: {nearest.smallest_change}" if nearest.smallest_change else ""
    return f"refused: {nearest.variant}{engines}: {nearest.reason}{change}"


def _rejected(advice: Advice) -> Iterator[str]:
    for one in advice.losers:
        gpus = f" on {len(one.gpus)} GPUs" if len(one.gpus) > 1 else ""
        alike = f" [{one.alike} alike]" if one.alike > 1 else ""
        what = f"{one.variant} with {one.engine}, {one.strategy}{gpus}, {one.differs}"
        yield from wrapped(f"not chosen: {what}: {one.why}{alike}")


def _assumed(advice: Advice, form: _Form) -> Iterator[str]:
    card = card_of(advice)
    if form.full or card is None:
        for a in advice.assumed:
            yield from form.lines(fact_words(fact_of(a, advice.hardware.gpus)))
        return
    for fact in card.facts[: 1 if form.brief else None]:
        yield from form.lines(fact_words(fact))
    more = card.more_assumed + (len(card.facts[1:]) if form.brief else 0)
    if more:
        yield f"and {more} more assumption{'s' * (more > 1)}"


_LEAST, _SAME = 0.05, "the same memory"  # GiB: less is not shown
_SHORT_FINDINGS, _SHORT_CHANGES, _BRIEF_CHANGES = 2, 4, 2


def mine_lines(mine: Mine, configs: Sequence[AdvisedConfig], full: bool, brief: bool = False) -> Iterator[str]:
    """Yield the comparison with the command in use.

    `full`: every finding, and the changes to every config; `brief`: no findings, and only the largest changes.
    """
    p = mine.speed[-1]
    verdict = mine.verdict.removeprefix("Your command ")
    yield (
        f"yours: {mine.variant} {mine.engine}, TG {p.tg_tps:,.1f} ({p.tg_low:,.1f}-{p.tg_high:,.1f}), "
        f"PP {p.pp_tps:,.0f}. {verdict[:1].upper()}{verdict[1:]}"
    )
    for finding in mine.findings if full else mine.findings[: 0 if brief else _SHORT_FINDINGS]:
        yield f"  {finding.severity}: {finding.message} [{finding.rule}]"
    for config in configs if full else configs[:1]:
        yield from _gains(config, full, _BRIEF_CHANGES if brief else _SHORT_CHANGES)


def _gains(config: AdvisedConfig, full: bool, most: int) -> Iterator[str]:
    versus = config.versus_mine
    if versus is None:
        return
    speeds = f"TG {gain_text(versus.tg)}; PP {gain_text(versus.pp)}; " if full else ""  # the headline has them
    yield f"#{config.rank} against yours: {speeds}{_memory(versus.gib, full)}; change by change:"
    for change in versus.changes if full else _largest(versus, most):
        yield f"  {_change(change, full)}"
    if not full and len(versus.changes) > most:
        yield f"  and {len(versus.changes) - most} more, which change the speed less"


def _largest(versus: VersusMine, most: int) -> list[Change]:
    """Return the changes with the largest effects, in their original order."""

    def effect(change: Change) -> float:
        speeds = abs(change.tg_tps) / (abs(versus.tg.tps) or 1) + abs(change.pp_tps) / (abs(versus.pp.tps) or 1)
        return speeds + sum(map(abs, change.gib.values())) / 100

    kept = sorted(versus.changes, key=effect, reverse=True)[:most]
    return [change for change in versus.changes if change in kept]


def _change(change: Change, full: bool) -> str:
    parts = [f"TG {change.tg_tps:+,.1f}"] if change.tg_tps else []
    parts += [f"PP {change.pp_tps:+,.0f}"] if change.pp_tps else []
    parts += [_memory(change.gib, full)] if any(abs(gib) >= _LEAST for gib in change.gib.values()) else []
    if not parts:
        return f"{change.change}: {change.why}"
    return f"{change.change}: {', '.join(parts)}{f' ({change.why})' if full else ''}"


def _memory(gib: Mapping[str, float], full: bool) -> str:
    gpus = [more for device, more in gib.items() if device != "CPU"]
    if len(gpus) > 1 and not full:
        gib = {"GPUs": sum(gpus), "CPU": gib.get("CPU", 0.0)}
    return ", ".join(f"{device} {more:+.1f} GiB" for device, more in gib.items() if abs(more) >= _LEAST) or _SAME


def measured_lines(config: AdvisedConfig, full: bool = True) -> Iterator[str]:
    """Yield a line per measured depth; without `full`, only for the deepest."""
    for point in config.measured if full else config.measured[-1:]:
        there = speed_at(config.speed, point.n_kv)
        tg = f" (predicted {there.tg_tps:,.1f}, {there.tg_low:,.1f} to {there.tg_high:,.1f})" if there else ""
        pp = f" (predicted {there.pp_tps:,.0f}, {there.pp_low:,.0f} to {there.pp_high:,.0f})" if there else ""
        near = "" if config.measured_match == "exact" else ", other CPU or RAM"
        yield f"at {point.n_kv:>7,}: TG measured {point.tg_tps:,.1f} t/s{tg}, PP {point.pp_tps:,.0f}{pp}{near}"
