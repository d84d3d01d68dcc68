"""A place to run pages in: a service with its worker, the local Hub, a home, a working folder, and files of a user.

Blocks of a page run in order in one shell, which stops at the first command that fails. What the pages write and what
there is here instead is `DocRunner.instead`; what they find in their folder is `_lay_out`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.doc_blocks.blocks import PAGES, ROOT, Block, blocks_of
from tests.end_to_end.stack import Stack, running
from tests.engine_replay import install
from tests.flows.results.submitted import COMMAND, sweep
from tests.local_hub import LocalHub
from tests.models import write_gguf

PRINTED = "http://127.0.0.1:8000"
AN_ID = "MZ0Vb1p2QvK3x9dT4sLwGg"
_ID = re.compile(r"(?<=/advice/)[\w-]{22}|(?<=/results/)[\w-]{22}|(?<=/validations/)[\w-]{22}")
_INSTALLED = ("advisor", "openapi-python-client", "python", "python3")
_RECORDED = {"nvidia-smi": "nvidia_smi_550.txt", "lscpu": "lscpu_epyc.txt", "free": "free_h.txt"}
# A page shows a finished answer: on a slow machine one that is not, when `?wait=` is over, is asked for again. What has
# a `-w` of its own sees to that itself.
_PATIENT_CURL = """case " $* " in *" -w "*) exec {curl} "$@" ;; *[?]wait=*) ;; *) exec {curl} "$@" ;; esac
kept=$(mktemp)
while asked=$({curl} -o "$kept" -w '%{{http_code}}' "$@"); ended=$?; [ "$asked" = 202 ]; do :; done
cat "$kept"; rm "$kept"; exit $ended"""
_MODEL = ("Qwen3-235B-A22B", "q4_k_m", "Qwen3-235B-A22B-Q4_K_M.gguf")
_SECONDS = 400


@dataclass(frozen=True)
class Outcome:
    """What a page's blocks printed, by the line of their fence, and what went wrong, if anything did."""

    printed: dict[int, str]
    failure: str | None

    def shown(self, block: Block, above: Block) -> str:
        """Return what `block`, which shows what `above` printed, should have."""
        printed = self.printed[above.line].rstrip("\n") + "\n"
        if not block.words:
            return printed
        paragraphs = re.findall(r"^\S.*(?:\n  .*)*", printed, re.MULTILINE)
        return "".join(f"{text}\n" for text in paragraphs if any(word in text for word in block.words))


class DocRunner:
    """Where pages are run. Each has an empty home and folder of its own; the service is one for all."""

    def __init__(self, folder: Path, stack: Stack, token: str) -> None:
        self._folder, self._stack = folder, stack
        self.instead = {PRINTED: stack.url, "https://advisor.example": stack.url, "adv_…": token}

    def run(self, page: Path) -> Outcome:
        """Run a page's blocks, and say what they printed."""
        blocks = [block for block in blocks_of(page) if block.language in ("sh", "python")]
        blocks = [block for block in blocks if "not run" not in block.comments]
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=f"{page.stem}-"))
        home, doc_runner = folder / "home", folder / "desk"
        doc_runner.mkdir()
        _lay_out(doc_runner, PAGES.index(page))
        _lay_out_home(home)
        code = self._shell(_script(blocks, folder), doc_runner, home)
        printed = {block.line: self._as_printed(folder / f"{block.line}.out") for block in blocks}
        return Outcome(printed, None if code == 0 else self._failure(code, blocks, folder))

    def _shell(self, script: str, doc_runner: Path, home: Path) -> int:
        for written, here in self.instead.items():
            script = script.replace(written, here)
        environment = {
            "PATH": f"{self._folder / 'bin'}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT), "NO_PROXY": "*", **self._stack.environment,
        }  # fmt: skip
        with somebody_who_agrees() as terminal, subprocess.Popen(
            ["bash", "--norc", "-c", script], cwd=doc_runner, env=environment, stdin=terminal,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        ) as shell:  # fmt: skip
            try:
                return shell.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                return -1

    def _as_printed(self, out: Path) -> str:
        text = out.read_text(errors="replace") if out.exists() else ""
        return _ID.sub(AN_ID, text.replace(self._stack.url, PRINTED))

    def _failure(self, code: int, blocks: list[Block], folder: Path) -> str:
        at = int((folder / "at").read_text())
        place = next(block.place for block in blocks if block.line == at)
        said = [(folder / f"{at}.{end}").read_text(errors="replace")[-3000:] for end in ("out", "err")]
        why = f"took longer than {_SECONDS} s with those before it" if code == -1 else f"ended with {code}"
        return "\n".join([f"{place} {why}", *said, self._stack.service.log[-2000:]])


@contextmanager
def somebody_who_agrees() -> Iterator[int]:
    """A terminal at which `y` is typed to whatever is asked."""
    hand, terminal = os.openpty()
    try:
        os.write(hand, b"y\n" * 20)
        yield terminal
    finally:
        os.close(hand)
        os.close(terminal)


def _script(blocks: list[Block], folder: Path) -> str:
    lines = ["set -e -o pipefail"]
    for block in blocks:
        lines += [f"echo {block.line} > {folder}/at", f"exec > {folder}/{block.line}.out 2> {folder}/{block.line}.err"]
        if block.language == "python":
            lines.append(f"python - <<'END OF {block.line}'\n{block.text}END OF {block.line}")
        elif status := block.comments.get("ends with"):
            lines += ["set +e", "(set -e", block.text, ")", f"ended=$?\nset -e\ntest $ended = {status}"]
        else:
            lines.append(block.text)
    return "\n".join(lines)


def _lay_out(doc_runner: Path, number: int) -> None:
    """Put there what the pages take for granted: the installation, and files of the reader.

    The benchmark is another one for each page: the same rows would be the same result.
    """
    (doc_runner / ".venv").symlink_to(sys.prefix)
    (doc_runner / "examples").symlink_to(ROOT / "examples")
    (doc_runner / "bench.log").write_text(f"$ {COMMAND}\n\n{sweep(tg=250.0 - 2 * number)}")
    shape, mix, name = _MODEL
    write_gguf(doc_runner / name, shape, mix)


def _lay_out_home(home: Path) -> None:
    """Put there a build of llama.cpp whose benchmark behaves as recorded, and a model's headers without weights."""
    (home / "models").mkdir(parents=True)
    install(home / "llama.cpp/build/bin", "llama-bench", "ok")
    for mix in ("q4_k_m", "q8_0", "bf16"):
        write_gguf(home / "models" / f"Qwen3-0.6B-{mix.upper()}.gguf", "Qwen3-0.6B", mix)


def programs(folder: Path) -> None:
    """Make a folder of programs: ours, those of a machine with a card, which print what was recorded, a patient curl.

    They are scripts, no links: a Python knows its packages by its own place.
    """
    folder.mkdir()
    lines = {name: f'exec {sys.prefix}/bin/{name} "$@"' for name in _INSTALLED}
    lines |= {name: f"cat {ROOT}/tests/data/pastes/{recorded}" for name, recorded in _RECORDED.items()}
    lines["curl"] = _PATIENT_CURL.format(curl=shutil.which("curl"))
    for name, line in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)


@contextmanager
def doc_runner() -> Iterator[DocRunner]:
    """Start a service, its worker and a Hub for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="advisor-pages-") as name, LocalHub() as hub:
        folder = Path(name)
        programs(folder / "bin")
        (folder / "service").mkdir()
        generous = {"ADVISOR_REQUESTS_PER_MINUTE": "10000", "ADVISOR_NEW_REPOS_PER_HOUR": "10000"}
        with running(folder / "service", hub, **generous) as stack:
            yield DocRunner(folder, stack, stack.account("you", "submit,validate,host"))
