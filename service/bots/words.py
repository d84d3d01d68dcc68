"""Parses what people type on one line, or into a message, into the words of a verb."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from service.bots.vocabulary import NAMES
from service.engine.commands.parse import parse
from service.engine.decoding import in_words, refused
from service.engine.errors import InvalidInput
from service.engine.logs.read import read_log
from service.engine.logs.requests import MeasuredSpeed
from service.engine.reduction import reduced
from service.engine.units import in_digits
from service.flows.advice.command_model import repo_in_command
from service.wire.bots import Ask, SharedMessage

T = TypeVar("T")
MAX_WORD = 8_192  # characters
MAX_ADDRESS = 2_048
_MOST_WORDS = 25
_ADVISE_WORDS = {"on": "hardware", "with": "hardware", "goal": "goal", "context": "context", "engine": "engine"}
_BOARD_WORDS = {"on": "gpu"}
_VALIDATE_WORDS = {"config": "config", "mode": "mode", "minutes": "minutes"}
_ENGINES = {"ik": "ik_llama.cpp", "ik_llama": "ik_llama.cpp", "llama": "llama.cpp", "mainline": "llama.cpp"}
_LABEL = re.compile(r"^[ \t]*(rig|hardware|repo|measured|source)[ \t]*:[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"```(?:[a-z]{1,12}\n)?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_PROGRAM = re.compile(r"\bllama-(?:server|cli|bench|sweep-bench|batched-bench|perplexity)\b|(?:^|\s)-m\s+\S+\.gguf\b")
_CONTINUED = re.compile(r"[\\^`][ \t]*$")
_POINT = re.compile(
    r"(?:(?P<what>tg|pp)(?:\d{1,6}(?=\s*[:=|]\s*\d|\s+\d))?\s*[:=|]?\s*"  # pp512, tg128: names of llama-bench's tests
    r"(?P<tps>(?>\d{1,3}(?:,\d{3})+(?:\.\d{1,4})?|\d{1,7}(?:[.,]\d{1,4})?))(?!\s*@\s*d)(?:\s*(?:t/s|tps|tok/s))?)"
    r"|(?:(?:at|@)\s*(?P<depth>\d{1,3}(?:,\d{3})+|\d{1,8})\s?(?P<kilo>k?))",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r",(?=\d{3}(?:\D|$))")
_REPO_THEN_HARDWARE = re.compile(
    r"(https?://\S+|[^\s/:]+/\S+)\s+((?!(?:[A-Za-z0-9]{1,6}[-_])?(?:[IT]?Q\d|BF16|F16|MXFP4)\S*$).+)"
)
_REPO_ALONE = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/\S|[\w.-]+/\S*gguf|[\w.-]+/\S+\s+(?:on|with)\s", re.IGNORECASE
)
_ADVICE = re.compile(r"(?:.*/)?([A-Za-z0-9_-]{22})(?:[/?#].*)?", re.DOTALL)


def ask_of_line(text: str) -> Ask:
    """Return the question in a line such as `advise OWNER/NAME on 2x3090`; without a verb, a repo is to be advised on
    and a command to be checked. Raises InvalidInput."""
    text = text.strip()
    name = re.split(r"[ \n]", text, maxsplit=1)[0]
    verb, rest = name.lower().rstrip(":") or "help", text[len(name) :].strip()
    if verb not in NAMES and (_PROGRAM.search(text) or _REPO_ALONE.match(text)):
        verb, rest = "check" if _PROGRAM.search(text) else "advise", text
    if verb == "advise":
        return Ask(verb=verb, words=_sections(rest, "repo", _ADVISE_WORDS))
    if verb == "validate":
        return Ask(verb=verb, words=_sections(rest, "advice", _VALIDATE_WORDS))
    if verb == "result":
        words = check_words(rest)
        return Ask(verb=verb, words={"text" if name == "command" else name: value for name, value in words.items()})
    if verb == "leaderboard":
        return Ask(verb=verb, words=_sections(rest, "model", _BOARD_WORDS))
    if verb == "check":
        return Ask(verb=verb, words=check_words(rest))
    if verb == "hardware":
        action, _, rig = rest.partition(" ")
        return Ask(verb=verb, words={"action": action or "show", **({"rig": rig.strip()} if rig.strip() else {})})
    if verb not in NAMES:
        raise InvalidInput(f"`{verb[:40]}` is not a command here", field="verb", choices=NAMES)
    return Ask(verb=verb)


def _sections(text: str, first: str, names: dict[str, str]) -> dict[str, str]:
    """Split a line at its keywords; what comes before the first is `first`. `public` stands alone.

    Within a section its own keyword is an ordinary word (`on RTX 3090 on x4`). What follows a repo id without a keyword
    is hardware, unless it looks like the name of a quantisation.
    """
    found: dict[str, list[str]] = {first: []}
    words, at = text.split(), first
    for word in words:
        key = word.lower()
        if key == "public" and first == "repo":
            found["public"] = ["yes"]
        elif names.get(key, at) != at or (key in names and not found.get(at)):
            at = names[key]
            found.setdefault(at, [])
        else:
            found[at].append(word)
    said = {name: " ".join(value) for name, value in found.items() if value}
    both = _REPO_THEN_HARDWARE.fullmatch(said.get("repo", ""))
    return {**said, "repo": both[1], "hardware": both[2]} if both and "hardware" not in said else said


def check_words(text: str) -> dict[str, str]:
    """Return the words of `check` or `result` in free text: labelled lines (`rig: …`, `repo: …`), and the rest as the
    command."""
    words = {name.lower().replace("hardware", "rig"): value.strip() for name, value in _LABEL.findall(text)}
    command = _LABEL.sub("", text).strip()
    return {**words, **({"command": command} if command else {})}


def command_in(text: str) -> str | None:
    """Return the command of an engine's program in a message, preferably from a code block; None if there is none."""
    blocks = [block for block in _FENCE.findall(text) if _PROGRAM.search(block)]
    return _command_lines(blocks[0] if blocks else text.replace("```", ""))


def _command_lines(text: str) -> str | None:
    lines = text.strip("`\n").split("\n")
    start = next((i for i, line in enumerate(lines) if _PROGRAM.search(line)), None)
    if start is None:
        return None
    while start > 0 and _CONTINUED.search(lines[start - 1]):
        start -= 1
    end = start
    while end + 1 < len(lines) and (_CONTINUED.search(lines[end]) or lines[end + 1].lstrip().startswith("-")):
        end += 1
    return "\n".join(lines[start : end + 1]).strip().strip("`")


def is_log(text: str) -> bool:
    """Return whether a text contains figures printed by an engine."""
    try:
        read_log(text)
    except InvalidInput:
        return False
    return True


def reduced_words(verb: str, words: Mapping[str, str]) -> dict[str, str]:
    """Return words as they may be kept: without what names a person, a place or a secret.

    That strips folders from paths and whole URLs, so two things are extracted first: the repo a command's path names,
    and the id in an advice's address. A source keeps its URL, which is to be published.
    """
    kept = {name[:40]: reduced(value[:MAX_WORD])[:MAX_WORD] for name, value in list(words.items())[:_MOST_WORDS]}
    if "advice" in kept:
        kept["advice"] = advice_id(words["advice"])
    if "source" in kept:
        kept["source"] = words["source"].strip()[:MAX_ADDRESS]
    command = words.get("command", "") if verb == "check" else command_in(words.get("text", "")[:MAX_WORD]) or ""
    repo = None if kept.get("repo") else repo_named_in(command)
    return {**kept, "repo": repo} if repo else kept


def advice_id(text: str) -> str:
    """Return the id in an advice's address, or the id itself; "" if there is none."""
    match = _ADVICE.fullmatch(text.strip()[:MAX_ADDRESS])
    return match[1] if match else ""


def of_message(verb: str, text: str, file_url: str | None, *, is_own: bool) -> Ask:
    """Return the question that a message's menu asks: to `check` its command, or put its `result` on the board.

    `is_own`: the asker wrote the message.
    """
    text = text[:MAX_WORD]
    repo = repo_named_in(command_in(text) or "")
    address = file_url and file_url[:MAX_ADDRESS]
    message = SharedMessage(is_own=is_own, text=reduced(text)[:MAX_WORD], file_url=address)
    return Ask(verb=verb, words={"repo": repo} if repo else {}, message=message, private=True)


def repo_named_in(command: str) -> str | None:
    """Return the repo that a command names, by an option or by its path; None if there is none."""
    try:
        return repo_in_command(parse(command[:MAX_WORD])) if command else None
    except InvalidInput:
        return None


def converted(values: Mapping[str, Any], kind: type[T], word: str = "") -> T:
    """Return values as a `kind`. Raises InvalidInput, which names the wrong one: `word`, else the value's own name."""
    try:
        with refused(kind):
            return msgspec.convert(values, kind)
    except InvalidInput as error:
        error.field = word or (error.field or "").partition(".")[0].partition("[")[0]
        error.detail = f"{error.field}: {in_words(error.detail)}"
        raise


def measured_speeds(text: str) -> list[MeasuredSpeed]:
    """Return the speeds in `tg 17.9 pp 420 at 4096; tg 15 at 16k`: `at` ends a point; without it the context is empty.

    Raises InvalidInput.
    """
    points: list[dict[str, float]] = [{}]
    for match in _POINT.finditer(text):
        if match["depth"]:
            points[-1]["n_kv"] = int(in_digits(match["depth"] + match["kilo"]))
            points.append({})
        else:
            points[-1][f"{match['what'].lower()}_tps"] = float(_THOUSANDS.sub("", match["tps"]).replace(",", "."))
    found = [converted(point, MeasuredSpeed, "measured") for point in points if set(point) - {"n_kv"}]
    if not found:
        raise InvalidInput(f"{text[:80]!r} is not a speed: write `tg 17.9 pp 420 at 4096`", field="measured")
    return found


def tokens(text: str) -> int:
    """Return the number in `32k` or `32768`. Raises InvalidInput."""
    number = in_digits(text)
    if not number.isdecimal() or not int(number):
        raise InvalidInput(f"{text[:40]!r} is not a number of tokens: write 32k or 32768", field="context")
    return int(number)


def engine_named(text: str) -> str:
    """Return the engine of a name or short form; any other text unchanged."""

    return _ENGINES.get(text.lower(), text)
