"""What is added to an advice by how its variants were read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.engine.advise import advise
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.errors import InvalidInput
from service.engine.gguf.header import Header
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware_text import parse_hardware
from service.engine.rules.case import case_of
from service.engine.rules.companion_headers import CompanionHeaders
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
        parsed, headers = parse(config.commands.server, config.engine), CompanionHeaders(projector=gemma3_header())
        case = case_of(parsed, models.variants[0].model, resolve(machine), config.commands.server, "cuda", headers)
        assert case.all_fits
        assert [row.companions_mib for row in case.table] == [row.companions_mib for row in config.devices]
        assert config.devices[0].companions_mib > 814
        assert config.devices[0].reserve_mib <= 512


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
