"""The blocks of the pages are as CONTRIBUTING.md says: a language, what it claims, and a reason where it is not run."""

from __future__ import annotations

import configparser
import importlib
import pkgutil
import tomllib
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from service import wire
from tests.doc_blocks.blocks import COMMENTS, LANGUAGES, PAGES, Block, blocks_of, inline_commands
from tests.doc_blocks.commands import commands_of, wrong_with, wrong_with_mention

NOT_RUN = {
    "a server, which runs here already",
    "needs a GPU",
    "needs an engine and a model",
    "needs root",
    "needs a container engine",
    "needs the real Hub",
    "needs Discord",
    "needs Slack",
    "needs the package index",
    "needs the service stopped",
    "done by .ci/run",
}
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def of_language(page: Path, *languages: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.language in languages]


@pages
def test_every_block_has_a_known_language_and_known_comments(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in LANGUAGES, block.place
        assert set(block.comments) <= COMMENTS, block.place


def test_what_is_not_run_has_one_of_few_reasons() -> None:
    counted = Counter(block.comments["not run"] for block in BLOCKS if "not run" in block.comments)
    assert set(counted) <= NOT_RUN
    assert all(block.language in ("sh", "python") for block in BLOCKS if "not run" in block.comments)
    runs = sum(block.language in ("sh", "python") for block in BLOCKS) - counted.total()
    assert runs > 2 * counted.total(), counted


@pages
def test_what_stands_below_a_command_as_its_output_is_written_by_running_it(page: Path) -> None:
    lines = page.read_text().split("\n")
    for above, below in pairwise(blocks_of(page)):
        ends = above.line + above.text.count("\n") + 1
        follows = above.language == "sh" and not "".join(
            line for line in lines[ends : below.line - 1] if not line.startswith("<!--")
        )
        if follows and below.language == "text":
            assert "output" in below.comments, below.place
        if "output" in below.comments:
            assert above.language in ("sh", "python"), below.place
            assert "not run" not in above.comments, below.place


@pages
def test_json_is_json_and_what_it_is_said_to_be(page: Path) -> None:
    for block in of_language(page, "json"):
        said = block.comments.get("json")
        msgspec.json.decode(block.text, type=structs()[said] if said else Any)


@pages
def test_python_and_files_of_settings_can_be_read(page: Path) -> None:
    for block in blocks_of(page):
        match block.language:
            case "toml":
                tomllib.loads(block.text)
            case "yaml":
                list(yaml.safe_load_all(block.text))
            case "ini":
                configparser.ConfigParser(strict=False, interpolation=None).read_string(block.text)
            case "python":
                compile(block.text, block.place, "exec")


@pages
def test_every_command_is_one_that_there_is(page: Path) -> None:
    commands = commands_of(of_language(page, "sh"))
    assert not [(place, words, found) for place, words in commands if (found := wrong_with(words))]


@pages
def test_every_command_in_a_sentence_is_one_that_there_is(page: Path) -> None:
    assert not [(text, found) for text in inline_commands(page) if (found := wrong_with_mention(text))]


@cache
def structs() -> dict[str, type[msgspec.Struct]]:
    """The Structs of `service.wire` and those that it uses, by name."""
    modules = [importlib.import_module(f"service.wire.{found.name}") for found in pkgutil.iter_modules(wire.__path__)]
    named = [thing for module in modules for thing in vars(module).values() if isinstance(thing, type)]
    return {thing.__name__: thing for thing in named if issubclass(thing, msgspec.Struct)}
