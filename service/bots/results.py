"""The verb `result`: shows how a benchmark was understood and, if its sender confirms, puts it on the leaderboard."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from service.bots.answer import Answer, BotContext, Button, Code, Outcome, Question
from service.bots.words import command_in, repo_named_in
from service.engine.errors import InvalidInput
from service.engine.reduction import reduced
from service.flows.chat import chat_accounts, interactions
from service.flows.results.leaderboard import leaderboard
from service.flows.results.submissions import preview, submit
from service.wire.advice.text import speed_table
from service.wire.bots import Ask
from service.wire.plain_text import as_text
from service.wire.results.board import BoardQuery
from service.wire.results.board_text import TIERS, board_lines
from service.wire.results.dumps import LICENCE, LICENCE_URL
from service.wire.results.submissions import Preview, Submission, cited

WAITS_SECONDS = 600.0  # for the sender to confirm
_SHOWN = "shown"  # the subject of a question whose preview has been shown


def result(bot: BotContext, asked: Question) -> Outcome:
    """Return how a paste was understood, with a button to keep it; or what is missing. Raises InvalidInput."""
    if asked.subject == _SHOWN:
        title = "Not sent: nobody confirmed it. Ask again to send it."
        return Outcome(answer=Answer(title=title, private=True))
    caller = chat_accounts.caller_in_chat(bot.context, asked.account)
    found = preview(bot.context, caller, _submission(bot, asked), lambda: bot.admit(asked.account))
    if not found.complete:
        lacks = tuple(f"{one.field}: {one.text}" for one in found.missing)
        title = "This is not enough for the leaderboard yet. Still missing:"
        return Outcome(answer=Answer(title=title, parts=lacks, private=True))
    keep = Button("Add to leaderboard", Ask(verb="keep", words={"of": asked.id}))
    title = f"This is how it was read: {_what(found)}"
    parts = (*_lines(found), _licensed(bool(asked.words.get("source"))))
    answer = Answer(title=title, parts=parts, buttons=(keep,), private=True)
    return Outcome(answer=answer, again=WAITS_SECONDS, subject=_SHOWN)


def keep(bot: BotContext, asked: Question) -> Outcome:
    """Keep a result whose preview was shown to the same person. Raises InvalidInput if the preview is gone."""
    before = interactions.read(bot.context, asked.words.get("of", ""))
    if before is None or before.ask is None or before.account != asked.account:
        raise InvalidInput("that result no longer exists: send it again", field="of")
    shown = asked.asking(before.ask)
    caller = chat_accounts.caller_in_chat(bot.context, asked.account)
    made = submit(bot.context, caller, _submission(bot, shown), before.id, lambda: bot.admit(asked.account))
    interactions.end(bot.context, before.id)
    said = "On the leaderboard" if made.is_new else "It is already there"
    parts = [f"As {made.tier}: {TIERS[made.tier]}."]
    if made.state_reason:
        parts.append(f"It is {made.state}: {made.state_reason}")
    parts.append(_licensed(bool(shown.words.get("source"))))
    parts.append("You can correct or delete it with your API token (/token), at /v1/results.")
    link = bot.address(f"/results/{made.id}")
    return Outcome(answer=Answer(title=f"{said}.", parts=tuple(parts), link=link, private=True))


def _licensed(is_cited: bool) -> str:
    if is_cited:
        return "It is kept as a citation with its source: the figures are their author's, without a licence from us."
    return f"What you add is published for anybody to use under {LICENCE} ({LICENCE_URL}). Add only what you measured."


def _submission(bot: BotContext, asked: Question) -> Submission:
    words, source = asked.words, asked.words.get("source")
    if asked.of_another:
        text = "somebody else wrote this message: its author can add it. To cite it, use `result` and name its source"
        raise InvalidInput(text, field="source")
    file = reduced(bot.read_file(asked.file_url)) if asked.file_url else ""
    text = "\n".join(one for one in (words.get("text", ""), asked.text, file) if one).strip()
    if not text:
        raise InvalidInput("paste the command and what llama-sweep-bench or llama-bench printed", field="text")
        # The saved rig is the asker's own: nobody else's figures were measured on it.
    rig = words.get("rig") or (None if source else chat_accounts.remembered_rig(bot.context, asked.account))
    repo = words.get("repo") or repo_named_in(command_in(text) or "")
    submission = Submission(text=text, hardware=reduced(rig) if rig else None, repo=repo or None)
    return cited(submission, source) if source else submission


def _what(found: Preview) -> str:
    model = f"{found.model.name} {found.model.variant}" if found.model else "a model"
    return f"{model} with {found.engine} on {found.rig}"


def _lines(found: Preview) -> Iterator[str | Code]:
    if found.command:
        yield Code(found.command, "bash")
    if found.speed:
        yield Code("\n".join(speed_table(found.speed)[:-1]))
    if found.predicted:
        at = found.predicted[-1]
        yield f"Predicted at {at.n_kv:,} tokens: TG {at.tg_tps:,.1f} t/s ({at.tg_low:,.1f} to {at.tg_high:,.1f})."
    yield from (f"Warning: {words}." for words in found.warnings)
    if found.state_reason:
        yield f"It would be {found.state}: {found.state_reason}"
    if found.duplicate_of:
        yield "These exact rows are already on the leaderboard."


_ROWS = 10
_LONGEST = 200


def board(bot: BotContext, asked: Question) -> Outcome:
    """Return the first rows of the board for a model, and a link to all. Raises InvalidInput for too long a name."""
    words = " ".join(asked.words.get(name, "").strip() for name in ("model", "gpu")).strip()
    if len(words) > _LONGEST:
        raise InvalidInput(f"a model and a card of {_LONGEST} characters at most", field="model")
    found = leaderboard(bot.context, BoardQuery(q=words or None, limit=_ROWS))
    title = f"Fastest measured: {words}" if words else "Fastest measured"
    if not found.rows:
        every = urlencode({**({"q": words} if words else {}), "trust": "self-reported"})
        nothing = "No result from a proven host, and none cited from a public thread, matches. "
        nothing += "The page shows unverified results too."
        return Outcome(answer=Answer(title=title, parts=(nothing,), link=bot.address(f"/leaderboard?{every}")))
    lines = [line for line in as_text(board_lines(found)).splitlines() if not line.startswith("more: ")]
    link = bot.address("/leaderboard" + (f"?{urlencode({'q': words})}" if words else ""))
    return Outcome(answer=Answer(title=title, parts=(Code("\n".join(lines)),), link=link))
