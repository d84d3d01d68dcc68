"""What the docs say of the code is so."""

from __future__ import annotations

import configparser
import re
import subprocess
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import yaml

from scripts.openapi import written
from service.engine.goal import GoalRequest, resolve_goal
from service.settings import VARIABLES
from tests.corpus import for_each
from tests.doc_blocks.blocks import COMMENTS, LANGUAGES, PAGES, ROOT, Block, blocks_of, inline_commands
from tests.doc_blocks.commands import commands_of, structs, wrong_with, wrong_with_mention

NOT_RUN = {
    "a server, which runs here already",
    "needs a GPU",
    "needs a host that measures",
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
pages = for_each(PAGES, lambda page: page.name)


def test_what_is_written_from_the_code_is_as_the_code_has_it() -> None:
    assert [path.name for path, content in written().items() if path.read_bytes() != content] == []


def test_every_setting_has_a_heading() -> None:
    headings = re.findall(r"^## (\S+)$", (ROOT / "docs/settings.md").read_text(), re.MULTILINE)
    assert headings == list(VARIABLES)


def test_the_table_of_goals_is_the_one_in_the_code() -> None:
    for line in (ROOT / "docs/glossary.md").read_text().splitlines():
        cells = [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        name = cells[0].split(" ")[0]
        if name not in ("chat", "agent", "long", "batch", "fastest", "quality"):
            continue
        goal = resolve_goal(GoalRequest(preset=name), 10**6)  # type: ignore[arg-type]
        context = "min(131072 trained)" if name == "long" else str(goal.context)
        least = "none" if goal.min_tg is None else f"{goal.min_tg:g}"
        numbers = [str(n) for n in (goal.prompt, goal.output, goal.depth)]
        assert cells[1:] == [*numbers, context, str(goal.parallel), least]


@pages
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pages
def test_every_variable_that_is_named_is_a_setting_or_one_of_the_command_line(page: Path) -> None:
    known = set(VARIABLES) | {"ADVISOR_SEND", "ADVISOR_SERVICE", "ADVISOR_TOKEN"}
    assert set(re.findall(r"\bADVISOR_[A-Z_]+\b", page.read_text())) <= known


@pages
def test_every_path_and_make_target_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    named = re.findall(r"`((?:service|workers|tests|bench|scripts|docs)/[\w/.]+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    banned = re.compile("/w" + "ork/|files.python" + "hosted|registry.npm" + "js|pypi" + r"\.org|deb\.debian")
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    found = []
    for name in files:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".sh", ".yaml", ".html", ".css", ""} and path.is_file():
            found += [name for line in path.read_text(errors="replace").splitlines() if banned.search(line)]
    assert not found


def test_the_site_leads_to_every_page_once() -> None:
    listed = re.findall(r"^ +- .*: ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md")), (
        "mkdocs.yml has the pages in `nav`"
    )


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
