"""`-ot` rules mean here what they mean to std::regex: a C++ program expands them a second time."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.engine.commands.expert_rules import expert_override
from service.engine.commands.parse import parse
from service.engine.config import Override
from service.engine.errors import InvalidFlags
from service.engine.overrides import matching
from tests import models
from tests.engine.commands.published import published

pytestmark = pytest.mark.full


class FirstMatch:
    """The C++ program, kept running."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def expand(self, rules: tuple[Override, ...], names: list[str]) -> dict[str, str] | None:
        """Return the device of each name that a rule matches; None if std::regex refuses a pattern."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin
        assert stdout
        lines = [f"rule\t{r.pattern}\t{r.device}" for r in rules] + [f"name\t{n}" for n in names] + ["end"]
        stdin.write("\n".join(lines) + "\n")
        stdin.flush()
        placed: dict[str, str] = {}
        while (line := stdout.readline().rstrip("\n")) not in ("end", "refused", ""):
            name, _, device = line.partition("\t")
            placed[name] = device
        return None if line == "refused" else placed


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstMatch]:
    program = tmp_path_factory.mktemp("std_regex") / "first_match"
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler, "a C++ compiler is needed"
    source = Path(__file__).with_name("first_match.cpp")
    subprocess.run([compiler, "-std=c++17", "-O1", "-o", program, source], check=True, timeout=110)
    first_match = FirstMatch(program)
    yield first_match
    first_match.process.kill()
    first_match.process.communicate()


def _expand(rules: tuple[Override, ...], names: list[str]) -> dict[str, str]:
    """The same by our own matching."""
    found: dict[str, str] = {}
    for rule in reversed(rules):
        found |= dict.fromkeys((names[i] for i in matching(rule.pattern, names)), rule.device)
    return found


def _names(model: str) -> list[str]:
    return [tensor.name for tensor in models.build(model, "q4_k_m").tensors]


def test_published_rules(engine: FirstMatch) -> None:
    sets = {parse(case.command, case.engine, program=case.tool).flags.overrides for case in published()} - {()}
    assert len(sets) > 30
    for rules in sets:
        for model in ("DeepSeek-R1-0528", "Qwen3-235B-A22B"):
            assert _expand(rules, _names(model)) == engine.expand(rules, _names(model)), rules


def test_written_rules(engine: FirstMatch) -> None:
    chance = random.Random(5)
    names = _names("DeepSeek-R1-0528")
    for _ in range(150):
        layers = chance.sample(range(3, 61), chance.randint(1, 50))
        cut = chance.randint(0, len(layers))
        parts_of = ((device, own) for device, own in (("CUDA0", layers[:cut]), ("CUDA1", layers[cut:])) if own)
        rules = (*(Override(expert_override(own), device) for device, own in parts_of), Override("exps", "CPU"))
        parts = (Override(expert_override(layers, ("down",)), "CPU"), *rules)
        for chosen in (rules, parts):
            assert _expand(chosen, names) == engine.expand(chosen, names), chosen


PIECES = [
    r"blk\.",
    ".",
    "ffn_",
    "up",
    "exps",
    "[0-9]",
    "[^3-5]",
    "(1|2)",
    "(",
    ")",
    "[",
    "]",
    "{2}",
    "{1,2}",
    "*",
    "+",
    "?",
]
PIECES += [
    "|",
    r"\d",
    r"\W",
    "^",
    "$",
    "weight",
    r"\b",
    "(?:",
    "(?=",
    "(?!",
    r"(.)\1",
    "-",
    "[[:digit:]]",
    r"[\d_]",
    r"\.",
]
PIECES += ["*?", "}", "7", r"\x62", "[a-]", "[-x]", "[]", "[^]"]


def test_random_patterns(engine: FirstMatch) -> None:
    """What std::regex takes matches alike; what is read here, std::regex takes."""
    chance = random.Random(7)
    names = [name for name in _names("DeepSeek-V2-Lite") if chance.random() < 0.1]
    read = 0
    for _ in range(3000):
        rules = (Override("".join(chance.choices(PIECES, k=chance.randint(1, 6))), "CPU"),)
        expected = engine.expand(rules, names)
        try:
            placed = _expand(rules, names)
        except InvalidFlags:
            continue
        assert placed == expected, rules
        read += 1
    assert read > 1000
