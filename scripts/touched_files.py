"""Counts how many of our files one advice on the command line touches: files where a function runs, and files loaded.

`python scripts/touched_files.py WORDS…` runs `advisor WORDS…` in this process. Without words it asks for an advice
about a model on the tests' local Hub.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
_OURS = (f"{ROOT}/service/", f"{ROOT}/workers/")


def touched(words: list[str]) -> tuple[Counter[str], int]:
    """Return how often `advisor WORDS…` called functions in each of our files, and how many files were loaded."""
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(_OURS):
            called[code.co_filename] += 1

    from service.cli import main

    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main(words)
    finally:
        sys.setprofile(None)
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    return called, sum(file.startswith(_OURS) for file in files)


def main() -> None:
    """Print both numbers, and for each folder the number of files in which a function ran."""
    sys.path.insert(0, str(ROOT))
    words = sys.argv[1:]
    with contextlib.ExitStack() as stack:
        if not words:
            from tests.local_hub import LocalHub

            os.environ["HF_ENDPOINT"] = stack.enter_context(LocalHub()).endpoint
            words = ["advise", "Qwen/Qwen3-0.6B-GGUF", "-H", "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600", "--no-cache"]
        called, n_loaded = touched(words)
    print(f"{len(called)} files of ours in which a function ran, of {n_loaded} loaded")
    folders = Counter(str(Path(file).relative_to(ROOT).parent) for file in called)
    for folder, n in folders.most_common():
        print(f"{n:4d}  {folder}")


if __name__ == "__main__":
    main()
