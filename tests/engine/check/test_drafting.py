"""How a command drafts, and what is proposed where it means to and does not."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.check.run import check
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.hardware import Gpu, Hardware, Ram
from service.engine.model import Model
from service.engine.rules.all_rules import findings
from service.engine.rules.case import Case, case_of
from service.engine.rules.companion_headers import NO_COMPANIONS, CompanionHeaders
from tests.models import build
from tests.projectors import encoder_header

RIG = resolve(Hardware(gpus=[Gpu(name="RTX 5090")], ram=Ram(total_gb=64)))
MODEL, DRAFT = build("Qwen3-32B", "q4_K_M"), build("Qwen3-8B", "q2_K")
HYBRID = build("Qwen3.5-27B", "q4_K_M")
SERVER = "llama-server -m m.gguf -ngl 99 -c 16384 -np 1"


def drafting(words: str, engine: Engine, *, day: str | None = None, draft: Model | None = DRAFT) -> Case:
    command = f"{SERVER} -md q.gguf {words}"
    return case_of(parse(command, engine, build=day), MODEL, RIG, command, "cuda", CompanionHeaders(draft=draft))


def corrected(words: str, engine: Engine, model: Model = HYBRID) -> str:
    headers = CompanionHeaders(draft=DRAFT) if "-md" in words else NO_COMPANIONS
    fixed = check(f"{SERVER} {words}", engine, model, RIG, companion_headers=headers).fixed
    assert fixed is not None
    return fixed.replace("\\\n ", "")


def is_unused(case: Case) -> bool:
    return "draft-unused" in {one.rule for one in findings(case)}


# llama.cpp pull 23988, issue 25345; ik_llama.cpp pull 1908 (007d64009)
@pytest.mark.parametrize(
    ("engine", "last", "first", "kind"),
    [("llama.cpp", "2026-06-01", "2026-06-02", "draft-simple"), ("ik_llama.cpp", "2026-06-03", "2026-06-04", "draft")],
)
def test_a_draft_model_alone_drafts_in_older_builds_only(engine: Engine, last: str, first: str, kind: str) -> None:
    assert not is_unused(drafting("", engine, day=last))
    assert is_unused(drafting("", engine, day=first))
    assert is_unused(drafting("--spec-type ngram-mod", engine))
    assert not is_unused(drafting(f"--spec-type {kind}", engine))


def test_a_draft_model_that_is_not_used_is_loaded_by_one_engine_only() -> None:
    assert [one.kind for one in drafting("", "llama.cpp").companions] == ["draft"]
    assert drafting("", "ik_llama.cpp").companions == ()
    assert [one.kind for one in drafting("--spec-type draft", "ik_llama.cpp").companions] == ["draft"]


# llama.cpp common/speculative.cpp:2270
def test_a_draft_model_of_a_kind_of_its_own_needs_no_kind() -> None:
    next_tokens = build("GLM-4.5-Air", "q4_K_M")
    assert not is_unused(drafting("", "llama.cpp", draft=next_tokens))
    assert is_unused(drafting("", "ik_llama.cpp", draft=next_tokens))


@pytest.mark.parametrize(
    ("engine", "words", "right"),
    [
        ("llama.cpp", "-md q.gguf --draft-max 16", "-md q.gguf --spec-draft-n-max 16 --spec-type draft-simple"),
        ("llama.cpp", "-md q.gguf --spec-type draft", "-md q.gguf --spec-type draft-simple"),
        ("llama.cpp", "-md q.gguf --spec-type draft-simple --draft-n-max 5",
         "-md q.gguf --spec-type draft-simple --spec-draft-n-max 5"),
        ("llama.cpp", "-mtp", "--spec-type draft-mtp"),
        ("llama.cpp", "--spec-type mtp:n_max=2,p_min=0.5",
         "--spec-type draft-mtp --spec-draft-n-max 2 --spec-draft-p-min 0.5"),
        ("ik_llama.cpp", "-md q.gguf --draft-max 16 --draft-min 1", "-md q.gguf --spec-type draft:n_max=16,n_min=1"),
        ("ik_llama.cpp", "-mtp --draft-max 2 --draft-p-min 0.5", "--spec-type mtp:n_max=2,p_min=0.5"),
        ("ik_llama.cpp", "--spec-type draft-mtp --draft-max 3", "--spec-type mtp:n_max=3"),
        ("ik_llama.cpp", "--spec-type ngram-mod --spec-ngram-size-n 8", "--spec-type ngram-mod:ngram_size_n=8"),
        ("ik_llama.cpp", "--spec-stage mtp:n_max=1", "--spec-type mtp:n_max=1"),
        ("ik_llama.cpp", "--draft-max 16", ""),
    ],
)  # fmt: skip
def test_what_drafts_is_put_in_todays_words(engine: Engine, words: str, right: str) -> None:
    model = MODEL if "-md" in words else HYBRID
    assert corrected(words, engine, model).split() == f"{SERVER} {right}".split()


# ik_llama.cpp common/speculative.cpp:2083
def test_next_token_layers_with_several_slots_are_left_out_and_the_server_starts() -> None:
    one, four = (check(f"{SERVER} {words}", "ik_llama.cpp", HYBRID, RIG) for words in (
        "--spec-type mtp:n_max=1", "--spec-type mtp:n_max=1 -np 4"))  # fmt: skip
    assert four.verdict.startswith("Fits")
    told = {finding.rule: finding for finding in four.findings}
    assert told["speculation-with-slots"].severity == "warning"
    assert told["speculation-with-slots"].fix == "-np 1"
    assert "speed-without-draft" not in told
    assert one.memory.companions
    assert not four.memory.companions


# ik_llama.cpp examples/server/server-context.cpp:251
@pytest.mark.parametrize(("words", "refused"), [("-md q.gguf --spec-type draft", True), ("-md q.gguf", False),
                                                ("--spec-type mtp", False)])  # fmt: skip
def test_a_draft_model_beside_a_projector_is_refused(words: str, refused: bool) -> None:
    headers = CompanionHeaders(draft=DRAFT, projector=encoder_header("qwen3vl_merger", 1152, 4304))
    report = check(f"{SERVER} --mmproj p.gguf {words}", "ik_llama.cpp", HYBRID, RIG, companion_headers=headers)
    assert ("draft-with-projector" in {finding.rule for finding in report.findings}) is refused
    assert report.verdict.startswith("Does not start") is refused


def test_a_draft_model_of_koboldcpp_drafts() -> None:
    text = "python koboldcpp.py --model m.gguf --draftmodel q.gguf --gpulayers 99 --usecublas"
    report = check(text, None, MODEL, RIG, companion_headers=CompanionHeaders(draft=DRAFT))
    assert "draft-unused" not in {finding.rule for finding in report.findings}
    assert report.memory.companions


def rules_found(command: str, headers: CompanionHeaders = NO_COMPANIONS, day: str | None = None) -> set[str]:
    report = check(f"{command} --no-mmproj", "llama.cpp", MODEL, RIG, build=day, companion_headers=headers)
    return {one.rule for one in report.findings}


def test_next_token_layers_may_lie_in_another_file_of_the_repo() -> None:
    """Gemma 4's do: `-hf unsloth/gemma-4-26b-a4b-it-GGUF:UD-Q4_K_XL --spec-type draft-mtp` ran in September 2026."""
    found = rules_found("llama-server -hf a/b -c 8192 --spec-type draft-mtp")
    assert "no-next-token-layers" not in found
    assert "not-counted" in found


@pytest.mark.parametrize(
    ("command", "headers", "day"),
    [
        ("llama-server -m m.gguf -c 8192 --spec-type draft-mtp", NO_COMPANIONS, None),
        ("llama-server -hf a/b -c 8192 --spec-type draft-mtp", CompanionHeaders(head_in_repo=False), None),
        ("llama-server -hf a/b -c 8192 --spec-type draft-mtp", NO_COMPANIONS, "2026-06-01"),
    ],
    ids=["a file alone", "a repo without them", "a build that does not look for them"],
)
def test_next_token_layers_that_are_nowhere_stop_the_engine(
    command: str, headers: CompanionHeaders, day: str | None
) -> None:
    assert "no-next-token-layers" in rules_found(command, headers, day)
