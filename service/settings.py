"""The operator's settings: one Struct, read once from the environment. docs/settings.md has a heading for each."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from service.engine.decoding import in_words, wrong_value
from service.errors import InvalidSetting
from service.logs import Level

Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Address = Annotated[
    str, Meta(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$", max_length=2048, examples=["https://advisor.example"])
]
Repo = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}$", examples=["OWNER/NAME"])]
Chatter = Annotated[  # a person or a place, as the bots name them
    str,
    Meta(
        pattern=r"^(discord(-guild)?:[0-9]{1,20}|slack:[A-Za-z0-9]{1,32}(:[A-Za-z0-9]{1,32})?)$",
        examples=["discord:80351110224678912"],
    ),
]
Verb = Literal["advise", "check", "validate", "result", "leaderboard", "hardware", "token", "help"]
Days = Annotated[int, Meta(ge=0, le=36_500)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one process. `None`: not set. Paths are as given, relative to the working directory.

    Each field carries its text in docs/settings.md; its environment variable is `ADVISOR_` and the field's name.
    """

    state_dir: Annotated[Path, "Folder of the SQLite database and the embedded Valkey; created if missing."] = Path(
        "var"
    )
    database_url: Annotated[
        Text | None,
        "Database: `sqlite:///PATH` or `postgresql://USER:PASSWORD@HOST/NAME`. Unset: one in the state folder.",
    ] = None
    redis_url: Annotated[
        Text | None, "Redis: `redis://HOST:PORT/0`, `rediss://…` or `unix://PATH`. Unset: `advisor serve` runs its own."
    ] = None
    hf_endpoint: Annotated[Address, "Address of the Hugging Face Hub, or of a mirror."] = "https://huggingface.co"
    hf_token: Annotated[
        Text | None,
        "Token for the Hub: for its higher rate limits and, in a service, for the gated repos of "
        "ADVISOR_GATED_REPOS; on the command line for all repos that its account may read.",
    ] = None
    gated_repos: Annotated[
        tuple[Repo, ...],
        "Gated repos, as OWNER/NAME, whose headers the service reads for everybody with HF_TOKEN; separated by commas.",
    ] = ()
    hub_hosts: Annotated[
        tuple[Text, ...],
        "More hosts, or suffixes that begin with a dot, to which the Hub may redirect a read; separated by commas. "
        "One named in full may have an address that is not public.",
    ] = ()
    cache_dir: Annotated[
        Path | None,
        "Folder of headers read so far, which processes may share; created if missing. Unset: in the state folder.",
    ] = None
    cache_mib: Annotated[
        int,
        Meta(ge=0, le=1_000_000),
        "MiB that headers may take there; the least used are deleted first. 0: none are kept.",
    ] = 512
    url_hosts: Annotated[
        tuple[Text, ...],
        "Hosts outside the Hub whose GGUF files `advisor inspect` may read by their address; separated by commas.",
    ] = ()
    outgoing_proxy: Annotated[
        Annotated[str, Meta(pattern=r"^https?://[^\s/?#]+/?$", max_length=2048)] | None,
        "HTTP proxy through which the service asks the Hub, Discord and Slack. Unset: none, whatever HTTPS_PROXY "
        "says; the command line goes by HTTPS_PROXY then.",
    ] = None
    host: Annotated[Text, "Address to listen on. `0.0.0.0` is every interface."] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535), "Port to listen on. 0: a free one, printed when the service is ready."
    ] = 8000
    public_url: Annotated[
        Address | None, "The service's address as its users see it. Unset: taken from each request."
    ] = None
    trusted_proxies: Annotated[
        tuple[Text, ...], "Networks of reverse proxies whose `X-Forwarded-For` is believed: `10.0.0.0/8,…`."
    ] = ()
    metrics_networks: Annotated[
        tuple[Text, ...], "Networks whose clients may read `/metrics` without a token; separated by commas."
    ] = ("127.0.0.0/8", "::1/128")
    drain_seconds: Annotated[
        float,
        Meta(ge=0, le=600),
        "Seconds that the API keeps listening after SIGTERM while `/ready` says 503, so that a proxy can switch to "
        "another process.",
    ] = 0
    log_level: Annotated[Level, "The lowest level that is logged: debug, info, warning or error."] = "info"
    workers: Annotated[
        int,
        Meta(ge=0, le=64),
        "Worker processes that `advisor serve` starts. 0: none, nor the bots' process: they run elsewhere.",
    ] = 2
    sweep_seconds: Annotated[
        float,
        Meta(ge=0.2, le=3_600),
        "Seconds between two checks for requests and runs that nobody works on any more, which are queued again.",
    ] = 30
    heartbeat_seconds: Annotated[
        int,
        Meta(ge=1, le=60),
        "Seconds between two words of a worker that its advice is alive: four times as long after the last one it "
        "is queued again. A worker looks for a lost Redis after twice as long at most.",
    ] = 5
    requests_per_minute: Annotated[Count, "Requests that one client may make a minute."] = 120
    new_repos_per_hour: Annotated[Count, "Repos not yet read here that one client may ask for an hour."] = 30
    open_advices: Annotated[
        int,
        Meta(ge=1, le=1_000),
        "Requests for advice that one client (network, account or chat channel) may have waiting or being computed.",
    ] = 8
    advice_cpu_seconds: Annotated[
        int, Meta(ge=1, le=3_600), "CPU seconds that one request for advice without a token may take."
    ] = 300
    account_advice_cpu_seconds: Annotated[int, Meta(ge=1, le=3_600), "The same with an account's token."] = 600
    streams_per_client: Annotated[
        int, Meta(ge=1, le=1_000), "Open event streams and held requests (`?wait=`) of one client."
    ] = 4

    operator: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)] | None,
        "Who runs this service, a person or an organisation: shown on `/about`, `/privacy`, `/terms`.",
    ] = None
    operator_contact: Annotated[
        Annotated[str, Meta(pattern=r"^(https://\S+|[^\s@:]+@[^\s@:]+)$", max_length=300, examples=["ada@example.org"])]
        | None,
        "How to reach the operator, an email address or the address of a page (`https://…`). Set: "
        "`/.well-known/security.txt` answers.",
    ] = None
    pages_dir: Annotated[
        Path | None,
        "Folder of the operator's own `about.txt`, `privacy.txt` and `terms.txt`, each of which takes the place of "
        "the text that ships.",
    ] = None

    lease_seconds: Annotated[
        float, Meta(ge=0.5, le=3_600), "Seconds that a host may be silent before its run goes back to the queue."
    ] = 90
    run_waits_days: Annotated[int, Meta(ge=1, le=365), "Days that a run waits for a host before it ends as failed."] = 7
    calibrate_days: Annotated[
        int, Meta(ge=0, le=365), "Days between fits of the speed model to this service's results. 0: none."
    ] = 0
    open_validations: Annotated[
        int, Meta(ge=0, le=1_000), "Validations that one account may have open on other people's hosts."
    ] = 3
    gpu_minutes_per_day: Annotated[
        int, Meta(ge=0, le=100_000), "GPU-minutes that one account may use on other people's hosts in 24 hours."
    ] = 60

    keep_advice_days: Annotated[Days, "Days after which advice that nobody had measured is removed. 0: for ever."] = 365
    keep_bodies_days: Annotated[
        Days,
        "Days after which only the request is kept of advice that nobody read again, and computed again when it "
        "is asked for; not what was measured or asked for with an account. 0: never.",
    ] = 30
    keep_listings_days: Annotated[Days, "Days after which a repo's list of files is read again. 0: for ever."] = 90
    keep_logs_days: Annotated[Days, "Days after which a result loses its log, and nothing else. 0: never."] = 0
    keep_reports_days: Annotated[
        Days, "Days after which a closed report or request for removal is removed. 0: for ever."
    ] = 365

    discord_public_key: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}$", examples=["3b6a27bc" * 8])] | None,
        "The Discord application's public key. Set: `/bots/discord` answers. Needs `ADVISOR_PUBLIC_URL`.",
    ] = None
    discord_application_id: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9]{1,20}$", examples=["845027738276462632"])] | None,
        "The Discord application's id: interactions of other applications are refused.",
    ] = None
    discord_bot_token: Annotated[
        Text | None,
        "Token of the application's bot: for `advisor bots discord register`, and for what takes over 15 minutes.",
    ] = None
    discord_api: Annotated[Address, "Address of Discord's API."] = "https://discord.com/api/v10"
    discord_files: Annotated[tuple[Text, ...], "Origins from which files attached to Discord messages are read."] = (
        "https://cdn.discordapp.com",
        "https://media.discordapp.net",
    )
    slack_signing_secret: Annotated[
        Text | None, "The Slack app's signing secret. Set: `/bots/slack/…` answers. Needs `ADVISOR_PUBLIC_URL`."
    ] = None
    slack_bot_token: Annotated[
        Text | None, "Token of the Slack app's bot (`xoxb-…`): for what takes over 30 minutes."
    ] = None
    slack_api: Annotated[Address, "Address of Slack's Web API."] = "https://slack.com/api"
    slack_hooks: Annotated[
        str,
        Meta(pattern=r"^https?://[^\s/?#]+$", max_length=2048),
        "Origin of the addresses that Slack names for answers; others are refused.",
    ] = "https://hooks.slack.com"
    bot_verbs_off: Annotated[tuple[Verb, ...], "Verbs that the bots do not answer, such as `validate,token`."] = ()
    bot_allow: Annotated[
        tuple[Chatter, ...],
        "Who may use the bots, people and places: `discord:USER`, `discord-guild:GUILD`, `slack:TEAM:USER`, "
        "`slack:TEAM`. Unset: everybody.",
    ] = ()
    bot_deny: Annotated[
        tuple[Chatter, ...], "Who may not use the bots, written as in `ADVISOR_BOT_ALLOW`, which it overrides."
    ] = ()
    bot_person_per_minute: Annotated[Count, "Questions that one person may ask the bots a minute."] = 10
    bot_place_per_minute: Annotated[Count, "Questions that one guild or workspace may ask the bots a minute."] = 60

    @property
    def has_bots(self) -> bool:
        """Whether Discord or Slack may ask."""
        return self.discord_public_key is not None or self.slack_signing_secret is not None

    @property
    def contact_uri(self) -> str | None:
        """The operator's contact as a URI."""
        contact = self.operator_contact
        return f"mailto:{contact}" if contact and not contact.startswith("https://") else contact

    @property
    def database(self) -> str:
        """The database's URL, with the default filled in."""
        return self.database_url or f"sqlite:///{(self.state_dir / 'advisor.db').absolute()}"

    @property
    def headers_dir(self) -> Path:
        """The folder of the headers read so far, with the default filled in."""
        return self.cache_dir or self.state_dir / "cache"


_FIELDS = get_type_hints(Settings, include_extras=True)
_OF_OTHERS = ("database_url", "redis_url", "hf_endpoint", "hf_token")  # variables that other programs use too
VARIABLES = {("" if field in _OF_OTHERS else "ADVISOR_") + field.upper(): field for field in _FIELDS}
_SECRET = frozenset(
    ("HF_TOKEN", "DATABASE_URL", "REDIS_URL", "ADVISOR_OUTGOING_PROXY", "ADVISOR_DISCORD_BOT_TOKEN",
     "ADVISOR_SLACK_SIGNING_SECRET", "ADVISOR_SLACK_BOT_TOKEN")
)  # fmt: skip
_OF_CALLERS = frozenset(
    {"ADVISOR_TOKEN", "ADVISOR_SERVICE", "ADVISOR_SEND"}
)  # read by clients of a service: no settings, but no mistake either


def _as_text(value: Any) -> str:
    return "" if value is None else ",".join(value) if isinstance(value, tuple) else str(value)


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings in `environment`; an empty variable counts as unset.

    Raises InvalidSetting, naming the variable, for an invalid value or an unknown `ADVISOR_…` name.
    """
    ours = (name for name in environment if name.startswith("ADVISOR_"))
    unknown = sorted(name for name in ours if name not in VARIABLES and name not in _OF_CALLERS)
    if unknown:
        raise InvalidSetting(
            f"{unknown[0]} is not a setting of this service",
            field=unknown[0],
            choices=tuple(get_close_matches(unknown[0], VARIABLES)),
        )
    values = {
        field: _parse(variable, environment[variable].strip(), _FIELDS[field])
        for variable, field in VARIABLES.items()
        if environment.get(variable, "").strip()
    }
    return Settings(**values)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without this service's secrets, for programs that need none of them."""
    return {name: value for name, value in environment.items() if name not in _SECRET}


def without_bots(settings: Settings) -> Settings:
    """Return the settings without the bots' secrets, for processes that do not talk to Discord or Slack."""
    return msgspec.structs.replace(settings, discord_bot_token=None, slack_signing_secret=None, slack_bot_token=None)


def as_environment(settings: Settings) -> dict[str, str]:
    """Return the variables from which `load_settings` makes the same settings, for a child process."""
    texts = {variable: _as_text(getattr(settings, field)) for variable, field in VARIABLES.items()}
    return {variable: text for variable, text in texts.items() if text}


def _parse(variable: str, text: str, hint: Any) -> Any:
    value: object = text
    if str(hint).startswith("typing.Annotated[tuple"):
        value = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.convert(value, hint, strict=False, dec_hook=lambda kind, raw: kind(raw))
    except msgspec.ValidationError as error:
        said, path, _ = wrong_value(error, hint)
        if isinstance(value, list) and path:
            shown = f"has {value[int(path.strip('[]'))]!r}"
        else:
            shown = "is (hidden)" if variable in _SECRET else f"is {text!r}"
        raise InvalidSetting(f"{variable} {shown}: {in_words(said)}", field=variable) from error
