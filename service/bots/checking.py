"""The verb `check`: a verdict of at most ten lines on a command, typed or found in somebody's message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from service.bots.advising import rig_in
from service.bots.answer import Answer, BotContext, Code, Outcome, Question
from service.bots.words import check_words, command_in, converted, is_log, measured_speeds, repo_named_in
from service.engine.errors import InvalidInput
from service.engine.finding import Finding
from service.engine.logs.read import MAX_LOG
from service.engine.reduction import reduced
from service.flows.advice.check import check_command
from service.wire.advice.check import Checked, CheckRequest
from service.wire.advice.check_text import check_lines, fixed_words
from service.wire.plain_text import as_text

_SHOWN = 3  # findings
_LONGEST = 300  # characters of a finding's line


def check(bot: BotContext, asked: Question) -> Outcome:
    """Return the verdict on a command, its worst findings and the fixed command. Raises InvalidInput and Hub errors."""
    request = _request(bot, asked)
    checked = check_command(bot.context, request, lambda: bot.admit(asked.account))
    if checked.fixed is not None and "\n" in checked.fixed:  # a file, of which a question keeps no paths
        checked = msgspec.structs.replace(checked, fixed=None, fixed_figures=None)
    parts: list[str | Code] = list(_lines(checked))
    if checked.fixed is not None:
        parts += [f"Fixed: {fixed_words(checked)}", Code(checked.fixed, "bash")]
    return Outcome(
        answer=Answer(
            title=checked.verdict,
            parts=tuple(parts),
            full=as_text(check_lines(checked, "full")),
            attach=len(checked.findings) > _SHOWN,
            private=True,
        )
    )


def _request(bot: BotContext, asked: Question) -> CheckRequest:
    words, log = dict(asked.words), None
    if asked.text or asked.file_url:
        file = bot.read_file(asked.file_url) if asked.file_url else ""
        words.setdefault("repo", repo_named_in(command_in(file) or "") or "")
        text = f"{asked.text}\n{reduced(file)}"
        labels = {name: value for name, value in check_words(asked.text).items() if name != "command"}
        words = {**labels, **words, "command": command_in(text) or ""}
        log = text[:MAX_LOG] if is_log(text[:MAX_LOG]) else None
    if not words.get("command"):
        raise InvalidInput(
            "there is no command of llama-server or of another program of the engines here", field="command"
        )
    values: dict[str, Any] = {
        "command": reduced(words["command"]),
        "hardware": rig_in(bot, asked._replace(words=words)),
        "repo": words.get("repo") or None,
        "measured": measured_speeds(words["measured"]) if words.get("measured") else None,
        "log": log,
    }
    return converted(values, CheckRequest)


def _lines(checked: Checked) -> Iterator[str]:
    for finding in checked.findings[:_SHOWN]:
        yield _line(finding)
    more = len(checked.findings) - _SHOWN
    if more > 0:
        yield f"and {more} more finding{'s' if more > 1 else ''}"
    if not checked.findings:
        yield "Nothing needs to be changed."
    if checked.speed:
        at = checked.speed[-1]
        tg = f"TG {at.tg_tps:,.1f} t/s ({at.tg_low:,.1f} to {at.tg_high:,.1f})"
        yield f"At {at.n_kv:,} tokens: {tg}, PP {at.pp_tps:,.0f}."


def _line(finding: Finding) -> str:
    fix = f" Fix: {finding.fix}." if finding.fix else ""
    text = f"{finding.severity}: {finding.message}.{fix} [{finding.rule}]"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
