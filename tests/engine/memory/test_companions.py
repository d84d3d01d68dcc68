"""What runs alongside a model. Measured, in MiB: both engines' servers, built with CUDA, on stand-in devices."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.commands.companions import projector_of
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.gguf.header import Header
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.memory.companions import Companion, projector
from service.engine.memory.encoder import Images
from service.engine.model import Model
from service.engine.rules.all_rules import findings
from service.engine.rules.case import Case, case_of
from service.engine.rules.companion_headers import CompanionHeaders
from service.engine.units import MIB, mib
from tests.bare_runs import memory_on
from tests.models import build
from tests.projectors import encoder_header, gemma3_header

QWEN = build("Qwen3-32B", "q4_K_M")
DRAFT = build("Qwen3-0.6B", "q8_0")
DRAFT_8B = build("Qwen3-8B", "q2_K")
HYBRID = build("Qwen3.5-27B", "q4_K_M")
GLM = build("GLM-4.5-Air", "q4_K_M")
SERVER = "llama-server -fit off -c 16384 -ngl 99 -fa on"


def case(flags: str, n_gpus: int = 2, *, engine: Engine = "llama.cpp", model: object = QWEN, **headers: object) -> Case:
    rig = Hardware(
        gpus=[Gpu(name="RTX 3090", count=n_gpus, free_gib=24105 / 1024)], cpu=Cpu(model="EPYC 7713"),
        ram=Ram(total_gb=512),
    )  # fmt: skip
    command = f"{SERVER} {flags}"
    return case_of(parse(command, engine), model, resolve(rig), command, "cuda", CompanionHeaders(**headers))  # type: ignore[arg-type]


def in_mib(sizes: tuple[int, ...]) -> list[float]:
    return [mib(n) for n in sizes]


def only(companions: tuple[Companion, ...]) -> Companion:
    (one,) = companions
    return one


LLAMA_DRAFT, IK_DRAFT = "-np 1 -md draft.gguf --spec-type draft-simple", "--no-mmap -md draft.gguf --spec-type draft"


@pytest.mark.parametrize(
    ("engine", "flags", "weights", "kv", "compute"),
    [("llama.cpp", LLAMA_DRAFT, [239.19, 364.95, 157.65], [960, 832, 0], [96.04, 96.04, 74.05]),
     ("llama.cpp", f"{LLAMA_DRAFT} -ctkd q8_0 -ctvd q8_0 -devd CUDA1",
      [0, 604.15, 157.65], [0, 952, 0], [0, 92.09, 20.09]),
     ("ik_llama.cpp", IK_DRAFT, [271.09, 333.06, 157.65], [1088, 704, 0], [32, 300.75, 18.01]),
     ("ik_llama.cpp", f"{IK_DRAFT} -ctk q8_0 -ctv q8_0 -ngld 10",
      [79.73, 79.73, 602.33], [170, 170, 612], [458.4, 32, 28.01])],
)  # fmt: skip
def test_a_draft_model_takes_what_the_server_prints_for_it(
    engine: Engine, flags: str, weights: list[float], kv: list[float], compute: list[float]
) -> None:
    draft = only(case(flags, engine=engine, draft=DRAFT).companions)
    assert in_mib(draft.weights) == weights
    assert in_mib(draft.kv) == kv
    for estimate, measured in zip(draft.compute, compute, strict=True):
        assert estimate.low / MIB <= measured <= estimate.high / MIB


LLAMA_MTP, IK_MTP = "-np 1 --spec-type draft-mtp", "--spec-type mtp:n_max=1"


@pytest.mark.parametrize(
    ("engine", "flags", "n_gpus", "kv", "compute"),
    [("llama.cpp", LLAMA_MTP, 4, [0, 0, 0, 64, 0], [0, 0, 0, 340.04, 104.05]),
     ("llama.cpp", f"{LLAMA_MTP} -ot exps=CPU -ctkd q8_0", 2, [0, 49, 0], [1152.25, 112.07, 32.07]),
     ("ik_llama.cpp", IK_MTP, 4, [0, 0, 0, 64, 0], [0, 0, 0, 304, 32.01]),
     ("ik_llama.cpp", f"{IK_MTP} -ot exps=CPU", 2, [0, 64, 0], [886.25, 304, 32.01])],
)  # fmt: skip
def test_next_token_layers_have_a_context_of_their_own(
    engine: Engine, flags: str, n_gpus: int, kv: list[float], compute: list[float]
) -> None:
    tail = only(case(flags, n_gpus, engine=engine, model=GLM).companions)
    assert in_mib(tail.kv) == kv
    for estimate, measured in zip(tail.compute, compute, strict=True):
        assert estimate.low / MIB <= measured <= estimate.high / MIB


def test_the_weights_of_next_token_layers_are_the_model_s_once_they_are_loaded() -> None:
    ik = case(IK_MTP, 4, engine="ik_llama.cpp", model=GLM).memory
    assert in_mib(tuple(d.weights for d in ik.devices)) == [16124.37, 16517.54, 17775.41, 15928.62, 333]
    assert in_mib(tuple(d.kv for d in ik.devices)) == [768, 768, 832, 640, 0]
    with_layers = case("-np 1 --spec-type draft-mtp", 4, model=GLM)
    assert in_mib(tuple(d.weights for d in with_layers.memory.devices)) == [16124.37, 16517.54, 16517.54, 17186.49, 333]
    without = case("-np 1", 4, model=GLM)
    assert sum(d.weights for d in without.memory.devices) < sum(d.weights for d in with_layers.memory.devices)


def test_ik_keeps_a_cache_of_the_next_token_layers_in_both_contexts() -> None:
    flags = "--spec-type mtp:n_max=1"
    drafting = case(flags, engine="ik_llama.cpp", model=GLM)
    plain = case("", engine="ik_llama.cpp", model=GLM)
    one_layer = sum(only(drafting.companions).kv)
    assert one_layer == 64 * MIB
    kv = [sum(d.kv for d in memory.devices) for memory in (drafting.memory, plain.memory)]
    assert kv[0] - kv[1] == one_layer


# ik_llama.cpp issue 732: "-cd 1024 […] only uses around 1.5G"; llama.cpp removed it with pull 22838 (b9109)
@pytest.mark.parametrize(("build_of_day", "slots", "tokens"), [("2025-09-01", 1, 1024), ("2025-09-01", 2, 2048),
                                                               ("2026-05-12", 1, 16384), (None, 1, 16384)])  # fmt: skip
def test_a_draft_has_the_context_that_older_builds_were_told(build_of_day: str | None, slots: int, tokens: int) -> None:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 3090", count=2)], ram=Ram(total_gb=64)))
    text = f"llama-server -m a.gguf -c 16384 -ngl 99 -fa -np {slots} -md draft.gguf -cd 1024"
    parsed = parse(text, "llama.cpp", build=build_of_day)
    asked = case_of(parsed, QWEN, rig, text, "cuda", CompanionHeaders(draft=DRAFT))
    (draft,) = asked.companions
    assert sum(draft.kv) == tokens * 28 * 2 * 8 * 128 * 2  # layers, K and V, heads, values, bytes
    told = [f.message for f in findings(asked) if f.rule in ("retired-flag", "option-of-another-time", "unknown-flag")]
    assert any("-cd" in message for message in told) is (tokens == 16384)


def draft_of_build(text: str, engine: Engine, day: str | None) -> Companion:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 3090", count=2)], ram=Ram(total_gb=64)))
    command = f"llama-server -m a.gguf -c 16384 -ngl 99 {text}"
    parsed = parse(command, engine, build=day)
    return only(case_of(parsed, QWEN, rig, command, "cuda", CompanionHeaders(draft=DRAFT)).companions)


# ik_llama.cpp cc73811dd examples/server/server.cpp:1254, pull 2178 (f359df4bc), common/speculative.cpp:1958
@pytest.mark.parametrize(
    ("day", "more", "tokens"),
    [
        ("2025-08-26", "-fa -md d.gguf -cd 1024", 1024),
        ("2025-08-26", "-fa -md d.gguf", 16384),
        ("2026-07-23", "--spec-type draft -md d.gguf -cd 1024", 1024),
        ("2026-07-24", "--spec-type draft -md d.gguf -cd 1024", 16384),
        (None, "--spec-type draft -md d.gguf -draft '-c 2048'", 2048),
        (None, "--spec-type draft -draft '--model d.gguf -c 2048'", 2048),
    ],
)
def test_a_draft_of_ik_llama_cpp_has_the_context_that_its_build_heeds(day: str | None, more: str, tokens: int) -> None:
    assert sum(draft_of_build(more, "ik_llama.cpp", day).kv) == tokens * 28 * 2 * 8 * 128 * 2


def test_a_draft_takes_cache_types_in_quotes() -> None:
    plain, small = (
        draft_of_build(f"--spec-type draft -md d.gguf -draft '{words}'", "ik_llama.cpp", None)
        for words in ("-c 2048", "-c 2048 -ctk q8_0")
    )
    assert sum(small.kv) == pytest.approx(sum(plain.kv) * (1 + 34 / 64) / 2, rel=1e-3)  # rows are padded


def test_a_draft_has_the_settings_of_the_model_in_newer_builds_of_ik_llama_cpp_only() -> None:
    older, newer = (
        draft_of_build("--spec-type draft -md d.gguf -ub 2048 -b 2048 -ngld 99", "ik_llama.cpp", day)
        for day in ("2026-07-23", "2026-07-24")
    )
    assert max(one.expected for one in older.compute) < max(one.expected for one in newer.compute) / 2


# llama.cpp pulls 17017 and 22838
def test_each_slot_of_an_older_build_has_a_context_of_the_draft_model() -> None:
    one, four = (draft_of_build(f"-fa on -md d.gguf -cd 4096 -np {n}", "llama.cpp", "2025-10-01") for n in (1, 4))
    assert four.weights == one.weights
    assert four.kv == tuple(4 * n for n in one.kv)
    assert [c.expected for c in four.compute] == [4 * c.expected for c in one.compute]
    shared, alone = (draft_of_build(f"-fa on -md d.gguf -np {n}", "llama.cpp", "2025-10-01") for n in (4, 1))
    assert sum(shared.kv) == sum(alone.kv)


def test_a_recurrent_state_is_kept_once_for_every_token_that_may_be_taken_back() -> None:
    model, flags = build("Qwen3-Next-80B-A3B", "q4_K_M"), "llama-server -c 4096 -fit off -np 1 --spec-type draft-eagle3"
    kept = [
        memory_on("llama.cpp", model, parse(f"{flags} {more}", "llama.cpp").flags, [24 << 30] * 4)
        for more in ("", "--spec-draft-n-max 7")
    ]
    plain = memory_on(
        "llama.cpp", model, parse("llama-server -c 4096 -fit off -np 1", "llama.cpp").flags, [24 << 30] * 4
    )
    sizes = [sum(d.kv for d in memory.devices) for memory in (plain, *kept)]
    state = (sizes[1] - sizes[0]) / 3
    assert sizes[2] == sizes[0] + 7 * state


def test_a_projector_is_on_the_first_gpu_with_a_range_for_its_encoder() -> None:
    one = only(case("--mmproj mmproj.gguf", projector=gemma3_header()).companions)
    assert in_mib(one.weights)[0] == pytest.approx(814, abs=2)
    assert one.weights[1:] == (0, 0)
    assert 0 < one.compute[0].low < one.compute[0].expected < one.compute[0].high
    off = only(case("--mmproj mmproj.gguf --no-mmproj-offload", projector=gemma3_header()).companions)
    assert off.weights[:2] == (0, 0)


def test_a_projector_is_where_the_variable_of_both_engines_says() -> None:
    for engine in ("llama.cpp", "ik_llama.cpp"):
        text = "MTMD_BACKEND_DEVICE=CUDA1 llama-server -m a.gguf --mmproj p.gguf"
        found = projector_of(parse(text, engine))
        assert found is not None
        assert found.device == "CUDA1"
    tokens = projector_of(parse("LLAMA_ARG_IMAGE_MAX_TOKENS=512 llama-server -m a.gguf -mm p.gguf", "llama.cpp"))
    assert tokens is not None
    assert tokens.image_tokens == 512


# lucasew/nixcfg pull 485: "llama-server auto-fetches the 0.63 GB mmproj from the same HF repo. After 262k KV and
# ngl 99 the 12 GB 3060 cannot cudaMalloc the 600 MiB CLIP buffer"
@pytest.mark.parametrize(
    ("flags", "engine", "counts"),
    [("-hf a/b", "llama.cpp", True), ("-hf a/b:Q4_K_M --no-mmproj-offload", "llama.cpp", True),
     ("-hf a/b --no-mmproj", "llama.cpp", False), ("-hf a/b --no-mmproj-auto", "llama.cpp", False),
     ("-m b.gguf", "llama.cpp", False), ("-hf a/b", "ik_llama.cpp", False)],
)  # fmt: skip
def test_the_projector_that_hf_loads_by_itself_is_counted(flags: str, engine: Engine, counts: bool) -> None:
    assert bool(case(flags, engine=engine, projector=gemma3_header()).companions) is counts


def test_builds_from_before_the_server_had_projectors_load_none_by_themselves() -> None:
    for build_of_day, loads in (("2025-05-08", False), ("2025-05-09", True)):
        parsed = parse("llama-server -hf a/b", "llama.cpp", build=build_of_day)
        assert (projector_of(parsed) is not None) is loads
    assert projector_of(parse("llama-bench -hf a/b", "llama.cpp")) is None


# llama.cpp pull 21489, merged on 2026-05-20
def test_fit_leaves_room_for_the_projector_since_it_does() -> None:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 4060 Ti 16GB")], ram=Ram(total_gb=64)))
    model, headers = build("Gemma-3-27B", "q4_K_M"), CompanionHeaders(projector=gemma3_header())
    layers = []
    for day in ("2026-05-19", "2026-05-20"):
        parsed = parse("llama-server -hf a/b -c 8192", "llama.cpp", build=day)
        layers.append(case_of(parsed, model, rig, "", "cuda", headers).flags.n_gpu_layers)
    assert layers[0] > layers[1]


# llama.cpp pull 23485, in b9305 (issue 23872)
@pytest.mark.parametrize(
    ("model", "more", "draft"),
    [
        (QWEN, "-c 32768 -md d.gguf --spec-type draft-simple", DRAFT_8B),
        (HYBRID, "-c 98304 --spec-type draft-mtp", None),
    ],
)
def test_fit_leaves_room_for_what_drafts_since_it_does(model: Model, more: str, draft: Model | None) -> None:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 3090")], ram=Ram(total_gb=64)))
    text = f"llama-server -m m.gguf -np 1 {more}"
    before, since = (
        case_of(parse(text, "llama.cpp", build=day), model, rig, text, "cuda", CompanionHeaders(draft=draft))
        for day in ("2026-05-24", "2026-05-25")
    )
    assert before.flags.n_gpu_layers > since.flags.n_gpu_layers
    assert before.table[0].free_mib < 1024 <= since.table[0].free_mib  # -fitt


USUAL = Images()


def encoder_mib(header: Header, images: Images = USUAL) -> tuple[float, float, float]:
    one = projector(header, 1, 0, images).compute[0]
    return one.low / MIB, one.expected / MIB, one.high / MIB


QWEN2_VL = encoder_header("qwen2vl_merger", 1280, 5120)
QWEN25_VL = encoder_header("qwen2.5vl_merger", 1280, 3420, gated=True)
QWEN35 = encoder_header("qwen3vl_merger", 1152, 4304, patch=16, n_text=5120)
QWEN35_4B = encoder_header("qwen3vl_merger", 1024, 4096, patch=16, n_text=2560)
QWEN3_VL = encoder_header("qwen3vl_merger", 1152, 4304, patch=16, n_text=2560, deepstack=3)
SMALL_32 = encoder_header("pixtral", 1024, 4096, image=1540, n_text=5120, gated=True)


# "[mtmd] adding N MiB to fit_params_target" and "compute buffer size" as posted: gpustack/gguf-parser-go issue 44
# (MI300X, -fa on and off), llama.cpp pull 22673 and issue 16842, ollama llm/llama_server_test.go (Qwen3.6-27B)
@pytest.mark.parametrize(
    ("header", "with_flash", "without"),
    [(QWEN2_VL, 267, 4598), (QWEN25_VL, 704.79, 4872), (QWEN3_VL, 323, 4728), (gemma3_header(), 121, 1132),
     (QWEN35, 248.10, None), (QWEN35_4B, 223.30, None), (SMALL_32, 62.62, None)],
)  # fmt: skip
def test_an_encoder_takes_what_the_engine_prints_for_it(
    header: Header, with_flash: float, without: float | None
) -> None:
    low, expected, high = encoder_mib(header)
    assert low <= with_flash <= high
    assert expected == pytest.approx(with_flash, rel=0.08)
    if without is not None:
        assert encoder_mib(header, Images("whole"))[1] == pytest.approx(without, rel=0.08)


# ik_llama.cpp issue 1348: for an image of 1 MB a server with a Qwen3.5-27B asked for 16,283.74 MiB; pull 1349 since
@pytest.mark.parametrize(("day", "least", "most"), [("2026-03-01", 16283, 20000), ("2026-03-02", 1024, 2000)])
def test_a_large_image_takes_what_an_ik_llama_cpp_server_allocated_for_it(day: str, least: int, most: int) -> None:
    rig = resolve(Hardware(gpus=[Gpu(name="RTX 3090")], ram=Ram(total_gb=64)))
    text = "llama-server -m a.gguf -c 8192 -ngl 99 --mmproj p.gguf"
    headers = CompanionHeaders(projector=QWEN35)
    asked = case_of(parse(text, "ik_llama.cpp", build=day), HYBRID, rig, text, "cuda", headers)
    assert least < only(asked.companions).compute[0].high / MIB < most


def test_an_image_has_no_more_tokens_than_the_command_allows() -> None:
    free, bound = (encoder_mib(QWEN35, Images(asked=asked)) for asked in (None, 1024))
    assert free[2] == pytest.approx(1.1 * 4096 / 46**2 * free[1], rel=0.01)
    assert bound[1] == pytest.approx(1024 / 46**2 * free[1], rel=0.01)  # it warms up with no larger one
    told = only(case("--mmproj p.gguf --image-max-tokens 1024", 1, projector=QWEN35).companions)
    assert told.compute[0].expected / MIB == bound[1]


def test_the_totals_count_what_runs_with_the_model() -> None:
    alone, both = case("-np 1"), case("-np 1 -md draft.gguf", draft=DRAFT)
    for before, after in zip(alone.table, both.table, strict=True):
        assert after.companions_mib > 0
        assert after.total_mib == pytest.approx(before.total_mib + after.companions_mib, abs=0.02)
        assert after.weights_mib == before.weights_mib
