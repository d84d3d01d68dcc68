"""Sets aside what a text says besides hardware: shell prompts, table frames, labelled lines; asks about minus signs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.hardware_text.found import unreadable
from service.engine.hardware_text.mentions import mentions_of
from service.engine.hardware_text.spelling import plain

# What root runs behind a bare `#`, which else begins a heading or a comment, as `>` begins a quotation.
_TOOLS = (
    r"(?:nvidia-smi|ls\w+|free|cat|rocm\S+|amd-smi|dmidecode|numactl|inxi|\w+fetch|vulkaninfo|uname"
    r"|sysctl|llama\S+|\.?/\S)"
)
_NOISE_LINE = re.compile(
    r"^\s*(?:(?:Linux \S{1,60} \d+\.\d+\S{0,60}\s.{0,200}GNU/Linux"
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S{0,10} \[?[A-Z]{3,5}\]?"
    r"|(?:Device (?:name|ID)|Product ID|System type|Pen and touch)[\t :].{0,200})"
    r"|```\w{0,20}|~~~\w{0,20}|[-=+|_~#>*\s]*"
    rf"|(?:[$%]|#(?=\s(?:sudo\s)?{_TOOLS})|[\w.@:~/\\-]{{0,59}}[a-z~][$#]"
    rf"|[\w.~-]{{0,30}}[@:/\\][\w.@:~/\\-]{{0,30}}(?: [\w.~/-]{{1,30}} ?)?[%>]|PS [^>]{{0,80}}>)\s.{{0,200}})\s*$"
)
# Labels of lines from which no figure is taken, as in bug reports: `- **BIOS:** F13c (07/21/2026)`.
_LABELS = (
    r"(?:models?|build)(?!.{0,60}\b(?:[rg]tx|rx|radeon|geforce|tesla|instinct|arc|ryzen|epyc|xeon|threadripper|core)\b)|"
    r"kernel|bios|v?bios version|(?:mother|main)board(?:/system)?|mobo|mb|board|chipset|case|chassis|psu"
    r"|power(?:\s\w+)?|cooler|cooling|storage(?: \([a-z]:\))?|disks?(?:\s\w+)?|(?:\w+\s)?drives?|ssd|hdd|nvme|swap"
    r"|framework|(?:inference/)?container(?: ram)?|engine|runtime(?:/engine)?|build flags"
    r"|(?:gpu |nvidia )?driver|os (?:architecture|type)|graphics platform|windowing system|hardware model"
    r"|network|hostname|torch|bfloat16|hardware lane|flags"
    r"|gpu (?:vendor|family|clock frequency|flops|ips|system level cache)"
    r"|pcie layout(?:/link width)?|cpu topology|numa nodes?"
    r"|nproc|memory channels|thp \w+(?: \(\w+\))?"
    r"|ecc mode|max clock speed(?: \(mhz\))?|[\w ./]{1,30} version|nvlink(?=.*gpu\s?\d)"
    r"|硬盘|磁盘|主板|电源|机箱|散热|festplatten?|netzteil|gehäuse|carte mère|disque dur|alimentation"
    r"|gpu models and configuration(?=\s?:\s*$)|vram free|torch vram \w+|basic information"
    r"|<?[\w~/.-]{0,40}>?(?:/huggingface|/docker|_dir>|models-cache)"
)
_LABELLED = re.compile(rf"^[\s>|│*•-]*(?:{_LABELS})\s{{0,30}}(?:\*\*)?\s?[:|：=](?:\*\*)?.{{0,900}}$", re.I)
# Any other label, of a line without a part behind it: `DMI Product Name: 83F5`, `Uptime: 3 days`.
_ANY_LABEL = re.compile(
    r"^[\s>|*•-]*([^\W\d][^:|：=]{0,40}?)\s{0,30}(?:\*\*)?\s?[:|：](?:\*\*)?\s*(?=.{0,300}\d)(\S.{0,900})$"
)
_OF_PARTS = re.compile(
    r"[gc]pu|card|graphi|grafi|gráf|video|vídeo|ram\b|mem|speicher|mém|mem[óo]ria|pro[cz]es|\bcore|thread|socket|count|quant"
    r"|\bqty|\bnum|anzahl|speed|channel|modul|dimm|stick|slot|\bnode|type|size|total|each|pci|link|lane|display|chip"
    r"|device|machine|system|setup|rig\b|\bpc\b|laptop|server|hardware|spec|config|cuda|rocm|显|内存|处理|卡|видео|проц|памят"
    r"|メモリ|메모리",
    re.I,
)
_SEVERAL = re.compile(r"[x*]?\s?\d{1,4}\s?[x*]?")  # also `Оперативка: 128`
_NO_PARTS = frozenset(("word", "aside", "doubt", "plan", "some"))
_HEADING = re.compile(r"^#{1,4}\s(?!v?ram\s*:?\s*$)[^:]{0,60}:?$", re.I)
# A heading is a title, unless it alone names a card: `# Benchmark Nvidia RTX 4090`.
_CARD = re.compile(r"\b(?:[rg]tx|rx|radeon|geforce|quadro|tesla|instinct|arc)\b.{0,20}\d{2}", re.I)
_CARDS = re.compile(r"\bgpus?\b|\bgraphics\b|\b(?:\d{1,2}\s?x\s?)?[1-9]0[5-9]0\b", re.I)
_SYSTEM = re.compile(
    r"^[\s>|*•-]*(?:os(?: / \w+)?|operating system)\s{0,30}(?:\*\*)?\s?[:|：](?:\*\*)?\s*"
    r"(?!.*(?:\bwin(?:dows)?|wsl|mac)).{0,200}$",
    re.I,
)
# A label that is half of the name: `Windows version: 11 23H2`.
_WINDOWS = re.compile(r"^([\s>|*•-]*)windows version\s?[:=]\s?(?:windows\s)?(?=1[01]\b)", re.I)
# Where a line goes on with parts behind what its first label is about: `Motherboard: X570, CPU: 5950X, GPU: 3090`.
_NEXT_LABEL = re.compile(r"[,;|]\s*(?=(?:cpu|gpu|graphics|processor|v?ram|memory)s?\s?[:=])", re.I)
_NEXT_PART = re.compile(
    r"[,;|]\s*(?=(?:\d{1,2}\s?[x×*]\s?)?(?:(?:nvidia|amd|intel|geforce|radeon)\s)*"
    r"(?:[rg]tx|rx|ryzen|epyc|xeon|threadripper|core|i[3579]|[345]0[5-9]0|\d{1,4}\s?gb?\s(?:ddr\d|ram))\b)",
    re.I,
)
_MOST_WORDS = 100
_BULLET = re.compile(r"^\s*[-−](?=\S)")
_NEGATIVE = re.compile(
    r"(?:^|[,;\n])\s*(?:\d{1,2}\s?[x*]\s?)?[-−](?=\d)"
    r"|(?:(?<=[\s@])|(?<=\s\dx))[-−](?=\d{1,6}(?:\.\d{1,3})?\s?(?:[gmt]i?b\b|[gt]\b|mt/s|mhz|cores?\b|ghz|[x*]\s?\w))",
    re.I,
)


def without_asides(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines that may be about hardware, and those whose label says they are about something else."""
    kept, asides = [], []
    is_list = sum(re.match(r"\s*[-−]", line) is not None for line in lines) > 1
    is_line = sum(bool(line.strip()) for line in lines) == 1
    of_cards = [line for line in lines if _CARD.search(line) or _CARDS.search(line)]
    for line in (_WINDOWS.sub(r"\1Windows ", line) for line in lines):
        if _NOISE_LINE.match(line):
            continue
        is_title = _HEADING.match(line) is not None and not (of_cards == [line] and _CARD.search(line))
        if is_title or _LABELLED.match(line) or _SYSTEM.match(line) or _has_no_part(line):
            rest = _NEXT_LABEL.search(line) or (_NEXT_PART.search(line) if is_line else None)
            asides.append(line[: rest.start() if rest else None].strip(" \t-*•#>|"))
            kept += [line[rest.end() :]] if rest else []
        else:
            kept.append(_BULLET.sub("- ", line) if is_list else line)
    return kept, [aside for aside in asides if aside]


def _has_no_part(line: str) -> bool:
    """Return whether a line has a label that is not a part's, and a value with a number but no part."""
    found = _ANY_LABEL.match(line)
    if found is None or _OF_PARTS.search(found[1]) or _CARD.search(found[1]) or _SEVERAL.fullmatch(found[2]):
        return False
    return all(m.kind in _NO_PARTS for m in mentions_of(plain(found[2]), _MOST_WORDS))


def ask_about_negative(text: str) -> None:
    """Raise InvalidHardware for a count or size with a minus sign."""
    unquoted = re.sub(r'"[^"\n]*"|\[[^\]\n]*\]', "", text)
    if negative := _NEGATIVE.search(unquoted):
        start = max(unquoted.rfind(c, 0, negative.end()) for c in ",;\n") + 1
        piece = re.split(r"[,;\n]", unquoted[start:])[0].strip()
        raise unreadable(piece, "a count or a size cannot be negative: leave out the minus sign")
