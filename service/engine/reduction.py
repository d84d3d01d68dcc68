"""What a pasted command or log is reduced to before it is kept, queued or logged: what runs, not whose and where.

Values of keys, tokens, passwords, users and hosts are hidden, paths become base names, names of users and machines,
addresses, e-mail, GPU UUIDs and serial numbers are hidden. Figures, flags and lines of the engines stay as they are.

A megabyte of anything must be quick. So each pattern begins with a literal or a small set of characters, and looks
behind them afterwards: `re` skips what begins no match. What a pattern takes, it does not read again, and none crosses
the end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

HIDDEN = "hidden"
_CHUNK = 1 << 13  # characters, to the end of the line: for so long nothing else runs, and steps are left out
_LONGEST_LINE = 1 << 17
_KEPT_OF_LINE = 1 << 15  # so much less that no replacement makes it too long again


class _Step(NamedTuple):
    """A pattern and what becomes of its matches. Where a text holds none of `signs`, there is none."""

    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]


_QUOTED_VALUE = r"\"[^\"\n]*\"?|'[^'\n]*'?"
_BARE_VALUE = r"[^\s\"']+(?:[\"']\w[^\s\"']*)*"
_LABELLED = re.compile(
    r"([deglrDEGLR](?<=[A-Za-z].)(?=[ \t]{0,40}[:=])(?i:(?<=name)(?:(?<=\bhostname)|(?<=\bhost name)"
    r"|(?<=\bcomputername)|(?<=\bcomputer name)|(?<=\busername)|(?<=\buser name))|(?<=\bmachine-id)|(?<=\bmachine id)"
    r"|(?<=\bmachineid)|(?<=\bboot id)|(?<=\bserial)|(?<=\bserial number)|(?<=\basset tag))[ \t]{0,40}[:=][ \t]{0,8})"
    r"(?!hidden\b)[^\s,;][^\n,;]{0,200}"
)
_TOLD_NOBODY = (
    "api-key-file|api-key|hf-token|token|password|passwd|secret|username|ssl-key-file|ssl-cert-file|hostname|host|rpc"
)
_OPTION = re.compile(
    rf"(-(?<![\w-]-)(?:-(?:{_TOLD_NOBODY})|hft|rpc|-user(?==)|(?:u|-user)(?=[ =][^\s:]{{1,64}}:)|p(?<=sshpass -p))"
    rf"(?:=|[ \t]{{1,20}}(?!-)))(?:{_QUOTED_VALUE}|{_BARE_VALUE})"
)
# What somebody wrote to a model. `-p` has numbers in llama-bench, and paths and ports in other programs.
_PROMPT = re.compile(
    rf"(-(?<![\w-]-)(?:p(?=[ \t]{{1,20}}[\"'](?!\d[\d,:./+*-]{{0,99}}[\"']))|sys|-prompt|-system-prompt)"
    rf"(?:=|[ \t]{{1,20}}(?!-)))(?:{_QUOTED_VALUE}|{_BARE_VALUE})"
)
# `NAME=value`, `name: value` and `"name": "value"`: from the last letter of the name.
_IS = r"\\?[\"']?[ \t]{0,8}[=:][ \t]{0,8}"
_ASSIGNED = re.compile(
    rf"([DEHNRSTYdehnrsty](?<=[A-Za-z]{{2}}.)(?=\\?[\"']?[ \t]{{0,8}}[=:])"
    r"(?:(?i:(?<=password)|(?<=passwd)|(?<=passphrase)|(?<=secret)|(?<=api[_-]key)|(?<=apikey))"
    rf"|(?i:(?<=(?<![a-z])pass)|(?<=(?<![a-z])pwd))(?!{_IS}\d{{1,3}}(?!\w))"  # `pass: 3`, `pass = 1/2`
    r"|(?i:(?<=(?<![a-z0-9-])user)|(?<=(?<![a-z0-9-])username)|(?<=(?<![a-z0-9-])login))"
    rf"(?!{_IS}(?:\d|Hello\b|How ))"  # `User: Hello`: the chats that engines print as examples
    r"|(?:(?<=(?<![A-Za-z0-9-])KEY)|(?<=(?<![A-Za-z0-9-])TOKEN)|(?<=(?<![A-Za-z0-9-])HOST)"
    r"|(?<=(?<![A-Za-z0-9-])HOSTNAME))(?==|:[ \t])"
    rf"|(?i:(?<=token))(?={_IS}[\w.~+/-]{{16}})|(?i:(?<=token)|(?<=hostname))(?=\\?\"{_IS}\\?\"))"
    rf"{_IS})(?![=:{{\[]|(?:null|true|false)\b)(?:(\\?[\"'])(?:(?<=\")[^\"\n]*\"?|(?<=')[^'\n]*'?)|{_BARE_VALUE})"
)


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern for words of at least two characters that follow no other word."""
    listed = list(words)
    firsts = "".join(sorted({re.escape(word[0]) for word in listed}))
    return rf"[{firsts}](?<![\w-].)(?:{'|'.join(f'(?<={re.escape(w[0])}){re.escape(w[1:])}' for w in listed)})"


_SHAPES = (
    "hf_", "sk-", "gho_", "ghp_", "ghs_", "ghu_", "github_pat_", "glpat-", "xoxa-", "xoxb-", "xoxp-", "xoxr-",
    "adv_", "ahs_", "AKIA", "eyJ",
)  # fmt: skip
_SHAPED = re.compile(_any_of(_SHAPES) + r"[\w.~+/-]{12,}")
_BEARER = re.compile(r"([Bb](?i:earer) )[\w.~+/=-]{8,}")

_PERSON = r"[^\s/\\\"':;,]{1,64}"
_FULL_NAME = r"[\w.'-]{1,64}(?: [^\W\d_][\w.'-]{0,63}){1,3}(?=[\\/])"  # of a folder: what follows must tell its end
_HOME = re.compile(rf"[\\/](?:home/|Users[\\/]{{1,2}})(?:(?=({_FULL_NAME})))?({_PERSON})")
_LINE = re.compile(
    r"\n(?!\n)(?:[ \t]{0,8}(?:\([^)\n]{1,40}\) ?)?\[?([\w.-]{1,32})@([\w.-]{1,64})[: ][^\n$#%]{0,200}[$#%][ \t]"
    r"|(?:Linux|Darwin) ([\w.-]{1,64}) \d{1,2}\."
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([\w.-]{1,64}) [\w./@-]{1,64}(?:\[\d{1,9}\])?: )"
)
_REMOTE = re.compile(r"[mrs](?:sh|cp|ftp|sync|osh)(?:-copy-id)? [^\n]{1,400}")
_TARGET = re.compile(r"(?<![^\s\"'])(?:([\w.-]{1,32})@([\w.-]{1,64})|([\w.-]{2,64}):(?=~|/(?!/)))")
# Names that say nothing of a person, or that engines and tools use in their own lines.
_COMMON = re.compile(
    "(?i)root|users?|ubuntu|debian|admin(istrator)?|home|models?|llama([.]cpp)?|server|localhost|default|public|shared"
    "|docker|container|app|runner|build|bin|main|test|[cgt]pu|cuda|data|work(space)?|hidden|graph|layer|row|none|[0-9]+"
)
_MOST_NAMES = 16

_PUBLIC_SITES = (".huggingface.co", ".hf.co", ".github.com", ".modelscope.cn", ".reddit.com")
_URL = re.compile(r"://(?<=[A-Za-z0-9]{2}://)(?<!huggingface://)[^\s\"'<>`]{1,2000}")
_PIECE = r"[^\s/\\\"'`,;|()<>*?\x00-\x1f]{1,255}"
_FOLDERS = rf"(?:(?:home|Users)[\\/]{{1,2}}{_FULL_NAME}[\\/]{{1,9}}|{_PIECE}[\\/]{{1,9}}){{0,200}}"
_UNIX_FOLDERS = rf"(?:(?:home|Users)/{_FULL_NAME}/{{1,9}}|{_PIECE}/{{1,9}}){{0,200}}"
_QUOTED = re.compile(
    r"([\"'])(?:[A-Za-z]:[\\/]|\\\\(?=[A-Za-z])|[~.]{0,2}/)(?:[^\"'\n]{0,2000}[\\/])?([^\"'\n\\/]{1,2000})[\\/]{0,9}\1"
)
_DRIVE = re.compile(rf"[A-Za-z](?<![\w\\/].):[\\/]{{1,9}}{_FOLDERS}({_PIECE})[\\/]{{0,9}}")
_SHARE = re.compile(rf"\\\\(?<![^\s=]..)(?=[A-Za-z]){_FOLDERS}({_PIECE})[\\/]{{0,9}}")
_RELATIVE = re.compile(rf"[\w.-](?<![\w.:/\\-].)[\w.-]{{0,254}}(?:/{_PIECE}){{0,200}}/({_PIECE}\.gguf)(?![\w.])")
_UNIX = re.compile(
    r"[~./](?<![\w./\\)\]*?~-].)(?:(?<=~)/|(?<=\.)\.?/|(?<=/)(?!(?<=:/)/)(?!(?<=</)[\w:-]{1,40}>))"  # no </script>
    rf"{_UNIX_FOLDERS}({_PIECE})/{{0,9}}"
)
_MAIL = re.compile(r"[\w.+-](?<![\w.+-].)[\w.+-]{0,63}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_UUID = re.compile(r"(?:GPU|MIG)-(?<![\w-]....)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BYTE = r"(?:25[0-5]|2[0-4]\d|[01]?\d{1,2})"
_ADDRESS = re.compile(
    r"[0-9A-Fa-f](?<!\w.)(?:(?<!:.)(?:[0-9A-Fa-f][:-](?:[0-9A-Fa-f]{2}[:-]){4}[0-9A-Fa-f]{2}(?![\w:])"
    r"|(?:[0-9A-Fa-f]{0,3}:(?:[0-9A-Fa-f]{1,4}:){3,6}[0-9A-Fa-f]{1,4}"
    r"|[0-9A-Fa-f]{0,3}(?::[0-9A-Fa-f]{1,4}){0,6}::(?:[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6})?)(?![\w:]))"
    # Not this machine's own, and no version: numbers beyond 255 are no host's.
    rf"|(?<![.-].)(?!(?<=1)27\.|(?<=0)\.0\.0\.0(?!\d))(?:(?<=2)(?:5[0-5]|[0-4]\d)|(?<=[01])\d{{2}}|(?<=\d)\d?)"
    rf"(?:\.{_BYTE}){{3}}(?![\w.]))"
)


def reduced(text: str) -> str:
    """Return `text` without what names a person, a machine or a secret. Reducing twice changes nothing more.

    Of a line with more than 131,072 characters the first 32,768 are kept, and how many are left out is said.
    """
    chunks = list(_chunks(text))
    names = _names(chunks)
    steps = list(_STEPS)
    if names:
        steps.append(_Step(tuple(names), re.compile(_any_of(names) + r"(?![\w-])"), HIDDEN))
    return "".join(_taken(steps, chunk) for chunk in chunks)


def _taken(steps: Sequence[_Step], text: str) -> str:
    for signs, pattern, replacement in steps:
        if any(map(text.__contains__, signs)):
            text = pattern.sub(replacement, text)
    return text


def _chunks(text: str) -> Iterator[str]:
    """Yield the text in whole lines, some kilobytes at a time."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + _CHUNK) + 1 or len(text)
        chunk = text[begin:end]
        yield chunk if len(chunk) <= _LONGEST_LINE else "\n".join(map(_cut, chunk.split("\n")))
        begin = end


def _cut(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    kept = line[:_KEPT_OF_LINE].rpartition(" ")[0] or line[:_KEPT_OF_LINE]  # no half of a secret, which hides its kind
    return f"{kept} [{len(line) - len(kept):,} characters of this line left out]"


def _names(chunks: Iterable[str]) -> list[str]:
    """Return the names of persons and machines that paths, prompts and logs give away, the longest first."""
    found: set[str | None] = set()
    for chunk in chunks:
        for pattern in (_HOME, _LINE):
            found.update(name for match in pattern.finditer("\n" + chunk) for name in match.groups())
        for line in _REMOTE.findall(chunk):
            found.update(name for names in _TARGET.findall(line) for name in names)
    personal = (name for name in found if name and len(name) >= 2 and not _COMMON.fullmatch(name))
    return sorted(sorted(personal)[:_MOST_NAMES], key=len, reverse=True)


def _url(match: re.Match[str]) -> str:
    authority, slash, path = match[0][3:].partition("/")
    site = authority.rpartition("@")[2].lower()
    if not f".{site}".endswith(_PUBLIC_SITES):
        return f"://{HIDDEN}"
    return f"://{site}{slash}{re.split('[?#]', path)[0]}"


_VALUE_HIDDEN = rf"\1{HIDDEN}"
_base: Callable[[re.Match[str]], str] = itemgetter(1)
_SET = ("=", ":")
# In this order: what a step leaves is nothing that one before it takes.
_STEPS = (
    _Step(_SET, _LABELLED, _VALUE_HIDDEN),
    _Step(("-",), _OPTION, _VALUE_HIDDEN),
    _Step(("-p", "-sys"), _PROMPT, _VALUE_HIDDEN),
    _Step(_SET, _ASSIGNED, rf"\1\2{HIDDEN}\2"),
    _Step(_SHAPES, _SHAPED, HIDDEN),
    _Step(("earer ", "EARER "), _BEARER, _VALUE_HIDDEN),
    _Step(("://",), _URL, _url),
    _Step(('"', "'"), _QUOTED, r"\1\2\1"),
    _Step((":\\", ":/"), _DRIVE, _base),
    _Step(("\\\\",), _SHARE, _base),
    _Step(("/",), _UNIX, _base),
    _Step((".gguf",), _RELATIVE, _base),
    _Step(("@",), _MAIL, HIDDEN),
    _Step(("GPU-", "MIG-"), _UUID, HIDDEN),
    _Step((".", ":", "-"), _ADDRESS, HIDDEN),
)
