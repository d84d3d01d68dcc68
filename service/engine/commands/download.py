"""The command that downloads a variant, and the path where it puts the model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.commands.shell import quote

_SHARD = re.compile(r"-\d{5}-of-(\d{5}\.gguf)$")


def download(repo: str, files: Sequence[str], models_dir: str, *, revision: str | None = None) -> str:
    """Return one `hf download` line for the files of a variant of `repo` (OWNER/NAME), quoted for bash.

    The shards of one set become one `--include` pattern; other files are named one by one.
    """
    patterns = list(dict.fromkeys(_glob(file) for file in files))
    words = ["hf", "download", quote(repo)]
    if len(patterns) == 1:
        words += ["--include", quote(patterns[0])]
    else:
        words += [quote(file) for file in files]
    if revision:
        words += ["--revision", quote(revision)]
    return " ".join([*words, "--local-dir", quote(_folder(repo, models_dir))])


def model_path(repo: str, files: Sequence[str], models_dir: str) -> str:
    """Return where that download puts the first shard: the path inside the repo is kept below the local folder."""
    return f"{_folder(repo, models_dir)}/{min(files)}"


def _folder(repo: str, models_dir: str) -> str:
    return f"{models_dir.rstrip('/') or '.'}/{repo}"


def _glob(file: str) -> str:
    """Return an fnmatch pattern for a file and its sibling shards; `[`, `*` and `?` in the name are literal."""
    shard = _SHARD.search(file)
    stem, tail = (file[: shard.start()], f"-*-of-{shard[1]}") if shard else (file, "")
    return re.sub(r"([\[*?])", r"[\1]", stem) + tail
