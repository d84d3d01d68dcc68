"""What a pasted command or log is reduced to before it is kept, queued or logged: what runs, not whose and where.

Values of key, token and host options are hidden, paths become base names, names of users and machines, addresses,
e-mail, GPU UUIDs and serial numbers are hidden. Figures, flags and the lines of the engines stay as they are.
"""

from __future__ import annotations

import re

HIDDEN = "hidden"

_TOLD_NOBODY = "api-key-file|api-key|hf-token|token|password|secret|ssl-key-file|ssl-cert-file|host|hostname|rpc"
_VALUE = r"(?:\"[^\"\n]{0,4000}\"|'[^'\n]{0,4000}'|[^\s\"']{1,4000})"
_OPTION = re.compile(rf"(?<![\w-])(--(?:{_TOLD_NOBODY})|-hft|-rpc)(=|[ \t]{{1,20}}(?!-)){_VALUE}")
_ASSIGNED = re.compile(
    r"(?<![\w-])((?:[A-Z][A-Z0-9_]{0,60}_)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|HOST|HOSTNAME))(=|:[ \t]{1,4})" + _VALUE
)
_QUOTED_KEY = re.compile(
    r"(?i)(\"[a-z_-]{0,30}(?:api_?key|token|secret|password|hostname)\"[ \t]{0,8}:[ \t]{0,8})\"[^\"\n]{0,4000}\""
)
_SHAPED = re.compile(
    r"(?<![\w-])(?:hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[abpr]-|adv_|ahs_|AKIA|eyJ)[\w.~+/-]{12,4000}"
    r"|(?i:(?<=bearer )[\w.~+/=-]{8,4000})"
)
_LABELLED = re.compile(
    r"(?i)\b((?:static )?hostname|host ?name|computer ?name|user ?name|machine[ -]?id|boot id|"
    r"serial(?: number)?|asset tag)([ \t]{0,40}[:=][ \t]{0,8})(?!hidden\b)[^\s,;][^\n,;]{0,200}"
)

_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:[\\/]{1,2}Users[\\/]{1,2})([^/\\\s\"':;,]{1,64})")
_PROMPT = re.compile(
    r"(?m)^[ \t]{0,8}(?:\([^)\n]{1,40}\) ?)?\[?([\w.-]{1,32})@([\w.-]{1,64})[: ][^\n$#%]{0,200}[$#%][ \t]"
)
_UNAME = re.compile(r"(?m)^(?:Linux|Darwin) ([\w.-]{1,64}) \d{1,2}\.")
_SYSLOG = re.compile(r"(?m)^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([\w.-]{1,64}) [\w./@-]{1,64}(?:\[\d{1,9}\])?: ")
_NAMING = (_HOME, _PROMPT, _UNAME, _SYSLOG)
# Names that say nothing of a person, or that engines and tools use in their own lines.
_COMMON = re.compile(
    "(?i)root|users?|ubuntu|debian|admin(istrator)?|home|models?|llama([.]cpp)?|server|localhost|default|public|shared"
    "|docker|container|app|runner|build|bin|main|test|[cgt]pu|cuda|data|work(space)?|hidden|graph|layer|row|none|[0-9]+"
)
_MOST_NAMES = 16

_PUBLIC_SITES = ("huggingface.co", "hf.co", "github.com", "modelscope.cn", "reddit.com")
_PIECE = r"[^\s/\\\"'`,;|()<>*?\x00-\x1f]{1,255}"
_FOUND = re.compile(
    r"(?P<url>(?<![\w+.-])[a-z][a-z0-9+]{1,9}://[^\s\"'<>`]{1,2000})"
    r"|(?P<quoted>(?P<q>[\"'])(?:[A-Za-z]:[\\/]|\\\\[A-Za-z]|[~.]{0,2}/)[^\"'\n]{0,2000}(?P=q))"
    rf"|(?P<windows>(?<![\w\\/])(?:[A-Za-z]:[\\/]{{1,2}}|(?<![^\s=])\\\\(?=[A-Za-z]))(?:{_PIECE}[\\/]{{1,2}}){{0,40}}(?:{_PIECE})?)"
    rf"|(?P<unix>(?<![\w.:/\\)\]*?~-])(?:~|\.{{1,2}})?(?:/{_PIECE}){{1,40}}/?)"
    rf"|(?P<relative>(?<![\w.:/\\-])[\w.-]{{1,255}}(?:/{_PIECE}){{1,40}}\.gguf(?![\w.]))"
    r"|(?P<mail>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})"
    r"|(?P<uuid>(?<![\w-])(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<mac>(?<![\w:])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:]))"
    r"|(?P<v4>(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]))"
    r"|(?P<v6>(?<![\w:.])(?:(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}|[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6}::"
    r"(?:[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6})?)(?![\w:]))"
)


def reduced(text: str) -> str:
    """Return `text` without what names a person, a machine or a secret. Reducing twice changes nothing more."""
    names = sorted(_names(text), key=len, reverse=True)
    text = _OPTION.sub(rf"\1\2{HIDDEN}", text)
    text = _ASSIGNED.sub(rf"\1\2{HIDDEN}", text)
    text = _QUOTED_KEY.sub(rf'\1"{HIDDEN}"', text)
    text = _SHAPED.sub(HIDDEN, text)
    text = _LABELLED.sub(rf"\1\2{HIDDEN}", text)
    text = _FOUND.sub(_replacement, text)
    if names:
        text = re.sub(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])", HIDDEN, text)
    return text


def _names(text: str) -> set[str]:
    found = {name for pattern in _NAMING for match in pattern.finditer(text) for name in match.groups()}
    return set(sorted(filter(_is_personal, found))[:_MOST_NAMES])


def _is_personal(name: str) -> bool:
    return len(name) >= 2 and not _COMMON.fullmatch(name)


def _replacement(match: re.Match[str]) -> str:
    kind, found = match.lastgroup or "", match[0]
    if kind == "url":
        return _url(found)
    if match["quoted"]:
        return match["q"] + _base_name(found[1:-1]) + match["q"]
    if kind in ("windows", "unix", "relative"):
        return _base_name(found)
    if kind == "v4":
        return found if _is_no_address(found) else HIDDEN
    return found if found == "::1" else HIDDEN


def _url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    site = authority.rpartition("@")[2].lower()
    if not any(site == known or site.endswith("." + known) for known in _PUBLIC_SITES):
        return f"{scheme}://{HIDDEN}"
    return f"{scheme}://{site}{slash}{re.split('[?#]', path)[0]}"


def _base_name(path: str) -> str:
    pieces = [piece for piece in re.split(r"[\\/]+", path) if piece]
    return pieces[-1] if pieces else path


def _is_no_address(dotted: str) -> bool:
    """Whether four numbers are no host's: this machine's own, or a version."""
    return dotted.startswith("127.") or dotted == "0.0.0.0" or any(int(n) > 255 for n in dotted.split("."))  # noqa: S104
