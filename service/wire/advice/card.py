"""The answer as one card: the sentence, why, three steps to paste, memory, speed, assumptions and alternatives.

Page, text, Markdown and chat all show this card and compute nothing of their own, so that they agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from service.engine.advice import AdviceBody, AdvisedConfig, Commands, Shell, SpeedPoint
from service.engine.catalogue.names import gpu_rows
from service.engine.commands.shell import fold
from service.engine.ggml_types import type_named
from service.engine.goal import Goal
from service.engine.hardware import Assumption, Gpu, Hardware, os_family
from service.engine.measured.identity import short_name
from service.engine.planner.ranking.measured import first_as_advised, speed_now
from service.engine.planner.ranking.rank import reaches_minimum
from service.engine.purpose import writes_text
from service.engine.speed.interval import FORMULA
from service.engine.units import longer
from service.structs import made_from
from service.wire.advice.advice import Advice, Card, Fact, Option, Step

_MUCH_FASTER, _MUCH_BETTER = 1.1, 0.3  # factor of speed; percentage points of perplexity
_MUCH_FULLER, _NEARLY_FULL = 0.05, 0.8  # shares of the usable RAM
_NOTICED = 1.005  # times as long: from here on it is said
_FACTS = 2
# MT/s from which memory is assumed to be of a kind, and two usual speeds of it.
_RAM = ((4000, "DDR5", 5600, 6000), (2133, "DDR4", 2666, 3200), (0, "DDR3", 1333, 1600))
# After a build: put its programs first on the path, and return to the folder where this step began.
_FOUND = {
    "posix": 'export PATH="$PWD/build/bin:$PATH" && cd ..',
    "powershell": '$env:PATH = "$PWD\\build\\bin\\Release;$PWD\\build\\bin;$env:PATH"; cd ..',
}
_UNCALIBRATED = "from a formula, not calibrated"
_NO_HF = "if hf is missing: pip install huggingface_hub"
SHELLS: tuple[Shell, Shell] = ("posix", "powershell")
LANGUAGES: dict[Shell, str] = {"posix": "bash", "powershell": "powershell"}  # of code blocks
# Assumptions by importance, by the end of their path: with weights in RAM, and with everything on the GPUs.
_IN_RAM = ("free_gb", "total_gb", "hardware.gpus", "hardware.cpu", "channels", "mts", "vram_gib", "pcie", "ghz", "name")
_ON_GPU = ("hardware.gpus", "vram_gib", "bandwidth_gbs", "name", "backend", "fp16_tflops", "total_gb", "hardware.cpu")


def card_of(advice: Advice | AdviceBody) -> Card | None:
    """Return the card of a finished advice that has a config, else None."""
    if not advice.configs:
        return None
    first, others = advice.configs[0], advice.configs[1:]
    facts = [fact_of(one, advice.hardware.gpus) for one in _facts(advice.assumed, first)]
    return Card(
        sentence=advice.headline or "",
        why=_why(first, others, advice.goal),
        config=first.id,
        steps=_steps(first, advice.hardware),
        devices=first.devices,
        now=first.speed[-1],
        full=first.deeper[-1] if first.deeper else None,
        facts=facts,
        more_assumed=len(advice.assumed) - len(facts),
        options=[_option(config, first) for config in others],
    )


def _steps(config: AdvisedConfig, hardware: Hardware) -> list[Step]:
    commands = config.commands
    steps = [_engine(config, hardware)]
    if commands.download:
        line = commands.download
        steps.append(Step(title="Download", posix=line, powershell=line, note=_NO_HF))
    return [*steps, Step(title="Run", posix=commands.server, powershell=server_for("powershell", commands))]


def _engine(config: AdvisedConfig, hardware: Hardware) -> Step:
    """Return the step that installs the engine: a package if one supports these cards, else a build from source.

    The note is for the system that the machine has, or for both where that is not stated.
    """
    oldest = config.commands.oldest_build
    (posix, how), (powershell, other) = (_obtained(config.commands, shell) for shell in SHELLS)
    only_posix = {package.shell for package in config.commands.packages} == {"posix"}  # Apple's GPUs know no Windows
    note = other if shell_of(hardware) == "powershell" else how
    if not hardware.os and other not in (how, "") and not only_posix:
        note = f"{how}; Windows: {other}"
    return Step(
        title=f"Get {config.engine}{f' from {oldest.date} or newer' if oldest else ''}",
        posix=posix,
        powershell=powershell,
        note=note,
    )


def _obtained(commands: Commands, shell: Shell) -> tuple[str, str]:
    """Return the lines that install the engine in this shell, and a note on what they do."""
    package = next((one for one in commands.packages if one.shell == shell), None)
    if package is not None and (commands.build is None or not package.needs):
        return package.line, f"prebuilt, from {package.name}"
    if commands.build is None:
        return "", "the build you named"
    apart = {"posix": " && cmake --build", "powershell": " && "}[shell]  # Windows PowerShell 5 has no &&
    lines = commands.build.line.replace(apart, "\n" + apart.removeprefix(" && "))
    lines = f"{lines}\n{_FOUND[shell]}"
    if package is not None:
        return f"{package.line}\n{lines}", f"prebuilt if {package.needs} is installed, else build it"
    return lines, "no package fits: build it"


def _why(first: AdvisedConfig, others: Sequence[AdvisedConfig], goal: Goal | None) -> str:
    """Return why the first config is first: the price of the nearest faster and of the nearest better one."""
    quick = [c for c in others if _rate(c) > _MUCH_FASTER * _rate(first)]
    worse = [c for c in quick if _loss(c) > _loss(first) + _MUCH_BETTER]
    better = [c for c in others if _loss(c) < _loss(first) - _MUCH_BETTER]
    alike = [c for c in quick if c not in worse and c not in better]
    one = max(alike, key=_rate, default=first)
    faster = [c for c in worse if _rate(c) > _MUCH_FASTER * _rate(one)]
    parts = []
    if alike:
        takes_longer = _seconds(one) / _seconds(first) >= _NOTICED
        parts.append(
            f"#{one.rank} ({one.variant} with {one.engine}) would {'generate' if takes_longer else 'be'} "
            f"{_rate(one) / _rate(first):.1f} times as fast, but {_listed(_drawbacks(one, first))}"
        )
    if faster:
        one = min(faster, key=_loss)
        times = _rate(one) / _rate(first)
        parts.append(f"{one.variant} would be {times:.1f} times as fast, but {_perplexity(one, first)}")
    if better:
        one = min(better, key=lambda c: (c.pick is None or c.pick.name != "quality", _seconds(c)))
        parts.append(
            f"{one.variant} would be closer to 16-bit ({_loss(one):.1f} % instead of {_loss(first):.1f} %), "
            f"but {_listed([*_drawbacks(one, first), *_missed(one, [first, *others], goal)])}"
        )
    if not faster and not alike and others:
        parts.insert(0, "nothing of similar quality is clearly faster")
    if not better and first.pick and first.pick.next_better:
        parts.append(first.pick.next_better)
    return "; ".join(parts) or "no other config that fits is worth listing"


def _drawbacks(config: AdvisedConfig, first: AdvisedConfig) -> list[str]:
    """Return a config's drawbacks: perplexity, time, weights off the GPU, a smaller cache, full RAM, a limit to raise,
    cards that nobody tests its engine on, a build, an engine that is not in use.

    Less time is none; it is said only where there is nothing else to say.
    """
    one, other, split = config.weighed, first.weighed, config.flags.split_mode
    times = _seconds(config) / _seconds(first)
    said = [_perplexity(config, first)] if round(_loss(config), 1) > round(_loss(first), 1) else []
    if times < 1 and split != "layer":
        said.append(f"its speed with -sm {split} comes from a formula and has to be measured")
    elif times >= _NOTICED:
        said.append(f"a request takes {longer(times)}")
    if first.strategy == "all on GPU" != config.strategy:
        said.append("not all of it runs on the GPU")
    if _cache_bits(config) < _cache_bits(first):
        said.append(f"its cache is {config.flags.cache_type_k} instead of {first.flags.cache_type_k}")
    if one.ram_used > max(other.ram_used + _MUCH_FULLER, _NEARLY_FULL):
        said.append(f"it fills {100 * one.ram_used:.0f} % of the usable RAM")
    if one.raises_limit and not other.raises_limit:
        said.append("it needs a higher memory limit for the GPU")
    if one.untested and not other.untested:
        said.append(f"nobody tests {config.engine} on cards that old")
    if one.to_build and not other.to_build:
        said.append("its engine must be built from source")
    if one.other_engine and not other.other_engine:
        said.append(f"your command is for {first.engine}")
    return said or [f"a request takes {longer(times)}"]


def _perplexity(config: AdvisedConfig, first: AdvisedConfig) -> str:
    return f"its perplexity is {_loss(config):.1f} % above 16-bit instead of {_loss(first):.1f} %"


def _missed(config: AdvisedConfig, configs: Sequence[AdvisedConfig], goal: Goal | None) -> Iterator[str]:
    """Yield by which speed a config misses a minimum of the goal, where the first one does not miss it by as much, and
    what would come first if that speed were enough.
    """
    if goal is None:
        return
    pairs = zip(speed_now(config, goal), speed_now(configs[0], goal), strict=True)
    units = ("min_pp", "t/s for prompts"), ("min_tg", "t/s")
    for (name, unit), (speed, of_first) in zip(units, pairs, strict=True):
        least, shown = getattr(goal, name), round(speed, 1)
        if reaches_minimum(speed, least) or speed >= of_first:
            continue
        more = "" if reaches_minimum(of_first, least) else " by more"
        lower = math.floor(shown) if shown >= 1 else shown
        said = f"its {shown:,.1f} {unit} miss the goal's {least:g}{more}"
        now, then = (first_as_advised(configs, one) for one in (goal, replace(goal, **{name: lower})))
        if then.variant not in (now.variant, configs[0].variant):
            said += f" (a minimum of {lower:g} would put {then.variant} first)"
        yield said


def _listed(said: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(said[:-1]), said[-1]) if part)


def _cache_bits(config: AdvisedConfig) -> float:
    return type_named(config.flags.cache_type_k).bpw


def _rate(config: AdvisedConfig) -> float:
    """Return the tokens a second of all requests that the goal has at once; of input where nothing is written."""
    if not writes_text(config.flags.other):
        return config.speed[-1].pp_tps
    return config.at_once.tps if config.at_once else _tg(config)


def _tg(config: AdvisedConfig) -> float:
    return config.speed[-1].tg_tps


def _loss(config: AdvisedConfig) -> float:
    return config.loss_percent[1] if config.loss_percent else 0.0


def _seconds(config: AdvisedConfig) -> float:
    return max(config.goal_seconds[1], 1e-9)


def _facts(assumed: Sequence[Assumption], config: AdvisedConfig) -> list[Assumption]:
    """Return the assumptions that matter most: a context for which the trained one is too short, then those that would
    narrow the answer most if stated.
    """
    order = ("goal.context", *(_ON_GPU if config.strategy == "all on GPU" else _IN_RAM))

    def place(one: Assumption) -> int:
        return next((i for i, end in enumerate(order) if one.field.endswith(end)), len(order))

    return sorted(assumed, key=place)[:_FACTS]


def _option(config: AdvisedConfig, first: AdvisedConfig) -> Option:
    return made_from(
        Option,
        config,
        label=config.pick.name.capitalize() if config.pick else "",
        why=config.pick.why if config.pick else "",
        loss_percent=config.loss_percent[1] if config.loss_percent else None,
        tg_tps=_tg(config),
        pp_tps=config.speed[-1].pp_tps,
        times=round(_seconds(config) / _seconds(first), 2),
    )


def shell_of(hardware: Hardware) -> Shell:
    """Return the shell of a machine: PowerShell if Windows is stated."""
    return "powershell" if hardware.os and os_family(hardware.os) == "windows" else "posix"


def server_for(shell: Shell, commands: Commands) -> str:
    """Return the server's command, or commands, for this shell."""
    return commands.powershell if shell == "powershell" and commands.powershell else commands.server


def typed(step: Step, shell: Shell) -> str:
    """Return a step's commands for this shell, one per line; empty if there are none."""
    return step.powershell if shell == "powershell" else step.posix


def step_lines(step: Step, shell: Shell, width: int = 100) -> list[str]:
    """Return a step's commands for this shell, each folded."""
    return folded(typed(step, shell), shell, width)


def folded(text: str, shell: Shell, width: int = 100) -> list[str]:
    """Return commands (one per line) in lines of at most `width`, continued as in this shell: by `\\` or "`"."""
    found = []
    for command in filter(None, text.split("\n")):
        lines = fold(command, width).split("\n") if len(command) > width else [command]
        end = "`" if shell == "powershell" else "\\"
        found += [*(line.removesuffix("\\") + end for line in lines[:-1]), lines[-1]]
    return found


def step_words(number: int, step: Step) -> str:
    """Return the line above a step's commands."""
    return f"{number}. {step.title}{f' ({step.note})' if step.note else ''}"


def speed_words(point: SpeedPoint, where: str) -> str:
    """Return one line about the speed at a depth."""
    return f"{where}: {speed_figures(point)}"


def speed_figures(point: SpeedPoint) -> str:
    """Return TG and PP with their intervals."""
    return (
        f"TG {point.tg_tps:,.1f} t/s ({point.tg_low:,.1f} to {point.tg_high:,.1f}), "
        f"PP {point.pp_tps:,.0f} t/s ({point.pp_low:,.0f} to {point.pp_high:,.0f})"
    )


def at_once_words(config: AdvisedConfig, interval: bool = True) -> str:
    """Return the speed of all requests that the goal has at once, together and of each; empty for one request."""
    if (all_of := config.at_once) is None:
        return ""
    between = f" ({all_of.low:,.0f} to {all_of.high:,.0f})" if interval else ""
    return f"{all_of.requests} at once {all_of.tps:,.0f} t/s{between}, {all_of.each:,.1f} each"


def interval_words(basis: str) -> str:
    """Return what the intervals of a speed are, and what they rest on."""
    return f"80 % intervals, {_UNCALIBRATED if basis == FORMULA else basis}"


def basis_words(basis: str) -> str:
    """Return what figures of memory rest on (`DeviceMemory.basis`): `measured` would read as if this run had been."""
    return "rules confirmed by recorded runs" if basis == "measured" else basis


# By the last part of the path: the name, the unit of the value, and an example that states another; {card} is the GPU's
# name, {half} half of the value ({s} its plural), {ram} a usual other speed of such RAM, {size} another memory that the
# card is sold with.
_NAMES = {
    "total_gb": ("RAM", " GB", "128GB"),
    "free_gb": ("RAM in WSL", " GB", ""),
    "mts": ("RAM speed", " MT/s", "{ram}"),
    "channels": ("RAM channels", "", "{half} channel{s}"),
    "cpu": ("CPU", "", "Ryzen 9 7950X"),
    "ghz": ("CPU clock", " GHz", ""),
    "gpus": ("GPUs", "", "2x RTX 3090"),
    "free_gib": ("free VRAM of the {card}", " GiB", "{card} {size}GB free"),
    "vram_gib": ("VRAM of the {card}", " GiB", "{card} {size}GB"),
    "pcie": ("PCIe link of the {card}", "", "{card} PCIe 3.0 x4"),
    "bandwidth_gbs": ("memory bandwidth of the {card}", " GB/s", ""),
    "display": ("display on the {card}", "", "headless"),
    "use": ("use of the {card}", "", "vulkan"),
    "fp16_tflops": ("FP16 throughput of the {card}", " TFLOPS", ""),
    "name": ("name of the {card}", "", ""),
    "context": ("context", " tokens", ""),
    "depth": ("depth", " tokens", ""),
    "engines": ("build of the engine", "", ""),
}


def fact_of(one: Assumption, gpus: Sequence[Gpu]) -> Fact:
    """Return an assumption with its name and unit in words; `gpus`: the request's, empty if unknown."""
    last = one.field.rpartition(".")[2]
    name, unit, say = _NAMES.get(last, (last.replace("_", " "), "", ""))
    number = re.search(r"gpus\[(\d+)\]", one.field)
    index = int(number[1]) if number else 0
    card = short_name(gpus[index].name) if index < len(gpus) else f"GPU {index + 1}" if index else "GPU"
    if last == "gpus" and one.value != "none":  # that of the processor
        say = "no GPU"
    if "{card}" in say and index >= len(gpus):
        say = ""  # an example has a real name
    shared = next((row for row in gpu_rows(card) if row.unified), None) if last == "vram_gib" else None
    if shared is not None:  # where a size behind the name is the machine's; of a Mac it cannot be said
        say = "" if shared.backend == "metal" else "{card} [{half} GiB]"
    number_alone = re.fullmatch(r"[\d.,]+", one.value) is not None
    value = f"{one.value}{unit}" if number_alone else one.value
    if "{half}" in say and not number_alone:
        say = ""
    stated = float(one.value.replace(",", "")) if number_alone else 0.0
    sizes = sorted({row.vram_gib for row in gpu_rows(card) if row.vram_gib} - {stated}, reverse=True)
    if "{size}" in say and not sizes:
        say = ""
    kind, rate, other = next(row[1:] for row in _RAM if stated >= row[0])
    half, ram = f"{stated / 2 if stated > 1 else 2:.0f}", f"{kind}-{other if stated == rate else rate}"
    say = say.format(card=card, half=half, s="" if half == "1" else "s", ram=ram, size=f"{sizes[0]:g}" if sizes else "")
    return Fact(name=name.format(card=card), value=value, why=one.why, changes=one.matters, say=say)


def fact_words(fact: Fact) -> str:
    """Return one line about an assumption."""
    say = f"; if not, write for example `{fact.say}`" if fact.say else ""
    return f"assumed: {fact.name} = {fact.value} ({fact.why}){say}; affects {fact.changes}"
