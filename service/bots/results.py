"""`result`: a benchmark for the leaderboard, shown as it was understood, and kept when its sender says so."""

from __future__ import annotations

from collections.abc import Iterator

from service.bots.answer import Answer, Button, Code, Outcome
from service.bots.desk import Desk, Question
from service.bots.words import command_in, repo_named_in
from service.engine.errors import InvalidInput
from service.engine.reduction import reduced
from service.flows import chat_accounts, interactions
from service.flows.submissions import preview, submit
from service.wire.board_text import TIERS
from service.wire.bots import Ask
from service.wire.submissions import Preview, Submission
from service.wire.text import speed_table

WAITS_SECONDS = 600.0  # for the sender to say that it is to be kept
_SHOWN = "shown"  # the subject of a question whose preview stands there


def result(desk: Desk, asked: Question) -> Outcome:
    """Return what is understood of a paste, with a button that keeps it; or what it lacks. Raises InvalidInput."""
    if asked.subject == _SHOWN:
        title = "Not sent: nobody said to keep it. Ask again to send it."
        return Outcome(answer=Answer(title=title, private=True))
    caller = chat_accounts.caller_in_chat(desk.context, asked.account)
    found = preview(desk.context, caller, _submission(desk, asked), lambda: desk.admit(asked.account))
    if not found.complete:
        lacks = tuple(f"{one.field}: {one.text}" for one in found.missing)
        title = "This is not enough to put it on the leaderboard yet. It lacks:"
        return Outcome(answer=Answer(title=title, parts=lacks, private=True))
    keep = Button("Add to leaderboard", Ask(verb="keep", words={"of": asked.id}))
    title = f"This is how it is understood: {_what(found)}"
    answer = Answer(title=title, parts=tuple(_lines(found)), buttons=(keep,), private=True)
    return Outcome(answer=answer, again=WAITS_SECONDS, subject=_SHOWN)


def keep(desk: Desk, asked: Question) -> Outcome:
    """Keep a result whose preview was shown to the same person. Raises InvalidInput where it is not there any more."""
    before = interactions.read(desk.context, asked.words.get("of", ""))
    if before is None or before.ask is None or before.account != asked.account:
        raise InvalidInput("that result is not there any more: send it again", field="of")
    shown = asked._replace(
        words=before.ask.words,
        text=before.ask.message.text if before.ask.message else "",
        file_url=before.ask.message.file_url if before.ask.message else None,
    )
    caller = chat_accounts.caller_in_chat(desk.context, asked.account)
    made = submit(
        desk.context, caller, _submission(desk, shown), before.id, lambda: desk.admit(asked.account)
    )  # fmt: skip
    interactions.end(desk.context, before.id)
    said = "On the leaderboard" if made.is_new else "It is there already"
    parts = [f"As {made.tier}: {TIERS[made.tier]}."]
    if made.state_reason:
        parts.append(f"It is {made.state}: {made.state_reason}")
    parts.append("You can correct or delete it with your API token (/token), at /v1/results.")
    link = desk.address(f"/results/{made.id}")
    return Outcome(answer=Answer(title=f"{said}.", parts=tuple(parts), link=link, private=True))


def _submission(desk: Desk, asked: Question) -> Submission:
    words = asked.words
    file = reduced(desk.read_file(asked.file_url)) if asked.file_url else ""
    text = "\n".join(one for one in (words.get("text", ""), asked.text, file) if one).strip()
    if not text:
        raise InvalidInput("paste the command and what llama-sweep-bench or llama-bench printed", field="text")
    rig = words.get("rig") or chat_accounts.remembered_rig(desk.context, asked.account)
    repo = words.get("repo") or repo_named_in(command_in(text) or "")
    return Submission(text=text, hardware=reduced(rig) if rig else None, repo=repo or None)


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
        yield f"Predicted at {at.n_kv:,} tokens: TG {at.tg_tps:.1f} t/s ({at.tg_low:.1f} to {at.tg_high:.1f})."
    if found.state_reason:
        yield f"It would be {found.state}: {found.state_reason}"
    if found.duplicate_of:
        yield "These very rows are on the board already."
