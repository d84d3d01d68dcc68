"""How long is the first command, and what is each pick worth? `python -m bench.words` asks the panel (judgment.jsonl).

One row a question: words of the first command at commit 4e8a9e3 (`tests/data/first_commands_4e8a9e3.jsonl`) and today,
of the whole line and of what places things in it. `squeeze`: by how much the longer command that was not shown would be
faster. Then the medians, and each pick against the first config: times its seconds, per cent of perplexity, words.
"""

from __future__ import annotations

import json
import re
import shlex
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.judgment import QUESTIONS, Worth, answer, words_of, worths
from bench.stamp import stamp
from service.engine.advice import AdvisedConfig

THEN = Path(__file__).parent.parent / "tests" / "data" / "first_commands_4e8a9e3.jsonl"
_PLACING = ("-ot", "-ts", "-ncmoe", "-sm", "-ngl", "-mg", "-dev", "--numa")
_ALONE = ("-cmoe",)
_GAIN = re.compile(r"only ([\d.]+) % faster")


def placing_words(server: str) -> int:
    """Return the words of a command that say where things are: options, each with the words of its value."""
    words = shlex.split(server)
    program = next((i for i, word in enumerate(words) if word.endswith("llama-server")), 0)
    count = sum(words_of(word) for word in words[:program])
    for option, value in zip(words, [*words[1:], ""], strict=True):
        count += (1 + words_of(value)) if option in _PLACING else option in _ALONE
    return count


def squeeze(config: AdvisedConfig) -> float:
    """Return by how many per cent the longer command would be faster; 0 where the one shown is the fastest."""
    said = [_GAIN.search(reason.text) for reason in config.reasons if reason.rule == "squeeze"]
    return max((float(found[1]) for found in said if found), default=0.0)


def _medians(rows: Sequence[tuple[int, int, int, int]]) -> Iterator[str]:
    for name, then, now in (("words", 0, 1), ("words that place things", 2, 3)):
        ratios = [row[now] / row[then] for row in rows]
        old, new = (statistics.median(row[i] for row in rows) for i in (then, now))
        yield f"{name}: median {old:g} then, {new:g} now ({new / old:.0%}); of each, {statistics.median(ratios):.0%}"


def main() -> None:
    """Print a row a question, the medians, and what the picks are worth."""
    print(stamp())
    recorded = {row["id"]: row for row in map(json.loads, THEN.read_text().splitlines())}
    rows: list[tuple[int, int, int, int]] = []
    longer: list[float] = []
    picks: dict[str, list[Worth]] = defaultdict(list)
    for question in map(json.loads, QUESTIONS.read_text().splitlines()):
        configs, then = answer(question), recorded[question["id"]]["command"]
        now = configs[0].commands.server
        rows.append((words_of(then), words_of(now), placing_words(then), placing_words(now)))
        longer.append(squeeze(configs[0]))
        for name, worth in worths(configs):
            picks[name].append(worth)
        old, new, placed, places = rows[-1]
        words = f"words {old:>3} -> {new:>3}, placing {placed:>3} -> {places:>3}"
        print(f"{question['id']} {words}, squeeze {longer[-1]:.1f} %", flush=True)
    for line in _medians(rows):
        print(line)
    print(f"squeeze: {max(longer):.1f} % at most, in {sum(gain > 0 for gain in longer)} of {len(longer)}")
    print("picks against the first config, medians: times its seconds, % of perplexity more, words of the command")
    for name, found in picks.items():
        seconds, loss, words = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"  {name:<9} in {len(found):>2} of {len(rows)}: x {seconds:.2f}, {loss:+.1f} %, {words:g} words")


if __name__ == "__main__":
    main()
