"""The guide's examples: each `curl` of docs/offloading.md and the lines of its answer that stand below it.

    python -m tests.guide        ask again, and write what is answered into the page

Above each example a comment names what is shown of the answer: `<!-- shows: WORD, WORD -->`, all lines (with those that
continue them) that hold one of the words.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.demo import service_running
from tests.local_hub import LocalHub

PAGE = Path(__file__).parent.parent / "docs" / "offloading.md"
PRINTED = "http://127.0.0.1:8000"
_EXAMPLE = re.compile(
    r"(?P<before><!-- shows: (?P<words>[^>]+) -->\n```\n(?P<line>curl .*?)\n```\n\n```\n)"
    r"(?P<answer>.*?)(?P<after>```\n)",
    re.DOTALL,
)


class Example(NamedTuple):
    """One question of the page: the words that are looked for, the line as printed, and the answer below it."""

    words: tuple[str, ...]
    line: str
    answer: str


def examples(page: str) -> list[Example]:
    """Return the examples of a page in order."""
    found = _EXAMPLE.finditer(page)
    return [Example(_words(match), match["line"], match["answer"]) for match in found]


def _words(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(word.strip() for word in match["words"].split(","))


def answer(example: Example, url: str) -> str:
    """Run the printed line against a service and return the lines of its answer that the page shows."""
    words = shlex.split(example.line.replace("\\\n", " ").replace(PRINTED, url))
    reply = subprocess.run([*words, "-w", "\n%{http_code}"], check=True, capture_output=True, text=True).stdout
    body, _, status = reply.rpartition("\n")
    if status != "200":
        raise RuntimeError(f"{example.line}\n{body}")
    return shown(body, example.words)


def shown(body: str, words: tuple[str, ...]) -> str:
    """Return the paragraphs (a line, and indented ones after it) that hold one of the words."""
    paragraphs = re.findall(r"^\S.*(?:\n  .*)*", body, re.MULTILINE)
    return "".join(f"{text}\n" for text in paragraphs if any(word in text for word in words))


def main() -> None:
    """Write the answers of today into the page."""
    page = PAGE.read_text()
    with LocalHub() as hub, service_running(hub.endpoint) as url:

        def written(match: re.Match[str]) -> str:
            found = answer(Example(_words(match), match["line"], ""), url)
            print(match["line"].splitlines()[-1], found, sep="\n")
            return match["before"] + found + match["after"]

        page = _EXAMPLE.sub(written, page)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
