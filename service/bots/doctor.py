"""What `advisor doctor` checks of the bots: whether the platforms accept their tokens, and which answers got lost."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from service.bots.discord.deliver import headers
from service.bots.sending import ask, new_client, object_of, of_slack
from service.flows.operations.components import answers_lost
from service.flows.operations.doctor import Diagnosis
from service.outgoing.rules import Refused
from service.settings import Settings

_REMEDIES = {
    "not-invited": "invite the bot to the channels where it is asked: `/invite` on Slack, the rights View Channel and "
    "Send Messages on Discord",
    "expired": "set the bot's token (docs/slack.md, docs/discord.md): without one, no answer can be sent once the "
    "reply address of a question has expired",
    "unreachable": "on Slack turn on the Messages tab of the app's home; on Discord people must take direct messages",
    "token": "renew the bot's token and its rights: docs/slack.md, docs/discord.md",  # nosec B105 (no password)
    "refused": "a bug in this program: report the `code` of `message.refused` in the log",
    "abandoned": "the platform refused it a dozen times: see `message.undelivered` in the log",
}


def diagnose_bots(settings: Settings) -> Iterator[Diagnosis]:
    """Yield a diagnosis of each configured bot. Changes nothing, raises nothing."""
    with new_client(settings) as client:
        if settings.discord_public_key:
            yield _discord(client, settings)
        if settings.slack_signing_secret:
            yield _slack(client, settings)
    if settings.has_bots and settings.redis_url:
        yield from _lost(settings.redis_url)


def _discord(client: httpx.Client, settings: Settings) -> Diagnosis:
    if settings.discord_bot_token is None:
        return _without_token("Discord", "ADVISOR_DISCORD_BOT_TOKEN", 15)
    url = f"{settings.discord_api}/applications/@me"
    found = ask(client, "GET", url, None, headers=headers(settings, as_bot=True))
    if found.get("id") == settings.discord_application_id:
        return Diagnosis("Discord", "good", f"the bot's token is accepted by {url}")
    said = str(found.get("message") or "the token belongs to another application" if found else "no answer")[:100]
    remedy = "set ADVISOR_DISCORD_BOT_TOKEN to the token of ADVISOR_DISCORD_APPLICATION_ID: docs/discord.md"
    return Diagnosis("Discord", "bad", f"the bot's token is not accepted: {said}", remedy)


def _slack(client: httpx.Client, settings: Settings) -> Diagnosis:
    if settings.slack_bot_token is None:
        return _without_token("Slack", "ADVISOR_SLACK_BOT_TOKEN", 30)
    try:
        authorization = {"Authorization": f"Bearer {settings.slack_bot_token}"}
        reply = client.post(f"{settings.slack_api}/auth.test", headers=authorization)
    except (httpx.HTTPError, Refused) as error:
        remedy = "check the outgoing connection (proxy, firewall, DNS)"
        return Diagnosis("Slack", "bad", f"no answer: {type(error).__name__}", remedy)
    scopes = {scope.strip() for scope in reply.headers.get("x-oauth-scopes", "").split(",") if scope.strip()}
    if (sent := of_slack(reply)).kind != "sent":
        return Diagnosis("Slack", "bad", f"the bot's token is not accepted: {sent.code}", _REMEDIES["token"])
    if scopes and "chat:write" not in scopes:
        text = "the bot's token has no right to write (chat:write): answers after 30 minutes are lost"
        return Diagnosis("Slack", "bad", text, "install the app again from the manifest")
    return Diagnosis("Slack", "good", f"the bot's token is accepted by {object_of(reply).get('team', '')}")


def _without_token(part: str, setting: str, minutes: int) -> Diagnosis:
    text = f"the bot has no token: answers after more than {minutes} minutes cannot be sent"
    return Diagnosis(part, "warning", text, f"set {setting}")


def _lost(redis_url: str) -> Iterator[Diagnosis]:
    for (platform, why), n in answers_lost(redis_url).items():
        text = f"{n} answers on {platform} reached nobody ({why}) since the counts began"
        yield Diagnosis("answers", "warning", text, _REMEDIES[why])
