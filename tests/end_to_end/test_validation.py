"""From the question to the measured answer: service, worker, Valkey, two machines and engines, each a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.stack import running, start_machines
from tests.engine_replay import install
from tests.local_hub import LocalHub
from tests.workers.agent.test_real_engine import FOLDER


def replayed(folder: Path) -> Path:
    """Both engines' programs, the second one faster, and slower by depth as predicted: else nobody believes it."""
    install(folder, "llama-sweep-bench", "ok", pp_tps=4000.0, tg_tps=400.0)
    install(folder, "llama-bench", "ok", pp_tps=14000.0, tg_tps=1400.0, half_depth=2000)
    return folder


@pytest.mark.full
@pytest.mark.timeout(300)
def test_an_advice_is_measured_by_two_machines_and_ranked_again(
    tmp_path: Path, hub: LocalHub, models: Path, database_url: str
) -> None:
    with running(tmp_path, hub, DATABASE_URL=database_url) as stack:
        start_machines(stack, replayed(tmp_path / "bin"), models, 2)
        advice = stack.advise()
        done = stack.validate(advice["id"], "--json")
        assert done.returncode == 0, done.stderr
        validation = json.loads(done.stdout)
        assert [run["state"] for run in validation["runs"]] == ["succeeded"] * len(validation["runs"])
        assert {run["engine"] for run in validation["runs"]} == {"ik_llama.cpp", "llama.cpp"}
        assert all(run["match"] == "exact" and run["outcome"]["speed"] for run in validation["runs"])
        assert "F32 llama.cpp at 4,096 tokens: TG" in done.stderr
        ranked = stack.call("GET", f"/v1/advice/{advice['id']}")["configs"]
        measured = {config["engine"]: config["measured"] for config in ranked if config["measured"]}
        assert set(measured) == {"ik_llama.cpp", "llama.cpp"}
        assert ranked[0]["engine"] == "llama.cpp"
        assert validation["best"] == ranked[0]["id"]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_real_engine_is_measured(tmp_path: Path, hub: LocalHub, models: Path) -> None:
    assert (FOLDER / "llama-bench").exists(), "no engine is built: run scripts/build_engine.sh"
    with running(tmp_path, hub) as stack:
        start_machines(stack, FOLDER, models, 1)
        advice = stack.advise()
        done = stack.validate(advice["id"], "--minutes", "1", "--json")
        assert done.returncode == 0, done.stderr
        validation = json.loads(done.stdout)
        (run,) = validation["runs"]
        assert (run["engine"], run["state"], run["match"]) == ("llama.cpp", "succeeded", "exact")
        assert [point["n_kv"] for point in run["outcome"]["speed"]] == [0, 2048, 4096]
        assert all(figure["verdict"] == "within" for figure in run["outcome"]["compared"] if figure["device"])
        assert any("it has no ik_llama.cpp" in refused for refused in validation["refused"])
