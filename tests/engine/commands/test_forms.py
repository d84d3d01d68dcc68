"""Commands in other forms than bash's line, and back."""

from __future__ import annotations

import pytest

from service.engine.commands.forms import docker, powershell, systemd, words_of_unit
from service.engine.commands.limits import CPUS, VARIABLES, memory_limit
from service.engine.commands.parse import parse
from service.engine.commands.render import Launch, launch
from service.engine.commands.unwrap import IN_CONTAINER
from service.engine.config import ENGINES, Engine, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.run.environment import prefix_of

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
    build, run, _ = text.split("\n")
    assert build == "docker build -t llama.cpp:server --target server -f .devops/cuda.Dockerfile ."
    for words in ("--gpus all", "--ulimit memlock=-1", "-v ./models:/app/models:ro", "-e CUDA_VISIBLE_DEVICES=2,0"):
        assert words in run
    assert "--port 8080" in run
    assert "-m '/app/models/someone/" in run


def test_an_image_is_built_for_the_cards_that_are_there() -> None:
    text = docker("ik_llama.cpp", started("ik_llama.cpp"), "cuda", "models", pins=True, capabilities=[8.6, 12.0, 8.6])
    assert "--build-arg 'CUDA_DOCKER_ARCH=86;120' --build-arg CUDA_VERSION=12.8.1 -f docker/" in text.split("\n")[0]
    old = docker("llama.cpp", started("llama.cpp"), "cuda", "models", pins=True, capabilities=[6.1])
    assert "--target server --build-arg CUDA_DOCKER_ARCH=61 -f .devops/" in old.split("\n")[0]


# docker/ik_llama-cuda.Containerfile (8337e4cd3): its ARGs, none of which reaches CMake as an option
def test_no_image_is_offered_that_lacks_the_kernels_for_a_cache() -> None:
    command = Launch({}, (), "llama-server", ("-m", "models/a.gguf", "-ctk", "q6_0", "-ctv", "q6_0"))
    assert docker("ik_llama.cpp", command, "cuda", "models", pins=False, capabilities=[6.1]) == ""
    alike = Launch({}, (), "llama-server", ("-m", "models/a.gguf", "-ctk", "q8_0", "-ctv", "q8_0"))
    assert docker("ik_llama.cpp", alike, "cuda", "models", pins=False, capabilities=[6.1])
    assert docker("ik_llama.cpp", command, "cuda", "models", pins=False, capabilities=[7.0])
    assert docker("llama.cpp", command, "cuda", "models", pins=False, capabilities=[6.1])


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


_LIMITED = """services:
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    command: -m /m/a.gguf -c 8192
    gpus: all
"""
_DEPLOYED = """    deploy:
      resources:
        limits:
          cpus: "4"
          memory: 12gb
    env_file: [a.env, b.env]
"""
_UNIT = """[Service]
MemoryMax=12G
CPUQuota=400%
EnvironmentFile=-/etc/l.env
ExecStart=/usr/bin/llama-server -m a.gguf -c 8
"""


@pytest.mark.parametrize(
    ("text", "limit", "rest"),
    [
        ("docker run --gpus all -m 12g x/llama.cpp:server -m a.gguf -c 8", 12 << 30, {}),
        (
            "docker run --memory=512m --cpus 4 --env-file e x/llama.cpp:server -c 8",
            512 << 20,
            {CPUS: "4", VARIABLES: "e"},
        ),
        (_LIMITED + "    mem_limit: 12884901888\n", 12 << 30, {}),
        (_LIMITED + "    mem_limit: 12g\n    cpus: 3.5\n", 12 << 30, {CPUS: "3.5"}),
        (_LIMITED + _DEPLOYED, 12 << 30, {CPUS: "4", VARIABLES: "a.env,b.env"}),
        (_LIMITED, None, {}),
        (_UNIT, 12 << 30, {CPUS: "400%", VARIABLES: "-/etc/l.env"}),
        (_UNIT.replace("12G", "infinity"), None, {CPUS: "400%", VARIABLES: "-/etc/l.env"}),
    ],
)
def test_the_limits_of_a_container_or_unit_are_read(text: str, limit: int | None, rest: dict[str, str]) -> None:
    env = parse(text, "llama.cpp").env
    assert memory_limit(env) == limit
    assert {name: env[name] for name in (CPUS, VARIABLES) if name in env} == rest


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


_SPLATTED = """$ctx = 32768   # tokens
$Dir = "D:\\models"
$serverArgs = @(
    "-m", "$dir\\x.gguf",  # the model
    "-c", $Ctx
    '-ot', 'exps=CPU'
)
$serverArgs += "-ngl", 99
& .\\llama-server.exe @serverArgs --jinja
"""


@pytest.mark.parametrize(
    "text",
    [
        "$ctx = 32768\nllama-server.exe -m D:\\models\\x.gguf -c $ctx -ngl 99 --jinja -ot exps=CPU",
        '$ctx = "32768"\nllama-server.exe -m D:\\models\\x.gguf -c $CTX -ngl 99 --jinja -ot exps=CPU',
        '$d="D:\\models"; $n = 99;\n.\\llama-server.exe -m "$d\\x.gguf" -c 32768 -ngl $($n) --jinja -ot \'exps=CPU\'',
        "$m = 'D:\\models'\n$c = 32768\n.\\llama-server.exe -m $m\\x.gguf `\n  -c $c -ngl 99 --jinja -ot exps=CPU",
        "$c=32768; .\\llama-server.exe -m D:\\models\\x.gguf -c $c -ngl 99 --jinja -ot exps=CPU",
        _SPLATTED,
        "$a = '-m', 'D:\\models\\x.gguf', '-c', 32768\n.\\llama-server.exe @a -ngl 99 --jinja -ot exps=CPU",
        _SPLATTED.replace("\n", "\r\n"),
    ],
)
def test_the_variables_of_powershell_are_resolved(text: str) -> None:
    parsed = parse(text, "llama.cpp")
    assert (parsed.model_path, parsed.unknown, parsed.refused) == ("D:\\models\\x.gguf", (), ())
    assert (parsed.flags.n_ctx, parsed.flags.n_gpu_layers) == (32768, 99)
    assert parsed.flags.overrides == (Override("exps", "CPU"),)


def test_a_variable_of_powershell_sets_the_environment() -> None:
    parsed = parse("$gpu = 1\n$env:CUDA_VISIBLE_DEVICES = $gpu\nllama-server.exe -c 8192", "llama.cpp")
    assert parsed.env == {"CUDA_VISIBLE_DEVICES": "1"}


@pytest.mark.parametrize("grows", ["$a += $a", '$a = "$a$a"'])
def test_variables_of_powershell_that_grow_without_end_are_refused(grows: str) -> None:
    lines = ["$a = '0123456789'", *[grows] * 60, "llama-server.exe -m $a -ngl 99"]
    with pytest.raises(InvalidFlags, match="expand to more than a command can have"):
        parse("\n".join(lines))


def test_an_expression_of_powershell_is_not_guessed() -> None:
    parsed = parse("$ctx = $base * 2\nllama-server.exe -m a.gguf -c $ctx -ngl 99", "llama.cpp")
    assert [refused.option for refused in parsed.refused] == ["-c"]
    assert parsed.flags.n_gpu_layers == 99


def test_a_unit_whose_command_goes_over_several_lines_is_read_whole() -> None:
    text = (
        '[Service]\nEnvironment="CUDA_VISIBLE_DEVICES=1"\nExecStart=/opt/llama-server \\\n  -m /m/a.gguf \\ \n'
        "  -ngl 99 -ncmoe 40 \\\r\n  -c 8192\nRestart=always\n"
    )
    parsed = parse(text, "llama.cpp")
    assert (parsed.model_path, parsed.flags.n_gpu_layers, parsed.flags.n_cpu_moe) == ("/m/a.gguf", 99, 40)
    assert (parsed.flags.n_ctx, parsed.env, parsed.unknown) == (8192, {"CUDA_VISIBLE_DEVICES": "1"}, ())


@pytest.mark.parametrize(
    "text",
    [
        'llama-server.exe ^\n -m "D:\\m\\a.gguf" ^ \r\n -c 4096 -ngl 99',
        '@echo off\nREM my server\nset "MODEL=D:\\m\\a.gguf"\ncd /d C:\\llama\n'
        "llama-server.exe -m %MODEL% -c 4096 -ngl 99\npause",
        "set CTX=4096 && C:\\llama\\llama-server.exe -m D:\\m\\a.gguf -c %ctx% -ngl 99",
    ],
)
def test_a_batch_file_and_a_line_of_cmd_are_read(text: str) -> None:
    parsed = parse(text)
    assert (parsed.engine, parsed.model_path) == ("llama.cpp", "D:\\m\\a.gguf")
    assert (parsed.flags.n_ctx, parsed.flags.n_gpu_layers, parsed.unknown) == (4096, 99, ())


@pytest.mark.parametrize(
    "text",
    [
        "set CUDA_VISIBLE_DEVICES=1 && llama-server -c 8",
        'set "CUDA_VISIBLE_DEVICES=1"\nllama-server.exe -c 8',
        "set -gx CUDA_VISIBLE_DEVICES 1; llama-server -c 8",
        "export CUDA_VISIBLE_DEVICES=1 && llama-server -c 8",
        "export CUDA_VISIBLE_DEVICES=1\ncd ~/llama.cpp\n./build/bin/llama-server -c 8",
        "ssh box 'CUDA_VISIBLE_DEVICES=1 llama-server -c 8'",
        'tmux new-session -d -s llm "CUDA_VISIBLE_DEVICES=1 ./llama-server -c 8"',
    ],
)
def test_a_variable_that_is_set_before_the_command_holds_for_it(text: str) -> None:
    parsed = parse(text, "llama.cpp")
    assert (parsed.env, parsed.prefix, parsed.unknown) == ({"CUDA_VISIBLE_DEVICES": "1"}, (), ())
    assert parsed.flags.n_ctx == 8


def test_the_variables_and_arrays_of_a_script_are_expanded() -> None:
    text = """#!/bin/bash
MODEL="/m/my model.gguf"
CTX=4096
export CUDA_VISIBLE_DEVICES=${GPU:-0,1}
ARGS=(
  -ngl 99
  -ot "blk\\.(1|2)\\.ffn_.*_exps=CPU"
)
ARGS+=(-ctk q8_0)
REST="-fa on -ub 1024"
exec ./llama-server -m "$MODEL" -c $CTX "${ARGS[@]}" $REST "$@"
"""
    parsed = parse(text, "llama.cpp")
    flags = parsed.flags
    assert (parsed.model_path, flags.n_ctx, flags.n_gpu_layers) == ("/m/my model.gguf", 4096, 99)
    assert (flags.flash_attn, flags.n_ubatch, flags.cache_type_k) == ("on", 1024, "q8_0")
    assert [rule.pattern for rule in flags.overrides] == [r"blk\.(1|2)\.ffn_.*_exps"]
    assert (parsed.env, parsed.unknown) == ({"CUDA_VISIBLE_DEVICES": "0,1"}, ())


def test_what_nothing_sets_stays_as_it_is_written_and_endless_texts_are_refused() -> None:
    assert parse("llama-server -m $HOME/a.gguf -a '$CTX'", "llama.cpp").model_path == "$HOME/a.gguf"
    endless = "A=xxxxxxxx\n" + "A=$A$A\n" * 40 + "llama-server -c $A"
    with pytest.raises(InvalidFlags, match="expand"):
        parse(endless, "llama.cpp")


def test_dashes_and_quotes_of_a_word_processor_are_those_of_a_keyboard() -> None:
    parsed = parse(
        "llama-server –m a.gguf —ctx-size 4096 –ngl 9 –threads 3 –ot “exps=CPU” –host ‘0.0.0.0’", "llama.cpp"
    )
    assert (parsed.model_path, parsed.flags.n_ctx, parsed.flags.n_gpu_layers) == ("a.gguf", 4096, 9)
    assert (parsed.flags.threads, parsed.flags.overrides[0].pattern, parsed.unknown) == (3, "exps", ())


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("docker run --gpus '\"device=1\"' x/llama.cpp:server -c 8", "1"),
        ("docker run --gpus device=0,2 --rm x/llama.cpp:server -c 8", "0,2"),
        ("docker run --gpus=2 x/llama.cpp:server -c 8", "0,1"),
        ("podman run --device nvidia.com/gpu=3 x/llama.cpp:server -c 8", "3"),
        ("docker run --gpus all x/llama.cpp:server -c 8", None),
        ("podman run --device nvidia.com/gpu=all --device /dev/dri x/llama.cpp:server -c 8", None),
    ],
)
def test_the_cards_that_a_container_is_given_are_read(text: str, given: str | None) -> None:
    parsed = parse(text, "llama.cpp")
    assert parsed.env.get(IN_CONTAINER) == given
    assert parsed.flags.n_ctx == 8


@pytest.mark.parametrize(
    "text",
    [
        "`llama-server -m a.gguf -c 4096`",
        "```bash\nllama-server -m a.gguf -c 4096\n```",
        "I run this:\n\n```\nllama-server \\\n  -m a.gguf \\\n  -c 4096\n```\nand it is slow",
        "> llama-server -m a.gguf -c 4096\nggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3090",
        "llama-server -m a.gguf\n  -c 4096",
        "llama-server -m\n  a.gguf -c 4096",
    ],
)
def test_a_command_is_read_out_of_markdown_and_without_what_it_printed(text: str) -> None:
    parsed = parse(text, "llama.cpp")
    assert (parsed.model_path, parsed.flags.n_ctx, parsed.unknown) == ("a.gguf", 4096, ())


_CUDA = "docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda"


@pytest.mark.parametrize(
    ("command", "label"),
    [
        (f"{_CUDA}-b6100 -m a.gguf -fa", "b6100"),
        ("docker run ghcr.io/ggml-org/llama.cpp:server-b6100 -m a.gguf -fa", "b6100"),
        ("/opt/llama-b6100-bin-ubuntu-x64/build/bin/llama-server -m a.gguf -fa", "b6100"),
        (r"C:\ai\b6100\llama-server.exe -m C:\a.gguf -fa", "b6100"),
        (f"{_CUDA} -m a.gguf", None),
        (f"{_CUDA}-b99999 -m a.gguf", None),
        ("/opt/sub6100/llama-server -m /m/b6100/a.gguf", None),
    ],
)
def test_the_build_is_the_one_that_an_image_s_tag_or_a_folder_names(command: str, label: str | None) -> None:
    assert parse(command, "llama.cpp").build.label.startswith(label or "b11312 ")
    assert parse(command, "llama.cpp", build="b5000").build.label.startswith("b5000")


def test_a_container_says_that_its_image_cannot_bind_to_a_socket() -> None:
    command = launch("ik_llama.cpp", "server", FLAGS, model_path="models/a.gguf", prefix=prefix_of("numactl", 4))
    _, run, *said = docker("ik_llama.cpp", command, "cpu", "models", pins=False).split("\n")
    assert "numactl" not in run.partition(" -m ")[0]
    assert said[0] == "# the speeds are those with `numactl -N 0-3 -m 0-3`, but the image has no numactl"
    assert "--cpuset-mems 0-3," in said[1]
    assert "--cpuset-" not in docker("ik_llama.cpp", started("ik_llama.cpp"), "cpu", "models", pins=False)


QUADLET = """[Unit]
Description=a model of today
After=network-online.target

[Container]
ContainerName=llama
Image=ghcr.io/ggml-org/llama.cpp:server-rocm-b11300
PublishPort=8000:8000
AddDevice=/dev/dri
AddDevice=/dev/kfd
PodmanArgs=--ipc=host
Volume=%h/.cache/huggingface/hub/:/root/.cache/huggingface/hub/:Z
Environment=LLAMA_ARG_CTX_SIZE=65536 LLAMA_ARG_CACHE_TYPE_K=q8_0
Environment="LLAMA_ARG_ALIAS=two words"
# what the image does not know
{start}
[Service]
Restart=always

[Install]
WantedBy=default.target
"""


@pytest.mark.parametrize(
    ("start", "n_gpu_layers"), [("Environment=LLAMA_ARG_N_GPU_LAYERS=99", 99), ("Exec=-ngl 12 \\\n  -c 4096", 12)]
)
def test_a_containers_unit_is_read_with_its_variables_and_its_arguments(start: str, n_gpu_layers: int) -> None:
    parsed = parse(QUADLET.format(start=start))
    assert (parsed.program, parsed.flags.n_gpu_layers) == ("llama-server", n_gpu_layers)
    assert (parsed.flags.n_ctx, parsed.flags.cache_type_k) == (4096 if "-c " in start else 65536, "q8_0")
    assert parsed.env.get("NVIDIA_VISIBLE_DEVICES") is None


def test_of_a_containers_unit_only_the_containers_section_counts_in_windows_line_ends_too() -> None:
    unit = QUADLET.format(start="Exec=-ngl 12").replace("[Service]", "[Service]\nEnvironment=LLAMA_ARG_CTX_SIZE=1")
    for text in (unit, unit.replace("\n", "\r\n")):
        parsed = parse(text)
        assert (parsed.flags.n_ctx, parsed.flags.n_gpu_layers, parsed.unknown) == (65536, 12, ())


def test_a_containers_unit_without_a_device_has_no_gpu() -> None:
    without = "\n".join(line for line in QUADLET.splitlines() if not line.startswith("AddDevice"))
    assert parse(without.format(start="Exec=-ngl 9")).env["NVIDIA_VISIBLE_DEVICES"] == "none"
