"""The command in a paste: the line that runs a benchmark or server, and the lines that a shell would read with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.engine.commands.parse import BENCH_PROGRAMS, SERVER_PROGRAMS
from service.engine.errors import InvalidInput
from service.engine.submission.lines import Line, wrong_line

_BENCH = "|".join(BENCH_PROGRAMS)
_PROGRAM = re.compile(
    rf"(?:^|[\s/\\\"'])(?P<name>{_BENCH}|{'|'.join(name for name in SERVER_PROGRAMS if name.startswith('llama-'))})"
    r"(?:\.exe)?[\"']?(?=\s|$)"
)
_OPTION = re.compile(r"(?:^|\s)--?[A-Za-z]")
_OPTION_FIRST = re.compile(r"--?[A-Za-z]")
_CONTINUES = re.compile(r"(?:\\|`|\^)[ \t]*$")
_CUT = re.compile(r"\S\\$")
_ENDS_IN_OPTION = re.compile(r"(?:^|\s)--?[A-Za-z][\w-]*$")
# What a value looks like that a line begins with; the rest of a word that was cut in two does not.
_VALUE = re.compile(
    r"(?:\d[\d,./]*|b?f16|f32|i?q\d_\w+|on|off|auto|none|layer|row|graph|[\"'].*|\S*(?:=|\.gguf)\S*)(?:\s|$)"
)
_PROMPT = re.compile(
    r"^[ \t]*(?:\([^()\n]{1,40}\)[ \t]?)?(?:"
    r"\[?[\w.-]{1,64}@[\w.-]{1,64}[^$#%>\n]{0,200}[$#%>][ \t]+|PS [^>\n]{0,200}>[ \t]*|[A-Za-z]:\\[^>\n]{0,200}>[ \t]*"
    r"|[~/][^\s$#%>]{0,200}[ \t]?[$#%>][ \t]+|[$#%>\u276f\u279c\u03bb][ \t]+)"
)
_LABEL = re.compile(r"^[ \t]*[A-Za-z][A-Za-z ]{0,30}:[ \t]+(?=\S)")
_ASSIGNED = re.compile(
    r"^(?:export[ \t]+|set[ \t]+)?(?P<words>[A-Za-z_]\w{0,60}=(?:\"[^\"]{0,500}\"|'[^']{0,500}'|[^\s\"';]{0,500});?)$"
)
_CURLY = str.maketrans("\u201c\u201d\u201e\u2018\u2019", '"""\'\'')
_ESCAPED = re.compile(r"\\[_|]")  # Markdown's: no tensor name, path or value has either
_DASH = re.compile(r"(?:^|\s)[\u2010-\u2015\u2212][\w\u2010-\u2015-]*")
# What engines and shells print right after a command: it does not belong to it.
_OUTPUT = re.compile(
    r"^\s*(?:[\w.~ ()+/-]{1,60}:(?:\s|$)|\[|\{|\||PP\b|model\b|Device \d|warning|error|WARN|INFO|\d+\.\d+\.\d+|\.{3,}"
    r"|[-=+]{3,}$|=|\(|Thread|Found|Loading|NOTE|Note|build\b|main\b|.{0,80}\s=\s)"
)
_MOST_LINES = 400
_MAX_COMMAND = 65_536


class Command(NamedTuple):
    """A command as one text, and the numbers of its lines."""

    text: str
    used: frozenset[int]

    @property
    def line(self) -> int:
        """Return the number of its first line."""
        return min(self.used)


def find_command(lines: Sequence[Line]) -> Command | None:
    """Return the command that was run, None if the paste has none; a benchmark's counts before a server's.

    Raises InvalidInput (field `text`), which names the line, if there are two different commands, if it is not certain
    what belongs to one, or if an editor changed its dashes.
    """
    found = list(_commands(lines))
    bench = [one for one in found if _is_bench(one.text)] or found
    different = {" ".join(one.text.split()): one for one in reversed(bench)}
    if len(different) > 1:
        where = " and ".join(str(one.line) for one in sorted(different.values(), key=lambda one: one.line)[:2])
        raise InvalidInput(f"lines {where}: two commands: send each run separately", field="text")
    return bench[0] if bench else None


def plain_command(text: str) -> str:
    """Return a command that was given by itself, without a prompt and with straight quotes.

    Raises InvalidInput (field `command`) if it is too long, or if an editor changed its dashes.
    """
    text = _straight(Line(1, _LABEL.sub("", _PROMPT.sub("", text, count=1), count=1)), "command")
    if len(text) > _MAX_COMMAND:
        raise InvalidInput(f"a command has at most {_MAX_COMMAND:,} characters", field="command")
    return text


def _is_bench(command: str) -> bool:
    match = _PROGRAM.search(command)
    return match is not None and match["name"] in BENCH_PROGRAMS


def _commands(lines: Sequence[Line]) -> Iterator[Command]:
    at = 0
    while at < len(lines):
        first = _started(lines, at)
        if first is None:
            at += 1
            continue
        command, at = _whole(lines, at, first)
        yield command


def _started(lines: Sequence[Line], at: int) -> str | None:
    """Return the first line of a command without its prompt, None if no command begins there."""
    text = lines[at].text
    match = _PROGRAM.search(text) if len(text) <= _MAX_COMMAND else None
    if match is None:
        return None
    rest = text[match.end("name") :]
    following = lines[at + 1].text if at + 1 < len(lines) else ""
    if _OPTION.search(rest) or (
        (_CONTINUES.search(rest) or not rest.strip()) and _OPTION_FIRST.match(following.strip())
    ):
        stripped = _PROMPT.sub("", text, count=1)
        return _LABEL.sub("", stripped, count=1) if _LABEL.match(stripped) else stripped
    return None


def _whole(lines: Sequence[Line], at: int, first: str) -> tuple[Command, int]:
    start, before = at, _before(lines, at)
    texts = [_straight(Line(lines[at].number, first))]
    while at + 1 < len(lines) and at - start < _MOST_LINES and _goes_on(texts, lines[at + 1]):
        at += 1
        texts.append(_straight(lines[at]))
    numbers = frozenset(line.number for line in (*lines[start - len(before) : start], *lines[start : at + 1]))
    return Command("\n".join((*(words + " \\" for words in before), *_joined(texts))), numbers), at + 1


def _before(lines: Sequence[Line], at: int) -> list[str]:
    """Return the variables that are set right before a command, such as `CUDA_VISIBLE_DEVICES=0`."""
    found: list[str] = []
    while at > 0 and (match := _ASSIGNED.match(_PROMPT.sub("", lines[at - 1].text, count=1).strip())):
        found.insert(0, match["words"].rstrip(";"))
        at -= 1
    return found


def _goes_on(texts: Sequence[str], line: Line) -> bool:
    """Return whether a line belongs to the command before it. Raises InvalidInput if that is not certain."""
    text, so_far = line.text.strip(), texts[-1]
    if _CONTINUES.search(so_far):
        if _CUT.search(so_far) and not _OPTION_FIRST.match(text):
            raise wrong_line(line.number - 1, "was it cut after the backslash? Put the command on one line")
        return bool(text)
    if not text:
        return False
    if _open_quote("\n".join(texts)):
        raise wrong_line(line.number - 1, "a quote is not closed in this line: put the command on one line")
    if _OPTION_FIRST.match(text):
        return True
    if _OUTPUT.match(text) or _PROMPT.match(line.text) or _PROGRAM.search(text):
        return False
    if _ENDS_IN_OPTION.search(so_far.rstrip()) and _VALUE.match(text):
        return True
    raise wrong_line(
        line.number, "does it belong to the command? Put the command on one line, with an empty line after it"
    )


def _open_quote(text: str) -> bool:
    rest = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "", text, flags=re.DOTALL)
    return "'" in rest or '"' in rest


def _joined(texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines, all but the last with a backslash at the end, which a paste may have lost."""
    for text, following in zip(texts, [*texts[1:], None], strict=True):
        yield text if following is None or _CONTINUES.search(text) else text.rstrip() + " \\"


def _straight(line: Line, field: str = "text") -> str:
    text = line.text.translate(_CURLY)
    if wrong := _DASH.search(text):
        what = f"{wrong[0].strip()[:40]} does not begin with a hyphen: an editor changed it"
        raise InvalidInput(f"line {line.number}: {what}", field=field)
    if _ESCAPED.search(text):
        what = r"`\_` and `\|` are Markdown's: paste the command as it was typed"
        raise InvalidInput(f"line {line.number}: {what}", field=field)
    return text
