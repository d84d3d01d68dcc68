"""What is added to an advice by how its variants were read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.engine.advise import advise
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.errors import InvalidInput
from service.engine.gguf.header import Header
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware import Hardware
from service.engine.hardware_text import parse_hardware
from service.engine.rules.case import Case, case_of
from service.engine.rules.companion_headers import CompanionHeaders
from service.engine.run.settings import option_value
from service.engine.units import MIB
from service.flows.advice.reading import Models
from service.hub.listing import OtherFile
from tests import rigs
from tests.engine.planner.asking import variant
from tests.projectors import encoder_header, gemma3_header


def test_every_config_of_a_gated_repo_says_so_first() -> None:
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {}, gated=True)
    body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints())
    assert body.configs
    assert all("gated" in config.notes[0] for config in body.configs)


def test_a_repo_with_a_projector_says_that_it_is_not_counted_and_what_it_takes() -> None:
    """Of 24,576 MiB a Qwen3.8-27B took 23,392, and its projector 887 more (joryirving/home-ops pull 9075)."""
    projector = OtherFile("mmproj-F16.gguf", "mmproj", 887 * MIB)
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {}, projector=projector)
    for hardware, where in ((rigs.ONE_3090_DESKTOP, "CUDA0"), (parse_hardware("no GPU, 64GB"), "RAM")):
        body = models.advised(advise, hardware, GoalRequest(), Constraints())
        said = (
            f"(--images), which adds the projector mmproj-F16.gguf and counts it: 887 MiB of {where}, and its buffers"
        )
        assert all(said in config.notes[-1] for config in body.configs)


def with_images(model: str, mix: str, header: Header) -> Models:
    one = variant(model, mix)
    files = replace(one.files, projector="mmproj-F16.gguf")
    return Models((replace(one, files=files, projector=header),), {}, projector=OtherFile("mmproj-F16.gguf", "mmproj"))


@pytest.mark.parametrize("hardware", ["RTX 3060 12GB, 64GB", "RTX 5090 + RTX 3060 12GB, 64GB", "no GPU, 64GB"])
def test_an_advice_for_images_loads_the_projector_and_leaves_room_for_the_largest_image(hardware: str) -> None:
    models, machine = with_images("Gemma-3-27B", "q4_K_M", gemma3_header()), parse_hardware(hardware)
    body = models.advised(advise, machine, GoalRequest(), Constraints(images=True))
    assert {config.engine for config in body.configs} == {"llama.cpp", "ik_llama.cpp"}
    for config in body.configs:
        path = "models/someone/Gemma-3-27B-GGUF/mmproj-F16.gguf"
        assert f"--mmproj {path}" in config.commands.server
        assert "mmproj" not in config.commands.bench
        assert " mmproj-F16.gguf " in config.commands.download
        assert not any("this is for text" in note for note in config.notes)
        case = checked(models, machine, config.engine, config.commands.server)
        assert case.all_fits
        assert [row.companions_mib for row in case.table] == [row.companions_mib for row in config.devices]
        assert config.devices[0].companions_mib > 814
        assert config.devices[0].reserve_mib <= 512


def checked(models: Models, machine: Hardware, engine: Engine, command: str) -> Case:
    headers = CompanionHeaders(projector=models.variants[0].projector)
    return case_of(parse(command, engine), models.variants[0].model, resolve(machine), command, "cuda", headers)


# without flash attention the encoder holds the scores of an image's patches: 14 GiB for one of 4,096 tokens
@pytest.mark.parametrize("kept", ["-fa off", "--image-max-tokens 1024", "-fa off --image-max-tokens 256"])
def test_what_is_kept_of_images_counts_as_it_does_in_the_check(kept: str) -> None:
    machine = parse_hardware("GTX 1660 6GB, 16GB")
    models = with_images("Qwen3-4B", "q4_K_M", encoder_header("qwen3vl_merger", 1152, 4304, patch=16))
    body = models.advised(advise, machine, GoalRequest(), Constraints(images=True, keep_flags=[kept]))
    assert body.configs
    for config in body.configs:
        case = checked(models, machine, config.engine, config.commands.server)
        assert case.all_fits
        assert [row.companions_mib for row in case.table] == [row.companions_mib for row in config.devices]


def test_an_advice_for_images_says_where_one_fills_the_context_of_a_request() -> None:
    models = with_images("Qwen3-4B", "q8_0", encoder_header("qwen3vl_merger", 1152, 4304, patch=16))
    for kept, is_told in ((None, True), (["--image-max-tokens 2048"], False)):
        constraints = Constraints(images=True, keep_flags=kept)
        body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(context=4096), constraints)
        told = [note for note in body.configs[0].notes if "a large image has 4,096 tokens" in note]
        assert bool(told) is is_told
        assert all("--image-max-tokens 2048" in note for note in told)


@pytest.mark.parametrize("kept", ["--no-mmproj-offload", "--no-mmproj", "-mmdev CUDA0"])
def test_a_projector_elsewhere_than_it_is_counted_is_refused(kept: str) -> None:
    models = with_images("Gemma-3-12B", "q4_K_M", gemma3_header())
    with pytest.raises(InvalidInput, match="first card"):
        models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints(images=True, keep_flags=[kept]))


def test_the_projector_of_the_command_in_use_is_counted_and_is_no_difference() -> None:
    models = with_images("Gemma-3-12B", "q4_K_M", gemma3_header())
    command = "llama-server -m m.gguf -ngl 99 -np 1 -fit off -c {} --mmproj mmproj-F16.gguf"
    machine = parse_hardware("RTX 3060 12GB, 32GB")
    small = Constraints(images=True, current_command=command.format(8192))
    first = models.advised(advise, machine, GoalRequest(), small).configs[0]
    assert first.versus_mine is not None
    assert not any("mmproj" in change.change for change in first.versus_mine.changes)
    large = Constraints(images=True, current_command=command.format(70_000))
    mine = models.advised(advise, machine, GoalRequest(context=16384), large).mine
    assert mine is not None
    assert mine.rank is None


def test_the_room_of_a_projector_in_ram_is_taken_once_from_what_a_server_may_keep() -> None:
    machine, unused = parse_hardware("no GPU, 16GB"), []
    models = with_images("Qwen3-4B", "q8_0", encoder_header("qwen3vl_merger", 1152, 4304, patch=16))
    for one in (Models(tuple(replace(v, projector=None) for v in models.variants), {}), models):
        config = one.advised(advise, machine, GoalRequest(), Constraints()).configs[0]
        kept = option_value(parse(config.commands.server, config.engine).flags.other, ("-cram",))
        assert kept is not None
        unused.append(config.devices[-1].capacity_mib - config.devices[-1].total_high_mib - int(kept))
    assert unused[1] <= unused[0]


def test_a_proposal_to_draft_counts_the_projector_too() -> None:
    machine = parse_hardware("RTX 4090, 64GB")
    models = with_images("Qwen3.5-27B", "q4_K_M", encoder_header("qwen3vl_merger", 1152, 4304, patch=16))
    body = models.advised(advise, machine, GoalRequest(), Constraints(images=True))
    (found,) = body.configs[0].proposals
    case = checked(models, machine, body.configs[0].engine, found.server)
    assert case.all_fits
    assert [row.total_high_mib for row in case.table] == [row.total_high_mib for row in found.devices]


@pytest.mark.parametrize(
    ("hardware", "model", "kind"),
    [("no GPU, 64GB", "Qwen3-30B-A3B", "gemma4uv"), ("RTX 3060 12GB, 64GB", "Gemma-3-27B", "gemma4v")],
)
def test_an_engine_or_micro_batch_that_images_need_is_not_told_as_asked_for(
    hardware: str, model: str, kind: str
) -> None:
    """ik_llama.cpp would be faster, but has no code for this projector; so would -ub 512, which cuts its images."""
    models = with_images(model, "q4_K_M", encoder_header(kind, 1152, 4304, patch=16, merge=3))
    body = models.advised(advise, parse_hardware(hardware), GoalRequest(), Constraints(images=True))
    assert body.configs
    assert not [note for note in body.configs[0].notes if "you asked for" in note]


def test_without_flash_attention_no_cache_of_values_is_quantised() -> None:
    models = Models((variant("Qwen3-4B", "q8_0"),), {})
    body = models.advised(
        advise, parse_hardware("GTX 1660 6GB, 16GB"), GoalRequest(), Constraints(keep_flags=["-fa off"])
    )
    assert body.configs
    assert {config.flags.cache_type_v for config in body.configs} == {"f16"}


def test_an_image_that_is_read_at_once_has_a_micro_batch_and_an_engine_that_knows_its_projector() -> None:
    models = with_images("Gemma-3-12B", "q4_K_M", encoder_header("gemma4uv", 1152, 4304, patch=16, merge=3))
    body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints(images=True))
    assert {config.engine for config in body.configs} == {"llama.cpp"}
    assert all("-ub 2048" in config.commands.server for config in body.configs)
    assert [(r.engine, r.reason) for r in body.refused] == [
        ("ik_llama.cpp", "ik_llama.cpp has no projector of the kind gemma4uv")
    ]
    only_ik = Constraints(images=True, engines=[EngineChoice("ik_llama.cpp")])
    with pytest.raises(InvalidInput, match="gemma4uv"):
        models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), only_ik)


@pytest.mark.parametrize(("engine", "before"), [("ik_llama.cpp", "2025-09-26"), ("llama.cpp", "2025-05-08")])
def test_a_build_whose_server_has_no_code_for_images_is_refused(engine: Engine, before: str) -> None:
    """ik_llama.cpp's accepts `--mmproj` as one of its common options, and ignores it (its pull 798)."""
    models = with_images("Gemma-3-12B", "q4_K_M", gemma3_header())
    constraints = Constraints(images=True, engines=[EngineChoice(engine, before)])
    with pytest.raises(InvalidInput, match="loads no projector"):
        models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), constraints)


def test_a_kept_projector_is_refused_as_it_would_not_be_counted() -> None:
    models, kept = Models((variant("Qwen3-4B", "q4_K_M"),), {}), Constraints(keep_flags=["--mmproj p.gguf"])
    with pytest.raises(InvalidInput, match="images"):
        models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), kept)


def test_a_variant_that_could_not_be_read_is_refused_on_every_engine() -> None:
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {"Q8_0": "the file is truncated"})
    body = models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints())
    refused = [(r.variant, r.kind, r.reason) for r in body.refused]
    assert refused == [("Q8_0", "unreadable", "the file is truncated")] * 2


def test_the_search_reports_how_far_it_is() -> None:
    heard: list[tuple[str, int, int]] = []
    models = Models((variant("Qwen3-4B", "q4_K_M"),), {})
    models.advised(advise, rigs.ONE_3090_DESKTOP, GoalRequest(), Constraints(), report=lambda *said: heard.append(said))
    assert [said[0] for said in heard[:3]] == ["comparing variants", "comparing variants", "placing configs"]
    placing = [done for stage, done, _ in heard if stage == "placing configs"]
    assert placing == sorted(placing)
    assert all(1 <= done <= of for _, done, of in heard)
