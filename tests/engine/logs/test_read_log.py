"""Logs of real runs, and lines as people paste them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from service.engine.errors import InvalidInput
from service.engine.logs.read import read_log
from service.engine.logs.requests import MeasuredSpeed

LOGS = Path(__file__).parents[2] / "data" / "engine_logs"
LLAMA_SERVER = """\
0.12.345 I load_tensors:   CPU_Mapped model buffer size =  1234.50 MiB
0.12.345 I load_tensors:        CUDA0 model buffer size = 10000.00 MiB
0.12.345 I load_tensors:   CPU_Mapped model buffer size =    34.50 MiB
llama_kv_cache:      CUDA0 KV buffer size =   224.00 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =    16.00 MiB
llama_context:  CUDA_Host  output buffer size =     0.58 MiB
sched_reserve:      CUDA0 compute buffer size =   100.75 MiB
sched_reserve:      CUDA0 compute buffer size =   300.75 MiB
sched_reserve:  CUDA_Host compute buffer size =    10.75 MiB
sched_reserve: graph splits = 50 (with bs=512), 3 (with bs=1)
load_tensors: offloaded 49/49 layers to GPU
prompt eval time =    9812.48 ms /  2048 tokens (    4.79 ms per token,   208.71 tokens per second)
       eval time =   24047.75 ms /   128 tokens (  187.87 ms per token,     5.32 tokens per second)
"""


def read(name: str) -> str:
    return (LOGS / name).read_text()


def test_a_sweep_of_ik_has_its_buffers_splits_and_rows() -> None:
    log = read_log(read("ik-sweep-table.stderr"))
    (cpu,) = log.buffers
    assert (cpu.device, cpu.weights_mib, cpu.kv_mib, cpu.compute_mib, cpu.output_mib) == (
        "CPU",
        319.96,
        224.0,
        300.75,
        0.58,
    )
    assert (log.graph_splits, log.offloaded) == (1, (0, 29))
    assert log.speeds[0] == MeasuredSpeed(n_kv=0, pp_tps=280.53, tg_tps=8.27, n_prompt=512)
    assert [row.n_kv for row in log.speeds] == [0, 512, 1024, 1536]


def test_the_jsonl_form_of_a_sweep_is_read_as_its_table_is() -> None:
    log = read_log(read("ik-sweep-jsonl.stderr"))
    assert [row.n_kv for row in log.speeds] == [0, 512, 1024, 1536]
    assert log.speeds[1].tg_tps == 7.969789


def test_llama_bench_is_read_as_json_and_as_markdown() -> None:
    rows = read_log(read("main-bench-json.stdout")).speeds
    assert [(r.n_kv, r.pp_tps is None) for r in rows] == [(0, False), (0, True), (1024, False), (1024, True)]
    pp, tg = read_log(read("main-bench-md.stdout")).speeds
    assert (pp.pp_tps, pp.n_prompt, tg.tg_tps) == (163.57, 512, 26.03)


def test_of_contexts_made_one_after_the_other_the_largest_counts() -> None:
    (cpu,) = read_log(read("main-bench-verbose.stderr")).buffers
    assert (cpu.kv_mib, cpu.compute_mib, cpu.output_mib) == (28.0, 28.97, 0.58)
    assert cpu.weights_mib == 634.61


def test_a_batched_bench_begins_with_an_empty_cache_whatever_it_prints_as_n_kv() -> None:
    table = """\
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |    128 |    1 |    256 |    1.079 |   118.58 |    3.090 |    41.43 |    4.169 |    61.41 |
|   128 |    128 |    2 |    512 |    2.100 |   121.90 |    4.000 |    64.00 |    6.100 |    83.93 |
"""
    assert read_log(table).speeds == (
        MeasuredSpeed(n_kv=0, pp_tps=118.58, n_prompt=128),
        MeasuredSpeed(n_kv=128, tg_tps=41.43),
    )


def test_a_row_whose_time_and_speed_disagree_is_left_out() -> None:
    table = read("ik-sweep-table.stderr").replace("222.63", "333.63")
    assert [row.n_kv for row in read_log(table).speeds] == [0, 1024, 1536]


def test_depths_of_llama_bench_are_depths() -> None:
    table = "| m | 1 GiB | CUDA | 99 | tg64 @ d8192 | 21.50 ± 0.01 |\n| m | 1 GiB | CUDA | 99 | pp512+tg64 | 30.0 ± 1 |"
    assert read_log(table).speeds == (MeasuredSpeed(n_kv=8192, tg_tps=21.5),)


def test_host_buffers_add_up_and_a_compute_buffer_printed_again_counts_once() -> None:
    log = read_log(LLAMA_SERVER)
    cpu, gpu = log.buffers
    assert (cpu.device, cpu.weights_mib, cpu.compute_mib, cpu.output_mib) == ("CPU", 1269.0, 10.75, 0.58)
    assert (gpu.device, gpu.weights_mib, gpu.kv_mib, gpu.compute_mib) == ("CUDA0", 10000.0, 240.0, 300.75)
    assert log.graph_splits == 50


def test_a_servers_timings_are_a_prompt_from_nothing_and_the_output_behind_it() -> None:
    prompt, output = read_log(LLAMA_SERVER).speeds
    assert prompt == MeasuredSpeed(n_kv=0, pp_tps=208.71, n_prompt=2048)
    assert output == MeasuredSpeed(n_kv=2048, tg_tps=5.28)  # 127 of the 128 were decoded behind the prompt


def test_of_two_runs_in_one_paste_the_last_counts() -> None:
    one = f"llama_model_loader: loaded meta data with 30 key-value pairs\n{LLAMA_SERVER}"
    assert read_log(one + one) == read_log(LLAMA_SERVER)


@pytest.mark.parametrize("text", ["", "hello", "{" * 5000, "[\n  {", "| PP | TG | N_KV |\n| x | y | z |"])
def test_what_is_no_log_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(InvalidInput, match="buffer size") as error:
        read_log(text)
    assert error.value.field == "log"


@pytest.mark.parametrize(
    "line",
    ["buffer size = " + "9" * 1900, " " * 1900 + "buffer size = 1.00 MiB", "|" * 1900, "eval time = " * 160,
     "splits = " * 200, '{"speed_pp": 1e999, "n_kv": 1e99}', "| PP | TG | N_KV | S_PP t/s |" * 60],
)  # fmt: skip
def test_hostile_lines_take_no_time(line: str) -> None:
    started = time.process_time()
    with pytest.raises(InvalidInput):
        read_log((line + "\n") * ((1 << 20) // (len(line) + 1)))
    assert time.process_time() - started < 3


def test_a_log_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cut it"):
        read_log("x" * ((1 << 20) + 1))


@pytest.mark.parametrize("name", ["alloc_compute_meta", "reserve_compute_meta"])  # of older and newer builds
def test_a_projectors_buffers_are_not_the_models(name: str) -> None:
    """llama.cpp tools/mtmd/clip.cpp prints them behind the model's, under the same names."""
    projector = (
        f"{name}:      CUDA0 compute buffer size =   248.10 MiB\n"
        f"{name}:        CPU compute buffer size =    24.93 MiB\n"
        f"{name}: graph splits = 1, nodes = 823\n"
    )
    assert read_log(LLAMA_SERVER + projector) == read_log(LLAMA_SERVER)
