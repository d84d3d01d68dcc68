"""Today's commands in the spelling of older builds, and the oldest build that a command runs on."""

from __future__ import annotations

import pytest

from service.engine.builds import BuildAsked, resolve_build
from service.engine.commands.parse import parse
from service.engine.commands.render import is_young, launch, oldest_build, render
from service.engine.config import ENGINES, Engine, Flags, Override
from service.engine.errors import InvalidFlags

FLAGS = Flags(
    n_ctx=16384,
    n_batch=4096,
    n_ubatch=4096,
    mla=3,
    attn_max_batch=512,
    overrides=(Override("exps", "CPU"),),
    threads=16,
)
PLAIN = Flags(n_ctx=16384, n_batch=4096, n_ubatch=4096, overrides=(Override("exps", "CPU"),), threads=16, mmap=False)


def spelled(engine: Engine, flags: Flags, date: str) -> str:
    build = resolve_build(engine, BuildAsked(date=date))
    return render(engine, "server", flags, model_path="a.gguf", build=build)


def test_ik_of_summer_2025_wants_fa_bare_and_fmoe_said() -> None:
    command = spelled("ik_llama.cpp", FLAGS, "2025-07-01")
    assert " -fa -mla 3" in command
    assert command.endswith(" -fmoe")


def test_ik_between_the_two_spellings_has_no_fa_at_all() -> None:
    assert "-fa" not in spelled("ik_llama.cpp", FLAGS, "2025-11-01")


def test_llama_cpp_before_its_load_modes_has_no_mmap_as_a_switch() -> None:
    assert " --no-mmap" in spelled("llama.cpp", PLAIN, "2026-03-01")
    assert "-lm" not in spelled("llama.cpp", PLAIN, "2026-03-01")
    assert "-fit" not in spelled("llama.cpp", PLAIN, "2025-10-01")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("date", ["2025-05-11", "2025-07-01", "2025-10-30", "2026-01-15", "2026-05-01"])
def test_the_older_spelling_means_the_same_to_that_build(engine: Engine, date: str) -> None:
    flags = FLAGS if engine == "ik_llama.cpp" else PLAIN
    parsed = parse(spelled(engine, flags, date), engine, build=BuildAsked(date=date))
    assert parsed.flags == flags
    assert parsed.unknown == ()


def test_what_a_build_cannot_be_told_is_refused_by_name() -> None:
    with pytest.raises(InvalidFlags, match="has no -ot"):
        spelled("llama.cpp", PLAIN, "2025-01-15")


def test_a_split_mode_is_as_young_as_the_build_that_brought_it() -> None:
    words = ["-m", "x.gguf", "-ngl", "99", "-fa", "on", "-sm"]
    for engine, mode, date in (("llama.cpp", "tensor", "2026-04-09"), ("ik_llama.cpp", "graph", "2025-12-01")):
        oldest = oldest_build(engine, "llama-server", [*words, mode], "llama")  # type: ignore[arg-type]
        assert oldest is not None
        assert (oldest.date, oldest.needs) == (date, (f"-sm {mode}",))


def test_the_oldest_build_is_that_of_the_youngest_option() -> None:
    words = launch("llama.cpp", "server", PLAIN, model_path="a.gguf").arguments
    oldest = oldest_build("llama.cpp", "llama-server", words, "llama")
    assert oldest is not None
    assert (oldest.date, oldest.needs) == ("2026-07-21", ("-lm",))
    assert is_young("llama.cpp", oldest)


# src/llama-arch.cpp of b11312, and of the copy in xllamacpp of 21 September 2026, which lacks it
def test_the_oldest_build_knows_the_architecture() -> None:
    words = ["-m", "x.gguf", "-ngl", "99", "-fa", "on"]
    oldest = oldest_build("llama.cpp", "llama-server", words, "glm5-next")
    assert oldest is not None
    assert (oldest.date, oldest.needs) == ("2026-09-30", ("the architecture glm5-next",))
