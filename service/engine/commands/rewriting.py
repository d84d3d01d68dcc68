"""A file of another program in which a command is replaced: compose, Kubernetes, llama-swap, router presets, units.

Only the command's own part of the text changes, and unchanged words stay as they are written there, with variables and
macros. Comments inside that part are lost. Who uses it reads the file again: it must then say the new command.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

import msgspec

from service.engine.commands.containers import interpolated
from service.engine.commands.forms import UNIT_CONTINUED, UNIT_VALUE, raw_words_of_unit, unit_word, words_of_unit
from service.engine.commands.read_files import NamedCommand
from service.engine.commands.shell import ASSIGNED, OPTION, by_option, raw_words, split_commands
from service.engine.commands.unwrap import IN_CONTAINER, NOT_GIVEN, as_bash, is_quadlet
from service.engine.commands.yaml_text import read_yaml
from service.engine.errors import InvalidFlags

_STARTS = re.compile(rf"^[ \t]*ExecStart={UNIT_VALUE}$", re.M)
_EXEC = re.compile(rf"^[ \t]*Exec[ \t]*=[ \t]*{UNIT_VALUE}$", re.M)
_IMAGE = re.compile(r"^[ \t]*Image[ \t]*=[ \t]*(\S+)", re.M)
_PLAIN = re.compile(r"(?:-{1,2}(?=[A-Za-z]))?[A-Za-z/][\w./:=@+-]*(?<!:)")
_WORDS_OF_YAML = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
_JOINT = " \\\n    "  # of lines of a unit
_WIDTH = 80


class _Change(msgspec.Struct, frozen=True):
    """Words of a command before and after, without the variables, and the variables that go and come."""

    old: list[str]
    new: list[str]
    removed: list[str]
    added: list[str]

    def written(self, raw: Sequence[str], n_before: int, write: Callable[[str], str]) -> list[str] | None:
        """Return the new words after the first `n_before`, which must stay, as a file has them. `raw`: the old ones."""
        old, new = self.old[n_before:], self.new[n_before:]
        if self.old[:n_before] != self.new[:n_before] or len(raw) != len(old):
            return None
        words: list[str] = []
        for what, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            words += raw[a:b] if what == "equal" else map(write, new[c:d])
        return words


def in_file(text: str, named: NamedCommand, line: str) -> str | None:
    """Return a file in which a command of it is `line`, for bash; None where this part of it cannot be written."""
    if "\r\n" in text:
        of_unix = text.replace("\r\n", "\n")
        written = in_file(of_unix, named, line) if text.count("\n") == text.count("\r\n") else None
        return written and written.replace("\n", "\r\n")
    change = _change(as_bash(named.command), line)
    if change is None:
        return None
    if named.part is not None:
        return _in_yaml(text, named, *named.part, change)
    if named.name is not None:
        return _in_preset(text, named.name, change)
    return _in_quadlet(text, change) if is_quadlet(text) else _in_unit(text, change)


def _change(before: str, after: str) -> _Change | None:
    try:
        (old,), (new,) = split_commands(before), split_commands(after)
    except (InvalidFlags, ValueError):
        return None
    was, now = old[: _first(old)], new[: _first(new)]
    removed, added = [word for word in was if word not in now], [word for word in now if word not in was]
    return _Change(old[len(was) :], new[len(now) :], removed, added)


def _first(words: Sequence[str]) -> int:
    return next((i for i, word in enumerate(words) if not ASSIGNED.fullmatch(word)), len(words))


def _in_unit(text: str, change: _Change) -> str | None:
    found = list(_STARTS.finditer(text))
    if not found:
        return None
    start = found[-1]
    raw = raw_words_of_unit(UNIT_CONTINUED.sub(" ", start[1]))
    words = change.written(raw, 0, unit_word) if words_of_unit(" ".join(raw)) == change.old else None
    if words is None:
        return None
    given = "".join(f"Environment={unit_word(word)}\n" for word in change.added)
    text = f"{text[: start.start()]}{given}ExecStart={_folded(words, _JOINT)}{text[start.end() :]}"
    return _without_lines(text, [rf"Environment=[\"']?{re.escape(word)}[\"']?" for word in change.removed])


def _in_quadlet(text: str, change: _Change) -> str | None:
    """Only what follows the image changes, and nothing before it may."""
    image, found = _IMAGE.search(text), list(_EXEC.finditer(text))
    if not (image and image[1] in change.old and len(found) == 1) or change.removed or change.added:
        return None
    raw = raw_words_of_unit(UNIT_CONTINUED.sub(" ", found[0][1]))
    words = change.written(raw, change.old.index(image[1]) + 1, unit_word)
    if words is None:
        return None
    return f"{text[: found[0].start()]}Exec={_folded(words, _JOINT)}{text[found[0].end() :]}"


def _without_lines(text: str, patterns: Sequence[str]) -> str | None:
    """Return a text without the one line that each pattern matches; None where there is not exactly one."""
    for pattern in patterns:
        text, n = re.subn(rf"^[ \t]*(?:{pattern})[ \t]*(?:#.*)?\n", "", text, flags=re.M)
        if n != 1:
            return None
    return text


def _in_preset(text: str, name: str, change: _Change) -> str | None:
    """Set what changes in the model's own section; None where an option of all models (`[*]`) would have to go."""
    section = re.search(rf"^[ \t]*\[[ \t]*{re.escape(name)}[ \t]*\].*$", text, re.M)
    if section is None or change.removed or change.added:
        return None
    old, new = dict(_pairs(change.old[1:])), dict(_pairs(change.new[1:]))
    following = re.compile(r"^[ \t]*\[", re.M).search(text, section.end())
    end = following.start() if following else len(text)
    own, around = text[section.end() : end], (text[: section.end()], text[end:])
    alone = len(re.findall(r"^[ \t]*\[(?!\*\])", text, re.M)) == 1
    for option in old.keys() - new.keys():
        line = rf"-{{0,2}}{re.escape(option.lstrip('-'))}[ \t]*=[^\n]*"
        shorter = _without_lines(own, [line])
        shared = _without_lines(around[0], [line]) if shorter is None and alone else None
        if shorter is None and shared is None:
            return None
        own, around = shorter or own, (shared or around[0], around[1])
    for option, value in new.items():
        if old.get(option, "") != value:
            own = _with_key(own, option.lstrip("-"), "true" if value is None else value)
    return f"{around[0]}{own}{around[1]}"


def _with_key(body: str, key: str, value: str) -> str:
    line = f"{key} = {value}"
    set_so = re.compile(rf"^[ \t]*-{{0,2}}{re.escape(key)}[ \t]*=.*$", re.M)
    if found := set_so.search(body):
        return f"{body[: found.start()]}{line}{body[found.end() :]}"
    return f"{body.rstrip()}\n{line}{body[len(body.rstrip()) :] or chr(10)}"


def _pairs(words: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return options with their values."""
    return [(first, " ".join(more) or None) for first, *more in by_option(words) if OPTION.match(first)]


def _in_yaml(text: str, named: NamedCommand, key: str, value: object, change: _Change) -> str | None:
    """Replace the one part of a text that has this key and value; an image without options gets them behind it."""
    found = [block for block in _blocks(text, key) if _decoded(text[slice(*block)]) == {key: value}]
    tokens = change.new[1:] if key == "image" else _tokens(key, named.as_written or value, change)
    if len(found) != 1 or tokens is None:
        return None
    start, end = found[0]
    indent = re.match(r"[ \t]*(?:- )?", text[start:end])
    before = indent[0] if indent else ""
    inner, kept = " " * len(before), ""
    if key == "image":
        before, kept = inner, text[start:end].rstrip("\n") + "\n"
    if not tokens:
        written = kept.rstrip("\n")
        kept = ""
    elif isinstance(value, list) or key == "image":
        of = "command" if key == "image" else key
        written = "\n".join([f"{before}{of}:", *(f"{inner}  - {_scalar(word)}" for word in tokens)])
    else:
        joint = f"\n{inner}  "
        written = f"{before}{key}: {'|' if key == 'cmd' else '>-'}{joint}{_folded(tokens, joint)}"
    all_gpus = f"{IN_CONTAINER}=all" in change.added
    removed = [word for word in change.removed if not (all_gpus and word == f"{IN_CONTAINER}={NOT_GIVEN}")]
    if len(change.added) > all_gpus or (all_gpus and key not in ("command", "entrypoint", "image")):
        return None
    written = f"{kept}{written}\n" + (f"{inner}gpus: all\n" if all_gpus else "")
    patterns = []
    for word in removed:
        name, _, held = word.partition("=")
        patterns.append(rf"(?:- )?[\"']?{re.escape(name)}[\"']?(?:=|:[ \t]*[\"']?){re.escape(held)}[\"']?")
    return _without_lines(f"{text[:start]}{written}{text[end:]}", patterns)


def _blocks(text: str, key: str) -> list[tuple[int, int]]:
    """Return where each part of a text with this key begins and ends: its line, and those indented deeper."""
    found = []
    for head in re.finditer(rf"^([ \t]*(?:- )?){key}[ \t]*:(.*)\n?", text, re.M):
        end, depth, is_open = head.end(), len(head[1]), not head[2].partition("#")[0].strip()
        for line in re.finditer(r".*\n?", text[head.end() :]):
            bare = line[0].lstrip()
            column = len(line[0]) - len(bare)
            item = column == depth and bare.startswith("- " if is_open else ("]", "}"))
            if not line[0] or (bare.strip() and column <= depth and not item):
                break
            end = head.end() + line.end() if bare.strip() and not bare.startswith("#") else end
        found.append((head.start(), end))
    return found


def _decoded(part: str) -> object:
    found = read_yaml(part)
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def _tokens(key: str, value: object, change: _Change) -> list[str] | None:
    """Return the new options as the part of a file has them."""
    if key == "cmd":  # of llama-swap; macros other than the port's are written out
        return change.written(raw_words(str(value)), 0, shlex.quote)
    of_compose = key in ("command", "entrypoint")
    dollars: Callable[[str], str] = (lambda word: word.replace("$", "$$")) if of_compose else str
    if isinstance(value, list):
        raw, write = [str(word) for word in value], dollars
        said = [interpolated(word) if of_compose else word for word in raw]
    else:
        raw, write = raw_words(str(value)), lambda word: dollars(shlex.quote(word))
        said = shlex.split(interpolated(" ".join(raw)))
    n_before = len(change.old) - len(raw)
    # The first word may stand for the program (`--server` of the full image).
    if n_before < 0 or said[1:] != change.old[n_before + 1 :]:
        return None
    return change.written(raw, n_before, write)


def _scalar(word: str) -> str:
    return (
        word if _PLAIN.fullmatch(word) and word.lower() not in _WORDS_OF_YAML else json.dumps(word, ensure_ascii=False)
    )


def _folded(words: Sequence[str], joint: str) -> str:
    """Return words in lines of options with their values."""
    lines: list[str] = []
    for group in map(" ".join, by_option(words)):
        if lines and len(lines[-1]) + len(group) < _WIDTH:
            lines[-1] += f" {group}"
        else:
            lines.append(group)
    return joint.join(lines)
