"""Every documented pollution of community results (llmfit, project-nomad) is seen; no published run is suspected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.engine.measured.doubts import doubt_of, elsewhere, same_figures
from service.engine.measured.rows import MeasuredRow
from tests.speeds import point

PERF = Path(__file__).parents[2] / "data" / "perf.jsonl"


def row(n_kv: int, pp: float | None, tg: float | None, n_prompt: int = 512, n_gen: int = 128) -> MeasuredRow:
    """A row of these speeds."""
    return MeasuredRow(
        n_kv=n_kv,
        n_prompt=n_prompt if pp else 0,
        n_gen=n_gen if tg else 0,
        pp_seconds=(n_prompt / pp,) if pp else (),
        tg_seconds=(n_gen / tg,) if tg else (),
    )


def sweep(*speeds: float) -> list[MeasuredRow]:
    return [row(512 * i, 400.0, tg) for i, tg in enumerate(speeds)]


def published() -> list[tuple[str, list[MeasuredRow]]]:
    found: list[tuple[str, list[MeasuredRow]]] = []
    for line in PERF.read_text().splitlines():
        case: dict[str, Any] = json.loads(line)
        rows = [
            MeasuredRow(n_kv=int(r[2]), n_prompt=int(r[0]), n_gen=int(r[1]), pp_seconds=(r[3],), tg_seconds=(r[5],))
            for r in case["rows"]
        ]
        if rows:
            found.append((case["id"], rows))
    return found


def test_no_published_sweep_is_suspected() -> None:
    runs = published()
    assert len(runs) > 100
    assert [(name, why) for name, rows in runs if (why := doubt_of(rows))] == []


def test_a_run_from_0_27_to_13_3_is_suspected_whether_repeats_or_depths_differ() -> None:
    repeats = MeasuredRow(n_kv=0, n_gen=64, tg_seconds=(64 / 0.27, 64 / 13.3, 64 / 13.1))
    assert "0.27 to 13.3 t/s" in (doubt_of([repeats]) or "")
    assert "TG goes from 0.27 t/s at 0 tokens to 13.3 at 512" in (doubt_of(sweep(0.27, 13.3)) or "")


def test_a_fall_with_depth_is_held_against_the_one_expected() -> None:
    fallen = [row(0, 400, 40), row(32_768, 400, 3)]
    steep = [point(0, 400, 44), point(32_768, 400, 4)]
    flat = [point(0, 400, 44), point(32_768, 400, 40)]
    assert doubt_of(fallen) is None
    assert doubt_of(fallen, steep) is None
    assert "TG goes from 40 t/s" in (doubt_of(fallen, flat) or "")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row(0, None, 20.0, n_gen=1)], "1 tokens of output"),
        ([row(0, 900.0, None, n_prompt=8)], "8 tokens of prompts"),
        ([row(0, None, 999_000.0, n_gen=64)], "0.0641 ms of output"),
    ],
)
def test_too_few_tokens_and_too_short_times_say_little(rows: list[MeasuredRow], why: str) -> None:
    assert why in (doubt_of(rows) or "")


def test_many_small_rows_are_enough_together() -> None:
    assert doubt_of([row(32 * i, 100.0, 10.0, n_prompt=32, n_gen=8) for i in range(8)]) is None


@pytest.mark.parametrize(
    "command",
    [
        "llama-benchy --base-url http://hidden --model x",
        "OLLAMA_HOST=hidden ollama run x",
        "llama-bench -m x.gguf --rpc hidden",
        "llama-bench -m x.gguf -rpc hidden",
    ],
)
def test_what_names_an_address_may_be_another_machine(command: str) -> None:
    assert elsewhere(command, ()) is not None


def test_buffers_on_rpc_devices_are_another_machine_and_a_listening_address_is_none() -> None:
    assert "RPC" in (elsewhere("", ("CUDA0", "RPC[hidden]")) or "")
    assert elsewhere("llama-sweep-bench -m x.gguf -ngl 99 --host hidden --port 8080", ("CUDA0", "CPU")) is None


def test_the_same_print_is_seen_in_any_format_and_a_second_measurement_is_not_it() -> None:
    runs = [(name, rows) for name, rows in published() if len(rows) >= 4]
    for _, rows in runs:
        assert same_figures(rows, [printed(one) for one in rows])
        assert not same_figures(rows, [faster(one, 1.01) for one in rows])
    pairs = [(a, b) for a, one in runs for b, other in runs if a < b and same_figures(one, other)]
    assert pairs == []


def test_a_single_short_test_that_agrees_is_no_evidence() -> None:
    short = [row(0, 9_000.0, 200.0)]
    assert not same_figures(short, short[:])


def printed(one: MeasuredRow) -> MeasuredRow:
    return MeasuredRow(
        n_kv=one.n_kv,
        n_prompt=one.n_prompt,
        n_gen=one.n_gen,
        pp_seconds=(one.n_prompt / round(one.pp_tps[0], 2),),
        tg_seconds=(one.n_gen / round(one.tg_tps[0], 2),),
    )


def faster(one: MeasuredRow, times: float) -> MeasuredRow:
    return MeasuredRow(
        n_kv=one.n_kv,
        n_prompt=one.n_prompt,
        n_gen=one.n_gen,
        pp_seconds=tuple(s / times for s in one.pp_seconds),
        tg_seconds=tuple(s / times for s in one.tg_seconds),
    )
