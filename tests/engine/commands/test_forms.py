"""Commands in other forms than bash's line, and back."""

from __future__ import annotations

import pytest

from service.engine.commands import parse
from service.engine.commands.forms import docker, powershell, systemd, words_of_unit
from service.engine.commands.render import Launch, launch
from service.engine.config import ENGINES, Engine, Flags, Override

FLAGS = Flags(
    n_ctx=32768,
    n_batch=4096,
    n_ubatch=4096,
    tensor_split=(31.3, 23.5),
    overrides=(Override(r"blk\.(7|1[0-9])\.ffn_(up|gate|down|gate_up)_exps", "CPU"),),
    threads=16,
)
ENV = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0"}


def started(engine: Engine, flags: Flags = FLAGS) -> Launch:
    path = "models/someone/Some Model-GGUF/50% 'best' $x.gguf"
    return launch(engine, "server", flags, model_path=path, env=ENV, prefix=("numactl", "--interleave=all"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("form", ["powershell", "docker", "systemd"])
def test_every_form_is_read_back_to_the_same_flags(engine: Engine, form: str) -> None:
    command = started(engine)
    if form == "docker":
        command = Launch(command.env, (), command.program, command.arguments)
    text = {
        "powershell": lambda: powershell(command),
        "docker": lambda: docker(engine, command, "cuda", "models", pins=True),
        "systemd": lambda: systemd(command, "50% of a model", pins=True),
    }[form]()
    parsed = parse(text, engine)
    assert parsed.flags == parse(" ".join(["llama-server", *map(repr_word, command.arguments)]), engine).flags
    assert parsed.env == ENV
    assert parsed.unknown == ()
    assert parsed.model_path is not None
    assert parsed.model_path.endswith("50% 'best' $x.gguf")


def repr_word(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"


def test_powershell_quotes_what_it_would_read_as_arrays_expressions_or_quotes() -> None:
    text = powershell(
        Launch({"A": "it's"}, (), "llama-server", ("-ts", "31.3,23.5", "-ot", r"exps\.(a|b)=CPU", "-c", "4096"))
    )
    assert text == "$env:A = 'it''s'\nllama-server -ts '31.3,23.5' -ot 'exps\\.(a|b)=CPU' -c 4096"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_path_below_the_home_is_one_in_every_form(engine: Engine) -> None:
    command = launch(engine, "server", FLAGS, model_path="~/my models/a.gguf")
    shell, unit = powershell(command), systemd(command, "a", pins=False)
    assert '-m "$HOME/my models/a.gguf"' in shell
    assert '-m "my models/a.gguf"' in unit
    assert "\nWorkingDirectory=~\n" in unit
    for text in (shell, unit):
        assert parse(text, engine).flags == parse("llama-server " + unit.partition("llama-server ")[2], engine).flags


def test_a_container_mounts_the_models_and_may_lock_what_it_pins() -> None:
    text = docker("llama.cpp", started("llama.cpp"), "cuda", "models", pins=True)
    build, run = text.split("\n")
    assert build == "docker build -t llama.cpp:server --target server -f .devops/cuda.Dockerfile ."
    for words in ("--gpus all", "--ulimit memlock=-1", "-v ./models:/app/models:ro", "-e CUDA_VISIBLE_DEVICES=2,0"):
        assert words in run
    assert "--port 8080" in run
    assert "-m '/app/models/someone/" in run


def test_a_unit_escapes_specifiers_and_variables() -> None:
    text = systemd(started("ik_llama.cpp"), "50% of a model", pins=True)
    assert "Description=50%% of a model" in text
    assert "LimitMEMLOCK=infinity" in text
    line = next(row for row in text.splitlines() if row.startswith("ExecStart="))
    assert "50%% 'best' $$x.gguf" in line
    assert words_of_unit(line.removeprefix("ExecStart="))[0] == "/usr/bin/numactl"
    assert LIMIT_FREE not in systemd(started("ik_llama.cpp"), "x", pins=False)


LIMIT_FREE = "LimitMEMLOCK"


def test_a_pasted_docker_line_with_podman_and_a_full_image_is_read() -> None:
    options = "-it --rm -v /m:/models --gpus=all -e LLAMA_ARG_CTX_SIZE=8192"
    text = f"sudo podman run {options} x/llama.cpp:full-cuda --server -m /models/a.gguf -ngl 99"
    parsed = parse(text, "llama.cpp")
    assert parsed.program == "llama-server"
    assert (parsed.flags.n_ctx, parsed.flags.n_gpu_layers, parsed.model_path) == (8192, 99, "/models/a.gguf")
    assert parsed.unknown == ()


def test_the_image_says_which_engine_it_is() -> None:
    assert parse("docker run ik_llama.cpp:server -m a.gguf -c 4096").engine == "ik_llama.cpp"


def test_a_pasted_powershell_command_with_backticks_is_read() -> None:
    lines = (
        '$env:CUDA_VISIBLE_DEVICES="0"',
        '& "C:\\llama\\llama-server.exe" `',
        "  -m C:\\m\\a.gguf `",
        "  -c 8192 -ot 'exps=CPU'",
    )
    text = "\n".join(lines)
    parsed = parse(text, "llama.cpp")
    assert parsed.env == {"CUDA_VISIBLE_DEVICES": "0"}
    assert parsed.flags.n_ctx == 8192
    assert parsed.flags.overrides == (Override("exps", "CPU"),)
    assert parsed.model_path == "C:\\m\\a.gguf"
