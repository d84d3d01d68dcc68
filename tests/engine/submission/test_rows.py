"""Rows of pastes: what programs print parses to the same rows, mangled it parses right or is refused with the line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.commands.parse import parse
from service.engine.errors import InvalidInput
from service.engine.logs.read import read_log
from service.engine.measured.reader import Reader
from service.engine.measured.rows import MeasuredRow
from service.engine.reduction import reduced
from service.engine.submission.reading import disagreement, read_paste
from tests.engine.submission.pastes import (
    ALL,
    HARMLESS,
    OF_TABLES,
    SWEEP_HEAD,
    WRAPS,
    Sweep,
    bench_json,
    bench_table,
    published,
    recorded,
    sweep_jsonl,
    sweep_table,
)
from tests.sampling import examples, some_of

RECORDED = ["ik-sweep-table.stderr", "ik-sweep-jsonl.stderr", "main-bench-json.stdout", "main-bench-md.stdout"]
LINE = re.compile(r"lines? \d")


def as_run(output: str) -> tuple[MeasuredRow, ...]:
    """What the agent reads from the same output while the program runs."""
    return tuple(Reader().feed(output.encode()))


def right_or_refused(mangled: str, wanted: Sequence[MeasuredRow]) -> bool:
    """Return whether it was read; fails where it was read wrong, or refused without saying where."""
    try:
        found = read_paste(mangled).rows
    except InvalidInput as refused:
        if not LINE.match(refused.detail):
            raise
        return False
    assert found in (tuple(wanted), ())  # with no row it is refused as a whole
    return bool(found)


# --- as the programs print it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_output_has_the_rows_that_the_agent_reads(name: str) -> None:
    assert read_paste(recorded(name)).rows == as_run(recorded(name)) != ()


@pytest.mark.parametrize(("name", "how"), some_of([(name, how) for how in HARMLESS for name in RECORDED], 3))
def test_a_quoted_or_coloured_paste_has_the_same_rows(name: str, how: str) -> None:
    assert read_paste(HARMLESS[how](recorded(name))).rows == as_run(recorded(name))


@pytest.mark.parametrize("how", OF_TABLES)
@pytest.mark.parametrize("name", [RECORDED[0], RECORDED[3]])
def test_a_table_that_lost_its_form_has_the_same_rows(name: str, how: str) -> None:
    assert read_paste(OF_TABLES[how](recorded(name))).rows == as_run(recorded(name))


@pytest.mark.parametrize(("name", "how"), some_of([(name, how) for how in WRAPS for name in RECORDED], 3))
def test_wrapped_lines_are_joined(name: str, how: str) -> None:
    output = recorded(name)
    table = output[max(output.find("|    PP"), 0) :] if name == RECORDED[0] else output
    assert right_or_refused(WRAPS[how](table), as_run(output))


@pytest.mark.parametrize("how", ALL)
def test_a_row_that_lost_a_digit_is_refused(how: str) -> None:
    broken = recorded(RECORDED[0]).replace("222.63", "22.63")
    with pytest.raises(InvalidInput, match=r"^line \d+: "):
        read_paste(ALL[how](broken))


# --- any run, any two manglings ---------------------------------------------------------------------------------------

SECONDS = st.floats(0.05, 20_000)


@st.composite
def sweeps(draw: st.DrawFn) -> list[Sweep]:
    pp, tg = draw(st.sampled_from([128, 512, 1024, 2048, 4096])), draw(st.sampled_from([32, 128, 256, 512]))
    times = draw(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=12))
    skipped = draw(st.integers(1, 3))
    rows = [(pp, tg, i * skipped * pp, t, u) for i, (t, u) in enumerate(times)]
    return [row for row in rows if row[0] / row[3] > 0.01 and row[1] / row[4] > 0.01]


BENCH = st.tuples(
    st.sampled_from(["pp", "tg"]), st.integers(1, 65_536), st.integers(0, 200_000),
    st.lists(st.integers(80_000_000, 10**13), min_size=1, max_size=5),
)  # fmt: skip
MANGLED = st.tuples(st.sampled_from(sorted(ALL)), st.sampled_from(sorted(ALL)))


def both(how: tuple[str, str]) -> Callable[[str], str]:
    return lambda text: ALL[how[1]](ALL[how[0]](text))


def outputs_of(rows: list[Sweep], tests: list[Any]) -> list[str]:
    speeds = [(kind, n, depth, 1e9 * n / times[0]) for kind, n, depth, times in tests]
    kept = [one for one in speeds if 0.01 < one[3] < 900_000]
    return [
        sweep_table(rows), sweep_jsonl(rows), bench_table(kept), bench_json(tests, True), bench_json(tests, False)
    ]  # fmt: skip


@given(sweeps(), st.lists(BENCH, max_size=5))
@examples(25)
def test_whatever_the_agent_can_read_parses_to_the_same_rows(rows: list[Sweep], tests: list[Any]) -> None:
    for output in outputs_of(rows, tests):
        assert read_paste(output).rows == as_run(output)


@given(sweeps(), st.lists(BENCH, max_size=3), MANGLED)
@examples(12)
def test_a_mangled_paste_is_read_right_or_refused(rows: list[Sweep], tests: list[Any], how: tuple[str, str]) -> None:
    for output in outputs_of(rows, tests):
        right_or_refused(both(how)(output), as_run(output))


@pytest.mark.full
@given(sweeps(), st.lists(BENCH, max_size=3), MANGLED)
@examples(3_000)
def test_many_mangled_pastes_are_read_right_or_refused(
    rows: list[Sweep], tests: list[Any], how: tuple[str, str]
) -> None:
    for output in outputs_of(rows, tests):
        right_or_refused(both(how)(output), as_run(output))


@cache
def published_tables() -> list[tuple[str, str]]:
    line = "|{:6d} | {:6d} | {:6d} | {:8.3f} | {:8.2f} | {:8.3f} | {:8.2f} |\n"
    sweep = [
        (one["id"], SWEEP_HEAD + "".join(line.format(*row) for row in one["rows"]))
        for one in published()
        if one["tool"] == "llama-sweep-bench" and one["rows"]
    ]
    bench = [
        (one["id"], bench_table([(t["test"][:2], int(t["test"][2:]), t["n_depth"], t["t_s"]) for t in one["bench"]]))
        for one in published()
        if one["bench"] and all(re.fullmatch(r"[pt][pg]\d+", t["test"]) for t in one["bench"])
    ]
    return sweep + bench


def test_every_published_table_parses_to_the_same_rows() -> None:
    tables = published_tables()
    assert len(tables) > 180
    for name, table in tables:
        assert read_paste(table).rows == as_run(table) != (), name


@pytest.mark.full
@pytest.mark.parametrize("how", ALL)
def test_every_published_table_mangled_parses_right_or_is_refused(how: str) -> None:
    read = [right_or_refused(ALL[how](table), as_run(table)) for _, table in published_tables()]
    assert sum(read) >= (0.9 if how in WRAPS else 1.0) * len(read)


# As ik_llama.cpp's pull request 1141 prints it: the rules of -ot, with their bars and equals signs, and a longer name.
OT_TABLE = """\
| model                          |       size |     params | backend    | ngl | threads | n_ubatch | ot              |          test |              t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | ------: | -------: | --------------- | ------------: | ---------------: |
| qwen3moe 30B.A3B IQ2_XXS - 2.0625 bpw |   7.80 GiB |    30.53 B | CUDA       | 100 |       1 |     2048 | {ot} |         pp2048 |  5413.54 ± 25.10 |
| qwen3moe 30B.A3B IQ2_XXS - 2.0625 bpw |   7.80 GiB |    30.53 B | CUDA       | 100 |       1 |     2048 | {ot} |          tg128 |    95.68 ± 0.31 |
"""  # noqa: E501


@pytest.mark.parametrize("layers", [0, 3, 94])
def test_a_table_of_llama_bench_with_rules_of_ot_is_read(layers: int) -> None:
    layer = r"blk\.{}\.(ffn_(up|down|gate)_exps\.weight)=CPU"
    table = OT_TABLE.format(ot=",".join(map(layer.format, range(layers))) or "exps=CPU")
    log = "\na = 1 |\nllama_model_loader: - kv  3: general.name str = Qwen | 30B\n"
    assert [(row.n_prompt, row.n_gen) for row in read_paste(table + log).rows] == [(2048, 0), (0, 128)]
    without = "\n".join(line.strip().strip("|") for line in table.splitlines())
    assert read_paste(without).rows == read_paste(table).rows
    with pytest.raises(InvalidInput, match=r"line 4: a row of another configuration \(other ot\)"):
        read_paste(table[::-1].replace("UPC=", "1ADUC=", 1)[::-1])  # the second row is of other rules


@pytest.mark.parametrize("sign", ["┬▒", "Â±", "В±", "卤", "ﾂｱ", "짹", "\ufffd", "?", "+-"])
def test_the_sign_before_a_deviation_is_read_in_whatever_code_page_it_was_shown(sign: str) -> None:
    shown = recorded("main-bench-md.stdout").replace("±", sign)
    assert read_paste(shown).rows == as_run(recorded("main-bench-md.stdout"))
    assert read_log(shown).speeds == read_log(recorded("main-bench-md.stdout")).speeds


def test_tests_of_early_2024_have_a_blank_in_their_name() -> None:
    table = recorded("main-bench-md.stdout").replace("pp512", "pp 512").replace("tg32", "tg 32")
    assert read_paste(table).rows == as_run(recorded("main-bench-md.stdout"))
    assert read_log(table).speeds == read_log(recorded("main-bench-md.stdout")).speeds


BATCHED = """\
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |     32 |    1 |    544 |    0.337 |  1518.90 |    0.405 |    79.04 |    0.742 |   733.22 |
|   512 |     32 |    2 |   1088 |    0.639 |  1603.62 |    0.469 |   136.37 |    1.108 |   982.06 |
|  4096 |     32 |    1 |   4128 |    2.684 |  1526.12 |    0.428 |    74.77 |    3.112 |  1326.52 |
|  4096 |     32 |    4 |  16512 |   10.694 |  1532.06 |    0.655 |   195.49 |   11.349 |  1454.95 |
"""  # llama.cpp's pull request 16894


def test_of_a_batched_bench_sequences_together_are_left_out_by_name() -> None:
    reading = read_paste(BATCHED)
    assert [(row.n_kv, row.n_prompt, row.n_gen) for row in reading.rows] == [
        (0, 512, 0), (512, 0, 32), (0, 4096, 0), (4096, 0, 32),
    ]  # fmt: skip
    assert reading.dropped == (
        "PP 512, TG 32, B 2: the speed of 2 sequences together, not of one",
        "PP 4096, TG 32, B 4: the speed of 4 sequences together, not of one",
    )
    with pytest.raises(InvalidInput, match="line 4: no complete row"):
        read_paste(BATCHED.replace("136.37", "36.37"))
    shared = BATCHED.replace("   1088 |    0.639 |  1603.62", "    576 |    0.320 |  1600.00")
    assert read_paste(shared).dropped == reading.dropped


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_taken_out_of_a_log_before_it_is_kept_changes_no_row(name: str) -> None:
    assert read_paste(reduced(recorded(name))).rows == as_run(recorded(name))


@pytest.mark.parametrize(
    "line",
    some_of(["PP|TG\n", "| a | b | test\ntest | t/s\n", '{"a": "\n', "{\n", "1 2 3 4 5 6 7\n", "llama-bench -m\n"], 3),
)
def test_a_megabyte_of_anything_takes_bounded_time(line: str) -> None:
    started = time.process_time()
    with suppress(InvalidInput):
        read_paste((line * 19_000)[: 1 << 20])
    assert time.process_time() - started < 5


# --- whether the output is the command's ------------------------------------------------------------------------------

FRAGMENTS = {  # ids of runs whose published command is a fragment, or put together from the columns of a table
    *("disc201-VinnyG9-1", "disc201-VinnyG9-2", "pr400-ikawrakow-1", "pr400-ikawrakow-2", "pr400-ikawrakow-3"),
    *("pr825-ikawrakow-1", "pr825-ikawrakow-2", "pr825-ikawrakow-3"),  # rows up to twice the context that it names
    *("pr520-quasar-1", "pr520-quasar-2", "pr841-ikawrakow-1", "pr841-ikawrakow-2"),
}


@pytest.mark.full
def test_of_published_runs_only_those_with_a_part_of_their_command_disagree_with_it() -> None:
    apart = set()
    for one in published():
        parsed = parse(one["command"], one["engine"])
        flags = parsed.flags if parsed.flags.n_ctx else msgspec.structs.replace(parsed.flags, n_ctx=1 << 20)
        table = dict(published_tables()).get(one["id"])
        if table and disagreement(parsed, flags, one["tool"], {}, read_paste(table).rows):
            apart.add(one["id"])
    assert apart == FRAGMENTS


@pytest.mark.parametrize(
    ("command", "stated"),
    [
        ("llama-bench -m a.gguf -ngl 40", {"ngl": "99"}),
        ("llama-bench -m a.gguf", {"n_gpu_layers": "12"}),
        ("llama-bench -m a.gguf -ub 1024", {"n_ubatch": "512"}),
        ("llama-bench -m a.gguf -ctk q8_0", {"type_k": "f16"}),
        ("llama-bench -m a.gguf -t 8", {"threads": "16"}),
        ("llama-bench -m a.gguf -c 4096", {"n_kv_max": "8192"}),
    ],
)
def test_settings_that_the_program_printed_are_held_against_the_command(command: str, stated: dict[str, str]) -> None:
    parsed = parse(command, "llama.cpp")
    flags = msgspec.structs.replace(parsed.flags, n_ctx=4096)
    assert disagreement(parsed, flags, "llama-bench", stated, ())
    assert disagreement(parsed, flags, "llama-bench", {"n_kv_max": "4096", "n_batch": "2048"}, ()) is None


# --- any edit ---------------------------------------------------------------------------------------------------------

EDIT = st.tuples(st.integers(0, 10_000), st.sampled_from(["", "\n", *"0123456789.,| "]), st.booleans())


def outputs_alone() -> list[str]:
    table, lines = recorded(RECORDED[0]), recorded(RECORDED[1])
    return [table[table.find("|    PP") :], lines[lines.find('{"n_kv_max"') :]]


def edited_or_refused(output: str, edits: Sequence[tuple[int, str, bool]]) -> None:
    """Fail where an edited output has a row that the output has not; a last digit that rounding hides is the same."""
    characters = list(output)
    for at, text, inserted in edits:
        at %= len(characters)
        characters[at] = text + characters[at] if inserted else text
    with suppress(InvalidInput):
        for row in read_paste("".join(characters)).rows:
            assert any(nearly(row, one) for one in as_run(output)), row


def nearly(row: MeasuredRow, other: MeasuredRow) -> bool:
    times = zip(row.pp_seconds + row.tg_seconds, other.pp_seconds + other.tg_seconds, strict=True)
    same = (row.n_kv, row.n_prompt, row.n_gen) == (other.n_kv, other.n_prompt, other.n_gen)
    return same and all(a == pytest.approx(b, rel=0.003) for a, b in times)


@pytest.mark.parametrize("text", ["0", "0 "])
def test_a_digit_more_in_a_row_of_a_sweep_is_no_other_depth(text: str) -> None:
    (table, _) = outputs_alone()
    assert "|   1536 |" in table
    with pytest.raises(InvalidInput):
        read_paste(table.replace("|   1536 |", f"|   1536{text}|"))


@given(st.integers(0, 1), st.lists(EDIT, min_size=1, max_size=4))
@examples(40)
def test_a_sweep_that_lost_or_gained_characters_has_no_row_that_was_not_there(
    which: int, edits: list[tuple[int, str, bool]]
) -> None:
    edited_or_refused(outputs_alone()[which], edits)


@pytest.mark.full
@given(st.integers(0, 1), st.lists(EDIT, min_size=1, max_size=4))
@examples(10_000)
def test_many_sweeps_that_lost_or_gained_characters_have_no_row_that_was_not_there(
    which: int, edits: list[tuple[int, str, bool]]
) -> None:
    edited_or_refused(outputs_alone()[which], edits)


def test_a_table_of_which_nothing_counts_is_refused_with_the_reason() -> None:
    head = "| model | size | params | backend | ngl | test | t/s |\n"
    with pytest.raises(InvalidInput, match=r"pp512\+tg128: the time of both phases") as refused:
        read_paste(f"{head}| qwen3 0.6B | 604.15 MiB | 596.05 M | CUDA | 99 | pp512+tg128 | 50.00 ± 0.40 |\n")
    assert refused.value.field == "text"
