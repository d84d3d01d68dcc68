"""Settings: read once, checked at once, and every one of them described."""

import re
from pathlib import Path
from typing import get_type_hints

import pytest

from service.bots.vocabulary import VERBS
from service.errors import InvalidSetting
from service.settings import VARIABLES, Settings, as_environment, load_settings


def test_nothing_set_gives_the_defaults() -> None:
    assert load_settings({}) == Settings()
    assert load_settings({"ADVISOR_PORT": " ", "PATH": "/bin"}) == Settings()


def test_values_are_read_as_what_they_are() -> None:
    settings = load_settings(
        {"ADVISOR_PORT": "0", "ADVISOR_TRUSTED_PROXIES": "10.0.0.0/8, ::1", "ADVISOR_STATE_DIR": "/srv/advisor"}
    )
    assert (settings.port, settings.trusted_proxies) == (0, ("10.0.0.0/8", "::1"))
    assert settings.database == "sqlite:////srv/advisor/advisor.db"


def test_a_child_process_gets_the_same_settings() -> None:
    settings = Settings(redis_url="unix:///x.sock", workers=0, hub_hosts=(".cdn.example", "b"), hf_token="t")
    assert load_settings(as_environment(settings)) == settings


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("ADVISOR_PORT", "65536", "this must be at most 65535"),
        ("ADVISOR_PORT", "http", "this must be a whole number"),
        ("ADVISOR_WORKERS", "-1", "this must be at least 0"),
        ("HF_ENDPOINT", "huggingface.co", "written like https://"),
        ("ADVISOR_PUBLIC_URL", "ftp://x", "written like https://advisor.example"),
        ("ADVISOR_GATED_REPOS", "a/b,meta-llama", "has 'meta-llama': this must be written like OWNER/NAME"),
        ("ADVISOR_BOT_DENY", "discord:1,bob", "has 'bob': this must be written like discord:80351110224678912"),
        ("ADVISOR_BOT_ALLOW", "discord-guild:my server", "written like discord:80351110224678912"),
        ("ADVISOR_BOT_VERBS_OFF", "token,validte", "'validte' is not one of advise, check"),
        ("ADVISOR_OPERATOR_CONTACT", "me", "written like ada@example.org"),
        ("ADVISOR_DISCORD_PUBLIC_KEY", "zz", "written like 3b6a27bc"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_variable(variable: str, value: str, says: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        load_settings({variable: value})
    assert raised.value.field == variable
    assert variable in raised.value.detail
    assert says in raised.value.detail


def test_gated_repos_may_be_all_that_the_hub_has() -> None:
    assert load_settings({"ADVISOR_GATED_REPOS": "_a/_b-GGUF, c.d/e_"}).gated_repos == ("_a/_b-GGUF", "c.d/e_")


def test_the_verbs_that_can_be_turned_off_are_those_that_the_bots_have() -> None:
    names = [verb.name for verb in VERBS]
    assert load_settings({"ADVISOR_BOT_VERBS_OFF": ",".join(names)}).bot_verbs_off == tuple(names)


def test_a_misspelt_variable_is_refused_instead_of_ignored() -> None:
    with pytest.raises(InvalidSetting, match="ADVISOR_PROT") as raised:
        load_settings({"ADVISOR_PROT": "1"})
    assert "ADVISOR_PORT" in raised.value.choices


@pytest.mark.parametrize("variable", ["HF_TOKEN", "DATABASE_URL", "REDIS_URL"])
def test_a_secret_is_not_shown_in_an_error(variable: str) -> None:
    with pytest.raises(InvalidSetting) as raised:
        load_settings({variable: "secret" * 1000})
    assert "secret" not in raised.value.detail


def helps() -> dict[str, str]:
    """What is said of each setting, by its variable."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hints[field].__metadata__[-1] for name, field in VARIABLES.items()}


def test_every_setting_has_a_name_a_default_and_a_sentence() -> None:
    assert len(VARIABLES) == len(Settings.__struct_fields__)
    assert all(text.endswith(".") for text in helps().values())
    assert load_settings(as_environment(Settings())) == Settings()


def test_the_docs_have_every_setting_with_its_help_and_default() -> None:
    page = (Path(__file__).parent.parent / "docs" / "settings.md").read_text()
    sections = {name.strip(): text for name, _, text in (part.partition("\n") for part in page.split("\n## ")[1:])}
    defaults = as_environment(Settings())
    assert set(sections) == set(VARIABLES)
    for name, text in helps().items():
        assert text in sections[name]
        assert (f"Default: `{defaults[name]}`" if name in defaults else "not set") in sections[name]


def test_what_calls_a_service_is_no_mistake() -> None:
    stated = {"ADVISOR_TOKEN": "adv_x", "ADVISOR_SERVICE": "https://advisor.example"}
    assert load_settings(stated) == Settings()


def test_every_setting_has_a_reader() -> None:
    """What nothing reads promises something that does not happen."""
    root = Path(__file__).parent.parent
    own = root / "service" / "settings.py"
    sources = [path.read_text() for top in ("service", "workers") for path in (root / top).rglob("*.py") if path != own]
    read = set(re.findall(r"\b_?settings(?:\(\))?\.(\w+)", "\n".join(sources))) | set(
        re.findall(r"\bself\.(\w+)", own.read_text())
    )
    assert set(Settings.__struct_fields__) - read == set()
