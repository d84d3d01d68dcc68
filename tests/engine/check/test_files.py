"""Files of other programs with the command in them corrected, to paste as they are."""

from __future__ import annotations

import pytest

from service.engine.catalogue import resolve
from service.engine.check.fixed import corrected_file
from service.engine.check.run import check
from service.engine.commands.read_files import commands_of
from service.engine.commands.shell import fold
from service.engine.hardware_text import parse_hardware
from tests.models import build

QWEN3 = build("Qwen3-0.6B", "q8_0")
RIG = resolve(parse_hardware("RTX 3090, Ryzen 9 7950X, 64GB DDR5-5600"))


def corrected(text: str) -> str:
    report = check(text, None, QWEN3, RIG)
    assert report.fixed is not None
    after = check(report.fixed, report.engine, QWEN3, RIG)
    assert [one for one in after.findings if one.severity == "error"] == []
    assert report.fixed_figures is not None
    assert (after.memory, after.speed) == (report.fixed_figures.memory, report.fixed_figures.speed)
    assert fold(report.fixed) == report.fixed
    return report.fixed


# github.com/ggml-org/llama.cpp/issues/9556
VARIABLES = """llamacpp-server:
  image: ghcr.io/ggerganov/llama.cpp:server-cuda@sha256:fe887bd3debd1a55ddd95f067435a38166f15a058bf50fee173517b9831081c8
  ports:
    - 8080:8080
  volumes:
    # TODO: change
    - ./model:/model
  environment:
    # alternatively, you can use "LLAMA_ARG_MODEL_URL" to download the model
    LLAMA_ARG_MODEL: /model/path-to-model.gguf
    LLAMA_ARG_N_GPU_LAYERS: -1
"""


def test_a_service_is_given_the_gpus_that_it_lacks() -> None:
    image = VARIABLES.splitlines()[1]
    assert corrected(VARIABLES) == VARIABLES.replace(image, f"{image}\n  gpus: all")


# After github.com/thr3a/llama-cpp-docker-compose, README.md, and with a bare -fa as of that time.
COMPOSE = """lora:
  image: ghcr.io/ggerganov/llama.cpp:server-cuda
  volumes:
    - ./cache:/root/.cache
  deploy:
    resources:
      reservations:
        devices:
          - driver: nvidia
            # device_ids: ['0']
            capabilities: [ gpu ]
  entrypoint: ''
  command: >
    /llama-server
    --host 0.0.0.0
    --model "/models/${GGUF_FILE:-gemma-2-2B-jpn-it-Q8_0.gguf}"
    --n-gpu-layers 99
    -fa
    --ctx-size 4096
    -a gpt-4o-mini
  environment:
    TZ: Asia/Tokyo
"""


def test_a_command_of_compose_is_replaced_and_its_variables_stay() -> None:
    before, after = COMPOSE.split("  command: >\n")[0], COMPOSE[COMPOSE.index("  environment:") :]
    assert corrected(COMPOSE) == (
        f"{before}  command: >-\n    /llama-server --host 0.0.0.0\n"
        '    --model "/models/${GGUF_FILE:-gemma-2-2B-jpn-it-Q8_0.gguf}" --n-gpu-layers 99\n'
        f"    --ctx-size 4096 -a gpt-4o-mini -fa on\n{after}"
    )


# github.com/ggml-org/llama.cpp/issues/2535: an option and its value in one item; and the full image's `--server`.
def test_items_of_a_list_are_taken_apart() -> None:
    text = (
        "services:\n  a:\n    image: x/llama.cpp:full-cuda\n    gpus: all\n    command:\n      - --server  # first\n"
        "      - -m /models/a.gguf\n      - --ctx-size\n      - \"${CTX_SIZE:-16384}\"\n    restart: always\n"
    )  # fmt: skip
    assert corrected(text) == (
        "services:\n  a:\n    image: x/llama.cpp:full-cuda\n    gpus: all\n    command:\n      - --server\n"
        '      - -m\n      - /models/a.gguf\n      - --ctx-size\n      - "${CTX_SIZE:-16384}"\n    restart: always\n'
    )


# github.com/ggml-org/llama.cpp/issues/9061, with an option that ended in 2026.
def test_the_arguments_of_a_container_of_kubernetes_are_replaced() -> None:
    text = (
        "  containers:\n    - args:\n      - -m\n      - /workspace/models/llama-2-7b-chat.Q2_K.gguf\n      - --mlock\n"
        '      - --port\n      - "8080"\n      command:\n      - ./llama-server\n'
    )
    assert corrected(text) == (
        "  containers:\n    - args:\n        - -m\n        - /workspace/models/llama-2-7b-chat.Q2_K.gguf\n"
        '        - --port\n        - "8080"\n        - -lm\n        - mmap+mlock\n'
        "      command:\n      - ./llama-server\n"
    )


UNIT = """[Unit]
Description=llama.cpp server - Qwen3-Coder-30B-A3B Q8_0
After=network.target

[Service]
ExecStart=/usr/local/bin/llama-server \\
  -m %h/models/Qwen3-Coder-30B-A3B-Q8_0.gguf \\
  -ngl 99 \\
  -c 32768 \\
  -fa \\
  --threads ${N_THREADS}
Restart=on-failure
Environment=CUDA_VISIBLE_DEVICES=0
{more}
[Install]
WantedBy=default.target
"""


def test_the_start_of_a_unit_is_replaced_and_its_specifiers_stay() -> None:
    unit = UNIT.replace("{more}", "")
    start = unit.index("ExecStart="), unit.index("Restart=")
    assert corrected(unit.replace("--threads ${N_THREADS}", "--threads 8")) == (
        f"{unit[: start[0]]}ExecStart=/usr/local/bin/llama-server "
        "-m %h/models/Qwen3-Coder-30B-A3B-Q8_0.gguf -ngl 99 \\\n"
        f"    -c 32768 --threads 8 -fa on\n{unit[start[1] :]}"
    )


def test_a_unit_of_a_container_keeps_its_own_keys() -> None:
    quadlet = (
        "[Container]\nImage=ghcr.io/ggml-org/llama.cpp:server-cuda\nAddDevice=nvidia.com/gpu=all\nVolume=%h/m:/m:ro\n"
    )
    text = corrected(f"{quadlet}Exec=-m /m/a.gguf -fa -c 8192\n\n[Install]\nWantedBy=default.target\n")
    assert text == f"{quadlet}Exec=-m /m/a.gguf -c 8192 -fa on\n\n[Install]\nWantedBy=default.target\n"


# github.com/ggml-org/llama.cpp/pull/18206
PRESET = """version = 1

[*]
fit = off
ngl = 999
fa = on
mlock = on
np = 2

[unsloth/Qwen3-VL-30B-A3B-Instruct-GGUF]
load-on-startup = true
m = /opt/llama-models/Qwen3-VL-30B-A3B-Instruct-Q4_K_M.gguf
"""


def test_a_preset_gets_what_changes_in_its_own_section() -> None:
    assert corrected(PRESET) == PRESET.replace("mlock = on\n", "") + "lm = mmap+mlock\n"


def test_what_all_presets_share_is_not_taken_from_others() -> None:
    two = f"{PRESET}\n[other]\nm = b.gguf\n"
    one = commands_of(two)[0]
    assert corrected_file(two, one, one.command.replace("--mlock", "-lm mlock")) is None
    kept = corrected_file(two, one, f"{one.command} -ub 1024")
    assert kept == two.replace("\n\n[other]", "\nub = 1024\n\n[other]")


# After llama-swap's docs/configuration.md, with a bare -fa.
SWAP = """models:
  a:
    cmd: |
      # of llama.cpp
      llama-server --port ${PORT}
      -m a.gguf -fa
      -c 8192
    ttl: 60
  b:
    cmd: llama-server --port ${PORT} -m b.gguf -c 4096
"""


def test_one_model_of_a_file_of_llama_swap_is_replaced() -> None:
    one = commands_of(SWAP)[0]
    text = corrected_file(SWAP, one, f"{one.command.replace(' -fa', '')} -fa on")
    start = SWAP.index("    cmd: |"), SWAP.index("    ttl")
    cmd = "    cmd: |\n      llama-server --port ${PORT} -m a.gguf -c 8192 -fa on\n"
    assert text == f"{SWAP[: start[0]]}{cmd}{SWAP[start[1] :]}"


@pytest.mark.parametrize(
    "text",
    [
        "services:\n  a: &a\n    image: llama.cpp:server-cuda\n    gpus: all\n    command: -m a.gguf -fa\n  b: *a\n",
        "services:\n  a:\n    image: llama.cpp:server\n    command: -m a.gguf\n  b:\n    image: llama.cpp:server-cuda\n"
        "    command: -m a.gguf\n",
    ],
)
def test_no_file_is_written_that_would_change_another_command(text: str) -> None:
    assert [corrected_file(text, one, f"{one.command} -c 8192") for one in commands_of(text)] == [None, None]


# config.go of llama-swap gives each model the next port; a file that names one port for all ends in clashes.
def test_the_port_that_llama_swap_gives_stays_also_in_macros_and_words() -> None:
    swap = (
        'macros:\n  srv: llama-server --port ${PORT} -fa\nmodels:\n  a:\n    cmd: ${srv} -m a.gguf --alias "x y"\n'
        "  b:\n    cmd: docker run --gpus all -p ${PORT}:8080 llama.cpp:server-cuda -m b.gguf -fa\n"
    )
    text = swap
    for one in commands_of(swap):
        text = corrected_file(text, one, f"{one.command.replace(' -fa', '')} -fa on") or ""
    assert text.endswith(
        '  a:\n    cmd: |\n      llama-server --port ${PORT} -m a.gguf --alias "x y" -fa on\n'
        "  b:\n    cmd: |\n      docker run --gpus all -p ${PORT}:8080 llama.cpp:server-cuda -m b.gguf -fa on\n"
    )


@pytest.mark.parametrize("text", [VARIABLES, COMPOSE, PRESET, UNIT.replace("${N_THREADS}", "8").replace("{more}", "")])
def test_line_ends_of_windows_stay(text: str) -> None:
    assert corrected(text.replace("\n", "\r\n")) == corrected(text).replace("\n", "\r\n")


def test_a_list_may_end_below_its_key_and_an_entrypoint_may_hold_all_options() -> None:
    service = "services:\n  a:\n    image: llama.cpp:server-cuda\n    gpus: all\n"
    listed = '[\n      "/app/llama-server", "-m", "a.gguf",\n      "-fa"\n    ]\n    restart: always\n'
    for key in ("command", "entrypoint"):
        assert corrected(f"{service}    {key}: {listed}") == (
            f"{service}    {key}:\n      - /app/llama-server\n      - -m\n      - a.gguf\n      - -fa\n"
            '      - "on"\n    restart: always\n'
        )


def test_comments_between_lines_of_a_unit_are_skipped() -> None:
    unit = (
        "[Service]\nExecStart=/usr/bin/llama-server -m a.gguf \\\n# -c 1\n  ; no\n  -fa \\\n  -c 4096\nRestart=always\n"
    )
    assert corrected(unit) == ("[Service]\nExecStart=/usr/bin/llama-server -m a.gguf -c 4096 -fa on\nRestart=always\n")


def test_no_file_is_written_that_would_change_a_service_of_another_program() -> None:
    text = """x-common: &common
  command: -m /m/a.gguf -ngl 99 -c 4096 -fa
services:
  llm:
    <<: *common
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    gpus: all
  other:
    <<: *common
    image: example/proxy:1
"""
    report = check(text, None, QWEN3, RIG)
    assert "retired-flag" in {one.rule for one in report.findings}
    assert report.fixed is None
    alone = text.partition("  other:")[0]
    assert "-fa on" in " ".join(corrected(alone).split())
