"""`advise --measured`: one run of the asker's own corrects the estimates of this machine, and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.cli import main
from tests.cli.test_local_validation import CPU_ONLY, GOAL, advised, folder

__all__ = ["folder"]


def configs(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> list[dict[str, Any]]:
    asked = [
        "advise",
        str(folder / "models" / "tiny.gguf"),
        "-H",
        CPU_ONLY,
        *GOAL,
        "--kv-type",
        "f16",
        *words,
        "--json",
    ]
    assert main(asked) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["configs"]
    return found


def paste(folder: Path, tg: float) -> str:
    seconds = 127_000 / tg
    text = (
        "llama-server -m tiny.gguf -c 8192 -fit off\n\n"
        "prompt eval time =     100.00 ms /   512 tokens (    0.20 ms per token,  5120.00 tokens per second)\n"
        f"       eval time = {seconds:10.2f} ms /   128 tokens (    1.00 ms per token, {tg:.2f} tokens per second)\n"
    )
    (folder / "mine.log").write_text(text)
    return str(folder / "mine.log")


def test_a_run_of_your_own_moves_every_config_and_says_by_how_much(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = configs(capsys, folder, "--engine", "llama.cpp")
    expected = before[0]["speed"][0]["tg_tps"]
    after = configs(capsys, folder, "--engine", "llama.cpp", "--measured", paste(folder, 0.7 * expected))
    assert all(
        0.7 < now["speed"][0]["tg_tps"] / was["speed"][0]["tg_tps"] < 0.9
        for was, now in zip(before, after, strict=True)
    )
    assert {one["reasons"][0]["rule"] for one in after} == {"learned-from-results"}
    width = [one[0]["speed"][0]["tg_high"] / one[0]["speed"][0]["tg_low"] for one in (before, after)]
    assert width[1] < width[0]


def test_what_was_measured_elsewhere_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = advised(folder, capsys, CPU_ONLY, "--kv-type", "f16")
    kept = folder / "kept.json"
    words = ["--here", "--engine-dir", str(folder / "bin"), "--minutes", "1", "--result", str(kept), "--config", "1"]
    assert main(["validate", f"@{advice}", *words]) == 0
    capsys.readouterr()
    other = ["advise", str(folder / "models" / "tiny.gguf"), "-H", "no GPU, EPYC 7302, 64GB DDR4-3200", *GOAL]
    assert main([*other, "--measured", str(kept)]) == 2
    assert "another machine" in capsys.readouterr().err
    assert main(["advise", str(folder / "models" / "tiny.gguf"), "-H", CPU_ONLY, *GOAL, "--measured", str(kept)]) == 0


def test_a_file_without_a_measurement_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty.log").write_text("nothing\n")
    asked = ["advise", str(folder / "models" / "tiny.gguf"), "-H", CPU_ONLY, *GOAL]
    assert main([*asked, "--measured", str(folder / "empty.log")]) == 2
    assert "contains no command with its output" in capsys.readouterr().err
