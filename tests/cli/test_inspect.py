"""`advisor inspect` as it is run: a repo, a folder, an address elsewhere; what was read, and what it took."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.cli import main
from service.engine.gguf import write as gguf_file
from service.engine.gguf.header import Tensor
from tests.local_hub import Blob, LocalHub, Repo
from tests.models import gguf_files, shard_name, write_gguf

REPO, TRUNCATED = "local/three-GGUF", "local/truncated-GGUF"
SHARD = "m-Q8_0-00001-of-00002.gguf"

# Runs the words after it as the command does, then says what was loaded, and how many regexes were compiled.
COUNTING = """
import re, sys
compiled, compile_regex = [], re._compiler.compile
re._compiler.compile = lambda *words, **named: compiled.append(words) or compile_regex(*words, **named)
from service.cli import main
assert main(sys.argv[1:]) == 0
print(len(compiled), *sorted(sys.modules), file=sys.stderr)
"""


def _three() -> dict[str, Blob]:
    """Three variants, one of them in two shards."""
    files = {shard_name("m-Q8_0.gguf", i, 2): f for i, f in enumerate(gguf_files("Qwen3-0.6B", "q8_0", 2))}
    files |= {f"m-{mix.upper()}.gguf": gguf_files("Qwen3-0.6B", mix)[0] for mix in ("q4_k_m", "q6_K")}
    return {name: Blob(file.head, len(file.head) + file.n_data) for name, file in files.items()}


@pytest.fixture(scope="module")
def running_hub() -> Iterator[LocalHub]:
    with LocalHub({REPO: Repo(_three)}) as hub:
        yield hub


@pytest.fixture
def hub(running_hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    running_hub.reset()
    monkeypatch.setenv("HF_ENDPOINT", running_hub.endpoint)
    monkeypatch.setenv("ADVISOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return running_hub


def inspected(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["inspect", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_variant_of_a_repo_is_read_and_the_cost_said(hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", REPO]) == 0
    shown = capsys.readouterr().out
    assert "Q4_K_M" in shown
    assert "bits per weight: q4_K, q6_K" in shown
    assert f"with {len(hub.requests)} requests" in shown
    assert "3 headers of 15.6 MB, 2 of them without the tokenizer they share" in shown


def test_the_second_time_costs_one_request(hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = inspected(capsys, REPO), inspected(capsys, REPO)
    assert second["cost"]["requests"] == 1
    assert second["cost"]["n_bytes"] == 0
    assert second["variants"] == first["variants"]
    again = inspected(capsys, REPO, "--no-cache")
    assert again["cost"]["requests"] == first["cost"]["requests"] == 15


def test_known_headers_need_no_planner_and_little_of_what_asks_the_hub(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted, as seconds depend on the machine: loading modules and compiling regexes is most of what it takes."""
    inspected(capsys, REPO)
    ended = subprocess.run(
        [sys.executable, "-c", COUNTING, "inspect", REPO], capture_output=True, text=True, timeout=100, check=True
    )
    n_regexes, *modules = ended.stderr.splitlines()[-1].split()
    unwanted = {"httpx", "httpcore", "huggingface_hub.hf_api", "service.hub.ranges", "sqlalchemy", "litestar", "rich"}
    unwanted |= {f"service.engine.{part}" for part in ("planner", "memory", "speed", "engines", "rules")}
    assert [name for name in modules if name in unwanted] == []
    assert len(modules) < 500
    assert int(n_regexes) < 250


def test_one_variant_can_be_named_and_the_others_are_not_read(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = inspected(capsys, f"{REPO}:Q8_0")
    assert [v["name"] for v in seen["variants"] if v["header"]] == ["Q8_0"]
    assert seen["model"]["variant"] == "Q8_0"
    assert seen["cost"]["requests"] == len(hub.requests) == 5


def test_a_damaged_variant_says_why_next_to_those_that_can_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_gguf(tmp_path / "m-Q8_0.gguf", "Qwen3-0.6B", "q8_0")
    (tmp_path / "m-Q4_0.gguf").write_bytes(b"GGUF")
    seen = inspected(capsys, str(tmp_path))
    assert seen["cost"] is None
    assert {v["name"]: bool(v["header"]) for v in seen["variants"]} == {"Q4_0": False, "Q8_0": True}
    assert "ends after 4 bytes" in next(v["unreadable"] for v in seen["variants"] if v["unreadable"])
    assert main(["inspect", str(tmp_path)]) == 0
    assert "cannot be read:" in capsys.readouterr().out


def test_nothing_that_can_be_read_is_an_error(hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", TRUNCATED]) == 1
    assert "truncated" in capsys.readouterr().err


def test_an_address_elsewhere_is_read_where_the_operator_allows_its_host(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{hub.endpoint}/{REPO}/resolve/main/{SHARD}"
    assert main(["inspect", address]) == 2
    assert "ADVISOR_URL_HOSTS" in capsys.readouterr().err
    assert hub.requests == []
    monkeypatch.setenv("ADVISOR_URL_HOSTS", "models.example,127.0.0.1")
    seen = inspected(capsys, address)
    assert [len(v["files"]) for v in seen["variants"]] == [2]
    assert seen["variants"][0]["header"]["n_tensors"] == 310
    assert seen["cost"]["requests"] == len(hub.requests)


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/x.gguf", "https://models.example.evil.org/x.gguf", "http://u:p@models.example/x.gguf",
        "http://[bad/x.gguf", "https://models.example/x.gguf?sig=1", "https://models.example/x.zip", "https://models.example/",
    ],
)  # fmt: skip
def test_another_address_is_refused_without_asking_it(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("ADVISOR_URL_HOSTS", "models.example")
    assert main(["inspect", address]) == 2
    assert "repo" in capsys.readouterr().err


def test_a_name_without_its_owner_gets_what_the_hub_s_search_finds(
    hub: LocalHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "three"]) != 0
    shown = capsys.readouterr().err
    assert "'three' names no owner" in shown
    assert f"the Hub's search for `three` finds {REPO}" in shown
    assert len(hub.requests) == 1


def _named_like_a_variant(path: Path, kind: str) -> None:
    tensor = Tensor("blk.0.attn_q.weight.lora_a", "f32", (64, 8), 0, 2048)
    metadata = {"general.architecture": "qwen3", "general.type": kind}
    path.write_bytes(gguf_file.header_bytes(metadata, (tensor,)) + bytes(2048))


def test_what_a_header_says_is_no_model_is_no_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gguf(tmp_path / "m-Q8_0.gguf", "Qwen3-0.6B", "q8_0")
    _named_like_a_variant(tmp_path / "sql-writer-f16.gguf", "adapter")
    _named_like_a_variant(tmp_path / "sight-f16.gguf", "mmproj")
    seen = inspected(capsys, str(tmp_path))
    assert [variant["name"] for variant in seen["variants"]] == ["Q8_0"]
    assert seen["other_files"] == {
        "mmproj": [str(tmp_path / "sight-f16.gguf")],
        "lora": [str(tmp_path / "sql-writer-f16.gguf")],
    }
    assert seen["model"]["variant"] == "Q8_0"


def test_an_adapter_alone_is_refused_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _named_like_a_variant(tmp_path / "sql-writer-f16.gguf", "adapter")
    assert main(["inspect", str(tmp_path / "sql-writer-f16.gguf")]) != 0
    assert "is an adapter (LoRA)" in capsys.readouterr().err


def test_a_variant_is_named_behind_its_folder_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mix in ("q8_0", "q4_k_m"):
        write_gguf(tmp_path / f"m-{mix.upper()}.gguf", "Qwen3-0.6B", mix)
    assert inspected(capsys, f"{tmp_path}:q8_0")["model"]["variant"] == "Q8_0"
    assert main(["inspect", f"{tmp_path}:q9_9"]) != 0
    assert "no variant 'q9_9'" in capsys.readouterr().err


def test_a_path_of_windows_that_is_not_here_is_no_repo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "D:/models/x/y.gguf"]) != 0
    assert "no such file or folder: D:/models/x/y.gguf" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("-hf", f"{REPO}:Q6_K"), (f"-hf {REPO}:Q6_K",), (f"--hf-repo={REPO}:q6k",)])
def test_a_repo_may_be_named_with_the_option_that_llama_cpp_has_for_it(
    hub: LocalHub, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert inspected(capsys, *words)["model"]["variant"] == "Q6_K"
