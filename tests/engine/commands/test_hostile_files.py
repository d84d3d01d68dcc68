"""Files that are made to stop who reads them, and files whose parts are of other kinds than they should be."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from service.engine.commands.parse import parse
from service.engine.commands.read_files import commands_of
from service.engine.commands.shell import split_commands
from service.engine.commands.yaml_text import read_yaml
from service.engine.errors import InvalidFlags

POD = "apiVersion: v1\nspec:\n  containers:\n  - image: llama.cpp\n    args: [-m, a.gguf]\n"
SERVICE = "services:\n  a:\n    image: llama.cpp:server\n    command: -m a.gguf\n"


def _doubled(kind: str, levels: int = 12) -> str:
    """Anchors, each of which holds the one before it nine times."""
    first, rest = {"list": ("[x]", "[{}]"), "mapping": ("{x: 1}", "{{{}}}")}[kind]
    lines = [f"a0: &a0 {first}"]
    for n in range(1, levels):
        held = [f"*a{n - 1}" if kind == "list" else f"k{i}: *a{n - 1}" for i in range(9)]
        lines.append(f"a{n}: &a{n} {rest.format(', '.join(held))}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{_doubled('list')}services:\n  a:\n    image: *a11\n    command: llama-server\n",
        f"{_doubled('mapping')}apiVersion: v1\n",
        "apiVersion: v1\na: &a [*a, *a]\n",
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{n}: &a{n}\n  <<: [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 8))
        + "apiVersion: v1\n",
        f"a: &a {'x' * 20_000}\nb: &b [{'*a, ' * 1000}]\nservices:\n  a:\n    image: *b\n    command: llama-server\n",
        "apiVersion: v1\na: " + "[" * 65_000,
        "apiVersion: v1\na:\n" + "- " * 32_000,
        "models:\n  a:\n    cmd: llama-server -m ${m9}\nmacros:\n  m0: x\n"
        + "".join(f"  m{n}: {f'${{m{n - 1}}}' * 10}\n" for n in range(1, 10)),
    ],
)
def test_a_file_that_grows_or_nests_without_end_is_refused_at_once(text: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidFlags):
        commands_of(text)
    assert time.process_time() - start < 1


def test_what_services_share_by_aliases_is_read() -> None:
    named = "".join(f"  s{n}:\n    <<: *base\n    command: -m {n}.gguf\n" for n in range(60))
    base = f"x-base: &base\n  image: llama.cpp:server\n  labels: [{'traefik.enable=true, ' * 40}]\n"
    assert len(commands_of(f"{base}services:\n{named}")) == 60


@pytest.mark.parametrize(
    "value", ["2020-99-99", "9" * 5000, '!!int ""', "!!bool x", "!!timestamp x", "!!python/name:a"]
)
def test_a_value_that_no_type_has_is_no_yaml(value: str) -> None:
    assert read_yaml(f"a: {value}") is None


@pytest.mark.parametrize(
    "text",
    [
        f"{SERVICE}    gpus: [{{device_ids: 7}}]\n",
        "models:\n  a:\n    cmd: llama-server -m a.gguf\n    env: 5\n",
        f"{POD}    resources: {{limits: {{1: 2}}}}\n",
        f"{POD}    command: it's\n",
    ],
)
def test_a_part_of_another_kind_than_it_should_be_is_no_crash(text: str) -> None:
    assert len(commands_of(text)) == 1


def test_a_preset_that_names_no_model_is_refused() -> None:
    with pytest.raises(InvalidFlags, match="names no model"):
        commands_of("version = 1\n[*]\nfa = on\n")


def test_a_comment_behind_words_of_llama_swap_ends_with_its_line() -> None:
    (one,) = commands_of(
        "models:\n  a:\n    cmd: |\n      llama-server -m a.gguf  # mine\n      # all\n      -c 8192\n"
    )
    assert split_commands(one.command) == [["llama-server", "-m", "a.gguf", "-c", "8192"]]


def test_words_that_no_engine_knows_are_counted_before_each_is_looked_into() -> None:
    with pytest.raises(InvalidFlags, match="4000 words are no options"):
        parse("[a]\nmodel = a.gguf\n" + "".join(f"k{n} = v\n" for n in range(4000)))


def test_a_nixos_service_of_strings_without_end_is_read_in_time() -> None:
    text = "services.llama-cpp = {\n settings = {\n" + ' "a" = ' * 8500 + "\n};\n};"
    started = time.process_time()
    with suppress(InvalidFlags):
        commands_of(text)
    assert time.process_time() - started < 1
