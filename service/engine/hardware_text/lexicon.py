"""The words and signs people use for hardware; `mentions.py` tries them at every position of a text."""

from __future__ import annotations

import re

from service.engine.catalogue.names import MIG

_I = re.I
SPACES = re.compile(r"[^\S\n]+")
# Separators between two parts; a full stop ends a clause if a word follows.
SEPARATOR = re.compile(
    r"\s*(?:\n|[,;|]|\s&(?=\s)|\+(?!\d)|/(?!s\b)|[.!?](?=\s|$)|\((?!\d{1,2}\s?[x*]\s?\d{1,3}(?:\s?gb?)?(?:\s?\+\s?\d{1,2}\s?[x*]\s?\d{1,3}(?:\s?gb?)?)*\))|\)|–\s|—|=>|->)\s*|\b(?:and|plus|und|y|et)\b"
)
WORD = re.compile(r"[^\W_][\w.'’-]*[\w+]|[^\W_]\+?", _I)
NEXT_WORD = re.compile(r"[ \t]{0,2}\(?[^\W_](?:[\w.'’-]*\w)?(?:\+(?=\s|$|[,)]))?\)?")
BRAND_AT_END = re.compile(r"(?<!titan)\s(?:amd|nvidia|intel|geforce|radeon|rtx|gtx|rx|ryzen|r)$", _I)
TIERED = re.compile(r"[3579]\s\d{4}\w{0,3}\b", _I)
REJOINING = re.compile(r"which|has|having", _I)
JOINING = re.compile(r"mit|con|avec|de|von|with|w|have|of|at|@|on|in|each|that|is|a|an|the|-|:|=|x", _I)
FILLER = re.compile(
    r"i|i['’]ve|i['’]m|we|we['’]ve|you|my|me|our|your|it|it['’]s|its|this|these|they|am|are|was|be|been|do|does"
    r"|so|now|just|only|also|too|here|there|currently|already|still|basically|total|together|combined|altogether|overall"
    r"|running|runs|run|using|use|uses|used|got|get|gets|getting|own|owns|bought|built|build|having|paired|sitting|installed"
    r"|machine|machines|system|systems|rig|rigs|pc|desktop|server|servers|box|workstation|computer|setup|specs?|config|configuration|hardware"
    r"|gpus?|cpus?|igpus?|dgpus?|processors?|graphics|cards?|ram|vram|memory|video|board|mobo|motherboard|mainboard|node|home|lab|homelab"
    r"|old|older|new|used|modded|consumer|gaming|dedicated|discrete|integrated|main|first|entry|level|fast|good|nice|little|about|around|roughly"
    r"|for|from|to|by|via|as|than|then|but|because|like|since|via|per|up|out|off|down|into|inside|across|among|between|behind"
    r"|any|all|both|some|more|most|other|what|how|can|could|giving|gives|making|makes|make|reach|means|basically|there['’]s"
    r"|hi|hello|hey|thanks|please|think|believe|guess|well|ok|okay|yes|rest|physical|logical|sockets?|socket|threads?|amd|nvidia|intel"
    r"|ich|habe|eine?n?|meine?|der|die|das|für|auch|noch|tengo|una?|el|la|los|las|mi|mis|j['’]ai|une|le|les|des|du|ma|mon"
    r"|grafikkarten?|prozessor|rechner|stück|stk|tarjetas?|gráficas?|procesador|cartes?|graphiques?|processeur|vive|équipo"
    r"|ecc|reg(?:istered)?|(?:un)?buffered|[rul]?dimms?|so-?dimms?|sticks?|modules?|kit|xmp|expo|jedec|unified|shared|limit|cl\d\d|available|usable|capacity|speed|type|name|model|version|os|gb|s|t|r|e",
    _I,
)

_UNIT = r"(?:gib|gbs?|gbytes?|gi|go|gigabytes?|gigas?|gigs?|g|tib|tb|tbytes?|t)"
SIZE = re.compile(
    rf"(?<!\d)(?!\d{{3,6}}t\b)(\d{{1,6}}(?:\.\d{{1,3}})?)\s?({_UNIT[3:-1]})\b(?![/@]s(?:ec)?\b|\w)|((?:\d{{2,4}}(?=[^\S\n]?(?:of\s)?(?:(?:lp)?ddr\d|ram\b))|\d{{1,2}}(?=v?ram\b|\s(?:of\s)?vram\b)))",
    _I,
)
SIZE_BEFORE = re.compile(rf"(\d{{1,4}}(?:\.\d{{1,3}})?)\s?{_UNIT}\b\s*(?:of\s)?(?:vram\s)?", _I)
SIZE_AT_END = re.compile(rf"(?<![\w.])\d{{1,5}}(?:\.\d{{1,3}})?\s?-?{_UNIT}\)?$", _I)
SLICE = re.compile(rf"\b({MIG})\b(?:\s(?:slice|instance|partition)\b)?", _I)
SIZE_IN_NAME = re.compile(rf"[a-z]\d{{0,4}}-\d{{2,3}}gb$|{SLICE.pattern}\)?$", _I)  # A100-SXM4-80GB, as drivers call it
RANGE = re.compile(
    rf"\d{{1,4}}\s?{_UNIT}\+(?=\s*(?:$|[a-z]))|(?:\d{{1,4}}\s?{_UNIT}|\d{{1,3}})(?:\s?(?:-|–|to)\s?|/)\d{{1,4}}\s?{_UNIT}\b",
    _I,
)
_DISK = r"(?:nvme|ssds?|hdds?|m\.2|disks?|drives?|storage|sata|ephemeral)"
ROLE_VRAM = re.compile(
    r"[^\S\n]*(?:\)[^\S\n]*)?(?:of\s|de\s|di\s|in\s|to\s|as\s|for\s|total\s|combined\s|available\s)*(?:v[\s-]?ram|i?gpu\s(?:memory|ram|vram)|gpu(?!\w|[^\S\n]*(?::|[a-z]*\d|rtx|gtx|rx\b|nvidia|amd|radeon|geforce|tesla|arc\b))|video\s(?:memory|ram)|gddr\d\w?|hbm\w?)\b",
    _I,
)
ROLE_RAM = re.compile(
    r"[^\S\n]*(?:of\s|for\s|to\s|as\s|total\s|in\s|my\s|the\s|shared\s|fast\s|motherboard\s|ecc\s|quad[\s-]channel\s|\(?\d+\s?x\s?\d+\s?gb\)?\s)*"
    r"(?:system|main|host|cpu|unified|ram\b|memory|arbeitsspeicher|hauptspeicher"
    r"|(?:de\s)?(?:memoria|mémoire)(?!\s(?:de\s)?v[íi]deo)|de\sram\b"
    r"|(?:lp|so-?)?ddr\d|[rul]?r?dimms?|sodimm"
    r"|ecc(?!\s?(?:[:=]\s?)?(?:is\s|turned\s)?(?:off|disabled|0)\b))", _I)  # fmt: skip
# `4x 3090 (24GB RAM each)`
RAM_OF_EACH = re.compile(r"\s?(?:of\s)?(?:ram|memory)\s(?:each|apiece|per (?:card|gpu))\b", _I)
ROLE_BEFORE = re.compile(
    r"\b((?:gpu\s|video\s|v[\s-]?)?(?:ram|mem(?:ory)?))\s*(?:per\s(?:gpu|card))?\s*(?:[:=]|is|of|size|total)*\s*\(?$",
    _I,
)
# What Windows lends its Linux: `32GB (16GB for WSL)`, `.wslconfig memory=48GB`.
OF_WSL = re.compile(r"\s?(?:is\s)?(?:for|in|(?:allocated|assigned|given|available)\s(?:to|in|for))\s(?:the\s)?wsl", _I)
WSLCONFIG = re.compile(r"\.wslconfig\b[^,;\n]{0,20}$", _I)
NEEDED = re.compile(r"\b(?:needs?|needed|requir\w+|not having|lack\w*)\s(?:(?:about|around|at least|over)\s)?$", _I)
OF_MODEL = re.compile(r" (?:(?!of\b|ddr|v?ram|memory)[\w.-]+ ){0,2}models?\b(?! ?:)", _I)
# `boot volume 460 GiB / 20 GiB free`, `page file with 32gb`
OF_DRIVE = re.compile(r"\b(?:volume|partition|root|page\s?file)\b[^,;\n|]{0,24}$", _I)
OR_LESS = re.compile(r"\s?(?:of\s(?:v?ram|memory)\s)?or\s(?:less|more|fewer|higher|better|above|below)\b", _I)
HBM = re.compile(r"\s?(?:of\s)?hbm", _I)  # of a processor: `Xeon Max 9480 64GB HBM`
ROLE_EACH = re.compile(r"^[^,;\n.]{0,16}?\b(?:each|apiece|per (?:card|gpu)|a card)\b|^\s*x\s?\d", _I)
EACH = re.compile(r"\s?(?:each|apiece|per (?:card|gpu))\b", _I)
ROLE_PER_CPU = re.compile(r"^(?:[^,;\n.]{0,24}?\b(?:per|each|pro|a)\s|\s?/\s?)(?:cpu|socket|processor|node)\b", _I)
ROLE_TOTAL = re.compile(
    r"\b(?:total|combined|altogether|overall|together|sum|pool(?:ed)?)\b|=\s*$|(?:giving|gives|makes?|reach|gets?|so|for)\b"
    r"[^,;\n]{0,12}$",
    _I,
)

_GB = r"(?:gib|gb|go|gigas?|gigs?|g)\b(?!/s)"
_VENDORS = (
    r"msi|evga|asus|gigabyte|zotac|palit|pny|gainward|inno3d|kfa2|galax|manli|colorful|xfx|sapphire|powercolor|asrock"
    r"|sparkle|maxsun|gunnir"
)
# Names of coolers, whose numbers count nothing: `Ventus 2X`, `Merc 310`. ASUS sells a Dual of all classes but the two
# highest: `ASUS dual RTX 3090` are two cards.
_SERIES = (
    r"(?:asus\s(?:geforce\s|radeon\s)?dual\b(?:\s(?:oc|evo|v2|white)\b)*(?=\s(?:nvidia|amd|geforce|radeon|[rg]tx|rx|arc)\b)"
    r"(?!\s(?:nvidia\s)?(?:geforce\s)?(?:rtx\s)?[345]0[89]0)"
    r"|ventus\s[23]x\b|windforce(?:\s[23]x)?\b|twin\s(?:edge|x2|frozr(?:\s\d|\s[iv]+)?)\b|ichill(?:\sx[234])?\b|inno3d\sx[23]\b"
    r"|(?:speedster\s)?(?:merc|swft|qick)\s?\d{3}\b|(?:dual|twin|triple|two|three|[23]x?|2\.\d)[\s-](?:slots?|fans?)\b"
    r"|gts(?=\s\d{1,2}\s?gb?\b))"
)
# Between a size and the card that has it.
_SOLD_BY = (
    rf"(?:(?:{_SERIES}|{_VENDORS}|speedster"
    r"|nvidia|amd|used|modded|refurbished|second-?hand|gebrauchte[nrs]?|usadas?|usate|б/у)\s+)*"
)
SOLD_BY = re.compile(_SOLD_BY, _I)
AT_CARD = re.compile(
    rf"\s*(?:version\s)?(?:(?:on|of|in)\s(?:(?:my|the|an?)\s)?)?\s*{_SOLD_BY}",
    _I,
)
MODULES = re.compile(
    rf"\(?(\d{{1,3}})\s?[x*]\s?(\d{{1,4}}(?:\.\d{{1,3}})?)\s?{_GB}\)?"
    rf"|(\d{{1,3}})\s?x?\s?(?:sticks?|dimms?|modules?)\s(?:of\s)?(\d{{1,4}})\s?{_GB}|\((\d{{1,2}})\s?[x*]\s?(\d{{1,3}})\)"
    r"|(?<![\w.])(\d{1,2})\s?[x*]\s?(24|32|48|64|96|128)(?![\w%]|[./-]\w|\s?(?:-?cores?|gpus?|cards?|threads?|bit|mi?b|t)\b)",
    _I,
)
TYPE = re.compile(
    r"(lpddr\d(?:[xl](?!\d{1,2}\b))?|ddr\d(?:[xl](?!\s?\d{1,2}\b))?)(?:[\t\x20-]{0,2}(?:at\s|@\s?|oc\s(?:at\s)?|ecc\s|reg\s|rdimm\s|udimm\s)*(\d{3,5})(?![\w.]*\w|\s?gb?\/s))?(?:\s?(?:mhz|mt/?s))?",
    _I,
)
SPEED_AND_TYPE = re.compile(
    r"(?:\d{3,5}\s?(?:mt(?:/?s)?|mhz)?\s?)?(?:lp)?ddr\d(?:[\s-]?\d{3,5})?(?:\s?(?:mt(?:/?s)?|mhz))?", _I
)
BEHIND_TYPE = re.compile(rf"(?<!\w){SPEED_AND_TYPE.pattern}(?:\sx\d{{1,2}})?\s$", _I)  # `DDR5 8800 x12 1.1TB`
SPEED = re.compile(r"(?:@\s?)?(\d{3,5})\s?(?:mt(?:/?s)?|mhz)\b|@\s?(\d{4,5})(?:mhz)?\b", _I)
# `Device 0: 5090, 1: 4090`, `CUDA_VISIBLE_DEVICES sees GPUs 2 and 3 as 5090`.
DEVICE_NUMBERS = re.compile(
    r"(?:cuda_visible_devices\s)?(?:sees\s|shows?\s)?(?:devices?|cuda|rocm)\s?#?\s?((?:\d{1,2}(?:\s?(?:,|and|&)\s?)?){1,16})\s?"
    r"(?:[:=]|as|is|are)\s+|(?:cuda_visible_devices\s)?(?:sees|shows?)\sgpus?\s((?:\d{1,2}(?:\s?(?:,|and|&)\s?)?){1,16})\s?as\s+"
    r"|(\d{1,2})\s?:\s+(?=(?:(?:nvidia|amd|intel|geforce|radeon)\s){0,3}[a-z]{0,8}\s?\d{3,4})",
    _I,
)
# Of a card behind which it is written: `P40 24GB ECC off`, `Tesla P40 (ECC disabled)`.
NO_ECC = re.compile(
    r"ecc\s(?:memory\s)?(?:(?:is|was|turned|switched|mode)\s)*(?:off|disabled)\b|(?:no|without)\secc\b(?!\s(?:ram|memory|(?:lp)?ddr|\d))"
    r"|ecc\s?[:=]\s?(?:off|disabled|0)\b",
    _I,
)
RAM_WORD = re.compile(r"(?:system\s)?(?:ram|memory|arbeitsspeicher|hauptspeicher|memoria|mémoire)\b", _I)
NAMELESS_CPU = re.compile(r"cpu(?=\s\d)(?:\s(\d{1,2}) sockets?)?(?:\s(\d{1,4}) cores?)?\b(?<!cpu)", _I)
RATE = re.compile(
    r"(800|1066|1333|1600|1866|2133|2400|266[67]|2800|2933|3000|3200|3333|34(?:00|66)|3600|3733|3800|3866|4000|4133|4266"
    r"|4400|4600|4800|5200|5400|5600|5800|6000|6200|6400|6600|6800|7000|7200|7600|8000|8200|8400|8533|8800)(?![\w.]*\w)"
)  # fmt: skip
CHANNELS = re.compile(
    r"(\d{1,2})[\s-]?(?:channels?|ch)\b|(single|dual|triple|quad|hexa|octa)[\s-]?channel\b|(ein|zwei|drei|vier|acht)kanal\b|(doble|cuádruple)\scanal\b",
    _I,
)
# `dual socket`, `2-socket`, and the makers' `2P` and `2S`.
SOCKETS = re.compile(
    r"(\d|single|dual|two|quad)[\s-]?sockets?\b|([1248])[ps]\b(?!\s?\+\s?\d{1,2}\s?e\b)"
    r"|(?:sockets?\s?[:=]\s?([1248])|([12])\s?x?\s?(?:physical\s)?cpus?)\b(?!\s?cores?\b)",
    _I,
)
CHANNEL_WORDS = {
    "single": 1, "dual": 2, "triple": 3, "quad": 4, "hexa": 6, "octa": 8, "ein": 1, "zwei": 2, "drei": 3, "vier": 4,
    "acht": 8, "doble": 2, "cuádruple": 4,
}  # fmt: skip
FREE = re.compile(
    r"\(?(\d{1,6}(?:\.\d{1,4})?)\s?(gib|gb|gi|g|mib|mb)\s(?:are\s)?(?:free|available)\b(?:\s(ram|vram|gpu)\b)?\)?", _I
)
# What something else holds of a card: `3 GB already used by the desktop`.
USED = re.compile(
    r"\(?~?(\d{1,6}(?:\.\d{1,4})?)\s?(gib|gb|gigs?|g|mib|mb)\s(?:of\s(?:it|that|the\sv?ram|vram)\s)?(?:is\s|are\s)?(?:already\s|always\s|currently\s)?"
    r"(?:used|in\suse|occupied|taken|busy|eaten)\b(?:\s(?:up|by|for)\b[^,;)\n+|&]{0,40})?\)?",
    _I,
)
COPIES = re.compile(r"copies\s{1,2}(?:at\s{1,2})?(\d{1,4}(?:\.\d{1,3})?)\s?gb/s", _I)
BANDWIDTH = re.compile(
    r"\d+(?:\.\d+)?\s?tb(?:/s|\s?bandwidth)|\(?(?:measured|reads?|at)?\s{0,2}(\d{1,5}(?:\.\d{1,3})?)\s?gi?b/s\b\)?", _I
)
CORES = re.compile(
    r"\(?(\d{1,4})[\s-]?(?:physical\s|cpu\s|gpu\s|xeon\s|epyc\s|p-?)?cores?\b(?:\s(cpu|gpu|graphics))?(?:\s?/\s?\d+[\s-]threads?)?\)?|(\d{1,3})\s?c\s?/\s?(?:\d{1,3}\s?t\b|(?=\d{1,4}\s?[gt]b\b))"
    r"|(\d{1,3})\s?v-?cpus?\b|(?:[cg]pu\s)?cores?(?:\sper\ssocket|\scount)?\s?[:=]\s?(\d{1,4})\b",
    _I,
)


_GEN = r"(?:pci-?e?\s?)?(?:gen\s?)?"
LINK = re.compile(
    r"(?:@\s?|on\s|at\s|in\s(?:an?\s)?)?x\s?\d{1,2}\s+pci-?e\s?(?:gen\s?)?[1-6](?:\.\d)?(?=$|[\s,;)])"
    rf"|(?:(?:both|all|every)\s)?(?:@\s?|on\s|at\s)?\b{_GEN}[1-6](?:\.\d)?\s?x\s?\d{{1,2}}(?!\s?\w*\d|\s?{_UNIT}\b)(?:/x?\d{{1,2}}){{0,15}}(?:\s?\(chipset\))?(?=$|[\s,;)])"
    r"|(?:@\s?|on\s|at\s)?x\d{1,2}(?:/x?\d{1,2}){1,15}(?:\s?pci-?e(?:\s?(?:gen\s?)?[1-6](?:\.\d)?)?)?(?=$|[\s,;)])"
    r"|(?:(?:both|all)\s(?:(?:at|on|in)\s)?|chipset\s|@\s?|at\s|(?:in|on)\s(?:(?:an?|the|my)\s)?)x\d{1,2}(?:\s(?:(?:pci-?e|chipset|mining)\s)?(?:slots?|lanes?|risers?))?(?:\spci-?e?\s?[1-6](?:\.\d)?)?(?=$|[\s,;)])"
    r"|x\d{1,2}\s(?:pci-?e\s)?(?:slots?|lanes?|risers?|bridge|link|bus|port|each)\b"
    r"|(?:every\son\s)?pci-?e?\s?(?:gen\s?)?[1-6](?:\.\d)?\b(?:\s?x\s?\d{1,2}(?:/x?\d{1,2}){0,15})?|pci-?e?\s+x\d{1,2}(?:/x?\d{1,2}){0,15}\b"
    r"|(?:(?:via|over|on|through|by)\s(?:an?\s)?)?\b(?:oculink|thunderbolt[\s-]?[345]?|tb[345]|usb\s?4|m\.2\s(?:to\spcie|adapter|riser)|e-?gpus?)\b"
    r"(?:\s(?:dock|enclosure|adapter|cable))?",
    _I,
)  # fmt: skip
LINK_AT_END = re.compile(r"\s+pci-?e$", _I)
GENERATION = re.compile(r"\s?(?:gen\s?)?[1-6](?:\.\d)?(?:\s?x|\b(?!\s?x\s?\d+\b\s*gpu))|\s?x(?:4|8|16)\b(?=/)", _I)
SWITCH = re.compile(
    r"(?:with\s|for\s(?:the\s)?|drives?\s(?:the\s|my\s)?|driving\s(?:the\s|my\s)?)?(?:an?\s)?"
    r"((?:no\s)?(?:nv-?link|p2p|display|monitor))(?:ed|\sbridged?|s)?(?:\s(?:is\s)?(?:attached|connected|on\sit|out(?:put)?))?\b"
    r"(\s(?:between|for|on)\s(?:(?:the\s)?first\s)?(?:2|two|a\spair)\b(?:\sof\s(?:them|the\scards))?(?:\s(?:cards|gpus|of\sthem)\b)?)?",
    _I,
)
NO_GPU = re.compile(
    r"(?:no|without(?:\san?)?|zero|0)\s?(?:dedicated\s|discrete\s)?gpus?\b(?!\s(?:offload|accel|pass|(?:is\s|are\s|was\s)?(?:detected|found|shown|listed|used|usage|util)))"
    r"|cpu[ -]only\b|none\s*$",
    _I,
)
# Of a system, on its line and no size: `Ubuntu 24.04`, but `Ubuntu 64 GB`.
_VERSION = rf" ?(?:\d{{1,2}}(?:\.\d+)*|2[0-6](?:04|10))\b(?! ?{_UNIT}\b)"
SYSTEM = re.compile(
    rf"(?:(?:ms\s)?windows|win)(?:{_VERSION}|-1[01]\b| server[ \d]*)?\b(?: (?:home|pro|enterprise)\b)?|linux\b"
    rf"|(?:[klx]?ubuntu|debian|fedora|arch|mint|nixos|rocky|centos|rhel|proxmox|unraid|cachyos|nobara|bazzite|garuda|manjaro"
    rf"|pop!?[_ ]?os|opensuse|endeavouros|alma(?:linux)?|zorin|gentoo|truenas|artix|kali|void(?= linux))\b"
    rf"(?: ?(?:linux|server|leap|tumbleweed|scale|project))?(?:{_VERSION})?(?: lts)?"
    rf"|mac\s?os\b(?:{_VERSION})?|macosx?\b|wsl ?2?\b",
    _I,
)
BACKEND = re.compile(
    r"(?:back\s?-?end\s?[:=]?\s?)?(?:(?:on|with|using|via|under)\s(?:the\s)?)?"
    r"(?:(vulkan|rocm|hip|sycl)(?:\sv?\d(?:\.\d+)*)?\b(?!\s(?:(?:is|does|will)(?:n['’]?t|\snot)|not|fails|broken|unsupported))(?:\s(?:back\s?-?end|build))?"
    r"|(cuda|metal)\s(?:back\s?-?end|build)\b)"
    r"|(?:-d)?ggml_(vulkan|hip|sycl|cuda|metal)\s?=\s?(?:on|1|true)\b|\b(radv)\b(?!\s(?:navi|gfx|[a-z]+\d))",
    _I,
)
LAPTOP = re.compile(
    r"(?:gaming\s)?(?:laptops?|notebooks?|ultrabook|port[áa]til|ordinateur\sportable)\b(?:\sgpus?)?"
    rf"(?:\s1[1-8](?:\.\d)?(?!\w|\.\d|\s?(?:[x*]|-?(?:{_UNIT}|cores?|threads?|v?cpus?|gpus?|cards?|v?ram|ddr\d)\b)))?",
    _I,
)
# Product lines that only laptops have, with what tells them from desktops of the same name.
_LAPTOPS = (
    r"think(?:pad|book)|ideapad|latitude|xps\s?1[3-7]|(?:rog\s)?(?:zephyrus|flow|strix\s(?:g1[4-8]|scar))|rog\sg1[4-8]"
    r"|legion\s?(?:[5-9]i?|pro|slim)\b|nitro\s?(?:5|v)\b|predator\s(?:helios|triton)|omen\s?(?:(?:max|transcend)\s)?1[4-8]"
    r"|elitebook|zbook|alienware\s[mx]1[4-8]|blade\s?1[3-8]|framework\s?1[236]|victus|loq|katana|raider|stealth|cyborg"
    r"|vector\s(?:gp\d\d|1[5-8])|titan\sgt\d\d|surface(?=\s(?:pro|laptop|book|studio)\b)|zenbook|vivobook|studiobook"
    r"|proart\sp[1x]\d\d?|yoga|galaxy\sbook|swift|tuf\s(?:gaming\s)?[af]1[4-8]|aero\s?1[4-7]|aorus\s?1[5-8][a-z]?"
    r"|(?:xmg|schenker)\s(?:neo|pro|core|fusion|apex)|tuxedo\s\w+|oryx\spro|(?:adder|bonobo|serval)\sws"
)
LAPTOP_NAME = re.compile(rf"(?:{_LAPTOPS})\b", _I)
MAC_BODY = re.compile(
    r"mac\s?(?:studio|mini|pro|book)s?(?:\b|(?=pro\b|air\b))(?:\s?(?:pro(?!\s?\d\b)|air)\b(?!\s+max))?(?:\s1[3-6](?:\.\d)?(?:[\s-]?inch\b|['’\"”″]{1,2}|(?=\s)))?|imac\b|mbp\b(?:\s1[346]\b)?|\d\d[\s-]?inch\b|macs?\b",
    _I,
)
APPLE = re.compile(
    r"(?:apple\s+)?m([1-5])(?:\s?(pro|max|ultra))?\b(?!\.2|-\d|/m)"
    r"(?:\s?-?\s?\(?(\d{2,3})(?:[\s-]cores?|c\b)(?:\s+gpu)?\)?(?!\s+cpu))?(?:\s+(?:chip|soc)\b)?(?![\w.]*\d)",
    _I,
)

NUMBERS = {
    "a": 1, "an": 1, "one": 1, "single": 1, "dual": 2, "two": 2, "double": 2, "twin": 2, "triple": 3, "three": 3,
    "quad": 4, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "fourteen": 14, "sixteen": 16,
    "zwei": 2, "drei": 3, "vier": 4, "acht": 8, "dos": 2, "tres": 3, "cuatro": 4, "deux": 2, "trois": 3, "quatre": 4,
    "due": 2, "tre": 3, "quattro": 4, "duas": 2, "três": 3, "quatro": 4, "twee": 2, "drie": 3, "två": 2,
    "fyra": 4, "dwie": 2, "dwa": 2, "trzy": 3, "cztery": 4, "iki": 2, "üç": 3, "dört": 4,
    "две": 2, "два": 2, "три": 3, "четыре": 4, "дві": 2, "чотири": 4,
    "a pair of": 2, "a couple of": 2, "pair of": 2, "couple of": 2,
}  # fmt: skip
_NUMBER = "|".join(sorted((n for n in NUMBERS if n not in ("a", "an")), key=len, reverse=True)).replace(" ", r"\s")
_KIND = r"(?:(?:of|my|old|new|used|refurbished|modded|cheap|second-?hand)\s){0,3}"
COUNT = re.compile(
    rf"\(?(\d{{1,6}})\s?[x*]\)?\s*(?!\d{{1,2}}\))|({_NUMBER})(?:[\s-]socket)?\s+{_KIND}"
    rf"|(\d{{1,2}})(?:[ -]sockets?)?[^\S\n]+(?!cores?\b|sockets?\b)(?:st[üu]ck\s|stk\.?\s)?{_KIND}",
    _I,
)
# CPUs that no board has several of, so a number before them means something else; and names of digits alone.
ONE_A_BOARD = re.compile(r"^\d+$|\d{4}(?:u|h[skx]?)\b|ryzen|threadripper|(?<!\d[\s-])core|\bi[3579]\b", _I)
COUNT_BEFORE = re.compile(r"[x*](\d{1,2})()()\s+(?=[a-z]*\s?\d)", _I)  # `x2 3090`, first in a part
COUNT_BEHIND = re.compile(
    r"\(?[x*]\s?(\d{1,4})\)?(?![\w/-]|\.\d)|(\d{1,2})\s?[x*](?=\s*(?:[,;\n)+]|$))|\((\d{1,2})\)", _I
)
# How many cards there are in all: `2 GPUs (5060 and 7900 GRE)`, `GPU count: 3`.
CARDS = re.compile(
    rf"(\d{{1,2}}|{_NUMBER})(?:[^\S\n]|-)(?:(?:nvidia|amd|intel|different|identical|discrete|dedicated|graphics|video)\s)*"
    r"(?:gpus?(?:['’]s)?|cards)\b(?![\s-]cores?\b)"
    r"|(?:(?:gpu|card)s?\s(?:count|number)|num(?:ber\sof)?\sgpus)\s?[:=]\s?(\d{1,2})\b",
    _I,
)
ORDINAL = re.compile(r"\b(?:first|second|third|fourth|1st|2nd|3rd|4th)\s$", _I)
REFERENCE = re.compile(r"\b(?:the|my)\s+(?:\d{1,3}\s?gb\s)?$", _I)
SOME = re.compile(r"(?:some|several|few|multiple|many|various|bunch of|dozens?|hundreds?|thousands?)\b", _I)
ALTERNATIVE = re.compile(
    r"(?:or(?!\s(?:anything|something|so|whatever|similar)\b)|vs\.?|versus|either|but an?"
    r"|not (?:with|an?|the)|instead of|rather than|oder|ou|lub|или|或者?|または|(?<=\d\s)o(?=\s))\b",
    _I,
)
PLAN = re.compile(
    r"(?:i['’]d(?!\s(?:be|appreciate|love\sto|like\sto\s(?:know|run|see|use|try))\b)"
    r"|(?<!\bi )(?<!\bi['’]ve )(?<!just )(?<!recently )upgrad\w*"
    r"|won['’]?t(?!\s(?:work|run|fit|load|start|use|detect)\b)|working on|planning|plan"
    r"|consider(?:ing)?|thinking|maybe(?!\s\d+\s(?:min|sec|hour|tok))|possibly|hopefully|would|wouldn['’]?t"
    r"|should(?!\s(?:be|have|work|run|fit|handle|support)\b)|will(?!\s(?:it|this|that|my|work|run|fit|be\s(?:enough|able))\b)"
    r"|later|e\.g|recommended|sold|selling|replac\w*|wait\w*|wish|want(?:ing)?(?!\sto\s(?:run|try|tried|use|know|load|test|see)\b(?!\s(?:an?|two|\d{1,2}\s?x|\d{3,4}|nvidia|amd|[rg]tx|rx|my\snew)\b))"
    r"|buy(?:ing)?|add(?:ing)?|getting\s(?:an?|another|one\smore)(?=\s\S*\d)|used to|soon|pending|planned"
    r"|(?:can|could|about to|to) order(?=\s(?:up|an?|some|another|more|two|\d))"
    r"|order(?:ing|ed)|on (?:order|the way)|arriving|went"
    r"|market|connect|separately|another (?:machine|pc|rig|box|server)"
    r"|(?:the )?(?:other|second) (?:is|machine|pc|rig|one|server|box))\b",
    _I,
)

# What shall stay free, which the request has limits for: `keep 4GB free`, `want 3-4gb left`, `8 GB of RAM reserved`.
_SOME_GB = rf"~?\d{{1,4}}(?:\.\d)?(?:\s?(?:-|–|to)\s?\d{{1,4}})?\s?{_UNIT}\b"
TO_KEEP = re.compile(
    rf"\b(?:keep(?:ing)?|leave|reserve)\s(?:[a-z]+\s){{0,3}}{_SOME_GB}(?!\s(?:(?:rtx|gtx|rx|nvidia|radeon)\s?)*\d)[^,;.)\n]{{0,40}}"
    rf"|\bwant\s(?:[a-z]+\s){{0,4}}{_SOME_GB}(?=[^,;.\n]{{0,30}}\b(?:left|free|unused)\b)[^,;.)\n]{{0,40}}"
    rf"|(?<![\d.]){_SOME_GB}\s(?!of\smemory\sreserved)(?:of\s)?(?:(?:the|my|system|main)\s)*(?:(?:v?ram|memory)\s)?"
    r"(?:is\s|are\s)?reserved\b(?!\s(?:in\stotal\s)?by\b)[^,;.)\n]{0,40}",
    _I,
)
# Words with a number that name no part: `one`, a year (of a Mac), a model's size that no memory has.
HARMLESS = re.compile(
    r"(?i:one|single)|0|200[1-9]|20[12]\d|(?!(?:8|16|24|32|48|64|96|128|192|256|512)[Bb])\d{1,4}(?:\.\d)?[Bb]"
)
# Makers of small computers, and the model behind one: `AWOW AK-10`. None of them makes cards.
OF_COMPUTER = re.compile(
    r"awow|acemagic(?:ian)?|aoostar|beelink|blackview|bmax|chuwi|geekom|gmktec|kamrui|minisforum|morefine|nipogi|ninkear"
    r"|peladn|topton|trigkey",
    _I,
)
MODEL_OF_COMPUTER = re.compile(r"[a-z]{1,2}-?\d{1,4}[a-z]?", _I)
# Words before a number that may say how many there are (`karty 2`), or which of several machines it is.
COUNTING = re.compile(
    r".*(?:ed|ing)|qty|quantit\w*|counts?|numbers?|nr|nos?|amounts?|times?|pieces?|pcs|units?|anzahl|totals?|devices?|boards?"
    r"|sli|crossfire|rank|nodes?|machine|host|server|rig|pc|box|schede|placas?|kort|kaarten|karty|kart\w*|videokort",
    _I,
)
# What a plan or an example is about, besides what is in its own clause: `GPU upgrade (pending): RTX 5060 Ti`.
LABEL = re.compile(r"[^\n:,]{0,40}:(?=([^\n]{0,300}))|(?<=e\.g)(?=([^)]{0,80}))", _I)

LINE_WORDS = frozenset((
    "nvidia", "geforce", "rtx", "gtx", "gt", "rx", "radeon", "arc", "tesla", "quadro", "instinct", "titan", "pro",
    "blackwell", "grid",
    "amd", "intel", "core", "ryzen", "epyc", "xeon", "xeons", "threadripper", "tr", "ultra", "snapdragon", "altra",
    "gold", "silver", "platinum", "bronze", "e5", "e7",
    "ampere", "grace", "celeron", "fx", "pentium", "athlon", "apple", "strix", "vega", "iris",
    "graviton", "graviton2", "graviton3", "graviton4",
))  # fmt: skip
GPU_LINE = re.compile(
    r"(?:(?:nvidia|geforce|amd|radeon|intel)\s+)*(?:rtx|gtx?|rx|geforce|radeon|arc|tesla|quadro|instinct|titan)(?:\s+(?:pro|ai|rx|xtx|xt|wx|hd))*"
    r"[\s-]+[a-z]{0,2}\d{2,5}\w{0,5}(?:\s+(?:ti|super|xtx?|laptop|mobile|max-q|ada|pro|blackwell|d)\b)*",
    _I,
)
CPU_LINE = re.compile(
    r"(?:(?:amd|intel|genuine|qualcomm|ampere)\s+){0,2}(?:\d{1,2}(?:st|nd|rd|th)\s+gen\s+(?:intel\s+)?)?"
    r"(?:(?:core[\s-]+)?(?:i-?[3579](?:[\s-]\d{4,5}\w{0,3})?|ultra\s+[579][\s-]+\w{3,5})|(?:r[3579]|r)\s\d{4}\w{0,3}"
    r"|core\s+[3579]\s+\d{3}\w{0,2}"
    r"|ryzen(?:[\s-]+(?:threadripper|pro|ai|max\+?|r?[3579](?!\w)|hx|z\d))*(?:[\s-]+(?:hx\s)?\d{3,5}\w{0,4}\+?)?"
    r"|(?:threadripper|tr)(?:\s+pro)?(?:[\s-]+\d{4}\w{0,3})?|epyc(?:[\s-]+(?:\d\w{3,5}|naples|rome|milan|genoa|bergamo|siena|turin))?"
    r"|(?:gold|silver|platinum|bronze)\s\d{4}\w{0,2}\+?|e[357][\s-]\d{4}\w?(?:\s?v[1-4])?|[elwx]5[456]\d{2}|[12]6\d{2}[al]?\s?v[1-4]|xeons?(?:\sprocessor)?[\s(-]+(?:skylake|(?:cascade|ice)[\s-]?lake|(?:sapphire|emerald)\s?rapids)(?:(?:,\s?\w+)*\))?|xeons?(?:[\s-]+(?:gold|silver|platinum|bronze|cpu|w|max|phi|(?:[ew][\d]?)(?=[\s-]*\d)))*(?:[\s-]+(?!\d{1,2}\b)[ewd]?\d?-?\d{4,5}\w{0,3}\+?(?:\s?v\d)?|[\s-]+e[3579]\b)?"
    r"|snapdragon(?:\s+x\d?)?(?:\s+(?:elite|plus|pro|extreme))?|altra(?:\s+max)?(?:\s+processor)?(?:\s+[qm]\d{2,3}-\d{2})?|a(?:96|128|144|192)-\d{2}x|grace(?:\s+cpu)?|graviton\s?[234]?|celeron\s\w+|pentium(?:\s(?:gold|silver))?(?:\s[a-z]{0,6}\d\w{2,5})?|athlon\s\w+|fx[\s-]{1,3}\d{4}e?"
    r"|\d{4}\w?(?=[^\S\n](?:cpus?|processors?)\b(?!\s?:))|(?:intel\s)?n(?:95|97|100|150|200|305)(?!\w))(?!\w)(?:\s+(?:cpus?|processors?))?",
    _I,
)
# Numbers of cards that processors have as well, which the catalogue lacks under the number alone.
ALSO_CPUS = {"5700": "AMD Ryzen 7 5700", "6600": "Intel Core i5-6600", "6700": "Intel Core i7-6700"}
OLD_RADEON = re.compile(r"(?:radeon\s)?r[579]\s?[23]\d0x?", _I)  # `R9 390`, as `R9 5900X` is a Ryzen
CPU_NUMBER = re.compile(
    r"(?:amd\s+|intel\s+)?(?:[12][2568][58][hukv]x?f?|1[0-4][1345679]00|7[bcfhjkrtv]\d{2}"
    r"|\d{4,5}(?:x3d2?|hx3d|hx|hk|hs|wx|xt|x|ge|g|h|u|kf|ks|k|f))",
    _I,
)
APU = re.compile(r"(?<!\d)(?:2[24]00|3[24]00|4[3-7][05]0|5[35-7][05]0|8[5-7]00)g$", _I)  # a Ryzen's, and no size
QUOTED = re.compile(
    r'(?:(\d{1,3})\s?x\s+)?(gpu|cpu)\s+"([^"\n]{1,200})"\s*((?:\[[^\[\]]{0,1000}\])?)'
    r"(?:\s?((?:\d{1,2} sockets?)?(?:\s?\d{1,4} cores?)?))",
    _I,
)
# But no version: `[0.22rc1 0.21]`. What ends in a unit is the memory of a card, as rigs are written here.
BRACKETS = re.compile(r"\[(?=[^\]]*\w)(?!\d{1,6}\.\d[\w. ]*(?<!ib)\])([^\[\]]{0,1000})\]", _I)
# A drive's name, which may also be a card's (Samsung's 980 Pro), with its size before or after.
_DRIVE = (
    r"(?:\d{1,2}\s?[x*]\s?)?(?:\d{1,5}(?:\.\d{1,2})?\s?[gt]b\s)?(?:samsung\s)?(?:ssd\s|nvme\s)?"
    r"(?:\bcrucial\s[bmpt]x?\d{1,4}\b(?:\s(?:plus|pro))?|\b[bm]x[1-5]00\b|\b(?:9[6-9]0|9100|8[4-7]0)\s(?:pro|evo|qvo)(?:\splus)?|(?<=samsung\s)9[6-9]0\b|(?<=samsung\sssd\s)9[6-9]0\b|(?:(?:wd|western\sdigital)[\s_])?(?:black\s|blue\s)?\bsn\d{3,4}x?)\b"
    rf"(?:\s\(?\d{{1,5}}(?:\.\d{{1,2}})?\s?[gt]b\b\)?)?(?:\s{_DISK}\b)*"
    rf"|(?:\d{{1,2}}\s?[x*]\s?)?\b(?:wd|western\sdigital|seagate|toshiba|hgst|sandisk|samsung|crucial|kingston)\s(?:[a-z]+\s){{0,3}}\d{{1,2}}(?:\.\d)?\s?tb\b(?:\s(?:nas\s)?{_DISK}\b)*"
)
OTHER_DEVICE = re.compile(
    rf"\b{_DISK}\b|{_DRIVE}|\b(?:nics?|\d{{1,3}}gbe|ethernet|hba|raid|wi-?fi|optane|swap|zram|page\s?file)\b", _I
)
# What else a machine has, and how its parts are run: no figure is taken from it.
_NO_MEMORY = r"(?!\d+\s?[gt]i?b?\b|[gt]i?b\b|(?:lp)?ddr\d)"
BOARD = re.compile(
    rf"\b(?:(?!and\b|plus\b|with\b){_NO_MEMORY}[\w-]+\s){{1,5}}(?:motherboard|mainboard|carrier\sboard|mobo|aio|(?:cpu\s)?cooler)\b(?!\sram)",
    _I,
)
BOARD_WORD = re.compile(r"(?:mother|main|carrier\s)board|mobo|\baio\b|cooler", _I)
NOTE = re.compile(
    rf"{_SERIES}|{_DRIVE}"
    r"|\(\d{1,2}\s?[x*]\s?\d{1,3}(?:\s?gb?)?(?:\s?\+\s?\d{1,2}\s?[x*]\s?\d{1,3}(?:\s?gb?)?)+\)|(?:\d{1,2}\s?[x*]\s?)?\d{1,5}(?:\.\d{1,2})?\s?[gt](?:i?b)?\s(?:of\s)?(?:swap(?:\s?file|\s?partition|\s?space)?|zram|page\s?file|cache|virtual\s(?:\w+\s)?(?:memory|ram))\b"
    r"|(?:swap(?:\s?file)?|zram|page\s?file)\s?[:=]?\s?(?:of\s)?\d{1,5}(?:\.\d{1,2})?\s?[gt]i?b\b|no\s(?:swap|page\s?file)\b"
    r"|(?:\d{1,2}\s?[x*]\s?)?\d{1,5}(?:\.\d{1,2})?\s?[gt]b\s(?:of\s)?(?:(?:pcie|gen\s?\d|[345]\.0|x4|sata|fast|samsung|intel|optane|wd|usb|external|internal"
    r"|root|boot|container|volume|local|network|persistent|ephemeral)\s){0,3}"
    rf"{_DISK}(?:\s{_DISK}|\sraid\s?\d?)*\b"
    rf"|{_DISK}(?:\sspace)?\s?[:=]?\s?(?:\(\s?~?)?\d{{1,5}}(?:\.\d{{1,2}})?\s?[gt]b\b(?:/s)?"
    rf"|(?:\d{{1,2}}\s?x?\s?)?(?:(?:pcie|gen\s?\d)\s)?{_DISK}(?:\sgen\s?\d)?\b(?!\s?[:=]?\s?\(?~?\d)"
    r"|(?:\d\s?x\s)?\d{3,4}\s?w(?:atts?)?\s(?:total|psus?|power\ssuppl(?:y|ies))\b"
    r"|(?:metal\s|recommended\s?)?(?:max\s?)?working\s?set(?:\s?size)?\s?[:=]?\s?~?\s?\d{1,3}(?:\.\d{1,2})?\s?gi?b\b|(?:up\sto|max(?:imum)?)\s\d+\s?gb\s(?:of\s)?vram"
    r"|\(?(?:@\s?|at\s|with\s)?(?:(?:power[\s-]?)?(?:limit(?:ed)?|capp?(?:ed)?|draw)\s?(?:to|at|of|is)?\s?[:=]?\s?|pl\s?[:=]?\s?)?"
    r"\d{2,3}\s?w(?:atts?)?\b(?:\s?/\s?(?:card|gpu)\b|\s(?:each|(?:a|per)\s(?:card|gpu)|tdp|power[\s-]limit|limit))?\)?"
    r"|(?:t[57]\d10|z[4-8][24]0|r[67][1-4]0(?:xd)?|dl3[68]0p?)\b|(?:precision|poweredge|optiplex|thinkstation|proliant|(?:pro|elite)desk)\s(?:[a-z]+\s?)?\d[\w-]*"
    r"|(?:dell|hpe?|lenovo|supermicro|asrock(?:\srack)?|gigabyte|asus|fujitsu|tyan|gmk-?tek(?=\sevo-x1\b))\s(?!gx10\b|z2\smini\sg1a\b)"
    r"(?:pro\s(?:ws\s)?|poweredge\s|precision\s|thinkstation\s|proliant\s)?[a-z]+(?:-[a-z]{1,3})?\d[\w-]*|gen(?:eration)?\s?\d\b|\d(?:st|nd|rd|th)\sgen\b(?!\s(?:intel\s)?(?:core\s)?i[3579]\b(?![\s-]?\d{4}))"
    r"|(?:linux\s)?kernel\s?:?\s?(?:linux\s)?\d[\w.-]*|\(?\d{1,4}(?:\.\d{1,2})?\s?(?:gi?b\s)?usable\)?|compute\scapability\s?:?\s?(?:\d+\.\d+|\(\d+,\s?\d+\))|@?\s?\d(?:\.\d{1,4})?\s?ghz\b|\d\.\d{1,2}g(?=\s\d{1,3}\scores\b)|\d{1,4}[/.-]\d{1,2}[/.-]\d{2,4}(?:\s\d\d:\d\d:\d\d(?:\s[+-]\d{3,4})?)?(?![\w.-])|fclk\s?=?\s?\d{3,4}\b|\d{2}(?:-\d{2}){2,3}\b|[124]rx?[48]?\b(?=\s)|\d{1,2}/\d{1,2}(?=\s\d+\s?pci|\s*threads?)"
    r"|(?:x79|x99|x299|x399|[xb][345678]50e?|[xb][4568]70e?|b[678]60m?|b[78]40|z[1-8][79]0|h110|h[5-8][17]0|b[12]50|b36[05]|q\d70|w[4-7][89]0|trx[45]0|wrx[89]0|c6[12]\d|c422)"
    r"(?:[\s-]?[a-z]|\s(?:aorus|gaming|taichi|hero|pro|elite|chipset|platform|board|10g)\b(?:\s(?:elite|pro|wifi|ax|plus|v2|10g)\b)*)?(?![\w.])"
    rf"|(?:{_LAPTOPS}|xps|legion|nitro|predator|omen|pavilion|nuc|alienware|blade|framework(?!\sdesktop)|proart|inspiron|vostro"
    r"|aspire)(?:\s(?:pro|slim|flow|strix|laptop|book|studio|go|duo|fury|power|s(?=\s\d))\b){0,2}"
    r"(?:\s?(?!z1\sextreme)(?:[a-z]\d{1,3}[a-z]?(?:-\d\d)?|\d{1,3}[il]?)\b(?!\s?(?:gb|g|gigs?|tb|x)\b))?"
    r"(?:\s(?![1-5]0[5-9]0\b|16[56]0\b)\d{4}\b(?!\s?(?:gb|g|gigs?|tb)\b))?(?:\s(?:pro|slim|carbon|hx|gen\s?\d)\b)*"
    r"|rog\s(?:strix|ally)(?:\s[a-z]\d{2})?\b"
    r"|(?:\d{1,2}\s?[x*]\s?)?(?:arm\s)?(?:(?:cortex|neoverse)-\w+|x925\b|a725\b)|llvmpipe(?:\s\([^)\n]{1,60}\))?"
    r"|navi\s?\d\d(?:\s?(?:xt|xtx|xl|gre))?\b|(?:4|8|10|16|20|24|32|40|48|64|80|96|100|128|131|160|164|192|200|256|262|512)k\b(?:\s(?:ctx|context|tokens?))?|zen\s?[1-6]\+?(?!\w)|rdna\s?[1-4](?:\.5)?|gfx\d{3,4}[a-z]?\b|sm_?\d{2,3}[a-z]?\b|\d{1,3}\ssms\b|ccd\s?\d\b"
    r"|l[123]:?\s\d{1,4}\s?[mk]i?b\b|\d{1,4}\s?[mk]b\s(?:l[123]\b|v-?cache|cache|on-die)|~?\d{1,3}(?:\.\d{1,2})?\s?%(?:\s(?:power\s(?:limit|target)|pl\b))?"
    r"|\d{1,5}(?:\.\d{1,2})?\s?(?:t/s|tps|tok(?:en)?s?(?:/s|\sper\ss|\s?/\s?sec)\w*)\b|\d{1,2}\syears?\b(?:\sold)?|\d{1,2}\s(?:reps?|repetitions|runs)\b|\d{1,3}\scus?\b|i?q\d_\w+(?:\s?\(\d{1,4}(?:\.\d{1,2})?\s?gi?b\))?|(?:\d{1,4}\s?(?:-|to)\s?)?\d{1,4}(?:\.\d)?\s?(?:seconds?|secs?|minutes?|mins?|hours?|hrs?)\b|"
    r"\d{1,5}\s(?:rdna\s?[1-4](?:\.5)?\s)?(?:cuda\scores?|(?:stream|shader|compute|tensor|execution|xmx|rt|ray)\s(?:cores?|processors?|units?|engines?|accelerators?))\b"
    r"|(?:cuda\scores?|(?:stream|shader|compute|tensor|execution|xmx|rt|ray)\s(?:cores?|processors?|units?|engines?|accelerators?))\s?:?\s\d{1,5}\b"
    r"|llama\.cpp\s\(?b?\d{4,5}\b\)?|(?:build|version)\s?[:=]?\s?b?[4-9]\d{3}\b(?!\s?(?:gb|mb|mhz|mt))"
    r"|(?:qwen|llama(?!\.cpp)|gemma|mi[sx]tral|deepseek|phi-?\d|gpt-oss|glm-?\d|kimi(?:[\s-]k\d(?:\.\d)?)?|minimax|falcon|codellama)[\w.:-]*"
    r"(?:\s\d(?:\.\d)?(?=\s\d{1,4}b\b))?(?:\s?\(?\d{1,4}(?:\.\d)?b\b\)?)?"
    r"|\d{1,3}(?:\.\d)?b\s(?:models?|param(?:eter)?s?)\b|(?:\d{1,3}|two|three|four|five|six|seven|eight|ten)\s(?:models|users|agents)\b"
    r"|--[a-z]+[_-][\w-]+[\s=]\d{1,6}\b|--?(?:n-?cpu-?moe|ncmoe|ngl|n-gpu-layers|ctx-size|threads|parallel|u?b|np|c|t)[\s=]\d{1,6}\b|\b(?:tp|pp|ngl|n?t|n_threads(?:_batch)?|total_threads)\s?=\s?\d{1,4}\b"
    r"|(?:beta|alpha|preview|rc)\s?\d{1,2}\b|64[\s-]bits?\b|bits?:\s?(?:32|64)\b|#\d{1,2}\b|\d{1,2}\spci-?e?[\s-](?:ports?|slots?)\b"
    r"|[-−+~]?\d{1,3}\s?mv\b|uma(?:\s(?:frame\s?buffer|size|is|set\sto))*\s?[:=]?\s?\d{1,3}\s?mi?b?\b"
    r"|\d{1,3}\s?MB\sshared\b|(?<=\+\s)\d{1,3}(?:\.\d)?\s?gb\sshared\b(?!\s(?:with|sys))|\d{1,3}\sMB\b(?!/s)|2\dh[12]\b|80\s?(?:\+|plus\b)(?:\s(?:white|bronze|silver|gold|platinum|titanium)\b)?|(?:ga10|ad10|gb20|tu1[01]|gp10)[2-8]\b"
    r"|(?:(?:intel\s)?u?hd|iris\sxe|iris\splus)(?:\s(?:graphics\s)?(?:[2-6]000|2500|4[246]00|5[35]00|[5-7][0-7][05]|617)\b|\sgraphics\b)(?:\s[12](?:\.\d)?gb\b)?(?:\s\(?(?:integrated|igpu)\)?|\s\(\d{1,2}\s?gb\sshared[\w\s]{0,12}\))?"
    r"|(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?\b(?![.:]|\s?[gmt]i?b\b)|\d{1,3}\s?(?:分鐘|分钟)"
    r"|\d{1,3}\s?(?:°\s?[cf]?|nm\b)|\d{3,4}(?:x|\sx\s)\d{3,4}\b(?:\s?@\s?\d{2,3}(?:\.\d+)?\s?hz\b)?|\d{2,3}\s?hz\b"
    r"|(?:intel|amd)\s?64\sfamily\s\d+\smodel\s\d+\sstepping\s\d+(?:,?\s(?:genuineintel|authenticamd))?\b"
    r"|x(?:64|86)(?:[_-]\w+)?\b(?!\s?gi?b\b)|\d+(?:\.\d+)?\sgb\sof\smemory\sreserved\b"
    r"|\(?(?:mac(?:book(?:pro|air)?|mini|\s?pro\s?)?|imac(?:pro)?)\d{1,2},\d{1,2}\b\)?|l4t\sr?[\d.]+|jetpack\s[\d.]+|\d{1,2}\s(?:performance|efficiency)\b(?:\scores?)?|\(?\d{2}g-p\d-\d{4}-\w{2}\)?|lga\s?[:-]?\s?\d{3,4}|socket\s(?:am[45]|sp[3-6])|\b(?:am[45]|sp[3-6])\b|\d[\s-]way\b|\d(?:\.\d)?k\sdisplay"
    r"|\d{1,2}\snuma\b(?:\snode(?:\(s\)|s)?)?|numa\snodes?\s?[:=]\s?\d{1,2}\b|\b(?:nps|snc)[\s=:-]{1,3}[0-8]\b|(?:\b\d{1,4}\s?x\s)?(?:\b[12]\s?[gm]i?b?\s)?\bhuge\s?pages?\b(?:\s?[=:(]?\s?[12]\s?[gm]i?b?\b)?(?:\s?[x*=:]\s?\d{1,6}\b)?|(?:single|dual|quad|hexa|octa)[\s-]core\b(?!s)|\d{1,3}c\b(?!\s?/)"
    r"|\(?(?:\d{1,2}|two|four|eight)\s(?:sticks|dimms|modules)\b(?!\s(?:of\b|\d))\)?"
    r"|(?:\d{1,3}|two|four|eight|sixteen)\slogical\s(?:cores?|processors?|cpus?)(?:\sof\san?)?\b"
    r"|(?:dual|triple|two|three|[2-4]\s?x)\s(?:[\w-]{1,20}\s){0,3}(?:monitors|screens|displays)\b|\d{1,2}\s(?:case\s)?fans\b|(?:phanteks|fractal|define|meshify|torrent|lian[\s-]li|corsair|nzxt|silverstone)\s(?:[\w!.-]{1,16}\s){0,4}case\b|[2-4]\d[\"”](?=\s)|gpd\swin\s(?:max|mini)?\s?\d\b"
    r"|(?:early|mid|late|in|since|from)[\s-]20[12]\d\b|(?:[$€£¥]|\b(?:eur|usd|gbp)\s)\s?\d[\d,.]{0,9}k?|\d+(?:\.\d+)?\s?(?:€|(?:万元?|元|usd|eur|dollars?|euros?|bucks)\b)"
    r"|one\sof\s(?:my|the|them|these|its|our)\b(?:\s\w+)?|(?:each|this|that|which|the)\sone\b"
    r"|\(?\d{1,2}\s?[pe](?:-?cores?)?\s?\+\s?\d{1,2}\s?[pe](?:-?cores?)?(?:\s?\+\s?\d{1,2}\s?lp-?e(?:-?cores?)?)?\b\)?"
    r"|[2-8]\s?x\s?pci-?e\s(?:gen\s?)?[1-6](?:\.0)?\s?x\s?\d{1,2}\b|[2-8]\s?x?\s?pci-?e\s(?:gen\s?)?[1-6](?:\.0)?\s?x\s?\d{1,2}\sslots?\b|\d{1,2}\sof\s\d{1,2}\s(?:slots?|dimms?|channels?|populated|used)\b"
    r"|gt[12]e?\b(?:,?\s\d{1,3}\seus?\b)?|(?:uma|fp16|bf16|int\sdot|warp\ssize|matrix\scores|logical\sprocessors)\s?[:=]\s?\w{1,12}\b"
    r"|\d{1,5}(?:\.\d{1,2})?\s?(?:[tp]?flops|[mg]bps|dlperf|open\sports|ports)\b|\d{1,5}(?:\.\d{1,2})?\smb/s(?:\s\d{1,5}\.\d\s[gt]b\b)?|dlperf\s?:?\s?\d{1,5}(?:\.\d{1,2})?"
    r"|(?:npu:?\s)?xdna\s?\d?\b|\d{1,3}\s?tops\b(?:\sint\s?\d)?|int\s?8\b"
    r"|(?:amd\s)?radeon\sgraphics\b(?:\s?\(?\d{1,2}(?:\.\d)?\s?gb\b\)?)?"
    r"|~?\d{1,4}(?:\.\d{1,2})?\s?gb/s\s(?:theoretical|peak|max)|nps[0124]\b|\d{1,3}\s?(?:cpu\s)?pci-?e?\s?(?:[1-6]\.\d\s)?lanes?\b|(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|\d{1,3}[\s-]?(?:threads?|workers)\b|driver(?:\sversion)?\s?[:=]?\s?[\d.]+"
    r"|cuda ?[:=]? ?(?:\d+(?:\.\d+)*\b(?! ?g)|\(v?\d+(?:\.\d+)*\)?)"
    r"|(?:under-?volted|over-?clocked|water-?cooled|headless|founders(?:\sedition)?|fe|evga|msi|asus|gigabyte|zotac|palit|gainward|pny|inno3d|suprim|ventus"
    r"|aorus|ftw3|xc3|tuf|blower|risers?|lite\shash\srate|lhr"
    r"|sapphire|powercolor|xfx|asrock|sparkle|turbo|gaming\s(?:oc|x|z|trio|pro)|trio|eagle|windforce|pulse|nitro"
    r"|red\s(?:devil|dragon)|hell\s?hound|merc(?:\s\d{3})?|qick(?:\s\d{3})?|speedster|challenger|steel\slegend"
    r"|limited\sedition|(?:ai\s)?pro(?=\s\d{2,3}\s?gb\b))\b",
    _I,
)


def gigabytes(size: re.Match[str]) -> float:
    """Return the gigabytes of a matched size."""
    groups = size.groups()
    if groups[0] is None:
        return float(groups[2])
    unit = groups[1] if len(groups) > 1 and groups[1] else re.sub(r"[^a-z]", "", size[0].lower())
    return float(groups[0]) * {"t": 1024, "m": 1 / 1024}.get(unit[0].lower(), 1)
