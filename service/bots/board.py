"""`leaderboard`: the fastest that was measured of a model, on a card or on all."""

from __future__ import annotations

from urllib.parse import urlencode

from service.bots.answer import Answer, Code, Outcome
from service.bots.context import BotContext, Question
from service.engine.errors import InvalidInput
from service.flows.results.leaderboard import leaderboard
from service.wire.results.board import BoardQuery
from service.wire.results.board_text import render_board_text

_ROWS = 10
_LONGEST = 200


def board(bot: BotContext, asked: Question) -> Outcome:
    """Return the first rows of the board for a model, and a link to all. Raises InvalidInput for a name too long."""
    words = " ".join(asked.words.get(name, "").strip() for name in ("model", "gpu")).strip()
    if len(words) > _LONGEST:
        raise InvalidInput(f"a model and a card of {_LONGEST} characters at most", field="model")
    found = leaderboard(bot.context, BoardQuery(q=words or None, limit=_ROWS))
    lines = [line for line in render_board_text(found).splitlines() if not line.startswith("more: ")]
    link = bot.address("/leaderboard" + (f"?{urlencode({'q': words})}" if words else ""))
    title = f"Fastest measured: {words}" if words else "Fastest measured"
    return Outcome(answer=Answer(title=title, parts=(Code("\n".join(lines)),), link=link))
