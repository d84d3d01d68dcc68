"""What the docs say of the code is so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from scripts.openapi import written
from service.engine.goal import GoalRequest, resolve_goal
from service.settings import SETTINGS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "openapi").glob("*.md"))


@pytest.mark.parametrize("path", list(written()), ids=lambda path: path.name)
def test_what_is_written_from_the_code_is_as_the_code_has_it(path: Path) -> None:
    assert path.read_bytes() == written()[path]


def test_every_setting_has_a_heading() -> None:
    headings = re.findall(r"^## (\S+)$", (ROOT / "docs/settings.md").read_text(), re.MULTILINE)
    assert headings == [setting.name for setting in SETTINGS]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
