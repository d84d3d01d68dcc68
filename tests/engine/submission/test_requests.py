"""Servers' and chats' logs as results: recorded and published ones, each with its own meaning, or refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from service.engine.errors import InvalidInput
from service.engine.logs.requests import TOGETHER, read_requests, read_totals, without_words
from service.engine.measured.summary import measured_speed
from service.engine.submission.reading import Reading, read_paste

LOGS = Path(__file__).parents[2] / "data" / "server_logs"


def paste(name: str) -> str:
    return (LOGS / name).read_text()


def points(reading: Reading) -> list[tuple[int, float, float]]:
    return [(point.n_kv, point.pp_tps, point.tg_tps) for point in measured_speed(reading.rows)]


@pytest.mark.parametrize(
    ("name", "tool", "expected"),
    [
        ("llama-server.log", "llama-server", [(300, 540.42, 264.3), (420, 540.42, 57.5)]),
        ("llama-server-completion.json", "llama-server", [(300, 1027.28, 264.3)]),
        ("llama-server-metrics-one.txt", "llama-server", [(300, 1028.17, 264.3)]),
        ("llama-server-2025.txt", "llama-server", [(51, 55.73, 11.89)]),
        ("llama-server-cached.txt", "llama-server", [(18_977, 495.19, 63.26)]),
        ("ik-llama-server.txt", "llama-server", [(76_425, 131.57, 13.16)]),
        ("llama-cli.txt", "llama-cli", [(49, 52.85, 12.64)]),
        ("koboldcpp-p40.txt", "koboldcpp", [(1_486, 91.05, 4.46), (1_860, 15.74, 4.3)]),
        ("koboldcpp-qwq.txt", "koboldcpp", [(38_697, 563.36, 10.61)]),
        ("koboldcpp-benchmark.txt", "koboldcpp", [(3_996, 406.84, 3.76)]),
        ("koboldcpp-benchmark-whole.txt", "koboldcpp", [(16_284, 767.39, 4.3)]),
        ("koboldcpp-2024.txt", "koboldcpp", [(852, 94.35, 5.01)]),
    ],
)
def test_a_request_is_its_whole_prompt_and_the_output_behind_it(
    name: str, tool: str, expected: list[tuple[int, float, float]]
) -> None:
    reading = read_paste(paste(name))
    assert (reading.tool, points(reading)) == (tool, expected)
    assert "not rows of a benchmark" in reading.assumed[0].why
    assert reading.log is not None
    assert read_paste(reading.log).rows == reading.rows


def test_requests_of_two_slots_at_a_time_are_measurements_of_neither() -> None:
    lines = paste("llama-server.log").splitlines()
    one, next_one = lines[166:175], lines[186:195]
    both = [one[0], *(line.replace("id  0", "id  1") for line in next_one[:1]), *one[1:]]
    both += [line.replace("id  0", "id  1") for line in next_one[1:]]
    assert [request.flaw for request in read_requests([*one, *next_one]).found] == [None, None]
    assert [request.flaw for request in read_requests(both).found] == ["another request ran at the same time"] * 2


def as_json(line: str) -> str:
    """Return a line of ik_llama.cpp's log as `--log-format json` writes it."""
    text, _, pairs = line.partition(" | ")
    fields = {name: json.loads(value) for name, value in re.findall(r'(\w+)=("[^"]*"|[^ ]+)', pairs)}
    return json.dumps({"level": "INFO", "msg": text.partition("] ")[2]} | fields, separators=(",", ":"))


@pytest.mark.parametrize("written", [str, as_json])
def test_ik_llama_cpps_server_tells_what_was_cached_and_what_ran_together(written: Callable[[str], str]) -> None:
    lines = [line for line in paste("ik-llama-server.txt").splitlines() if "params" not in line]
    later = [line.replace("n_past=76827", "n_past=96827") for line in lines]
    cached = read_paste("\n".join(map(written, later)))
    assert points(cached) == [(96_425, 131.57, 13.16)]
    assert [one.field for one in cached.assumed] == ["rows"]
    launch = 'INFO [launch_slot_with_task] slot is processing task | tid="1" timestamp=1 id_slot={} id_task={}'
    together = [launch.format(0, 2), launch.format(1, 9), *lines[:6]]
    assert [one.flaw for one in read_requests(list(map(written, together))).found] == [TOGETHER]
    kept = without_words(list(map(written, together)))
    assert [one.flaw for one in read_requests(kept).found] == [TOGETHER]


def test_the_build_is_read_from_ik_llama_cpps_server() -> None:
    line = 'INFO [                    main] build info | tid="1" timestamp=1748008001 build=3703 commit="a2b5057a"'
    assert read_paste(line).build == "a2b5057a"
    assert read_paste(as_json(line)).build == "a2b5057a"


def test_a_server_s_first_output_token_comes_out_of_its_prompt() -> None:
    reading = read_paste(paste("llama-server-2025.txt"))  # 275 printed; the cache ended at 51 + 274
    assert [(row.n_kv, row.n_prompt, row.n_gen) for row in reading.rows] == [(0, 51, 0), (51, 0, 274)]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("llama-server-draft.txt", "drafted"),
        ("llama-server-metrics-several.txt", "adds up requests of several depths"),
        ("ollama-verbose.txt", "fewer than 16 tokens"),
        ("ollama-orca-mini.txt", "fewer than 16 tokens of prompt or 32 of output"),
        ("koboldcpp-nothing.txt", "too few tokens"),
    ],
)
def test_what_measured_nothing_is_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        read_paste(paste(name))


def test_ollama_s_figures_need_what_was_cached_to_be_assumed() -> None:
    longer = paste("ollama-verbose.txt").replace("13 token(s)", "130 token(s)").replace("0.66", "6.58")
    reading = read_paste(longer)
    assert (reading.tool, points(reading)) == ("ollama", [(130, 6.58, 8.87)])
    assert [one.field for one in reading.assumed] == ["rows", "depth"]


def test_a_rate_that_is_not_of_its_times_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInput, match="line 9: its milliseconds and its rate"):
        read_paste(paste("llama-server-2025.txt").replace("11.94", "21.94"))


def test_requests_that_ran_together_are_no_measurement() -> None:
    lines = paste("llama-server-2025.txt").splitlines()
    lines.insert(4, "slot launch_slot_: id  1 | task 7 | processing task")
    with pytest.raises(InvalidInput, match="another request ran at the same time"):
        read_paste("\n".join(lines))


def test_lm_studio_s_stats_are_refused_and_its_developer_log_is_read() -> None:
    stats = {"stats": {"tokens_per_second": 51.4, "time_to_first_token": 0.111, "generation_time": 0.954}}
    with pytest.raises(InvalidInput, match="LM Studio: its stats do not say how long the prompt took"):
        read_paste(json.dumps(stats))
    log = "".join(f"[2026-08-29 12:31:41][DEBUG] {line}\n" for line in paste("llama-server-cached.txt").splitlines())
    assert points(read_paste(log)) == [(18_977, 495.19, 63.26)]


def test_a_benchmark_of_koboldcpp_whose_figures_disagree_is_refused_with_its_line() -> None:
    for wrong in ("406.94", "40.68", "416.84"):
        with pytest.raises(InvalidInput, match="line 4: its seconds and its rates"):
            read_paste(paste("koboldcpp-benchmark.txt").replace("406.84", wrong))


def test_a_benchmark_of_koboldcpp_that_was_cut_off_is_asked_for_whole() -> None:
    for n_lines in (1, 2, 3):
        with pytest.raises(InvalidInput, match=f"line {n_lines}: .*paste all four lines"):
            read_paste("\n".join(paste("koboldcpp-benchmark.txt").splitlines()[:n_lines]))


def test_a_benchmark_of_koboldcpp_counts_once_however_its_times_are_rounded() -> None:
    printed = paste("koboldcpp-benchmark-whole.txt")
    for seconds in ("23.235", "23.236", "23.244", "23.245"):
        found = read_requests(printed.replace("GenerationTime: 23.240", f"GenerationTime: {seconds}").splitlines())
        assert (len(found.found), found.refused) == (1, ())


def test_nothing_that_anybody_wrote_to_a_model_is_kept() -> None:
    answer = json.loads(paste("llama-server-completion.json"))
    reading = read_paste(json.dumps(answer | {"content": "my secret", "prompt": "another secret"}))
    assert reading.log is not None
    assert "secret" not in reading.log
    assert read_paste(reading.log).rows == reading.rows
    chat = "user: my secret\n" + paste("llama-server.log")
    again = read_paste(chat)
    assert again.log is not None
    assert "secret" not in again.log
    assert "CPU KV buffer size" in again.log
    assert read_paste(again.log).rows == again.rows


def test_the_batched_bench_s_output_stands_behind_its_prompt() -> None:
    head = "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n"
    row = "|   128 |     32 |    1 |    160 |    0.120 |  1064.29 |    0.282 |   113.39 |    0.402 |   397.53 |\n"
    assert points(read_paste(head + row)) == [(128, 1066.67, 113.48)]


@pytest.mark.parametrize("name", ["llama-bench.csv", "llama-bench.sql"])
def test_llama_bench_s_csv_and_sql_are_its_rows(name: str) -> None:
    reading = read_paste(paste(name))
    first, second = measured_speed(reading.rows)[0], reading.rows[1]
    assert (reading.tool, reading.build, second.n_gen) == ("llama-bench", "0c1e57098", 32)
    assert first.pp_tps == pytest.approx({"csv": 46374.03, "sql": 25596.03}[name[-3:]])


def test_a_row_of_csv_that_lost_a_column_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInput, match="line 3: 41 values for 42 columns"):
        read_paste(paste("llama-bench.csv").replace('"0","32","0"', '"32","0"'))


def test_what_the_totals_of_a_server_grew_by_was_one_request() -> None:
    before, now = (read_totals(paste(f"llama-server-metrics-{name}.txt").splitlines()) for name in ("one", "several"))
    assert before is not None
    assert now is not None
    grown = now.since(before)
    assert (grown.n_cached, grown.n_prompt, grown.n_output) == (300, 120, 63)
    assert now.since(before, TOGETHER).flaw == TOGETHER
    assert read_totals(["llamacpp:prompt_tokens_total 3"]) is None
