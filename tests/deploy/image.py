"""The image built and run without a container engine: each line of the Dockerfile does its work in an empty folder.

What stands in: this Python in a venv for the base image, a folder for its root directory (absolute paths are taken to
be in it), and folders for what `useradd` and `install` make. Everything else of RUN is run by a shell as it is written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_TOPS = re.compile(r"(?<![\w./-])/(?=(?:opt|src|var|usr|etc)\b)")
# Lines that need a root user of a machine of their own: known by their words, and imitated.
IMITATED: dict[str, str | None] = {
    "apt-get update": None,
    "apt-get install --yes --no-install-recommends postgresql-client-17": None,
    "rm --recursive /var/lib/apt/lists": None,
    "useradd --system --create-home --home-dir /var/lib/advisor advisor": "/var/lib/advisor",
    "install --directory --owner advisor /var/cache/advisor": "/var/cache/advisor",
    "install --directory --owner advisor --mode 700 /var/backups/advisor": "/var/backups/advisor",
}


class Line(NamedTuple):
    """One instruction, its continued lines joined."""

    name: str
    text: str


def lines(dockerfile: str) -> list[Line]:
    """Return the instructions of a Dockerfile."""
    kept = [line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(kept))
    return [Line(*line.split(" ", 1)) for line in joined.splitlines()]


def sent(root: Path = ROOT) -> list[str]:
    """Return what .dockerignore lets into a build, of the top of the repository."""
    rules = (root / ".dockerignore").read_text().split()
    assert rules[0] == "*"
    return [rule.removeprefix("!") for rule in rules if rule.startswith("!")]


class Image:
    """What a Dockerfile makes, under `folder`."""

    def __init__(self, folder: Path) -> None:
        # A link, which each stage turns to its own folder: what a stage installs knows itself by one path.
        self.root = folder / "root"
        self._folder, self._stages, self._names = folder, list[Path](), dict[str, Path]()
        self.environment = {"HOME": str(folder), "LANG": "C.UTF-8"}
        self.user, self.command, self.health = "root", list[str](), list[str]()
        self._work = "/"
        base = folder / "base"
        subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
        self._base_path = f"{base}/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def build(self, dockerfile: str) -> None:
        """Do what each line says. Raises CalledProcessError for a RUN that fails, KeyError for an unknown line."""
        for name, text in lines(dockerfile):
            getattr(self, "_" + name.lower())(text)

    def inside(self, text: str) -> str:
        """Return `text` with absolute paths as those of this machine."""
        return _TOPS.sub(f"{self.root}/", text)

    def run(self, words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Return what a command of the image answers."""
        return subprocess.run(
            [self.inside(word) for word in words], cwd=self._cwd(), env=self.environment | environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def start(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a command of the image."""
        return subprocess.Popen(words, cwd=self._cwd(), env=self.environment | environment)

    def n_bytes(self, path: str) -> int:
        """Return what a folder of the image takes, in whole blocks, as `du` counts."""
        found = subprocess.run(["du", "-s", "-B1", self.inside(path)], check=True, capture_output=True, text=True)
        return int(found.stdout.split()[0])

    def _cwd(self) -> Path:
        path = Path(f"{self.root}{self._work}")
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _from(self, text: str) -> None:
        image, _, name = text.partition(" AS ")
        assert re.fullmatch(r"python:3\.11-slim-trixie(@sha256:[0-9a-f]{64})?", image)
        stage = self._folder / f"stage{len(self._stages)}"
        stage.mkdir()
        self._stages.append(stage)
        self._names[name] = stage
        self.root.unlink(missing_ok=True)
        self.root.symlink_to(stage)
        self._work, self.environment["PATH"] = "/", self._base_path

    def _workdir(self, text: str) -> None:
        self._work = text

    def _env(self, text: str) -> None:
        for word in shlex.split(text):
            name, _, value = word.partition("=")
            self.environment[name] = self.inside(value).replace("$PATH", self.environment["PATH"])

    def _user(self, text: str) -> None:
        self.user = text

    def _expose(self, text: str) -> None:
        assert text == "8000"

    def _run(self, text: str) -> None:
        for command in text.split(" && "):
            if command in IMITATED:
                if (folder := IMITATED[command]) is not None:
                    Path(self.inside(folder)).mkdir(parents=True)
            else:
                registry = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
                subprocess.run(
                    ["/bin/sh", "-e", "-c", self.inside(command)], cwd=self._cwd(), env=registry | self.environment,
                    check=True, stdin=subprocess.DEVNULL,
                )  # fmt: skip

    def _copy(self, text: str) -> None:
        *sources, target = text.split()
        where = Path(self.inside(target)) if target.startswith("/") else self._cwd() / target
        if sources[0].startswith("--from="):
            stage = self._names[sources.pop(0).partition("=")[2]]
            _copied(Path(f"{stage}{sources[0]}"), where)
            return
        for source in sources:
            assert source in sent(), f"{source} is not sent to a build"
            _copied(ROOT / source, where / source if target.endswith("./") else where)

    def _healthcheck(self, text: str) -> None:
        self.health = json.loads(text.partition("CMD ")[2])

    def _cmd(self, text: str) -> None:
        self.command = json.loads(text)


def _copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(
            source,
            target,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__") if ROOT in source.parents else None,
        )
    else:
        shutil.copy2(source, target)
