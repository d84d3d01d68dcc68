"""Stand-ins of Discord's and Slack's REST sides. They enforce what the platforms document, and note every breach.

Discord: discord-api-docs c98d64b (interactions, webhook, message, components). Slack: docs.slack.dev (response_url,
Block Kit, chat.postMessage). Time is the test's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

DISCORD, SLACK_API, SLACK_HOOKS = "https://discord.test/api/v10", "https://slack.test/api", "https://hooks.slack.test"
FILES = "https://files.discord.test"
APPLICATION, BOT_TOKEN, SLACK_TOKEN = "700", "bot-token", "xoxb-token"
TOKEN_SECONDS, ADDRESS_SECONDS, MAX_USES = 900, 1800, 5
EPHEMERAL = 64
_AGENT = re.compile(r"DiscordBot \(https?://\S+, \S+\)")  # discord-api-docs, reference: User Agent
_MASS = re.compile(r"@(?:everyone|here)\b|(?<!\\)<(?:@[!&]?|#|/)\d+>")


@dataclass
class Post:
    """A message as it stands on a platform. `private`: only the asker sees it."""

    body: dict[str, Any]
    private: bool
    file: str | None = None
    channel: str | None = None

    @property
    def text(self) -> str:
        """All that is to be read in it."""
        return f"{_texts(self.body)}\n{self.file or ''}"


@dataclass
class Hook:
    """What a platform knows of one question."""

    made_at: float
    private: bool
    user: str
    original: Post | None = None
    deferred: bool = True
    deleted: bool = False
    posts: list[Post] = field(default_factory=list)
    edits: list[Post] = field(default_factory=list)
    uses: int = 0

    @property
    def shown(self) -> Post:
        """What stands there now."""
        assert self.original is not None
        return self.original


class Platforms:
    """Both REST sides, behind one httpx transport. `breaches`: what a real platform would have refused."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.hooks: dict[str, Hook] = {}
        self.channel: list[Post] = []
        self.breaches: list[str] = []
        self.registered: dict[str, list[dict[str, Any]]] = {}
        self.files: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.refuse_next: list[httpx.Response] = []
        self.closed: set[str] = set()  # channels that the bot was not invited to
        self.deaf_until = 0.0  # Discord does not know of acknowledgements that it was sent

    def client(self) -> httpx.Client:
        """Return a client that reaches the stand-ins and nothing else."""
        return httpx.Client(transport=httpx.MockTransport(self.handle), follow_redirects=False)

    def taken(self, token: str, private: bool, user: str) -> None:
        """Note that a question was acknowledged as deferred."""
        self.hooks[token] = Hook(self.now(), private, user)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one call."""
        url = str(request.url)
        self.calls.append(f"{request.method} {request.url.path}")
        if url.startswith(DISCORD) and not _AGENT.fullmatch(request.headers["user-agent"]):
            self.breaches.append(f"a User-Agent of {request.headers['user-agent']}")
        if self.refuse_next:
            return self.refuse_next.pop(0)
        if url.startswith(DISCORD):
            return self._discord(request, url[len(DISCORD) :])
        if url.startswith(SLACK_HOOKS):
            return self._slack_hook(request, url.rpartition("/")[2])
        if url.startswith(SLACK_API):
            return self._slack_api(request, url.rpartition("/")[2])
        if url in self.files:
            return httpx.Response(200, content=self.files[url])
        self.breaches.append(f"a call of {url}")
        return httpx.Response(404)

    # --- Discord ------------------------------------------------------------------------------------------------------

    def _discord(self, request: httpx.Request, path: str) -> httpx.Response:
        if match := re.fullmatch(rf"/webhooks/{APPLICATION}/([\w.-]+)(/messages/@original)?", path):
            return self._webhook(request, match[1], bool(match[2]))
        if request.headers.get("authorization") != f"Bot {BOT_TOKEN}":
            return httpx.Response(401, json={"message": "401: Unauthorized", "code": 0})
        if path == "/users/@me/channels":
            user = json.loads(request.content)["recipient_id"]
            return httpx.Response(200, json={"id": f"9{user}", "type": 1})
        if match := re.fullmatch(r"/channels/(\d+)/messages", path):
            if match[1] in self.closed:
                return httpx.Response(403, json={"message": "Missing Access", "code": 50001})
            body, file = _sent(request)
            self._check_discord(body)
            self.channel.append(Post(body, False, file, match[1]))
            return httpx.Response(200, json={"id": "1"})
        if match := re.fullmatch(rf"/applications/{APPLICATION}(?:/guilds/(\d+))?/commands", path):
            commands = json.loads(request.content)
            self._check_commands(commands)
            self.registered[match[1] or "global"] = commands
            return httpx.Response(200, json=commands)
        return httpx.Response(404)

    def _webhook(self, request: httpx.Request, token: str, original: bool) -> httpx.Response:
        hook = self.hooks.get(token)
        if hook is None or self.now() - hook.made_at > TOKEN_SECONDS:
            return httpx.Response(401, json={"code": 50027, "message": "Invalid Webhook Token"})
        if self.deaf_until > self.now():  # the acknowledgement has not arrived
            return httpx.Response(404, json={"message": "Unknown Webhook", "code": 10015})
        if request.method == "GET":
            missing = httpx.Response(404, json={"message": "Unknown Message", "code": 10008})
            return missing if hook.deleted else httpx.Response(200, json={"id": "2", "flags": 128})
        if request.method == "DELETE":
            hook.deleted, hook.deferred, hook.original = True, False, None
            return httpx.Response(204)
        body, file = _sent(request)
        self._check_discord(body)
        if original and request.method == "PATCH":
            if hook.deleted:
                return httpx.Response(404, json={"code": 10008})
            hook.original, hook.deferred = Post(body, hook.private, file), False
            hook.edits.append(hook.original)
            return httpx.Response(200, json={"id": "2"})
        if hook.deferred:  # "will function as Edit Original Interaction Response"; the flag is ignored
            hook.original, hook.deferred = Post(body, hook.private, file), False
            return httpx.Response(200, json={"id": "2"})
        hook.posts.append(Post(body, body.get("flags", 0) & EPHEMERAL != 0, file))
        return httpx.Response(200, json={"id": "3"})

    def _check_discord(self, body: dict[str, Any]) -> None:
        say = self.breaches.append
        if len(body.get("content") or "") > 2000:
            say("content over 2000")
        if body.get("allowed_mentions", {}).get("parse") != []:
            say("mentions are parsed")
        if not (body.get("content") or body.get("embeds") or body.get("components")):
            say("an empty message")
        total = 0
        for embed in body.get("embeds", []):
            for name, most in (("title", 256), ("description", 4096)):
                total += len(embed.get(name, ""))
                if len(embed.get(name, "")) > most:
                    say(f"{name} over {most}")
        if total > 6000 or len(body.get("embeds", [])) > 10:
            say("embeds over 6000")
        self._check_rows(body.get("components", []))
        if _MASS.search(
            re.sub(r"```.*?```", "", _texts(body.get("embeds", [])) + (body.get("content") or ""), flags=re.S)
        ):
            say("somebody is mentioned")

    def _check_rows(self, rows: list[dict[str, Any]]) -> None:
        ids = [one["custom_id"] for row in rows for one in row["components"] if "custom_id" in one]
        if len(rows) > 5 or len(set(ids)) != len(ids):
            self.breaches.append("rows")
        for row in rows:
            if not 1 <= len(row["components"]) <= 5:
                self.breaches.append("buttons in a row")
            for one in row["components"]:
                named, linked = one.get("custom_id"), one.get("url")
                fits = len(one["label"]) <= 80 and len(named or "") <= 100 and len(linked or "") <= 512
                if not fits or bool(named) == bool(linked) or (one["style"] == 5) != bool(linked):
                    self.breaches.append(f"button {one}")

    def _check_commands(self, commands: list[dict[str, Any]]) -> None:
        for command in commands:
            self._check_command(command, command.get("type", 1) == 1)
        if len({(one["name"], one["type"]) for one in commands}) != len(commands):
            self.breaches.append("two commands of one name")

    def _check_command(self, command: dict[str, Any], chat: bool) -> None:
        name, described = command["name"], command.get("description", "")
        if chat and not (re.fullmatch(r"[-_'\w]{1,32}", name) and name == name.lower() and 1 <= len(described) <= 100):
            self.breaches.append(f"command {name}: {described}")
        if not chat and (described or not 1 <= len(name) <= 32):
            self.breaches.append(f"menu command {name}")
        options = command.get("options", [])
        required = [bool(option.get("required")) for option in options]
        if len(options) > 25 or required != sorted(required, reverse=True):
            self.breaches.append(f"options of {name}")
        for option in options:
            self._check_command(option, True)
            if len(option.get("choices", [])) > 25 or not 1 <= option.get("max_length", 1) <= 6000:
                self.breaches.append(f"option {option['name']}")
            if option.get("autocomplete") and option.get("choices"):
                self.breaches.append(f"option {option['name']} has choices and completions")

    # --- Slack --------------------------------------------------------------------------------------------------------

    def _slack_hook(self, request: httpx.Request, token: str) -> httpx.Response:
        hook = self.hooks.get(token)
        if hook is None or self.now() - hook.made_at > ADDRESS_SECONDS:
            return httpx.Response(404, text="expired_url")
        hook.uses += 1
        if hook.uses > MAX_USES:
            self.breaches.append("a sixth use of response_url")
            return httpx.Response(404, text="used_url")
        body = json.loads(request.content)
        self._check_slack(body)
        hook.posts.append(Post(body, body["response_type"] == "ephemeral"))
        return httpx.Response(200, text="ok")

    def _slack_api(self, request: httpx.Request, method: str) -> httpx.Response:
        body = json.loads(request.content)
        if request.headers.get("authorization") != f"Bearer {SLACK_TOKEN}":
            return httpx.Response(200, json={"ok": False, "error": "invalid_auth"})
        if body["channel"] in self.closed:
            return httpx.Response(200, json={"ok": False, "error": "not_in_channel"})
        self._check_slack(body)
        self.channel.append(Post(body, method == "chat.postEphemeral", None, body["channel"]))
        return httpx.Response(200, json={"ok": True})

    def _check_slack(self, body: dict[str, Any]) -> None:
        say, blocks = self.breaches.append, body.get("blocks", [])
        if len(blocks) > 50 or len(body.get("text", "")) > 4000 or not body.get("text"):
            say("blocks or text")
        for block in blocks:
            kind = block["type"]
            if kind in ("section", "header"):
                most = 150 if kind == "header" else 3000
                if not 1 <= len(block["text"]["text"]) <= most:
                    say(f"{kind} of {len(block['text']['text'])}")
                if block["text"]["type"] == "mrkdwn" and "<" in block["text"]["text"]:
                    say("an address or somebody in angle brackets")
            elif kind == "actions":
                ids = [one["action_id"] for one in block["elements"]]
                if not 1 <= len(ids) <= 25 or len(set(ids)) != len(ids):
                    say("actions")
                for one in block["elements"]:
                    lengths = len(one["text"]["text"]) <= 75 and len(one.get("value", "")) <= 2000
                    if not lengths or len(one.get("url", "")) > 3000:
                        say(f"button {one}")
            else:
                say(f"a block of type {kind}")


def _sent(request: httpx.Request) -> tuple[dict[str, Any], str | None]:
    """Return the JSON and the file of a request, which is JSON or a form of both."""
    kind = request.headers["content-type"]
    if not kind.startswith("multipart/form-data"):
        return json.loads(request.content), None
    boundary = kind.partition("boundary=")[2].encode()
    found: dict[str, bytes] = {}
    for part in request.content.split(b"--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name = re.search(rb'name="([^"]+)"', head)
        assert name
        found[name[1].decode()] = content.removesuffix(b"\r\n")
    return json.loads(found["payload_json"]), found["files[0]"].decode()


def _texts(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(_texts(one) for key, one in value.items() if key not in ("custom_id", "value", "action_id"))
    return "\n".join(_texts(one) for one in value) if isinstance(value, list) else ""
