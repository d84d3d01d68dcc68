"""What a CPU that the catalogue lacks is likely to be, by its maker's numbering: generation, cores, memory.

The schemes are those of Intel's and AMD's pages on processor numbers. A CPU gets the cores of the usual model of its
tier unless `cpu_cores.json` says otherwise, and the memory and PCIe of its platform (Intel ARK, AMD's product
specifications). What is taken this way is listed among the assumptions and widens the intervals.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from service.engine.catalogue.names import cpu_key
from service.engine.catalogue.rows import CpuRow, exact_cores

_Match = re.Match[str]

# Intel Core by generation: (generation, ISA, MT/s, PCIe, cores of i3, i5, i7, i9); from the 12th on performance cores.
_CORE = {
    2: ("sandy bridge", "avx", 1333, 2.0, (2, 4, 4, 4)),
    3: ("ivy bridge", "avx", 1600, 3.0, (2, 4, 4, 4)),
    4: ("haswell", "avx2", 1600, 3.0, (2, 4, 4, 4)),
    5: ("broadwell", "avx2", 1600, 3.0, (2, 4, 4, 4)),
    6: ("skylake", "avx2", 2133, 3.0, (2, 4, 4, 4)),
    7: ("skylake", "avx2", 2400, 3.0, (2, 4, 4, 4)),
    8: ("skylake", "avx2", 2666, 3.0, (4, 6, 6, 6)),
    9: ("skylake", "avx2", 2666, 3.0, (4, 6, 8, 8)),
    10: ("skylake", "avx2", 2933, 3.0, (4, 6, 8, 10)),
    11: ("rocket lake", "vnni", 3200, 4.0, (4, 6, 8, 8)),
    12: ("alder lake", "avx2", 4800, 5.0, (4, 6, 8, 8)),
    13: ("raptor lake", "avx2", 5600, 5.0, (4, 6, 8, 8)),
    14: ("raptor lake", "avx2", 5600, 5.0, (4, 6, 8, 8)),
}
# i7 of X79 and X99 boards, four channels and a generation older than their number: i7-3930K to i7-6950X.
_EXTREME_MTS = {3: 1600, 4: 1866, 5: 2133, 6: 2400}
_EXTREME_CORES = {"3820": 4, "4820": 4, "5960": 8}
# Those of whose cores a name tells the performance cores, and that have two threads on them: a stated count may be of
# all cores or of the threads. Without (Arrow Lake) it is of the cores.
_HYBRID = ("alder lake", "raptor lake", "meteor lake")
_TIERS = {"3": 0, "5": 1, "7": 2, "9": 3}
# Efficiency cores of the Core Ultra 200 for desktops and HX, by number (Intel ARK; with the 250K Plus and 270K Plus).
_EFFICIENT = {"225": 4, "235": 8, "245": 8, "250": 12, "255": 12, "265": 12, "270": 16, "275": 16, "285": 16}
_WITH_THEM = re.compile(r"\bultra ?[579] ?(2\d{2})(?:f|kf?|t|hx)?\b", re.I)
_IN_LAPTOPS = (4, 4, 6, 8)  # cores of an H of the 8th to 10th generation: i5-9300H, i7-9750H, i9-9880H
# Xeon Scalable by the second digit: (generation, channels, MT/s, PCIe, cores of 3xxx, 4xxx, 5xxx, 6xxx, 8xxx).
_SCALABLE = {
    "1": ("skylake", "avx512", 6, 2666, 3.0, (8, 10, 14, 20, 26)),
    "2": ("cascade lake", "vnni", 6, 2933, 3.0, (8, 10, 16, 20, 26)),
    "3": ("ice lake", "vnni", 8, 3200, 4.0, (8, 12, 16, 28, 36)),
    "4": ("sapphire rapids", "vnni", 8, 4800, 5.0, (8, 12, 16, 32, 48)),
    "5": ("emerald rapids", "vnni", 8, 5600, 5.0, (8, 12, 16, 32, 56)),
}
_XEON_E = {
    None: ("sandy bridge", "avx", 1600, 8),
    "1": ("sandy bridge", "avx", 1600, 8),
    "2": ("ivy bridge", "avx", 1866, 10),
    "3": ("haswell", "avx2", 2133, 12),
    "4": ("broadwell", "avx2", 2400, 14),
}
# EPYC by series and last digit: (generation, ISA, channels, MT/s, PCIe), and cores by the second digit.
_EPYC = {
    "71": ("zen", "avx2", 8, 2666, 3.0),
    "72": ("zen2", "avx2", 8, 3200, 4.0),
    "73": ("zen3", "avx2", 8, 3200, 4.0),
    "94": ("zen4", "vnni", 12, 4800, 5.0),
    "95": ("zen5", "vnni", 12, 6000, 5.0),
    "84": ("zen4", "vnni", 6, 4800, 5.0),
    "44": ("zen4", "vnni", 2, 5200, 5.0),
    "45": ("zen5", "vnni", 2, 5600, 5.0),
}
_EPYC_CORES = {
    "7": {"0": 8, "1": 16, "2": 16, "3": 16, "4": 24, "5": 32, "6": 48, "7": 64, "f": 16},
    "9": {"0": 8, "1": 16, "2": 24, "3": 32, "4": 48, "5": 64, "6": 96, "7": 128, "8": 160, "9": 192},
    "8": {"0": 8, "1": 16, "2": 24, "3": 32, "4": 48, "5": 64},
    "4": {"1": 4, "2": 6, "3": 8, "4": 12, "5": 16},
}
_LARGE_CLOUD_EPYC = 64  # 7B12, 7C13, 7H12, 7J13, 7K62, 7V12: those that clouds order
# Servers by the code name of their generation: the series of the tables above, and the second digit or the last one.
_CODE_NAMES = {
    "skylake": "1", "cascadelake": "2", "icelake": "3", "sapphirerapids": "4", "emeraldrapids": "5",
    "naples": "71", "rome": "72", "milan": "73", "genoa": "94", "bergamo": "94", "siena": "84", "turin": "95",
}  # fmt: skip
# What virtual machines tell of a CPU whose name they hide: family and models of CPUID, steppings from the first on
# (arch/x86/include/asm/intel-family.h and arch/x86/kernel/cpu/amd.c of Linux 6.18; AMD's PPRs).
_CPUID = {
    (6, 85, 5): "Xeon Cascade Lake", (6, 85, 0): "Xeon Skylake", (6, 106, 0): "Xeon Ice Lake",
    (6, 143, 0): "Xeon Sapphire Rapids", (6, 207, 0): "Xeon Emerald Rapids",
    (23, 1, 0): "EPYC Naples", (23, 49, 0): "EPYC Rome", (25, 1, 0): "EPYC Milan", (25, 17, 0): "EPYC Genoa",
    (25, 160, 0): "EPYC Bergamo", (26, 2, 0): "EPYC Turin", (26, 17, 0): "EPYC Turin",
}  # fmt: skip
_NO_MODEL = re.compile(
    r"(?:Intel)?(?:\(R\))? ?Xeon(?:\(R\))?(?: CPU| Processor)*(?: @ [\d.]+ ?GHz)?|AMD EPYC(?: Processor)?", re.I
)
# Ryzen and Threadripper by the first digit: (generation, ISA, MT/s, PCIe).
_ZEN = {
    "1": ("zen", "avx2", 2666, 3.0),
    "2": ("zen+", "avx2", 2933, 3.0),
    "3": ("zen2", "avx2", 3200, 4.0),
    "4": ("zen2", "avx2", 3200, 3.0),
    "5": ("zen3", "avx2", 3200, 4.0),
    "6": ("zen3", "avx2", 4800, 4.0),
    "7": ("zen4", "vnni", 5200, 5.0),
    "8": ("zen4", "vnni", 5200, 4.0),
    "9": ("zen5", "vnni", 5600, 5.0),
}
# Laptops' Ryzen of 2023 that are of an older generation, by their last two digits: the series that they were before.
_RENAMED = {"20": "4", "30": "5", "35": "6", "36": "6"}
_THREADRIPPER_CORES = {"20": 12, "40": 16, "45": 12, "50": 16, "55": 16, "60": 24, "65": 24, "70": 32, "75": 32}
_MOBILE = re.compile(r"^(?:h|hs|hk|hq|hx|hx3d|u|p|g\d|y|m|mq)$", re.I)


# A Core named by its number alone, and its tier by a digit: a mobile one of the 11th to 14th generation by the third,
# an unlocked one of the 2nd to 9th by the second, a desktop's from the 10th on by the third (Intel ARK).
_ULTRA = re.compile(r"(?:(1[23]|22)|(15|16|25|26)|(18|28))[58][hukv]x?f?")  # `155H`, and its tier
_NO_TIER = re.compile(
    r"1[1-4]([4-9])\d{2}(?:hx|hk|h|p)|[2-9]([3-9])\d{2}k[fs]?|[45](9)60x|1[0-4]([1345679])00(?:[ft]|k[fs]?)?|9([14])00f"
)
_GENERATION = re.compile(r"\b([4-9]|1[0-4])th gen\b.*\bi([3579])\b(?! ?\d)")  # `13th gen i9`
_UNLOCKED = {"1": "3", "3": "3", "4": "5", "5": "5", "6": "5", "7": "7", "8": "7", "9": "9"}
_TIER_OF = {"4": "5", "5": "5", "6": "7", "7": "7", "8": "7", "9": "9"}


def family_of(name: str) -> CpuRow | None:
    """Return a row called `name` that is made from the maker's numbering; None if the name tells nothing."""
    text = " ".join(name.lower().replace("(r)", " ").replace("(tm)", " ").replace("-", " ").split())
    if ultra := _ULTRA.fullmatch(text):
        text = f"ultra {5 if ultra[1] else 7 if ultra[2] else 9} {text}"
    elif bare := _NO_TIER.fullmatch(text):
        unlocked = bare[2] or bare[4] or bare[5]
        text = f"i{_TIER_OF[bare[1]] if bare[1] else _UNLOCKED.get(unlocked or '', '7')} {text}"
    elif named := _GENERATION.search(text):
        text = f"i{named[2]} {named[1]}{named[2]}00"
    for pattern, row in _FAMILIES:
        if (m := pattern.search(text)) is not None and (found := row(name, m)) is not None:
            cores = exact_cores().get(cpu_key(name), found.cores)
            fast = cores if found.generation in _HYBRID else None
            return msgspec.structs.replace(found, cores=cores, performance_cores=fast)
    return None


def efficiency_cores(name: str) -> int:
    """Return the efficiency cores that the number of a Core Ultra tells, 0 if it tells none."""
    found = _WITH_THEM.search(name)
    return _EFFICIENT.get(found[1], 0) if found else 0


def unmasked(name: str, family: int | None, model: int | None, stepping: int | None) -> str:
    """Return a server CPU's name with its generation, if a virtual machine hides the model, else `name`.

    `family`, `model` and `stepping` are those of CPUID.
    """
    if family is None or model is None or not _NO_MODEL.fullmatch(name.strip()):
        return name
    for (of_family, of_model, least), found in _CPUID.items():
        if (of_family, of_model) == (family, model) and (stepping or 0) >= least:
            return found
    return name


def _row(
    name: str, generation: str, isa: str, cores: int, channels: int, mts: int, pcie: float, sockets: int
) -> CpuRow:
    return CpuRow(
        name=name.strip(),
        cores=cores,
        sockets=sockets,
        isa=isa,
        channels=channels,
        mts=mts,
        pcie=pcie,
        generation=generation,
        source="the maker's numbering",
    )


def _core(name: str, m: _Match) -> CpuRow | None:
    """Return the row of a Core such as `i5 8400` or `i7 13700h`; None for a generation that is not known.

    Numbers of four digits that begin with 10 to 14, such as `i7 1165g7`, are mobile parts of that generation.
    """
    digits, suffix = m[2], m[3]
    short = len(digits) == 4 and "10" <= digits[:2] <= "14"
    generation = int(digits[:2]) if len(digits) == 5 or short else int(digits[0])
    if generation not in _CORE:
        return None
    if generation in _EXTREME_MTS and digits[1] in "89" and suffix in ("", "k", "x"):
        family, isa, *_ = _CORE[generation - 1]
        return _row(name, family, isa, _EXTREME_CORES.get(digits, 6), 4, _EXTREME_MTS[generation], 3.0, 1)
    family, isa, mts, pcie, tiers = _CORE[generation]
    cores = tiers[_TIERS[m[1]]]
    if short or suffix.startswith(("u", "y", "g", "p")):
        cores = min(cores, 4)
    elif _MOBILE.match(suffix) and generation >= 12 and not suffix.startswith("hx"):
        cores = min(cores, 6)
    elif generation in (8, 9, 10) and suffix.startswith("h"):
        cores = min(cores, _IN_LAPTOPS[_TIERS[m[1]]])
    return _row(name, family, isa, cores, 2, mts, pcie, 1)


def _core_ultra(name: str, m: _Match) -> CpuRow:
    """Return the row of a Core Ultra (`ultra 7 155h`, `ultra 9 285k`); tier and suffix tell its performance cores."""
    family = {"1": "meteor lake", "2": "arrow lake"}.get(m[2], "panther lake")
    cores = {"5": 4, "7": 6, "9": 6}[m[1]]
    if m[3].startswith(("u", "v")):
        cores = 4 if m[3].startswith("v") else 2
    elif m[2] == "2" and m[3] in ("", "f", "k", "kf", "t", "hx"):
        cores = {"5": 6, "7": 8, "9": 8}[m[1]]
    return _row(name, family, "avx2", cores, 2, 5600, 5.0, 1)


def _small(name: str, m: _Match) -> CpuRow:
    cores = 8 if m[1] in ("300", "305", "355") else 4
    row = _row(name, "alder lake n", "avx2", cores, 1, 4800, 3.0, 1)
    return msgspec.structs.replace(row, all_core_ghz=2.9)  # N100; its 6 W and the 35 W of an N355 give less and more


def _xeon_e(name: str, m: _Match) -> CpuRow:
    family, isa, mts, cores = _XEON_E[m[2]]
    channels = 2 if m[1] == "3" else 4
    return _row(name, family, isa, 4 if m[1] == "3" else cores, channels, mts, 3.0, 1 if m[1] == "3" else 2)


def _xeon_old(name: str, m: _Match) -> CpuRow:
    """Return the row of a Xeon of 2007 to 2010, without AVX: `x5460`, `x5570`, `x5675`."""
    family, cores, channels, mts = {"4": ("core 2", 4, 4, 667), "5": ("nehalem", 4, 3, 1333)}.get(
        m[1], ("westmere", 6, 3, 1333)
    )
    return _row(name, family, "sse", cores, channels, mts, 2.0, 2)


def _fx(name: str, m: _Match) -> CpuRow:
    """Return the row of an FX such as `fx 8350`, whose first digit tells the cores."""
    family = "bulldozer" if m[2] == "1" else "piledriver"
    return _row(name, family, "avx", {"4": 4, "6": 6}.get(m[1], 8), 2, 1866, 2.0, 1)


def _xeon_desktop(name: str, m: _Match) -> CpuRow:
    """Return the row of a Xeon on a desktop's platform: `e 2288g`, `w 1290p`, of its Core's generation."""
    generation = {"e1": 8, "e2": 9, "e3": 11, "e4": 13, "w2": 10, "w3": 11}[m[1] + m[2]]
    family, isa, mts, pcie, tiers = _CORE[generation]
    return _row(name, family, isa, tiers[2], 2, 4800 if generation > 12 else mts, pcie, 1)


def _xeon_w_new(name: str, m: _Match) -> CpuRow:
    """Return the row of a Xeon W such as `w5 2465x` or `w9 3495x`, whose first digit tells the channels."""
    cores = {"3": 8, "5": 12, "7": 20, "9": 36}[m[1]]
    return _row(name, "sapphire rapids", "vnni", cores, 8 if m[2] == "3" else 4, 4800, 5.0, 1)


def _xeon_w_old(name: str, m: _Match) -> CpuRow:
    """Return the row of an older Xeon W: `w 2145` and `w 2245` have four channels, `w 3245` six, `w 3345` eight."""
    family, isa, _, mts, pcie, _ = _SCALABLE.get(m[2], _SCALABLE["1"])
    channels = 4 if m[1] == "2" else 8 if m[2] == "3" else 6
    return _row(name, family, isa, 12, channels, mts, pcie, 1)


def _scalable(name: str, m: _Match) -> CpuRow | None:
    if m[2] not in _SCALABLE:
        return None
    family, isa, channels, mts, pcie, cores = _SCALABLE[m[2]]
    return _row(
        name, family, isa, cores[{"3": 0, "4": 1, "5": 2, "6": 3, "8": 4, "9": 4}[m[1]]], channels, mts, pcie, 2
    )


def _epyc(name: str, m: _Match) -> CpuRow | None:
    platform = _EPYC.get(m[1] + m[4])
    if platform is None:
        return None
    family, isa, channels, mts, pcie = platform
    cores = _EPYC_CORES[m[1]].get(m[2], _LARGE_CLOUD_EPYC)
    return _row(name, family, isa, cores, channels, mts, pcie, 1 if m[1] == "4" or (m[5] or "").startswith("p") else 2)


def _server(name: str, m: _Match) -> CpuRow:
    """Return a row of usual size for a server of which only the generation is known, such as `epyc milan`."""
    series = _CODE_NAMES[m[1].replace(" ", "")]
    if len(series) == 2:
        family, isa, channels, mts, pcie = _EPYC[series]
        return _row(name, family, isa, 32, channels, mts, pcie, 2)
    family, isa, channels, mts, pcie, cores = _SCALABLE[series]
    return _row(name, family, isa, cores[3], channels, mts, pcie, 2)


def _threadripper(name: str, m: _Match) -> CpuRow | None:
    if m[1] not in _ZEN:
        return None
    family, isa, mts, pcie = _ZEN[m[1]]
    channels = 8 if m[3] == "wx" and m[1] not in "12" else 4
    return _row(name, family, isa, _THREADRIPPER_CORES.get(m[2], 64), channels, mts, pcie, 1)


def _ryzen(name: str, m: _Match) -> CpuRow | None:
    first, tier, last, suffix = m[1], m[2], m[3], m[4]
    if first not in _ZEN:
        return None
    renamed = _RENAMED.get(last, first) if first == "7" and suffix in ("h", "hs", "u") else first
    family, isa, mts, pcie = _ZEN[renamed]
    if first in "23" and suffix.startswith(("g", "u", "h")):  # APUs of the generation before
        family, isa, mts, pcie = _ZEN[str(int(first) - 1)]
    cores = (16 if last in ("50", "55") else 12) if tier == "9" else 8 if tier in "78" else 6 if tier in "456" else 4
    if suffix in ("h", "hs", "u") or (suffix == "hx" and first in "456"):
        cores = min(cores, 8)
    return _row(name, family, isa, cores, 2, mts, pcie, 1)


def _usual(
    generation: str, isa: str, cores: int | Callable[[_Match], int], channels: int = 2, mts: int = 5600,
    sockets: int = 1,
) -> Callable[[str, _Match], CpuRow]:  # fmt: skip
    """Return what makes rows of a family with PCIe 4.0 that differ in nothing but their cores, if in those."""

    def row(name: str, m: _Match) -> CpuRow:
        return _row(name, generation, isa, cores if isinstance(cores, int) else cores(m), channels, mts, 4.0, sockets)

    return row


def _altra(name: str, m: _Match) -> CpuRow:
    """`Altra Q80-30`: 80 cores, which all run at 3.0 GHz (Ampere's product brief)."""
    row = _row(name, "neoverse n1", "neon", int(m[1] or m[3] or 80), 8, 3200, 4.0, 2)
    clock = m[2] or m[4]
    return msgspec.structs.replace(row, all_core_ghz=int(clock) / 10) if clock else row


_FAMILIES: tuple[tuple[re.Pattern[str], Callable[[str, _Match], CpuRow | None]], ...] = (
    (re.compile(r"\bi([3579]) ?(\d{4,5})([a-z]{0,2}\d?)\b"), _core),
    (re.compile(r"\bultra ?([579]) ?([123])\d{2}([a-z]{0,2})\b"), _core_ultra),
    (re.compile(r"\bn(95|97|100|150|200|250|300|305|355)\b"), _small),
    (re.compile(r"\be([357]) ?\d{4}[a-z]{0,2}(?: ?v([1-4]))?\b"), _xeon_e),
    (re.compile(r"\b[elwx]5([456])\d{2}\b"), _xeon_old),
    (re.compile(r"\bfx ?([4689])([1-9])\d{2}e?\b"), _fx),
    (re.compile(r"^(?:intel )?(?:xeon )?()[12]6\d{2}[a-z]? ?v([1-4])$"), _xeon_e),
    (re.compile(r"\b(?:xeon )?(e) 2([1-4])\d{2}[a-z]{0,2}\b"), _xeon_desktop),
    (re.compile(r"\b(?:xeon )?(w) 1([23])\d{2}[a-z]{0,2}\b"), _xeon_desktop),
    (re.compile(r"\bw([3579]) ([23])\d{3}[a-z]{0,2}\b"), _xeon_w_new),
    (re.compile(r"\bw ([23])([1-3])\d{2}[a-z]{0,2}\b"), _xeon_w_old),
    (re.compile(r"\b(?:xeon|(?<!pentium )gold|silver|platinum|bronze)\b.*?\b([345689])([1-5])\d{2}[a-z+]{0,2}(?!\w)"),
     _scalable),
    (re.compile(r"(?:\bepyc ?|^)(?=[789]\w{3}|4\d{3}p)([4789])([0-9bcdfhjkrtv])(\d)([1-5])(p|f|x|px)?(?!\w)"), _epyc),
    (re.compile(r"\bxeon\b.*?\b((?:sky|cascade ?|ice ?)lake|(?:sapphire|emerald) ?rapids)\b"), _server),
    (re.compile(r"\bepyc\b.*?\b(naples|rome|milan|genoa|bergamo|siena|turin)\b"), _server),
    (re.compile(r"\b(?:threadripper|tr)(?: pro)? ?([1-9])9(\d{2})(wx|x)?(?!\w)"), _threadripper),
    (re.compile(r"^([1-9])9(\d{2})(wx)$"), _threadripper),
    (re.compile(r"\bryzen ai ?(?:max\+? )?([579])\b|\bryzen ([579]) ai\b"),
     _usual("zen5", "vnni", lambda m: {"5": 6, "7": 8, "9": 12}[m[1] or m[2]])),
    (re.compile(r"\bryzen ([3579]) (?:pro )?2[1-7][05]\b"),  # laptops' of 2025 with three digits: `ryzen 7 255`
     _usual("zen4", "vnni", lambda m: {"3": 4, "5": 6, "7": 8, "9": 8}[m[1]])),
    (re.compile(r"\bcore ([579]) [12]\d0([hu])\b"),  # laptops' without an i: `core 7 240h`, `core 5 120u`
     _usual("raptor lake", "avx2", lambda m: 2 if m[2] == "u" else 4 if m[1] == "5" else 6)),
    (re.compile(r"\bryzen ?[3579]? ?(?:pro )?([1-9])([1-9])(\d{2})(x3d|xt|x|ge|gt|g|hx3d|hx|hs|h|u|f|)(?!\w)"), _ryzen),
    (re.compile(r"^([1-9])([1-9])(\d{2})(x3d|x|ge|g|hx3d|hx|hs|u)$"), _ryzen),
    (re.compile(r"^(?!8\d00)([4-8])([1-9])(00|[34]5)(h)$"), _ryzen),  # `8745H`; Intel's are `8300H` and `8750H`
    (re.compile(r"\bsnapdragon x"), _usual("oryon", "neon", 12, 2, 8448, 1)),
    (re.compile(r"\baltra(?: max)?(?: processor)?(?: [qm](\d{2,3}) (\d\d))?|\b[qm](\d{2,3}) (22|26|28|30|33)\b"),
     _altra),
    (re.compile(r"\bneoverse n1\b"), _usual("neoverse n1", "neon", 64, 8, 3200, 2)),  # Altra and Graviton2
    (re.compile(r"\bgraviton ?[234]?|\bneoverse [nv][12]\b"), _usual("neoverse", "neon", 64, 8, 4800, 1)),
    (re.compile(r"\bgrace\b"), _usual("grace", "neon", 72, 8, 8533, 2)),
    (re.compile(r"\bkunpeng"), _usual("kunpeng", "neon", 64, 8, 2933, 2)),
)  # fmt: skip
