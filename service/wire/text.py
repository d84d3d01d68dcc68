"""An advice as people read it: plain text for curl and terminals, Markdown for chat.

The short form fits one screen (100 columns, 40 lines); `detail="full"` gives everything. Names from headers and repos
are foreign text: control characters are dropped, and in Markdown nothing can leave its code block.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from service.engine.advice import AdvisedConfig, Commands, DeviceMemory, Refusal, SpeedPoint
from service.engine.commands import fold
from service.wire.advice import Advice
from service.wire.measured_text import measured_lines, measured_short
from service.wire.mine_text import mine_lines
from service.wire.what_if_text import what_if_lines

WIDTH, HEIGHT = 100, 40
_SHORT_FORMS = ((True, False), (False, False), (False, True))  # wraps, brief: the first that fits a screen
_SHORT_REFUSALS, _SHORT_ASSUMED, _SHORT_REASONS = 4, 3, 3


def render_text(advice: Advice, detail: str = "short") -> str:
    """Return the advice as plain text: everything if `detail` is `full`, else what fits one screen."""
    if detail == "full":
        lines = list(_document(advice, _Form(full=True, wraps=True)))
    else:
        forms = (_Form(full=False, wraps=wraps, brief=brief) for wraps, brief in _SHORT_FORMS)
        documents = (list(_document(advice, form)) for form in forms)
        lines = next((lines for lines in documents if len(lines) <= HEIGHT), [])
        if not lines:
            *most, last = _document(advice, _Form(full=False, wraps=False, brief=True))
            lines = [*most[: HEIGHT - 1], last]
    return "\n".join(clean(line) for line in lines) + "\n"


class _Form(NamedTuple):
    """How much is shown, and whether long lines are wrapped or cut. `brief`: only what a screen has room for."""

    full: bool
    wraps: bool
    brief: bool = False

    def lines(self, text: str) -> list[str]:
        return wrapped(text) if self.wraps else [cut(text)]

    def all_lines(self, texts: Iterable[str]) -> list[str]:
        return [line for text in texts for line in self.lines(text)]


def render_markdown(advice: Advice, detail: str = "short") -> str:
    """Return the advice as Markdown: the headline, commands in code blocks, the rest in one block of text."""
    if advice.state != "ready":
        return quoted(state_text(advice)) + "\n"
    parts = [f"**{quoted(advice.headline or '')}**"]
    for config in advice.configs if detail == "full" else advice.configs[:1]:
        parts.append(f"#{config.rank} {quoted(config.variant)}, {config.engine}, {config.bpw:.2f} bpw")
        parts.append(block([fold(c) for c in (config.commands.download, config.commands.server) if c], "bash"))
        parts.append(block([*device_table(config.devices), "", *speed_table(config.speed), *measured_lines(config)]))
    form = _Form(full=detail == "full", wraps=True)
    others = [] if form.full else _others(advice)
    mine = form.all_lines(mine_lines(advice.mine, advice.configs, form.full)) if advice.mine else []
    losers = _losers(advice) if form.full else ()
    asked = form.all_lines(what_if_lines(advice.what_if, form.full))
    rest = [*mine, *others, *asked, *_refusals(advice.refused, form), *losers, *_assumed(advice, form)]
    if rest:
        parts.append(block(rest))
    if advice.url:
        parts.append(advice.url)
    return "\n\n".join(parts) + "\n"


def clean(text: str) -> str:
    """Return `text` without control, direction and zero-width characters."""
    return "".join(c for c in text if c == "\n" or (c.isprintable() and c not in "\u200b\u2060\ufeff"))


def quoted(text: str) -> str:
    """Return foreign text for Markdown: nothing in it is markup, or calls anybody."""
    safe = clean(text).replace("`", "'").replace("@", "@\u2060")
    return "".join("\\" + c if c in "*_[]<>#|~" else c for c in safe)


def block(lines: list[str], language: str = "") -> str:
    """Return a code block of Markdown that its lines cannot leave."""
    body = "\n".join(clean(line).replace("```", "'''") for line in lines)
    return f"```{language}\n{body}\n```"


def state_text(advice: Advice) -> str:
    """Return where an advice stands that is not ready, or why there is none."""
    if advice.problem:
        return f"No advice: {advice.problem.title}. {advice.problem.detail}"
    return f"{advice.state}: {advice.progress or 'waiting for a worker'}"


def _document(advice: Advice, form: _Form) -> Iterator[str]:
    if advice.state != "ready":
        yield from wrapped(state_text(advice))
        return
    yield from wrapped(advice.headline or "")
    yield _about(advice)
    if advice.mine:
        yield from form.all_lines(mine_lines(advice.mine, advice.configs, form.full, form.brief))
    yield from form.all_lines(what_if_lines(advice.what_if, form.full))
    for config in advice.configs if form.full else advice.configs[:1]:
        yield ""
        yield from _config(config, form)
    if not form.full:
        yield from _others(advice)
    yield from _refusals(advice.refused, form)
    yield from _losers(advice) if form.full else ()
    yield from _assumed(advice, form)
    if advice.url:
        yield advice.url if form.full else f"{advice.url}?detail=full"


def _about(advice: Advice) -> str:
    goal = advice.goal
    revision = f" @ {advice.revision[:7]}" if advice.revision else ""
    wanted = (
        f"; {goal.preset}: {goal.prompt:,} + {goal.output:,} tokens at {goal.depth:,}, context {goal.context:,}"
        if goal
        else ""
    )
    return cut(f"{advice.repo}{revision}{wanted}; {advice.considered:,} considered, {advice.placed} placed")


def _other_forms(commands: Commands) -> Iterator[str]:
    """The server for other shells and systems, and how to build the engine."""
    if commands.build is not None:
        yield from ("", "# build the engine", *commands.build.line.split("\n"))
        for option in commands.build.options:
            yield from wrapped(f"- {option.option}: {option.reason} ({option.source})")
        yield from (f"! {note}" for note in commands.build.notes)
    if commands.oldest_build is not None:
        yield f"runs on builds from {commands.oldest_build.date} on ({', '.join(commands.oldest_build.needs)})"
    titles = {"before that": commands.older, "PowerShell": commands.powershell, "Docker": commands.docker}
    for title, text in titles.items():
        if text:
            yield from ("", f"# {title}", *text.split("\n"))
    if commands.systemd:
        yield from ("", "# systemd: /etc/systemd/system/llama.service", *commands.systemd.split("\n"))


def _config(config: AdvisedConfig, form: _Form) -> Iterator[str]:
    yield f"#{config.rank} {config.variant}, {config.engine}, {config.bpw:.2f} bpw{_active(config)}, {config.strategy}"
    yield ""
    if config.commands.download:
        yield from fold(config.commands.download, WIDTH).split("\n")
    yield from fold(config.commands.server, WIDTH).split("\n")
    if form.full:
        yield from fold(config.commands.bench, WIDTH).split("\n")
        if config.rank == 1:
            yield from _other_forms(config.commands)
    yield ""
    yield from device_table(config.devices)
    yield from speed_table(config.speed[-1:] if form.brief else config.speed)
    yield from form.all_lines(measured_lines(config, form.full))
    yield from standing(config)
    shown = 0 if form.brief else _SHORT_REASONS
    for reason in config.reasons if form.full else config.reasons[:shown]:
        yield from form.lines(f"- {reason.text} [{reason.rule}]")
    for note in config.notes:
        yield from [cut(f"! {note}")] if form.brief else wrapped(f"! {note}")
    if form.full:
        yield f"largest context with this placement: {config.max_context:,} tokens"
        if config.versus_next:
            yield from wrapped(config.versus_next)


def _active(config: AdvisedConfig) -> str:
    imatrix = ", imatrix" if config.imatrix else ""
    differs = abs(config.bpw_active - config.bpw) >= 0.005 and config.bpw_active
    return f" ({config.bpw_active:.2f} active{imatrix})" if differs else imatrix


_BEST = {"bits": "bits per weight", "time": "the goal's time", "pp": "PP", "tg": "TG", "context": "context"}


def standing(config: AdvisedConfig) -> Iterator[str]:
    """Yield what the config is best at of all here, and which of them the speeds cannot tell it from."""
    best = f"best here, or as good, in {', '.join(_BEST[name] for name in config.best_at)}" if config.best_at else ""
    tied = f"too close to call against {_ranks(config.tied_with)}" if config.tied_with else ""
    if best or tied:
        yield from wrapped("; ".join(part for part in (best, tied) if part))


def _ranks(ranks: list[int]) -> str:
    return ", ".join(f"#{rank}" for rank in ranks)


def device_table(devices: list[DeviceMemory]) -> list[str]:
    """Return the memory of every device as lines of a table, in MiB."""
    head = f"{'MiB':<8}{'weights':>10}{'cache':>9}{'compute':>9}{'other':>8}{'total':>10}{'free':>10}  of"
    rows = [
        f"{d.device:<8}{d.weights_mib:>10,.0f}{d.kv_mib:>9,.0f}{d.compute_mib:>9,.0f}"
        f"{d.output_mib + d.overhead_mib:>8,.0f}{d.total_mib:>10,.0f}{d.free_mib:>10,.0f}  "
        f"{d.capacity_mib:,.0f}{' ' + d.gpu if d.gpu else ''}"
        for d in devices
    ]
    beside = ", ".join(f"{d.device} {d.companions_mib:,.0f}" for d in devices if d.companions_mib)
    more = [f"in the totals, for what runs beside the model: {beside}"] if beside else []
    return [cut(line) for line in (head, *rows, *more)]


def speed_table(points: list[SpeedPoint]) -> list[str]:
    """Return a line for each depth, and one about the intervals."""
    rows = [
        f"at {p.n_kv:>7,} tokens: TG {p.tg_tps:.1f} t/s ({p.tg_low:.1f} to {p.tg_high:.1f}), "
        f"PP {p.pp_tps:,.0f} t/s ({p.pp_low:,.0f} to {p.pp_high:,.0f})"
        for p in points
    ]
    return [*rows, f"80 % intervals, {points[-1].basis}"]


def _others(advice: Advice) -> Iterator[str]:
    if len(advice.configs) > 1:
        yield ""
    for c in advice.configs[1:]:
        p = c.speed[-1]
        tied = (f" ={_ranks(c.tied_with[:2])}" if c.tied_with else "") + measured_short(c)
        star = "*" if c.on_front else ""
        yield cut(
            f"#{c.rank}{star} {c.variant} {c.engine} {c.bpw:.2f} bpw, {how(c)}: TG {p.tg_tps:.1f} "
            f"({p.tg_low:.1f}-{p.tg_high:.1f}), PP {p.pp_tps:,.0f} ({p.pp_low:,.0f}-{p.pp_high:,.0f}){tied}"
        )
    if any(c.on_front or c.tied_with for c in advice.configs[1:]):
        yield "* none here beats it in bits, PP, TG and context at once; = too close to call: measure"


def how(config: AdvisedConfig) -> str:
    """Return the strategy, and what else sets configs of one variant and engine apart."""
    gpus, mode = len(config.devices) - 1, config.flags.split_mode
    cache = "" if config.flags.cache_type_k == "f16" else f", {config.flags.cache_type_k} cache"
    together = "" if mode == "layer" else f", -sm {mode}"
    return f"{config.strategy}{f', {gpus} GPUs' if gpus > 1 else ''}{together}{cache}"


def _refusals(refused: list[Refusal], form: _Form) -> Iterator[str]:
    if form.full:
        for r in refused:
            change = f"; mend: {r.smallest_change}" if r.smallest_change else ""
            yield from wrapped(f"refused: {r.variant} with {r.engine}: {r.reason}{change}")
        return
    groups: dict[tuple[str, str], list[Refusal]] = {}
    for r in refused:
        groups.setdefault((r.kind, r.engine if r.kind == "engine" else r.variant), []).append(r)
    for (kind, _), group in list(groups.items())[:_SHORT_REFUSALS]:
        yield cut(_refused_engine(group) if kind == "engine" else _refused_variant(group))
    if len(groups) > _SHORT_REFUSALS:
        yield f"and {len(groups) - _SHORT_REFUSALS} more refused"


def _refused_engine(group: list[Refusal]) -> str:
    """One engine, all variants that it cannot run; the reason of the largest is shown."""
    names = ", ".join(r.variant for r in reversed(group))
    reason = group[-1].reason.removeprefix(f"{group[0].engine} ")
    return f"refused with {group[0].engine}: {names} ({reason})"


def _refused_variant(group: list[Refusal]) -> str:
    """One variant, on one engine or both; the smaller shortfall and what would mend it."""
    nearest = min(group, key=lambda r: r.short_by_mib or 0)
    engines = "" if len(group) > 1 else f" with {nearest.engine}"
    change = f"; mend: {nearest.smallest_change}" if nearest.smallest_change else ""
    return f"refused: {nearest.variant}{engines}: {nearest.reason}{change}"


def _losers(advice: Advice) -> Iterator[str]:
    for loser in advice.losers:
        gpus = f" on {len(loser.gpus)} GPU{'s' if len(loser.gpus) > 1 else ''}" if loser.gpus else ""
        alike = f" [{loser.alike} alike]" if loser.alike > 1 else ""
        what = f"{loser.variant} with {loser.engine}, {loser.strategy}{gpus}, {loser.differs}"
        yield from wrapped(f"not chosen: {what}: {loser.why}{alike}")


def _assumed(advice: Advice, form: _Form) -> Iterator[str]:
    shown = advice.assumed if form.full else advice.assumed[: 1 if form.brief else _SHORT_ASSUMED]
    for a in shown:
        yield from form.lines(f"assumed: {a.field} = {a.value} ({a.why}); it changes {a.matters}")
    if len(advice.assumed) > len(shown):
        yield f"and {len(advice.assumed) - len(shown)} more assumed"


def wrapped(text: str) -> list[str]:
    """Return the text in lines of at most WIDTH columns."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False) or [""]


def cut(text: str) -> str:
    """Return the text, or as much of it as one line holds."""
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
