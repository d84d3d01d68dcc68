"""The advice in short: versioned, small, and its words those of the command."""

from __future__ import annotations

import shlex

import msgspec
from msgspec.structs import replace

from service.wire.advice.compact import CompactAdvice, compact
from tests.wire.test_text import advice

FIELDS = {
    "version", "id", "state", "repo", "revision", "sentence", "configs", "assumed", "problem", "url",
}  # fmt: skip
OF_CONFIG = {
    "rank", "label", "engine", "variant", "context", "env", "command", "download", "devices", "speed", "loss_percent",
    "notes",
}  # fmt: skip


def test_version_one_has_these_fields() -> None:
    """Launchers count on them: what goes or changes its meaning is another version; what is new is added here."""
    card = msgspec.to_builtins(compact(advice()))
    assert card["version"] == 1
    assert set(card) == FIELDS
    assert set(card["configs"][0]) == OF_CONFIG


def test_its_words_are_the_command_and_its_figures_the_advice() -> None:
    whole = advice()
    first, config = compact(whole).configs[0], whole.configs[0]
    line = " ".join([*(f"{name}={value}" for name, value in first.env.items()), shlex.join(first.command)])
    assert shlex.split(line) == shlex.split(config.commands.server)
    assert first.notes == config.notes
    assert [d.used_mib for d in first.devices] == [d.total_mib for d in config.devices]
    assert (first.speed.tg_low, first.speed.depth) == (config.speed[-1].tg_low, config.speed[-1].n_kv)


def test_it_is_small() -> None:
    whole = advice()
    assert len(msgspec.json.encode(compact(whole))) < 16_000
    many = replace(whole, configs=[replace(whole.configs[0], rank=rank) for rank in range(1, 40)])
    assert len(compact(many).configs) == 5


def test_an_advice_that_is_computed_has_no_configs_yet() -> None:
    waiting = compact(replace(advice(), state="running", configs=[], headline=None, assumed=[]))
    assert (waiting.state, waiting.configs, waiting.sentence) == ("running", [], None)
    assert msgspec.json.decode(msgspec.json.encode(waiting), type=CompactAdvice) == waiting
