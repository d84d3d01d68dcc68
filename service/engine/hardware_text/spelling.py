"""Normalised spelling of a text about hardware: foreign signs, glued words and Markdown, before anything is read."""

from __future__ import annotations

import re
import unicodedata

from service.engine.catalogue.names import spaced
from service.engine.hardware_text import lexicon as lex

_I = re.IGNORECASE
_RATE = lex.RATE.pattern
_NO_UNIT = r"(?!\s?(?:m(?:hz|t)|[gmt]i?b)|\s?\w*3d)"
_IGPU = r"(?:the\s|an?\s|its\s)?(?:i-?gpu|(?:integrated|onboard|cpu|intel)\s(?:graphics|gpu))\b"
_SCREEN = r"(?:displays?|monitors?|desktop|screens?)\b"
_WIDTHS = re.compile(r"\b(?:16|[1248])x(?:\s?/\s?(?:16|[1248])x)+(?!\w)", _I)  # of slots: `8x/8x/4x`
_WIDTHS_BEHIND = re.compile(r"\b(pci-?e\s[1-6](?:\.0)?)\s\((x\d{1,2}(?:/x\d{1,2})*)\)", _I)  # `PCIe 3 (x16, x16, x8)`
# Where writing without spaces meets names and figures: `我用4张`, `只有128G`.
_OTHER_SCRIPT = r"[\u0400-\u04ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
_STRIX_HALO = r"(?:strix\s?halo\s(?:amd\s)?ryzen|strix\s?halo|ryzen)\s(?:ai\s)?(?:max\s?\+?\s)?395\b\+?(?:\smax\b\+?)?"
# `eight cores` is how many there are; `dual core`, `quad core` a kind, which is left as a note.
_KINDS_OF_CORES = ("a", "an", "one", "single", "dual", "double", "twin", "triple", "quad")
_SOME = "|".join(n for n in lex.NUMBERS if n not in _KINDS_OF_CORES)
_SIGNS = {
    "没有独立显卡": ", no discrete GPU, ", "无独立显卡": ", no discrete GPU, ", "没有独显": ", no discrete GPU, ",
    "无独显": ", no discrete GPU, ", "没有显卡": ", no discrete GPU, ", "无显卡": ", no discrete GPU, ",
    "单通道": " single channel ", "双通道": " dual channel ", "四通道": " quad channel ", "八通道": " 8 channels ",
    "✖️": "x", "✖": "x", "×": "x", "，": ", ", "、": ", ", "；": "; ", "（": " (", "）": ") ", "。": ". ",
    "双路": " dual ", "双插槽": " dual ", "单路": " single ", "双卡": " dual ", "单卡": " single ",
    "通道": " channels ", "双": " dual ", "内存": " RAM ", "显存": " VRAM ", "物理": " physical ", "虚拟": " virtual ",
    "的": " of ",
    "笔记本": " laptop ", "ノートPC": " laptop ", "노트북": " laptop ", "ноутбук": "laptop", "기가": "GB ",
    "显卡": " GPU: ", "核显": " iGPU ", "集显": " iGPU ", "计算单元": " compute units ", "硬盘": " HDD ",
    "核": " cores ", "线程": " threads ", "ядер": " cores ", "ядра": " cores ",
    "потоков": " threads ", "потока": " threads ", "枚挿し": "x, ", "枚の": "x ", "枚": "x ", "장": "x ",
    "개의": "x ", "张": " ", "块": " ", "个": " ", "条": " ", "根": " ", "張": " ", "塊": " ", "條": " ", "顆": " ",
    "颗": " ",
    "라이젠": " Ryzen ", "至强": " Xeon ", "铂金": " Platinum ", "金牌": " Gold ", "银牌": " Silver ",
    "加": " + ", "英伟达": " NVIDIA ",
    "メモリ": " RAM ", "메모리": " RAM ", "램": " RAM ", "ОЗУ": " RAM ", "ГБ": "GB", "Гб": "GB", "гб": "GB",
    "英特尔": " Intel ", "处理器": " CPU ", "魔改": " modded ", "\\~": "~", "\\*": "*", "\\-": " ", "\\+": "+",
}  # fmt: skip
# `15,9 GB`, of a Windows that is not English
_DECIMAL_COMMA = re.compile(r"(?<![\w.])(\d{1,3}),(\d|00)(?=\s?(?:g(?:i?b|o)|ghz)\b)", _I)
# `16 x DDR5-4800`, `12x DDR4 32GB 2933`: modules, with the size of one behind their kind.
# `6x32G+6x64G`
_SUM_OF_MODULES = re.compile(
    r"(?<![\w.+])(\d{1,2})\s?[x×*]\s?(\d{1,3})\s?gb?\s?\+\s?(\d{1,2})\s?[x×*]\s?(\d{1,3})\s?gb?\b(?![^\S\n]?\w)", _I
)
_KIND_OF_MODULES = re.compile(
    r"(?<![\w.])(\d{1,2})\s?[x×*]\s?((?:lp)?ddr\d[xl]?(?:[\s-]?\d{4}(?!\d))?)"
    r"(?:\s(4|8|16|24|32|48|64|96|128)\s?gi?b?\b)?",
    _I,
)
# Numbers before a measure word, which says that something is counted: `两张`, `四块`.
_COUNTED = re.compile(r"([一两兩二三四五六七八十])(?=[张張块塊条條颗顆路卡])")
_COUNTED_BEHIND = re.compile(
    r"(?<=[A-Za-z\d])\s?([一两兩二三四五六七八十]|(?<!\d)\d)\s?[张張颗顆块塊](?=\s*(?:[,，。；\n]|$))"
)
_NUMERALS = {"一": 1, "两": 2, "兩": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "十": 10}
_SCRIPTS = re.compile(rf"(?<={_OTHER_SCRIPT})(?=[A-Za-z\d])|(?<=[A-Za-z\d])(?={_OTHER_SCRIPT})")
_MARKUP = re.compile(r"\*\*|__|`{1,3}|(?:(?<=\n)|^)[ \t]*(?:[-*•#>|]+|\d[.)])[ \t]+|~(?=\d)")
_GLUED_COUNT = re.compile(r"\b([a-z]{0,3}\d{2,4}(?:ti|xtx?|s)?)[x*](\d{1,2})(?=$|[\s,;+)])", _I)
# Memory and disk of a Mac: `M4 Pro 24/512`.
_MAC_SHORT = re.compile(
    r"\b(m[1-5](?:\s?(?:pro|max|ultra))?)(?:\s|\s-\s)(\d{1,3})(?:\s?gb)?\s?[/-]\s?(256|512|1024|2048|[1248]\s?tb)(?:\s?gb)?\b",
    _I,
)
_BYTES = re.compile(r"\b(v?ram|memory)(\s(?:total|size))?\s?[:=]\s?(\d{9,13})\b", _I)  # `VRAM Total: 12884443136`
_MEBIBYTES = re.compile(r"\b(\d{4,7})\s?mi?b\b(?!/s)", _I)
_GLUED_SIZE = re.compile(r"\b((?:rtx|gtx|rx)?\s?\d{4}(?:ti|super|xtx|xt|d))(\d{1,2}g(?:i?b)?)(?=$|[\s,;+x*)])", _I)
# The settings of KDE (`Processors: 16 x AMD Ryzen 7 5800X`) and GNOME (`Processor AMD Ryzen 7 5800X x 16`) count
# threads, and name a card as the PCI list does: `NVIDIA Corporation GA102 [GeForce RTX 3090]`.
_LOGICAL = re.compile(
    r"^[ \t]*processors?\b:?[ \t]+(?!\d x .*(?:xeon|epyc)|.*(?:xeon|epyc).* x ?\d[ \t]*$)"
    r"(?:(\d{2,3}|[4-9]) ?x (\S.{3,80})|(\S.{3,80}) x ?(\d{2,3}|[4-9]))[ \t]*$",
    _I | re.M,
)
_PRODUCT = re.compile(r"\s\[((?:geforce|radeon|rtx|quadro|tesla|arc)\s[^]/;]{3,60})\]", _I)
# `RAM: 64`, `ram 16`
_GB_LEFT_OUT = re.compile(r"(?:(?<=[\sv]ram)|(?<=^ram))(\s?[:=]\s?\d{1,3}|\s\d{1,3})[ \t]*$", _I | re.M)
_CPU_COUNT = re.compile(r"^(?:v?cpus?|cpu\scount)\s?[:=]\s?(\d{1,3})\s*$", _I | re.M)  # `CPU: 8`, of rented machines
_CORES_IN_WORDS = re.compile(
    rf"\b({_SOME})"
    r"(?=[\s-](?:(?:physical|cpu)\s)?(?:cores?|v-?cpus?)\b)",
    _I,
)
_STICKS = re.compile(  # `two 16GB memory sticks`, `two sticks of 16GB`
    rf"\b({_SOME}|\d{{1,2}})\s(?:(\d{{1,3}})\s?gb\s(?:\w+\s)?(?:stick|dimm|module)s\b"
    r"|(?:stick|dimm|module)s\sof\s(\d{1,3})\s?gb\b)",
    _I,
)
# Channels with the size of the module in each, which are read as modules: `12ch x 64GB`, `12 channels of 64GB`,
# `8-channel, 32GB each`, `32GB per channel x 8`, `64GB x 12ch`. But `64GB, 2ch` and `512GB x 8ch` state the sum.
_CHANNELS = r"[\s-]?(?:channels?|ch)\b"
_MODULE = r"(4|8|16|24|32|48|64|96|128)\s?gi?b?\b"
_MODULES_BY_CHANNEL = tuple(
    (re.compile(pattern, _I), right)
    for pattern, right in (
        (rf"(?<![\w.])(\d{{1,2}}){_CHANNELS}(?:\s{{0,3}}[x*]\s?|\sof\s){_MODULE}", r"\1x\2GB"),
        (
            rf"(?<![\w.])(\d{{1,2}}){_CHANNELS},?\s(?:(?:with|at)\s)?{_MODULE}\s(?:each|(?:per|a|in\seach)\schannel)\b",
            r"\1x\2GB",
        ),
        (rf"(?<![\w.])(\d{{1,2}}){_CHANNELS}\s{_MODULE}(?=\s(?:[rl]?r?dimms|sticks|modules)\b)", r"\1x\2GB"),
        (rf"(?<![\w.]){_MODULE}\sper\schannel(?:,\s?|\s?[x*]\s?|\s)(\d{{1,2}})(?:{_CHANNELS}|\b)", r"\2x\1GB"),
        (rf"(?<![\w.]){_MODULE}\s[rl]?r?dimms?\s?[x*]\s?(\d{{1,2}})(?:{_CHANNELS}|\b)", r"\2x\1GB"),
        (
            r"(\d\s?gi?b?\s?|\b(?:lp)?ddr\d[xl]?(?:[\s-]?\d{4,5})?(?:\s?m(?:t/s|hz))?\s)[x*]\s?"
            rf"(\d{{1,2}}){_CHANNELS}",
            r"\1 x\2",
        ),
    )
)
_PER_CHANNEL = re.compile(rf"(?<![\w.]){_MODULE}\s(?:per|in\seach)\schannel\b", _I)
_N_CHANNELS = re.compile(rf"(?<![\w.])(\d{{1,2}}){_CHANNELS}", _I)
_RAM_OF_JSON = re.compile(r'"ram_gb"\s{0,4}:\s{0,4}(\d{1,5}(?:\.\d{1,3})?)(?![\d.])', _I)  # with words around it
_LAKES = (
    r"(?:(?:tiger|ice|rocket|comet|coffee|kaby|whisk(?:e)?y|alder|raptor|meteor)\s?lake|sky\s?lake|haswell|broadwell)"
)
_ENGINES_DEVICE = r"(?:cuda|rocm|device)\s?#?\d{1,2}"


_KIND_OF_CARD = r"(\d{1,2})\s?[x×]?\s?(ti|fe|founders(?:\sedition)?|evga|zotac|msi|asus|gigabyte|palit)"


def _of_two_kinds(m: re.Match[str]) -> str:
    """`4x 3090 (1 Ti + 3 FE, 96GB)` as `1x 3090 Ti, 3x 3090 FE, 96GB`, if they are as many."""
    cards, name, n, kind, others, other, rest = m.groups("")
    return f"{n}x {name} {kind}, {others}x {name} {other}, {rest}" if int(n) + int(others) == int(cards) else m[0]


# Spellings that are replaced before anything is read, in this order.
_RESPELLED = tuple(
    (re.compile(pattern, _I), right)
    for pattern, right in (
        (r"(?<=\d)\+(?=双路|单路)", " + "),
        (  # as Windows says of the memory installed: `(27,6 GB verwendbar)`, `(utilizável: 15,8 GB)`
            r"\((\d{1,4})[.,](\d{1,2})\s?(?:GB|Go|ГБ)\s?(?:verwendbar|utili[sz]ables?|utilizzabil[ei]|可用)\)",
            r"(\1.\2 GB usable)",
        ),
        (
            r"\((?:utilizáve(?:l|is)|dostępn[ea]|доступно)\s?:\s?(\d{1,4})[.,](\d{1,2})\s?(?:GB|ГБ)\)",
            r"(\1.\2 GB usable)",
        ),
        (  # `keine dedizierte Grafikkarte`, `without a graphics card`
            r"\b(?:no|without(?:\san?)?|ohne|keine?n?|sans|sin|senza|sem)\s"
            r"(?:(?:dedicated|discrete|separate|dedizierte?n?|separate|eigene?)\s)?"
            r"(?:(?:graphics|video)\scards?|grafikkarten?|graka|carte\s(?:graphique|vidéo)|tarjeta\s(?:gráfica|de\svídeo)"
            r"|scheda\s(?:grafica|video)|placa\sde\svídeo|(?<=dedicated\s)graphics|(?<=discrete\s)graphics)\b"
            r"|\b(?:ohne|keine)\sdedizierte\sgpus?\b",
            "no discrete GPU",
        ),
        (r"\b(?:ohne|keine?|sans|pas\sde|sin|senza|sem|geen|без)\s(?=gpus?\b)|(?:没有|无|無)\s?(?=gpu\b)", "no "),
        (rf"(\bi[3579])[\s-]{_LAKES}[\s,:–-]{{1,3}}(?=\d{{3,5}}\w{{0,3}}\b)", r"\1-"),  # `i5 Tiger Lake - 1135G7`
        (r"\btwo\s(?=numa\b)", "2 "),
        (r"\bnitro\+(?=\s)", "nitro"),  # of a card's name, no part behind it
        (  # `4x 3090 (1 Ti + 3 FE)`
            r"\b(\d{1,2})\s?[x×]\s?((?:nvidia\s|geforce\s|rtx\s?){0,3}\d{4})s?(?:\*\*)?\s?"
            rf"\({_KIND_OF_CARD}\s?(?:\+|,|&|and)\s?{_KIND_OF_CARD}(?:[,;]\s([^()\n]{{1,60}}))?\)",
            _of_two_kinds,
        ),
        (  # `CUDA2 and CUDA4 are the 5090s`
            rf"\b{_ENGINES_DEVICE}(?:(?:\s?,\s?|\s(?:and|&)\s){_ENGINES_DEVICE}){{1,15}}(?=\s(?:are|is)\b)",
            lambda m: "Devices " + ", ".join(re.findall(r"\d+", m[0])),
        ),
        (r"([,;.(\n]\s?)each\s(?:(?:card|gpu|one)\s)?(?:(?:is|runs|running)\s)?(?:on|at)\s(?=pci-?e)", r"\1every on "),
        (  # PCIe switches: `two per PLX PEX8747`, `PLX 8747`
            r"\b(?:(?:two|four|eight|[248])\s(?:(?:cards|gpus)\s)?(?:per|on\seach|behind\seach)\s)?"
            r"(plx|pex)[\s-]{0,2}(?:pex[\s-]?)?(8[67]\d\d|8[89]\d{3})\b",
            r"\1\2",
        ),
        (r"\[([^][\n]{1,100})\]\(https?://[^()\s]{1,500}\)", r"\1"),  # a link in Markdown
        (r"\b(?:rocm|hip|cuda|miopen)\s(?:used\sto\sbuild\spytorch|runtime\sversion)\s?:[^\n]*", ""),
        (r"(\d\s?gb)\s?\((dual|quad|single)\)", r"\1 \2 channel"),
        (  # `Available RAM: 51.55 GB`, `the remaining video memory is 10G`
            r"\b(?:available|free|remaining)\s(?:(?:system|total)\s)?(?:(v-?ram|video\smemory|gpu\smemory)|ram|memory)"
            r"(?:\s(?:is|size))?\s?[:=]?\s?(\d{1,6}(?:\.\d{1,4})?\s?(?:[gm]i?b|g))\b",
            lambda m: f"{m[2]} free {'VRAM' if m[1] else 'RAM'}",
        ),
        (r"\((\d{1,2})\sCPU,\s(\d\d)\sGPU\)", r"\1 CPU cores, \2 GPU cores,"),  # of a Mac's chip
        (r"\b(\d{4}(?:\s?ti)?)fe\b", r"\1 FE"),
        (r"\b((?:core\s)?(?:ultra\s|i|ryzen\s)[3579])\s\((\d{3,5}\w{0,3})\)", r"\1 \2"),  # `Ultra 7 (155H)`
        (r"\b16x\s?pci-?e(?:\s?([1-6](?:\.0)?)\b(?!\s?x)|(?!\s?\w))", r"PCIe \1 x16"),
        (r"\b(pci-?e\s[1-6](?:\.0)?)\s?,\s?(16|8|4|2|1)x(?!\w)", r"\1 x\2"),  # `PCIE 4.0,16x`
        (r"(?:^|(?<=\n))(\d{1,3})\sGB\s(?=\d{3,4}\.\d\sGB/s\s*(?:\n|$))", r"\1 GB VRAM, "),  # as vast.ai lists a card
        (  # `RTX 3090 PCIe 16x`; but `A100 PCIe 8x`, where PCIe is of the card's name, and `PCIe 4x RTX 3090`
            r"\b((?<![ahpv]\d00\s)(?<![ahpv]\d00\s\d\dgb\s)pci-?e|pci-?e\s?(?:gen\s?)?[1-6](?:\.0)?(?=\s))"
            r"\s?(16|8|4|1)x(?=\s?(?:$|[^\w\s/]|\n|(?:and|each|slots?|lanes?|bus|link|riser)\b))",
            r"\1 x\2",
        ),
        (r"(\d{1,2})\s?[根条條]\s?内存", r"\1 modules, "),
        (r"(?:核数|核心数?)\s?[:：]\s?(\d{1,3})(?:\s?核)?", r"\1 cores"),
        (r"(?<!\bmig)(?<=[a-z\d])[\s-]{1,2}(?=[1-7]g\.\d{1,3}gb\b)", " MIG "),  # `A100 3g.20gb`
        (r"\b([ahv]100|h200|l40s?|a[34]0)-(\d{2,3})g(?:-(?=pcie|sxm|nvl)|\b)", r"\1 \2GB "),  # `A100-80G-PCIe`
        (r"\b(\d{1,3})\s?ocpus?\b", r"\1 cores"),  # Oracle's, of two threads
        (r"\b(\d{1,3})\s?v-?cores?\b", r"\1 vCPU"),
        (r"\b(?:vm\.standard\.|(?:oracle|ampere|oci)\s(?:arm\s|ampere\s)?)a1(?:\.flex)?\b", "Ampere Altra"),
        (r"\bdual\s(?:cpu\s)?(?:mother|main)?board\b", "dual socket board"),
        (r"\b(\d{1,3})\s?(?:c|cores?)[\s,]{1,2}(\d{2,3})\s?t\b", r"\1 cores, \2 threads"),
        (r"(?<![\w-])x11(?:\sserver)?(?![\w.])", "Xorg"),  # of a display, no number of cards
        (r"(?<=\w)\s?双路(?=\s*(?:[,，;；。\n]|$|\d+\s?g))", " x2, "),
        (r"(?<=\d)(\s?)х(?=\s?\w)", r"\1x"),  # a Cyrillic letter: `2х 3090`
        (r"\[(cpu|gpu|v?ram|memory|os)s?\]", r", \1: "),
        (
            r"\b(ddr[345])[\s-]?\d{4}([^,;\n]{0,20}?)[\s(]+(?:(?:running|runs)\s)?(?:at|@)\s?(\d{4})(?:\s?m(?:t/s|hz))?(?!\d)",
            r"\1-\3\2",
        ),
        (r"(\d\s?gb\b[^,;\n]{0,20}?)[\s(]+(?:running|runs)\sat\s(\d{4})\b", r"\1 @ \2"),
        (
            r"(well|lovelace|ada|ampere|turing|pascal|hopper|volta|rdna\s?\d|x86(?:_64)?|cpu|gpu)\sarch\b",
            r"\1 architecture",
        ),
        (r"\b(\d{2,4})g\s?d([345])(?!\w(?<![\u4e00-\u9fff]))", r"\1GB DDR\2 "),
        (r"(?<![a-zœúu])(?:c(?:œ|oe)urs?|n[úu]cleos?|kernen?|rdzeni[ea]?)\b", "cores"),
        (r"(?<=\d)\s?(?-i:To)\b", "TB"),  # `4 To`, in French
        (r"\barc\s{0,2}-?(310|380|750|770)\b", r"Arc A\1"),
        (rf"\b{_STRIX_HALO}", "Ryzen AI Max+ 395"),
        (r"\b(\d{3,4})\s?([gr]tx)\b(?!\s?\d{3})", r"\2 \1"),  # `1070gtx`
        (r"\bgt(?=(?:10[1-3]0|[4-7][1-4]0)m?\b)", "GT "),  # `GT730`
        (r"(\binno3d\b[^,;\n]{0,40}?)\s(?:twin\s)?x[23]\b", r"\1"),  # names of its coolers
        (r"\s\[(?:integrated|discrete)\]", ""),  # as fastfetch marks GPUs
        (r"\b((?:ryzen|epyc|xeon|ultra|core|i[3579])[\s-][^,;()\n]{1,30})\s\(([468]|\d\d\d?)\)", r"\1, \2 threads"),
        (r"[\u2500-\u257f]+", " | "),  # frames of tables
        (r"\s?\(\d{1,2} \w+ and \d{1,2} (?:performance|efficiency)\)", ""),  # of Apple's cores
        (r"\b(i[3579])(?:\s-\s)?(?=\d{4,5}\w{0,2}\b)", r"\1-"),  # `i76700`, `i9 - 13980HX`
        (r"(?<=\d)(\s?[gt]i?b)(?=(?:lp)?d?dr\d|v?ram\b)", r"\1 "),  # `64GBDDR5`, `64gbram`
        (
            rf"\b(ram|memory)\s(?:(?:runs?|running|is|clocked|speed|xmp|expo|at|of|@|:|=)\s){{1,3}}{_RATE}\b{_NO_UNIT}",
            r"\1 \2MHz",
        ),  # `RAM runs at 3600`, which names a Ryzen as well
        (rf"(\d\s?gb\s)of\s{_RATE}(?=\s(?:ram|memory)\b)", r"\1\2MHz"),  # `64GB of 3200 RAM`
        (
            rf"(\d\s?gb(?:\sddr[345])?\s)(single|dual|triple|quad|hexa|octa)\s{_RATE}\b{_NO_UNIT}",
            r"\1\2 channel \3MHz",
        ),
        (r"(?<!xeon\s)(?<!platinum\s)(?<![\w-])(8[45]\d{2}c)(?![\w-])", r"Xeon \1"),
        (r"(\bryzen\s\d{4})\s(x3d|xt?|ge?)\b", r"\1\2"),
        (r"\b(ryzen\s[3579])\sh\s?(2\d[05])\b", r"\1 \2"),  # `Ryzen 7 H 255`, the same chip as without the H
        (r"(?<![\w-])([35][46]00|5[57]00|8[57]00)\sg\b", r"\1G"),  # `5700 G`, no size
        (r"\bx(16|8|4|1)\s([3-6]\.0)\b", r"PCIe \2 x\1"),
        (
            rf"{_IGPU}\s(?:(?:is|used)\s)*(?:for|drives|runs|handles|does)\s(?:the\s|my\s|all\s)?{_SCREEN}",
            "headless",
        ),  # `iGPU for display`: no card drives it
        (
            rf"\b{_SCREEN}\s(?:(?:is|are|runs?|connected|plugged|hooked|up|attached|out|output)\s){{0,4}}"
            rf"(?:on|to|by|from|via|through|off|into)\s{_IGPU}",
            "headless",
        ),
        (  # laptops with that processor alone, if it is not named: the ROG Flow Z13 with 128 GB, the ZBook
            r"\b(?:(?:asus\s)?rog\sflow\sz13\b(?=[^\n]*\b128\s?gb)|(?:hp\s)?zbook\sultra\sg1a(?:\s14)?\b)"
            r"(?!.{0,60}\b(?:ryzen|max)\b)",
            "Ryzen AI Max+ 395",
        ),
        (  # `i9 13th gen`
            r"\b((?:core\s)?i[3579])[\s,(-]{1,3}((?:[2-9]|1[0-4])(?:nd|rd|th))[\s-]gen(?:eration)?\b\)?",
            r"\2 gen \1",
        ),
        (  # `DDR4-3200 quad`
            r"\b(ddr[345](?:[\s-]?\d{4,5})?\s)(single|dual|triple|quad|hexa|octa)(?=\s*(?:[,;.)\n]|$|\d{2,4}\s?gb))",
            r"\1\2 channel",
        ),
        (r"\b(?:xeon\s)?scalable\s(?:\d\w\w\sgen\s)?(?=\d{4})", "Xeon "),
        (r"(?<=/)(\d{1,3}\s?GB)/(256|512|1024|[124]TB)\s?(?:GB)?(?=/|$|\s)", r"\1, \2 SSD"),  # of a laptop in a shop
        (r"\b\d{1,6}(?:\s?MiB)?\s?/\s?(?=\d{4,6}\s?MiB\b)", ""),  # used of all, as nvidia-smi has it
        (r"(?<=\d),(?=\d{3}\s?MiB\b)", ""),
        (r"\s?\(build \w{3,12}\)", ""),  # of macOS
        (r"\b(?:no|without|w/o)\s(?:an?\s)?(?:egpus?|external\sgpus?)\b", ""),
        (r"\bexternal\s(?:gpu|graphics\scard)\b|\bexternal(?=\s(?:nvidia|geforce|amd|radeon|[rg]tx|rx)\b)", "eGPU"),
        (r"\bmax memory(?=\s?[:=])", "VRAM"),  # as Unsloth prints it
        (r"(\bm[1-5]\s(?:pro|max|ultra)\s?)\(?(\d\d)/(\d\d)\b\)?", r"\1 \2c/\3c "),
        (r"\b(\d{1,2})(?:c|c?\s?CPU)(?:/|(?<=c CPU),?\s)(\d\d)(?:c|c?\s?GPU)\b", r"\1 CPU cores, \2 GPU cores,"),
        (r"\b1[3-8](?:\.\d)?[\"”″](?=\s)", "laptop "),
        (r"(?<=\d)\s?卡(?=\s?\w)", "x "),
        (r"\b(\d{4}(?:\s?ti|\s?super|d)?)-(\d{1,2})gb?\b", r"\1 \2GB"),  # `3080-10G`
        (
            r"\b(ram:?|kingston|corsair|g\.?skill|crucial|hyperx|vengeance|trident\sz|patriot|adata|ballistix)\s"
            r"([1248])\s?x\s?(4|8|16|24|32|48|64)\b(?=\s*(?:[,;)\n]|$))",
            r"\1 \2x\3GB RAM",
        ),  # `Kingston 2x8`
        (r"(?:^|(?<=[\n,;:])\s?)\((\d{1,2})\)\s(?=(?:intel\s|amd\s)?(?:xeon|epyc)\b)", r" \1x "),  # `(2) Xeon E5-2690`
        (r"\bmi50/(?:mi)?60\b", "MI50"),  # as ROCm names both
        (r"\b\d{1,2}\s?x\s?(\d{1,3})\s?gb?\s(?=v-?ram\b)", r"\1GB each "),
        (r"(\b(?:ryzen\s)?[3579]\s\d{4})\s(x3d|xt?|ge?|hs|u)\b(?!\s?\d\b)", r"\1\2"),  # `5 2400 G`
        (r"\bddr[-\s]?(?=\d{4}\b)", ""),  # `DDR3200`
        (r"\bddr\s(?=[2-5]\b)", "DDR"),
        (r"\b(cpu|gpu)(?=[a-z]{0,3}\d{3})", r"\1 "),  # `cpuX5675`
        (r"\bpci-?e-(?=[1-6]\b)", "PCIe "),
        (r"(?<=\d\w)-(?=[cg]pus?\b)", " "),  # `8745H-CPU`, in German
        (r"\b(?:ddr5\s)?m[cr]r?-?dimms?(?:[\s-](?=\d{4,5}\b))?", "DDR5-"),  # `MRDIMM-8800`
        (r"\bon\sa\s(?:dual|two|2)[\s-]socket\s\w+,?\s(?=using\s(?:only\s)?(?:1|one)\s(?:cpu|socket)\b)", ""),
        (r"(\bm[1-5](?:\s?(?:pro|max|ultra))?)/(?=\d{1,3}(?:$|[\s,;)]))", r"\1 "),  # `M1 Pro/16`
    )
)
# Memory that a processor's GPU gets: what the firmware sets aside, or the driver's limit (`96GB GTT`).
_GB = r"(?<![\d.])(\d{1,3}(?:\.\d{1,3})?\s?(?:gib|gb|gigs?|g))"
_ALLOTTED = re.compile(
    rf"{_GB}\s(?:is\s|are\s)?(?:allocated|assigned|dedicated|reserved|set(?:\saside)?|carved\sout)\s(?:to|for|as)\s"
    r"(?:the\s)?(?:i?gpu|graphics|v?ram|video)(?:\smemory)?(?:\s(?:in|by)\s(?:the\s)?(?:bios|uefi))?"
    rf"|{_GB}\s(?:of\s)?(?:bios|uefi)[\s-](?:allocated|assigned|reserved|set)\s(?:gpu\smemory|v-?ram)\b"
    rf"|{_GB}\s(?:of\s)?gtt\b"
    r"|(?<![\d.])([1246]\s?gb)\suma\b(?!\s(?:lp)?ddr)"
    rf"|{_GB}\s(?:of\s)?v-?ram\s(?:is\s)?(?:allocated|assigned|reserved|dedicated|set(?:\saside)?|carved\sout)"
    r"\s(?:in|by|via)\s(?:the\s)?(?:bios|uefi)\b"
    rf"|{_GB}\s(?:of\s)?dedicated\s(?:v-?ram|(?:gpu|graphics|video)\smemory)\b"
    rf"|\bgpu\s(?:can|may|could)\s(?:use|access|address|allocate)\s(?:up\sto\s)?{_GB}"
    rf"|\b(?:gtt|uma(?:\sframe\s?buffer)?)\b(?:\s(?:memory|size|limit|total|of|is|set|raised|to)\b)*\s?[:=]?\s?~?\s?{_GB}"
    rf"|\b(?:(?:gpu|graphics)\smemory|v-?ram)(?:\s(?:setting|size|is)\b)*\s(?:set|configured|raised)\s(?:to|at)\s{_GB}",
    re.I,
)
# The same as a system has it: `ttm.pages_limit=25165824`, in pages of 4 KiB, or, in MiB, `amdgpu.gttsize=98304` and
# `iogpu.wired_limit_mb=14336` (0: macOS's own limit).
_KERNEL_ALLOTS = re.compile(
    r"\b(?:amd)?ttm\.(pages_limit|page_pool_size)=(\d{4,9})\b"
    r"|\b(?:(?:amdgpu\.)?gttsize|iogpu\.wired_limit_mb)\s?[=:]\s?(0|\d{4,7})\b",
    re.I,
)
# Machines that are known by their own name, where that of their processor follows: `GMKtec EVO-X2 AI Max+ 395`.
_NAMED_TWICE = re.compile(
    r"\b(?:framework\sdesktop|(?:gmktec\s)?evo[\s-]x2|bosgame\sm5|(?:beelink\s)?gtr9\spro|(?:minisforum\s)?ms-s1\smax"
    r"|(?:hp\s)?z2\smini\sg1a|(?:hp\s)?zbook\sultra\sg1a(?:\s14)?|(?:asus\s)?rog\sflow\sz13)\b[\s,(:-]{1,3}(?:with\s(?:an?\s|the\s)?)?(?=(?:amd\s)?(?:ryzen\s)?(?:ai\s)?max\b)",
    re.I,
)


def plain(text: str) -> str:
    """Return the text in normalised spelling: foreign signs and Markdown replaced, quoted names unchanged."""
    parts = re.split(r'("[^"\n]{0,200}")', _RAM_OF_JSON.sub(r"\1 GB RAM", text))
    return "".join(part if part.startswith('"') else _plain(part) for part in parts)


def _plain(text: str) -> str:
    text = re.sub(r"(?<=\S)[^\S\n]{2,}(?=\S)", " ", text)
    for pattern, right in _RESPELLED:
        text = pattern.sub(right, text)
    text = re.sub(
        r"\bx\d{1,2}(?:,?\s?x(?:16|8|4|2|1))+\b", lambda m: re.sub(r"(?!^),?\s?x", "/x", m[0].lower()), text, flags=re.I
    )
    text = _WIDTHS_BEHIND.sub(r"\1 \2", text)
    text = _WIDTHS.sub(lambda m: "/".join(f"x{n}" for n in re.findall(r"\d+", m[0])), text)
    text = _CORES_IN_WORDS.sub(lambda m: str(lex.NUMBERS[m[1].lower()]), text)
    text = _STICKS.sub(lambda m: f"{lex.NUMBERS.get(m[1].lower(), m[1])}x{m[2] or m[3]}GB RAM ", text)
    text = _SUM_OF_MODULES.sub(lambda m: f"{int(m[1]) * int(m[2]) + int(m[3]) * int(m[4])}GB RAM", text)
    text = _KIND_OF_MODULES.sub(lambda m: f"{m[1]}x{m[3]}GB {m[2]} " if m[3] else f"{m[2]} x{m[1]}", text)
    text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    text = _COUNTED_BEHIND.sub(lambda m: f" x{_NUMERALS.get(m[1], m[1])}", text)
    text = _COUNTED.sub(lambda m: f" {_NUMERALS[m[1]]} ", text)
    for sign, meaning in _SIGNS.items():
        text = text.replace(sign, meaning)
    for pattern, right in _MODULES_BY_CHANNEL:
        text = pattern.sub(right, text)
    if _PER_CHANNEL.search(text) and len(n_channels := _N_CHANNELS.findall(text)) == 1:  # other parts between the two
        text = _PER_CHANNEL.sub(rf"{n_channels[0]}x\1GB", _N_CHANNELS.sub("", text))
    text = _SCRIPTS.sub(" ", re.sub(r"\b(core|socket|slot|node|thread|module)\(s\)", r"\1s", text, flags=re.I))
    text = re.sub(r"(?<=\d)(gi?b?)[x*](?=\d{1,2}\b)", r"\1 x", text, flags=re.I)
    text = re.sub(r"\b(max|ultra)\s+(m[1-5])\b(?!\s?(?:pro|max|ultra))", r"\2 \1", text, flags=re.I)
    text = unicodedata.normalize("NFKC", re.sub(r"[™®©]|\((?:tm|r|c)\)", " ", text, flags=re.I))
    text = re.sub(r"[^\S\n]{2,}", " ", _MARKUP.sub(" ", text))
    text = re.sub(r"(?<=[\w)])(?<!max)\+(?=[\w(])", " + ", text, flags=re.I)
    text = re.sub(
        r"\b(?:(?<!\d\s)w/|w/(?!\s?(?:card|gpu)\b))\s?(?=\S)",
        "with ",
        re.sub(r"\bmax\+\s?(?=3\d\d\b)", "max+ ", text, flags=re.I),
        flags=re.I,
    )
    text = _NAMED_TWICE.sub("", text)
    text = _KERNEL_ALLOTS.sub(_allotted_by_kernel, _GLUED_SIZE.sub(r"\1 \2", text))
    text = re.sub(r"\b4095(?:\s?MB)?\b", " ", text, flags=re.I)  # of any card with more, as Windows counts in 32 bits
    text = _MEBIBYTES.sub(lambda m: f"{int(m[1]) / 1024:.4g}GB", text)
    text = _ALLOTTED.sub(_allotted, text)
    text = _CPU_COUNT.sub(r"\1 vCPU", lex.SLICE.sub(r"\1", text))
    text = _GB_LEFT_OUT.sub(r"\1GB", text)
    text = _LOGICAL.sub(lambda m: f"{m[2] or m[3]}, {m[1] or m[4]} threads", text)
    text = _PRODUCT.sub(r" \1", text)
    text = _MAC_SHORT.sub(lambda m: f"{m[1]} {m[2]}GB, {m[3] if m[3][-1:] in 'bB' else f'{m[3]}GB'} SSD", text)
    text = re.sub(r"\b(\d{4})(?=cl\d\d\b)", r"\1 ", text, flags=re.I)  # `6000CL30`
    text = _BYTES.sub(lambda m: f"{m[1]}{m[2] or ''}: {int(m[3]) / (1 << 30):.4g}GB", text)
    return spaced(_GLUED_COUNT.sub(r"\1 x\2", text))


def _allotted(m: re.Match[str]) -> str:
    """Return what a GPU without memory of its own is given: set aside by the firmware, or the driver's limit (GTT)."""
    is_limit = re.search(r"\bgtt\b", m[0], re.I)
    return f"{next(filter(None, m.groups()))} VRAM{' limit' if is_limit else ''}"


def _allotted_by_kernel(m: re.Match[str]) -> str:
    """Return the limit that a system's setting gives such a GPU, as VRAM; nothing for one that gives none."""
    if (m[1] or "").lower() == "page_pool_size" or m[3] == "0":
        return ""
    return f"{int(m[2]) / 262_144 if m[2] else int(m[3]) / 1024:.4g}GB VRAM limit,"
