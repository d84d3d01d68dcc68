"""Validations as people read them: measured next to predicted, failures in words, nothing wider than a terminal."""

from __future__ import annotations

from msgspec.structs import replace

from service.engine.advice import SpeedPoint
from service.engine.check.report import Compared
from service.engine.logs.read import LogBuffers
from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import RunFlags
from service.wire.measuring.runs import DeviceUse, HostMatch, Run, RunOutcome, Validation
from service.wire.measuring.validation_text import headline, row_text, validation_lines
from service.wire.plain_text import WIDTH, as_markdown, as_text

ROWS = [
    MeasuredRow(n_kv=0, n_prompt=512, n_gen=128, pp_seconds=(1.25, 1.27), tg_seconds=(6.8, 6.9)),
    MeasuredRow(n_kv=4096, n_prompt=512, n_gen=128, pp_seconds=(1.4,), tg_seconds=(8.0,)),
]


def speed(what: str, n_kv: int, measured: float, expected: float) -> Compared:
    low, high = expected * 0.8, expected * 1.25
    verdict = "below" if measured < low else "above" if measured > high else "within"
    return Compared(
        what=what, device=None, n_kv=n_kv, measured=measured, expected=expected, low=low, high=high,
        verdict=verdict, text=f"{what} {n_kv}",  # type: ignore[arg-type]
    )  # fmt: skip


def buffer(measured: float) -> Compared:
    return Compared(
        what="compute", device="CUDA0", n_kv=None, measured=measured, expected=400.0, low=399.98, high=400.02,
        verdict="within" if measured == 400.0 else "above",
        text=f"compute of CUDA0: {measured:,.2f} MiB in the log, 400.00 computed",
    )  # fmt: skip


def point(n_kv: int, tg: float, pp: float) -> SpeedPoint:
    return SpeedPoint(
        n_kv=n_kv, pp_tps=pp, pp_low=pp, pp_high=pp, tg_tps=tg, tg_low=tg, tg_high=tg, basis="measured"
    )  # fmt: skip


OUTCOME = RunOutcome(
    speed=[point(0, 18.7, 407.0), point(4096, 16.0, 366.0)],
    spread=0.012,
    compared=[speed("tg", 0, 18.7, 18.0), speed("tg", 4096, 16.0, 24.0), speed("pp", 4096, 366.0, 350.0),
              buffer(400.0), buffer(412.5)],
    buffers=[LogBuffers(device="CUDA0", compute_mib=400.0)],
    graph_splits=2,
    devices=[DeviceUse(device="CUDA0", peak_mib=21_402, watts=231.4)],
    load_seconds=34.2,
    page_cache="warm",
    build="8337e4cd3",
    measured_at="2026-11-21T12:00:00Z",
    confirmed=True,
    tier="agent-run",
)  # fmt: skip
MEASURED = Run(
    id="r1", kind="config", config="c1", engine="ik_llama.cpp", variant="IQ4_KS_R4", flags=RunFlags(n_ctx=16384),
    state="succeeded", attempt=1, host="quiet-otter", match="exact", progress=None, rows=ROWS, outcome=OUTCOME,
)  # fmt: skip
FAILED = replace(
    MEASURED, id="r2", kind="baseline", config=None, state="failed", attempt=3, rows=[], outcome=None,
    dropped=["--jinja", "--port 8080"],
    failure=Failure(kind="out_of_memory", transient=False, text="does not fit", device="CUDA0", short_by_mib=812),
)  # fmt: skip
DONE = Validation(
    id="v1", advice="a1", mode="validate", state="done", runs=[MEASURED, FAILED], best="c1",
    hosts=[HostMatch(host="h1", pseudonym="quiet-otter", match="exact"),
           HostMatch(host="h2", pseudonym="slow-newt", match=None, missing=["it has no RTX 3090"])],
    refused=["Q8_0 with llama.cpp: its -ot pattern is outside the grammar"],
    created_at="2026-11-21T12:00:00Z", url="http://127.0.0.1:8000/v1/validations/v1",
)  # fmt: skip


def test_what_was_measured_stands_next_to_what_was_predicted() -> None:
    lines = as_text(validation_lines(DONE)).splitlines()
    assert " ".join(lines[:2]) == (
        "Measured fastest: IQ4_KS_R4 with ik_llama.cpp, TG 16.0 t/s at 4,096 tokens (predicted 24.0, 19.2 to   30.0)."
    )
    assert "    4,096      16.0  24.0 (19.2 to 30.0), below       366  350 (280 to 438)" in lines
    assert "memory: 1 of 2 printed figures as predicted" in lines
    assert "  compute of CUDA0: 412.50 MiB in the log, 400.00 computed" in lines


def test_circumstances_are_said() -> None:
    text = " ".join(as_text(validation_lines(DONE)).split())
    assert "build 8337e4cd3; repeats spread by 1.2 %; loaded in 34 s from a warm page cache" in text
    assert "CUDA0 21,402 MiB at most, 231 W; agent-run" in text


def test_a_failure_says_what_was_missing() -> None:
    lines = as_text(validation_lines(DONE)).splitlines()
    assert "  does not fit (needed 812 MiB more on CUDA0)" in lines
    assert "IQ4_KS_R4 with ik_llama.cpp (your command): failed after 3 attempts on quiet-otter, exact match" in lines
    assert any("left out" in line and "--jinja --port 8080" in line for line in lines)


def test_what_hosts_lack_is_said_where_none_can() -> None:
    nobody = replace(DONE, state="queued", runs=[replace(FAILED, state="queued", failure=None)], hosts=DONE.hosts[1:])
    text = as_text(validation_lines(nobody))
    assert text.startswith("0 of 1 runs have ended; no host can measure it.")
    assert "slow-newt cannot: it has no RTX 3090" in text
    assert "slow-newt" not in as_text(validation_lines(DONE))
    assert "slow-newt cannot" in as_text(validation_lines(DONE, "full"))


def test_a_run_in_progress_shows_its_rows() -> None:
    busy = replace(MEASURED, state="running", progress="measuring", outcome=None, rows=ROWS[:1])
    text = as_text(validation_lines(replace(DONE, state="running", runs=[busy], best=None)))
    assert text.startswith("0 of 1 runs have ended; IQ4_KS_R4 with ik_llama.cpp: measuring.")
    assert "        0      18.7" in text
    assert row_text(ROWS[1]) == "at 4,096 tokens: TG 16.0 t/s, PP 366 t/s"


def test_nothing_measured_is_said_with_the_reason() -> None:
    assert as_text(validation_lines(replace(DONE, best=None, runs=[FAILED]))).startswith(
        "Nothing was measured: does not"
    )


def test_foreign_text_does_nothing_but_be_read() -> None:
    assert FAILED.failure is not None
    hostile = replace(FAILED, failure=replace(FAILED.failure, text="\x1b[31m```@everyone" + "x" * 300))
    foreign = replace(DONE, best=None, runs=[hostile])
    text, markdown = as_text(validation_lines(foreign, "full")), as_markdown(validation_lines(foreign))
    assert "\x1b" not in text
    assert markdown.count("```") == 2
    for lines in (text, as_text(validation_lines(DONE)), as_text(validation_lines(DONE, "full"))):
        assert max(len(line) for line in lines.splitlines() if " " in line.strip()) <= WIDTH


def test_runs_that_a_cancellation_ended_are_not_said_to_have_ended_before() -> None:
    cancelled = replace(MEASURED, state="cancelled", outcome=None)
    assert headline(replace(DONE, state="cancelled", runs=[MEASURED, cancelled])) == "Cancelled: 1 of 2 runs had ended."
