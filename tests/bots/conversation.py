"""The conversations of docs/discord.md and docs/slack.md: asked of the real app, and written as one sees them.

python -m tests.bots.conversation        ask again, and write what is answered into the pages
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from service.flows.context import Context
from service.flows.hub import make_hub
from service.queue.connection import connect
from service.queue.embedded import EmbeddedValkey
from service.store.engines import make_engine
from service.store.migrations import migrate
from service.web.app import create_app
from tests.bots import discord_payloads
from tests.bots.conftest import Chat, Clock, settings_of
from tests.local_hub import LocalHub
from tests.stored_results import a_result, keep
from tests.web.servers import client_of

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = {"discord": DOCS / "discord.md", "slack": DOCS / "slack.md"}
RIG = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
REPO = "ggml-org/gpt-oss-120b-GGUF"
SLOW = "llama-server -hf ggml-org/gpt-oss-120b-GGUF -ngl 99 -ot exps=CPU -c 32768 -b 512 -ub 4096"
_BEGIN, _END = "<!-- conversation: begin -->\n", "<!-- conversation: end -->"
_ID = re.compile(r"(?<=/advice/)[\w-]{22}")


@contextmanager
def a_chat() -> Iterator[Chat]:
    """Run everything there is, for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="advisor-chat-") as name, LocalHub() as hub:
        valkey = EmbeddedValkey(Path(name) / "valkey")
        valkey.start()
        settings = settings_of(Path(name), valkey.url, hub.endpoint)
        engine = make_engine(settings.database)
        migrate(engine)
        redis: Redis = connect(valkey.url)
        clock, client_hub = Clock(), make_hub(settings)
        try:
            with client_of(create_app(settings)) as http:
                yield Chat(http, Context(settings, engine, redis, client_hub, clock), clock)
        finally:
            client_hub.close()
            redis.close()
            engine.dispose()
            valkey.close()


def conversation(platform: str, chat: Chat) -> str:
    """Return what is said on a platform, as Markdown."""
    keep(chat.context.engine, a_result(tier="agent-run"))
    found = "\n".join(_on_discord(chat) if platform == "discord" else _on_slack(chat))
    return _ID.sub("MZ0Vb1p2QvK3x9dT4sLwGg", found)


def _on_discord(chat: Chat) -> Iterator[str]:
    yield from _said(f"/hardware set rig:{RIG}")
    yield from _discord(chat.ask_discord("hardware", {"rig": RIG}, action="set"))
    yield from _said(f"/advise repo:{REPO} hardware:{RIG} context:32k")
    yield from _discord(chat.ask_discord("advise", {"repo": REPO, "hardware": RIG, "context": "32k"}))
    yield from _said("/check, and in the form that opens: a command, the saved rig already in it")
    form = discord_payloads.form_sent("check", {"command": SLOW, "rig": RIG})
    chat.discord(form)
    chat.settle()
    yield from _discord(chat.platforms.hooks[form["token"]])
    yield from _said("/leaderboard model:Qwen3-30B gpu:3090")
    yield from _discord(chat.ask_discord("leaderboard", {"model": "Qwen3-30B", "gpu": "3090"}))
    yield from _said("/advise repo:gpt-oss hardware:RTX 9999")
    yield from _discord(chat.ask_discord("advise", {"repo": "gpt-oss", "hardware": "RTX 9999"}))


def _on_slack(chat: Chat) -> Iterator[str]:
    for line in (
        f"hardware set {RIG}",
        f"check {SLOW}",
        "advise gpt-oss on RTX 9999",
    ):
        yield from _said(f"/advisor {line}")
        for post in chat.ask_slack(line).posts:
            yield from _slack(post)


def _said(text: str) -> Iterator[str]:
    yield from (f"**You:** `{text}`", "")


def _quoted(lines: list[str]) -> Iterator[str]:
    yield from (f"> {line}".rstrip() for line in lines)
    yield ""


def _discord(hook: Any) -> Iterator[str]:
    for post in [hook.original, *hook.posts]:
        if post is None:
            continue
        embed = post.body["embeds"][0]
        only = " *(only you see this)*" if post.private else ""
        buttons = [f"`{one['label']}`" for row in post.body["components"] for one in row["components"]]
        shown = [f"**{embed['title']}**{only}", "", *embed.get("description", "").split("\n")]
        shown += ["", f"📎 answer.txt, {len(post.file.splitlines()):,} lines"] if post.file else []
        yield from _quoted([*shown, "", " ".join(buttons)] if buttons else shown)


def _slack(post: Any) -> Iterator[str]:
    shown: list[str] = []
    for block in post.body["blocks"]:
        if block["type"] == "actions":
            shown += [" ".join(f"`{one['text']['text']}`" for one in block["elements"]), ""]
            continue
        text = block["text"]["text"]
        code = block["text"]["type"] == "mrkdwn"
        shown += [*(_entities(text).split("\n") if code else [_escaped(text)]), ""]
    shown[0] = f"**{shown[0]}**" + (" *(only you see this)*" if post.private else "")
    yield from _quoted(shown[:-1])


def _entities(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _escaped(text: str) -> str:
    return re.sub(r"([*_<>|])", r"\\\1", text)


def with_conversation(page: str, said: str) -> str:
    """Return a page with a conversation between its marks."""
    before, rest = page.split(_BEGIN, 1)
    _, after = rest.split(_END, 1)
    return f"{before}{_BEGIN}{said.rstrip()}\n{_END}{after}"


def main() -> None:
    """Write the conversations of today into the pages."""
    for platform, path in PAGES.items():
        with a_chat() as chat:
            path.write_text(with_conversation(path.read_text(), conversation(platform, chat)))
            print(f"{path.name} written")


if __name__ == "__main__":
    main()
