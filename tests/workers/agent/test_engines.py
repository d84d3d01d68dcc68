"""Builds in the policy's folders: each is asked what it is, under limits, and only when the policy lets it run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_replay import install
from workers.agent.engines import find_engines, options_of, program_sha256
from workers.agent.policy import EnginePolicy, Policy
from workers.agent.process import confinement


def allowing(*folders: Path, sha256: tuple[str, ...] = ()) -> Policy:
    return Policy(engines=EnginePolicy(folders=tuple(map(str, folders)), sha256=sha256))


def test_builds_of_both_engines_are_described(tmp_path: Path) -> None:
    sweep = install(tmp_path / "ik", "llama-sweep-bench", "ok")
    bench = install(tmp_path / "main", "llama-bench", "ok")
    found = {program.build.engine: program for program in find_engines(allowing(tmp_path / "ik", tmp_path / "main"))}
    assert {engine: program.path for engine, program in found.items()} == {"ik_llama.cpp": sweep, "llama.cpp": bench}
    ik, main = found["ik_llama.cpp"].build, found["llama.cpp"].build
    assert (ik.version, ik.commit, ik.sha256) == ("4840 (8337e4cd3)", "8337e4cd3", program_sha256(sweep))
    assert main.commit == "0c1e57098"
    assert {"--sweep-stride", "-ot", "-mla", "--n-cpu-moe"} <= set(ik.options)
    assert {"-ot", "-ncmoe", "--n-depth", "-d"} <= set(main.options)
    assert ik.backends == ("CPU",)


def test_a_loadable_backend_next_to_the_program_is_one_of_its_backends(tmp_path: Path) -> None:
    install(tmp_path, "llama-bench", "ok")
    (tmp_path / "libggml-vulkan.so").touch()
    (found,) = find_engines(allowing(tmp_path))
    assert found.build.backends == ("Vulkan", "CPU")


def test_a_program_that_needs_another_folder_gets_it_of_the_policy(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "help").write_text("  -d, --n-depth <n>\n")
    program = tmp_path / "bin" / "llama-bench"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/data/help\n")
    program.chmod(0o755)
    engines = EnginePolicy(folders=(str(program.parent),), readable=(str(tmp_path / "data"),))
    (found,) = find_engines(Policy(engines=engines))
    assert found.build.options == ("-d", "--n-depth")
    if confinement(tmp_path).files is not None:
        assert find_engines(allowing(program.parent)) == ()


def test_a_program_that_the_policy_does_not_allow_is_not_even_asked(tmp_path: Path) -> None:
    allowed = install(tmp_path / "a", "llama-bench", "ok")
    spy = tmp_path / "b" / "llama-bench"
    spy.parent.mkdir()
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    spy.chmod(0o755)
    policy = allowing(tmp_path / "a", tmp_path / "b", sha256=(program_sha256(allowed),))
    assert [program.path for program in find_engines(policy)] == [allowed]
    assert not (tmp_path / "was-run").exists()
    assert find_engines(Policy()) == ()


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nyes\n", "no program", "#!/nowhere/python\n", ""])
def test_a_program_that_is_no_engine_is_left_out(tmp_path: Path, text: str) -> None:
    for name in ("llama-sweep-bench", "llama-bench"):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    assert find_engines(allowing(tmp_path)) == ()


def test_a_file_that_may_not_be_run_and_a_folder_that_is_not_there_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "llama-bench").write_text("#!/bin/sh\n")
    assert find_engines(allowing(tmp_path, tmp_path / "nowhere")) == ()


def test_options_are_read_from_any_help() -> None:
    text = (
        "  -t,    --threads N   (default: -1)\n  -fa|--flash-attn\n-m FILE [--mmap] not-an-option Q4_K-M\n" + "-x" * 400
    )
    assert options_of(text) == ("-t", "--threads", "-fa", "--flash-attn", "-m", "--mmap")
