"""What people send of their benchmarks: what is understood, what is missing, what is kept, and how often."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, select

from service.engine.errors import InvalidFlags, InvalidHardware, InvalidInput, UnknownHardware
from service.engine.measured.rows import MeasuredRow
from service.errors import IdempotencyKeyReused, NotAllowed
from service.flows.accounts import Caller, caller_of, create_token
from service.flows.context import Context
from service.flows.results import submissions
from service.flows.results.submissions import correct, preview, submit
from service.store.results import results
from service.store.tables import metadata
from service.store.tables import result as table
from service.wire.results.submission_text import preview_lines
from service.wire.results.submissions import Correction, Submission
from tests.flows.results.submitted import COMMAND, HEAD, REPO, RIG, submission, sweep


@pytest.fixture
def caller(context: Context) -> Caller:
    now = context.clock()
    return caller_of(context.engine, create_token(context.engine, "ann", ["submit"], now).token, now)


def n_results(engine: Engine) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(table.c.id)).all())


# --- what is understood -----------------------------------------------------------------------------------------------


def test_a_preview_shows_model_flags_machine_rows_and_what_was_expected_and_keeps_nothing(context: Context) -> None:
    shown = preview(context, None, submission(remarks="fan at full speed"))
    assert (shown.complete, shown.missing) == (True, [])
    assert shown.model is not None
    assert (shown.model.repo, shown.model.variant, shown.engine) == (REPO, "Q8_0", "ik_llama.cpp")
    assert shown.flags is not None
    assert (shown.flags.n_ctx, shown.flags.n_gpu_layers, shown.flags.flash_attn) == (4096, 99, "on")
    assert shown.command == "llama-sweep-bench -m Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 99 -fa on"
    assert shown.rig == "NVIDIA GeForce RTX 3090, AMD Ryzen 9 7950X, ram 128GB DDR5 5600 MT/s"
    assert shown.assumed
    assert [point.n_kv for point in shown.predicted] == [point.n_kv for point in shown.speed] == [0, 512, 1024]
    assert shown.speed[0].tg_tps == pytest.approx(250, rel=0.001)
    assert {one.what for one in shown.compared} == {"pp", "tg"}
    assert n_results(context.engine) == 0


def test_a_run_is_predicted_on_the_cards_that_its_engine_drives_and_filed_under_the_whole_machine(
    context: Context,
) -> None:
    """`./llama-sweep-bench` is ik_llama.cpp's, which drives NVIDIA's cards alone."""
    shown = preview(context, None, submission(hardware=f"{RIG}, RX 7900 XTX"))
    assert [device.gpu for device in shown.devices] == ["NVIDIA GeForce RTX 3090", None]
    assert "Radeon RX 7900 XTX" in str(shown.rig)


@pytest.mark.parametrize(
    ("lacking", "asked_for"),
    [
        ({"hardware": None}, ["hardware"]),
        ({"text": COMMAND}, ["text"]),
        ({"text": sweep()}, ["command"]),
        ({"text": sweep(), "command": "llama-sweep-bench -m a.gguf -c 4096 -ngl 99"}, ["repo"]),
        ({"text": "", "hardware": None}, ["text", "command", "hardware"]),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_kept_without_it(
    context: Context, lacking: dict[str, object], asked_for: list[str]
) -> None:
    shown = preview(context, None, submission(**lacking))
    assert (shown.complete, [one.field for one in shown.missing]) == (False, asked_for)
    with pytest.raises(InvalidInput, match=r"^this is missing: ") as error:
        submit(context, None, submission(**lacking))
    assert error.value.field == asked_for[0]
    assert n_results(context.engine) == 0


def test_who_sends_ollama_s_figures_is_told_which_command_to_give(context: Context) -> None:
    printed = (
        "prompt eval count:    131 token(s)\nprompt eval duration: 19.747s\nprompt eval rate:     6.63 tokens/s\n"
        "eval count:           1133 token(s)\neval duration:        2m7.682s\neval rate:            8.87 tokens/s\n"
    )
    (missing,) = preview(context, None, submission(text=printed)).missing
    assert (missing.field, "llama-server -m a.gguf -ngl 99 -c 4096" in missing.text) == ("command", True)


def test_the_parts_may_come_one_by_one(context: Context) -> None:
    rows = [MeasuredRow(n_kv=0, n_prompt=512, n_gen=128, pp_seconds=(0.06, 0.061), tg_seconds=(0.5, 0.51))]
    command = "llama-sweep-bench -m mine.gguf -c 4096 -ngl 99"
    shown = preview(context, None, Submission(command=command, rows=rows, repo=f"{REPO}:Q8_0", hardware=RIG))
    assert shown.complete
    assert shown.rows == rows


def test_cards_that_the_output_lists_are_the_hardware_where_none_was_given(context: Context) -> None:
    listed = (
        "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes\n"
    )
    assert preview(context, None, submission(text=f"$ {COMMAND}\n{listed}\n{sweep()}", hardware=None)).complete
    with pytest.raises(InvalidHardware, match="lists 1x NVIDIA GeForce RTX 3090"):
        preview(context, None, submission(text=f"$ {COMMAND}\n{listed}\n{sweep()}", hardware="RTX 4090, 64GB"))


@pytest.mark.parametrize(
    ("device", "stated", "refused"),
    [
        ("AMD Radeon Graphics, gfx906:sramecc+:xnack- (0x906)", "MI50 32GB, 64GB", False),
        ("AMD Instinct MI50/MI60, gfx906:sramecc+:xnack- (0x906)", "MI50 32GB, 64GB", False),
        ("AMD Instinct MI50/MI60, gfx906:sramecc+:xnack- (0x906)", "RTX 3090, 64GB", True),
        ("AMD Instinct MI50/MI60, gfx906:sramecc+:xnack- (0x906)", "Ryzen 9 7950X, 64GB", True),
        ("AMD Radeon RX 7900 XTX, gfx1100 (0x1100)", "MI50 32GB, 64GB", True),
        ("NVIDIA GeForce RTX 6090, compute capability 13.0", "RTX 3090, 64GB", True),
    ],
)
def test_a_name_that_no_card_has_may_be_any_of_its_maker(
    context: Context, device: str, stated: str, refused: bool
) -> None:
    listed = f"ggml_cuda_init: found 1 ROCm devices:\n  Device 0: {device}, VMM: no, Wave Size: 64\n"
    sent = submission(text=f"{_printed('ROCm')}\n{listed}", hardware=stated)
    if refused:
        with pytest.raises(InvalidHardware, match="the output lists 1x"):
            preview(context, None, sent)
    else:
        assert preview(context, None, sent).complete


@pytest.mark.parametrize(("count", "refused"), [(2, False), (3, True)])
def test_cards_with_a_name_that_none_has_may_be_of_two_kinds(context: Context, count: int, refused: bool) -> None:
    devices = "".join(f"  Device {i}: AMD Radeon Graphics, gfx906 (0x906), VMM: no\n" for i in range(count))
    listed = f"ggml_cuda_init: found {count} ROCm devices:\n{devices}"
    sent = submission(text=f"{_printed('ROCm')}\n{listed}", hardware="MI50 32GB + Radeon VII, 64GB")
    if refused:
        with pytest.raises(InvalidHardware, match=r"lists 3x AMD Radeon Graphics.*; of these the hardware has 2"):
            preview(context, None, sent)
    else:
        assert preview(context, None, sent).complete


def _printed(backend: str) -> str:
    """Return a benchmark of llama-bench whose table names a back end."""
    head = "| model | size | params | backend | ngl | test | t/s |\n"
    rows = "".join(
        f"| qwen3 0.6B | 1 GiB | 1 B | {backend} | 99 | {test} | {speed} ± 0.10 |\n"
        for test, speed in (("pp512", "3000.00"), ("tg128", "40.00"))
    )
    return f"$ llama-bench -m /m/{REPO}/Qwen3-0.6B-Q8_0.gguf -ngl 99\n{head}{rows}"


@pytest.mark.parametrize(
    ("hardware", "backend", "taken"),
    [
        ("RX 7900 XT, Ryzen 5 5600, 32GB DDR4-3200", "Vulkan", "vulkan"),
        ("RX 7900 XT, Ryzen 5 5600, 32GB DDR4-3200", "ROCm", "rocm"),
        ("RX 7900 XT, Ryzen 5 5600, 32GB DDR4-3200, vulkan", "Vulkan", "vulkan"),
        ("RTX 3090, Ryzen 5 5600, 32GB DDR4-3200", "Vulkan,RPC", "vulkan"),
        ("RTX 3090, Ryzen 5 5600, 32GB DDR4-3200", "CUDA", None),
        ("RTX 3090, Ryzen 5 5600, 32GB DDR4-3200", "CUDA,Vulkan", None),
        ("RTX 3090 + RX 7900 XT, Ryzen 5 5600, 32GB DDR4-3200", "ROCm", None),
        ("Arc A770, Ryzen 5 5600, 32GB DDR4-3200", "SYCL", "sycl"),
        ("Ryzen 5 5600, 32GB DDR4-3200, no GPU", "Vulkan", None),
    ],
)
def test_the_back_end_is_the_one_that_the_output_names_where_the_hardware_states_none(
    context: Context, hardware: str, backend: str, taken: str | None
) -> None:
    shown = preview(context, None, submission(text=_printed(backend), hardware=hardware))
    assert shown.hardware is not None
    assert shown.hardware.backend == taken
    if taken:
        assert not [one for one in shown.assumed if one.field == "hardware.backend"]


def test_a_result_is_kept_with_the_back_end_that_started(context: Context) -> None:
    started = "ggml_vulkan: Found 1 Vulkan devices:\n"
    kept = submit(
        context, None, submission(text=f"$ ./llama.cpp/{COMMAND[2:]}\n{started}\n{sweep()}", hardware="RX 7900 XT")
    )
    row = results.read(context.engine, kept.id)
    assert row is not None
    assert row.hardware.backend == "vulkan"


@pytest.mark.parametrize(
    ("hardware", "backend", "what"),
    [
        ("RX 7900 XT, Ryzen 5 5600, 32GB DDR4-3200, rocm", "Vulkan", "build for vulkan, the hardware states rocm"),
        ("RX 7900 XT, Ryzen 5 5600, 32GB DDR4-3200, vulkan", "ROCm", "build for rocm, the hardware states vulkan"),
        ("RX 7900 XT, Ryzen 5 5600, 32GB DDR4-3200", "CUDA", "cuda does not drive the AMD Radeon RX 7900 XT"),
    ],
)
def test_hardware_whose_back_end_the_output_contradicts_is_refused(
    context: Context, hardware: str, backend: str, what: str
) -> None:
    with pytest.raises(InvalidHardware, match=what):
        preview(context, None, submission(text=_printed(backend), hardware=hardware))


@pytest.mark.parametrize(
    ("changes", "error", "what"),
    [
        ({"hardware": "n-a"}, InvalidInput, "hardware"),
        ({"hardware": "RTX 9999"}, UnknownHardware, "RTX 9999"),
        ({"text": f"$ {COMMAND} --no-such-option 3\n\n{sweep()}"}, InvalidFlags, "no-such-option"),
        ({"text": f"$ {COMMAND} -ot exps=CUDA3\n\n{sweep()}"}, InvalidFlags, "CUDA3"),
        ({"text": f"$ {COMMAND} -ub 1024\n\n{sweep()}"}, InvalidInput, "two runs"),
        ({"text": f"$ {COMMAND}\n\n{sweep(depths=(0, 4096, 8192))}"}, InvalidInput, "two runs"),
        ({"text": f"$ {COMMAND}\n\nmain: n_kv_max = 8192, n_batch = 2048\n{sweep()}"}, InvalidInput, "two runs"),
        ({"text": f"$ {COMMAND}\n\n{HEAD}| 512 | 128 | 0 | 0.057 | 900.00 | 0.512 | 250.00 |"}, InvalidInput, "line 4"),
        ({"text": f"$ {COMMAND}\n\n{sweep(tg=40_000.0)}"}, InvalidInput, "is impossible"),
        ({"measured_on": "2031-01-01"}, InvalidInput, "not in the future"),
        ({"build": "2062-05-11"}, InvalidInput, "none is of 2062-05-11"),
        ({"build": "yesterday"}, InvalidInput, "is not a date"),
        ({"remarks": "a\0b"}, InvalidInput, "NUL"),
        ({"command": COMMAND + "\0"}, InvalidInput, "NUL"),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(
    context: Context, changes: dict[str, object], error: type[InvalidInput], what: str
) -> None:
    with pytest.raises(error) as refused:
        preview(context, None, submission(**changes))
    assert what in f"{refused.value.field} {refused.value.detail}"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (
            "llama-batched-bench -c 4096 -npp 128 -ntg 32 -npl 1",
            "| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |\n"
            "| 128 | 32 | 1 | 160 | 0.120 | 1064.29 | 0.282 | 113.39 | 0.402 | 397.53 |",
        ),
        (
            'llama-cli -c 4096 -cnv -st --color -p "How are you?" -n 200',
            "llama_perf_context_print: prompt eval time = 927.17 ms / 49 tokens (18.92 ms per token, 52.85 tokens per "
            "second)\nllama_perf_context_print: eval time = 14085.85 ms / 178 runs (79.13 ms per token, 12.64 tokens "
            "per second)",
        ),
    ],
)
def test_a_program_s_own_options_are_no_reason_to_refuse_its_run(context: Context, command: str, output: str) -> None:
    """No list of these programs' options is known: those that only they have are none of llama-server's."""
    program, _, options = command.partition(" ")
    run = f"$ {program} -m /m/{REPO}/Qwen3-0.6B-Q8_0.gguf -ngl 99 {options}\n\n{output}"
    shown = preview(context, None, submission(text=run, engine="llama.cpp"))
    assert shown.complete
    assert "How are you" not in str(shown.command)
    with pytest.raises(InvalidFlags, match="no-such-option"):
        preview(context, None, submission(text=run.replace("-ngl 99", "-ngl 99 --no-such-option"), engine="llama.cpp"))


SIZES = ["604.15 MiB", "319.96 MiB", "11.52 GiB"]  # of Qwen3-0.6B in Q8_0, in Q4_K_M, and of another model


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("where", ["table", "json", "log"])
def test_output_of_a_file_of_another_size_is_refused(context: Context, size: str, where: str) -> None:
    number, unit = size.split()
    tests = (("pp512", 512, 0, 9000.0), ("tg128", 0, 128, 250.0))
    outputs = {
        "table": "| model | size | params | backend | ngl | test | t/s |\n"
        + "".join(
            f"| qwen3 0.6B | {size} | 596.05 M | CUDA | 99 | {name} | {tps:.2f} |\n" for name, _, _, tps in tests
        ),
        "json": "".join(
            f'{{"model_size": {int(float(number) * {"MiB": 1 << 20, "GiB": 1 << 30}[unit])}, "n_prompt": {n_prompt}, '
            f'"n_gen": {n_gen}, "avg_ts": {tps}, "samples_ns": [{round((n_prompt or n_gen) * 1e9 / tps)}]}}\n'
            for _, n_prompt, n_gen, tps in tests
        ),
        "log": f"llm_load_print_meta: model size       = {size} (4.50 BPW)\n\n{sweep()}",
    }
    command = COMMAND if where == "log" else f"llama-bench -m /m/{REPO}/Qwen3-0.6B-Q8_0.gguf -ngl 99"
    sent = submission(text=f"$ {command}\n\n{outputs[where]}")
    if size == SIZES[0]:
        assert preview(context, None, sent).complete
    else:
        with pytest.raises(InvalidInput, match=f"weights of {number}.*604") as refused:
            preview(context, None, sent)
        assert refused.value.field == "repo"


@pytest.mark.parametrize(("size", "refused"), [("761.24 MiB", False), ("690.00 MiB", True)])
def test_a_head_that_is_the_token_embedding_may_be_counted_twice(context: Context, size: str, refused: bool) -> None:
    """As ik_llama.cpp and older llama.cpp count it (`gemma2 2B Q8_0 | 3.17 GiB | 3.20 B`, of 2.61 B weights)."""
    table = _printed("CUDA").replace("1 GiB", size)
    if refused:
        with pytest.raises(InvalidInput, match=r"weights of 690"):
            preview(context, None, submission(text=table))
    else:
        assert preview(context, None, submission(text=table)).complete


def test_requests_of_a_server_that_drafts_are_refused_whatever_their_lines_leave_out(context: Context) -> None:
    lines = (
        "prompt eval time = 900.00 ms / 300 tokens (3.00 ms per token, 333.33 tokens per second)\n"
        "eval time = 2000.00 ms / 201 tokens (9.95 ms per token, 100.50 tokens per second)\n"
    )
    server = f"llama-server -m /m/{REPO}/Qwen3-0.6B-Q8_0.gguf -ngl 99 -c 4096"
    assert preview(context, None, submission(text=f"$ {server}\n\n{lines}", engine="llama.cpp")).complete
    for drafting in ("-md draft.gguf --spec-type draft-simple", "--spec-type draft-mtp"):
        with pytest.raises(InvalidInput, match="the command drafts tokens"):
            preview(context, None, submission(text=f"$ {server} {drafting}\n\n{lines}", engine="llama.cpp"))


def test_one_command_with_several_values_is_several_configs(context: Context) -> None:
    head = "| model | size | params | backend | ngl | test | t/s |\n"
    rows = "".join(
        f"| qwen3 0.6B | 1 GiB | 1 B | CUDA | 99 | {t} | {s} ± 0.10 |\n"
        for t, s in (("pp512", "9000.00"), ("tg128", "250.00"))
    )
    text = f"$ llama-bench -m /m/{REPO}/Qwen3-0.6B-Q8_0.gguf -ngl 99 {{}}\n\n{head}{rows}"
    assert preview(context, None, submission(text=text.format("-fa 1"))).complete
    with pytest.raises(InvalidFlags, match="several values"):
        preview(context, None, submission(text=text.format("-fa 0,1")))
    with pytest.raises(InvalidInput, match="ngl 99, the command 40"):
        preview(context, None, submission(text=text.replace("-ngl 99", "-ngl 40").format("-fa 1")))


def test_a_command_that_no_host_may_run_is_kept_but_in_no_cell(context: Context) -> None:
    kept = submit(context, None, submission(text=f"$ numactl -N 0 -m 0 {COMMAND}\n\n{sweep()}"))
    row = results.read(context.engine, kept.id)
    assert row is not None
    assert (row.cell, row.flags) == (None, None)
    assert row.prediction is not None


@pytest.mark.parametrize("more", ["--rpc 10.0.0.7:50052", "-ngl 99 --rpc box:50052"])
def test_what_ran_elsewhere_is_quarantined_with_the_reason(context: Context, more: str) -> None:
    shown = preview(context, None, submission(text=f"$ {COMMAND} {more}\n\n{sweep()}"))
    assert shown.state == "quarantined"
    assert "another machine" in (shown.state_reason or "")


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_submission_is_kept_with_all_that_was_understood(context: Context, caller: Caller) -> None:
    sent = submission(remarks="2 DIMMs", measured_on="2026-11-20", build="8337e4cd3")
    kept = submit(context, caller, sent)
    assert (kept.is_new, kept.state, kept.tier, kept.edit_key) == (True, "shown", "self-reported", None)
    row = results.read(context.engine, kept.id)
    assert row is not None
    assert (row.origin, row.account_id, row.repo, row.variant) == ("submitted", caller.account_id, REPO, "Q8_0")
    assert (row.gpus, row.ram_gib, row.build, row.remarks) == ("RTX 3090", 128, "8337e4cd3", "2 DIMMs")
    assert row.measured_at.date().isoformat() == "2026-11-20"
    assert row.cell is not None
    assert row.model is not None
    assert row.model.files
    assert sweep().splitlines()[-1] in results.read_log(context.engine, kept.id)


def test_what_grows_when_names_are_hidden_in_it_is_cut(context: Context) -> None:
    words = "al@rig9:~$ x\n" + "al " * 660
    row = results.read(context.engine, submit(context, None, submission(remarks=words)).id)
    assert row is not None
    assert row.remarks is not None
    assert len(row.remarks) == 2_000


def test_a_token_without_the_scope_is_refused(context: Context) -> None:
    now = context.clock()
    other = caller_of(context.engine, create_token(context.engine, "bob", ["validate"], now).token, now)
    with pytest.raises(NotAllowed):
        submit(context, other, submission())


def test_what_was_assumed_is_said_by_name(context: Context) -> None:
    said = " ".join(preview_lines(preview(context, None, submission(hardware="RTX 3090, Ryzen 9 7950X, 128GB"))))
    assert "assumed: RAM channels = 2" in said
    assert "assumed: PCIe link of the RTX 3090 = 4.0 x16" in said
    assert "hardware." not in said


QWEN_235B = "llama-sweep-bench -m Qwen3-235B-A22B-Q4_K_M-00001-of-00003.gguf -c 4096 -ngl 99 -ot exps=CPU -fa on"


@pytest.mark.parametrize(
    ("hardware", "room"),
    [
        ("RTX 3090, Ryzen 9 7950X, 64GB DDR5-5600", "64 GiB of RAM and 24 GiB on its cards"),
        ("no GPU, Ryzen 9 7950X, 64GB DDR5-5600", "64 GiB of RAM"),
        ("Ryzen AI Max+ 395, 128GB", "128 GiB of RAM"),  # whose GPU has no memory besides
        ("RTX 3090, EPYC 7302, 256GB", None),
    ],
)
def test_weights_larger_than_all_memory_of_the_machine_are_warned_of(
    context: Context, hardware: str, room: str | None
) -> None:
    asked = submission(
        text=f"$ {QWEN_235B}\n\n{sweep(60.0, 4.0)}", hardware=hardware, repo="unsloth/Qwen3-235B-A22B-GGUF:Q4_K_M"
    )
    shown = preview(context, None, asked)
    assert shown.complete
    said = " ".join(preview_lines(shown))
    if room is None:
        assert shown.warnings == []
        return
    (warning,) = shown.warnings
    assert f"the weights of Q4_K_M take 132 GiB, more than this machine has ({room})" in warning
    assert "warning: the weights of Q4_K_M" in said


def test_the_same_rows_are_the_same_result_from_any_sender(context: Context, caller: Caller) -> None:
    first = submit(context, None, submission())
    assert first.edit_key
    again = submit(context, caller, submission(text=f"> {COMMAND}\n\n```\n{sweep()}```\n"))
    assert (again.id, again.is_new, again.edit_key) == (first.id, False, None)
    known = preview(context, None, submission())
    assert known.duplicate_of == first.id
    assert f"these rows are already known: result {first.id}" in list(preview_lines(known))
    assert not any("kept apart" in line for line in preview_lines(known))
    assert n_results(context.engine) == 1


def test_an_idempotency_key_is_one_result_and_of_its_sender_only(context: Context, caller: Caller) -> None:
    first = submit(context, caller, submission(), "key-1")
    assert submit(context, caller, submission(), "key-1").id == first.id
    with pytest.raises(IdempotencyKeyReused):
        submit(context, caller, submission(text=f"$ {COMMAND}\n\n{sweep(tg=240.0)}"), "key-1")
    other = submit(context, None, submission(text=f"$ {COMMAND}\n\n{sweep(tg=240.0)}"), "key-1")
    assert other.id != first.id


def test_an_idempotency_key_sent_again_with_the_same_rows_and_another_remark_is_refused(
    context: Context, caller: Caller
) -> None:
    first = submit(context, caller, submission(remarks="fan at full speed"), "key-1")
    with pytest.raises(IdempotencyKeyReused):
        submit(context, caller, submission(remarks="two DIMMs"), "key-1")
    correct(context, caller, None, first.id, Correction(hardware="RTX 3090, Ryzen 9 7950X, 64GB DDR5-5600"))
    assert submit(context, caller, submission(remarks="fan at full speed"), "key-1").id == first.id


def test_a_repo_never_read_here_is_counted_before_it_is_read(context: Context) -> None:
    def refuse() -> None:
        raise NotAllowed("too many")

    with pytest.raises(NotAllowed):
        preview(context, None, submission(), refuse)


# --- what is not kept -------------------------------------------------------------------------------------------------

SECRETS = {
    "hf_" + "Zq1" * 12: "HF_TOKEN={}",
    "sk-" + "q9w8" * 6: "--api-key {}",
    "swordfish": "--password {}",
    "margarethe": "margarethe@rig7:~$ ",
    "rig7": "",
    "10.20.30.40": "--host {}",
    "GPU-12345678-1234-1234-1234-123456789abc": "",
    "ann@example.org": "",
    "/home/margarethe/private-project": "",
}


def test_planted_secrets_are_in_no_table_log_or_answer(
    context: Context, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    secrets = list(SECRETS)
    paste = (
        f"margarethe@rig7:~$ HF_TOKEN={secrets[0]} {COMMAND.replace('/models', '/home/margarethe/private-project')}"
        f" --api-key {secrets[1]} --host 10.20.30.40\n\n"
        f"GPU 0: NVIDIA GeForce RTX 3090 (UUID: {secrets[6]})\n"
        f"loading /home/margarethe/private-project/x.gguf from http://user:swordfish@10.20.30.40:9000/x\n{sweep()}"
    )
    sent = submission(text=paste, remarks="ask ann@example.org, or margarethe@rig7, key " + secrets[1])
    with caplog.at_level("DEBUG"):
        answers = str((preview(context, None, sent), submit(context, None, sent, "idem")))
    with context.engine.connect() as connection:
        stored = [str(row) for one in metadata.sorted_tables for row in connection.execute(select(one)).all()]
    row = kept_log(context)
    queued = str([context.redis.dump(key) for key in context.redis.scan_iter("*")])
    everything = {"answers": answers, "rows": str(stored), "log": row, "queue": queued, "logged": caplog.text}
    everything |= dict(zip(("stdout", "stderr"), capfd.readouterr(), strict=True))
    for secret in secrets:
        for where, text in everything.items():
            assert secret not in text, (secret, where)


def kept_log(context: Context) -> str:
    with context.engine.connect() as connection:
        (result_id,) = connection.scalars(select(table.c.id))
    log = results.read_log(context.engine, result_id)
    assert "N_KV" in log
    return log


# --- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_fifty_at_once_lose_nothing_and_double_nothing(context: Context) -> None:
    """25 different runs, each sent twice at the same moment: with and without a key, once more with the same key."""
    submit(context, None, submission())  # the header is read
    start = threading.Barrier(50)

    def send(number: int) -> str:
        mine = submission(text=f"$ {COMMAND}\n\n{sweep(tg=200.0 + number // 2)}")
        start.wait()
        key = f"key-{number // 2}" if number % 4 else None
        return submit(context, None, mine, key).id

    with ThreadPoolExecutor(50) as pool:
        ids = list(pool.map(send, range(50)))
    assert all(one == other for one, other in zip(ids[::2], ids[1::2], strict=True))
    assert len(set(ids)) == 25
    assert n_results(context.engine) == 26
    assert [send_again(context, number) for number in (1, 2, 3)] == [ids[1], ids[2], ids[3]]


def send_again(context: Context, number: int) -> str:
    mine = submission(text=f"$ {COMMAND}\n\n{sweep(tg=200.0 + number // 2)}")
    return submit(context, None, mine, f"key-{number // 2}").id


def test_what_is_sent_is_kept_and_held_against_others_at_once_or_not_at_all(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(submissions, "settle_in", killed)
        with pytest.raises(SystemExit):
            submit(context, None, submission())
    assert n_results(context.engine) == 0
    assert submit(context, None, submission()).is_new


def test_who_lost_the_answer_asks_again_with_the_same_key_and_gets_the_edit_key_again(context: Context) -> None:
    key = f"10.0.0.1 {'k' * 22}"
    first = submit(context, None, submission(), key)
    again = submit(context, None, submission(), key)
    assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
    assert first.edit_key == again.edit_key is not None
    assert submit(context, None, submission(), f"10.0.0.2 {'k' * 22}").edit_key is None
    assert submit(context, None, submission()).edit_key is None


def test_who_asks_again_while_the_first_try_is_still_being_kept_gets_the_edit_key_too(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"10.0.0.1 {'k' * 22}"
    first = submit(context, None, submission(), key)
    monkeypatch.setattr(submissions, "_known", lambda *_: None)  # as it was when the second one looked
    again = submit(context, None, submission(), key)
    assert (again.id, again.is_new) == (first.id, False)
    assert again.edit_key == first.edit_key is not None
    assert submit(context, None, submission(), f"10.0.0.2 {'k' * 22}").edit_key is None


def test_a_key_that_can_be_guessed_gives_the_edit_key_once(context: Context, caller: Caller) -> None:
    assert submit(context, None, submission(), "10.0.0.1 1").edit_key
    assert submit(context, None, submission(), "10.0.0.1 1").edit_key is None
    other = submission(text=f"$ {COMMAND}\n\n{sweep(tg=240.0)}")
    assert submit(context, caller, other, "k" * 22).edit_key is None
    assert submit(context, caller, other, "k" * 22).edit_key is None
