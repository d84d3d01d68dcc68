"""How many of our files one advice of the command line touches: those in which a function runs, and those loaded.

`python scripts/touched_files.py WORDS…` runs `advisor WORDS…` in this process and counts. Without words it asks for an
advice of a model of the tests' local Hub.
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
    """Return how often functions of each of our files were called by `advisor WORDS…`, and how many were loaded."""
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
    """Print the two numbers, and the number of files of each folder in which a function ran."""
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
