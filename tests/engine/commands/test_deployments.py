"""What people post of their containers, units and routers, read as what is started with it.

Each text is as in its source, without what plays no part (ports, health checks, sampling).
"""

from __future__ import annotations

import pytest

from service.engine.commands.limits import cpus_given
from service.engine.commands.parse import ParsedCommand, parse
from service.engine.commands.read_files import commands_of
from service.engine.commands.unwrap import IN_CONTAINER, NOT_GIVEN, WITHOUT_BACKEND
from service.engine.errors import InvalidFlags

# github.com/ggml-org/llama.cpp/issues/19279: on Kubernetes, and no GPU is asked for.
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llama-server
  namespace: ai-system
spec:
  template:
    spec:
      containers:
      - args:
        - -ctk
        - q8_0
        - --no-warmup
        - --prio
        - "3"
        command:
        - /app/llama-server
        env:
        - name: LLAMA_ARG_MODEL
          value: /models/GLM-4.7-Flash-REAP-23B-A3B-UD-Q6_K_XL
        - name: LLAMA_ARG_CTX_SIZE
          value: "256000"
        - name: LLAMA_ARG_N_PARALLEL
          value: "4"
        - name: LLAMA_API_KEY
          valueFrom:
            secretKeyRef:
              key: HQ_SOURCEUP_OPENAI_API_KEY
              name: credentials
        image: ghcr.io/ggml-org/llama.cpp:server-cuda13
"""

# After github.com/tscibilia/home-ops, kubernetes/apps/ai/llama-cpp/app/helmrelease.yaml (00e4344), with the options of
# a model instead of the router's: the chart has repository and tag apart, and the tag has a digest.
HELM_RELEASE = """---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata:
  name: &app llama-cpp
spec:
  values:
    controllers:
      *app :
        initContainers:
          download-models:
            image:
              repository: ghcr.io/astral-sh/uv
              tag: python3.14-alpine
            command:
              - /bin/sh
              - -ec
              - |
                download-model "unsloth/gemma-4-26B-A4B-it-GGUF:UD-IQ4_NL"
        containers:
          app:
            image:
              repository: ghcr.io/ggml-org/llama.cpp
              tag:  server-cuda-b9680@sha256:aead4f4d77679873a40036c984702c8a9a52ab52275b0702e2fa68b4bc9a5f03
            args:
              - --hf-repo
              - unsloth/gemma-4-26B-A4B-it-GGUF:UD-IQ4_NL
            env:
              LLAMA_ARG_HOST: 0.0.0.0
              LLAMA_ARG_CTX_SIZE: 65536
            resources:
              limits:
                memory: 20Gi
                nvidia.com/gpu: "1"
    defaultPodOptions:
      runtimeClassName: nvidia
"""

# github.com/ggml-org/llama.cpp/issues/9061.
CONTAINERS = """
  containers:
    - args:
      - -m
      - /workspace/models/llama-2-7b-chat.Q2_K.gguf
      - --port
      - "8080"
      command:
      - ./llama-server
"""


def read(text: str) -> ParsedCommand:
    (one,) = commands_of(text)
    return parse(one.command)


def test_a_container_of_kubernetes_is_read_with_its_variables() -> None:
    parsed = read(DEPLOYMENT)
    assert parsed.model_path == "/models/GLM-4.7-Flash-REAP-23B-A3B-UD-Q6_K_XL"
    assert (parsed.flags.n_ctx, parsed.flags.n_parallel, parsed.flags.cache_type_k) == (256_000, 4, "q8_0")
    assert (parsed.words.program, parsed.unknown, parsed.env[IN_CONTAINER]) == ("/app/llama-server", (), NOT_GIVEN)


@pytest.mark.parametrize(
    ("given", "cards"),
    [
        ("        resources:\n          limits:\n            nvidia.com/gpu: 1\n", "0"),
        ("      runtimeClassName: nvidia\n", None),
    ],
)
def test_a_container_of_kubernetes_gets_the_gpus_that_it_asks_for(given: str, cards: str | None) -> None:
    assert read(DEPLOYMENT + given).env.get(IN_CONTAINER) == cards


def test_a_container_of_a_chart_is_read_with_its_limits_and_build() -> None:
    parsed = read(HELM_RELEASE)
    assert parsed.flags.other[0] == "--hf-repo unsloth/gemma-4-26B-A4B-it-GGUF:UD-IQ4_NL"
    assert (parsed.flags.n_ctx, parsed.env["MemoryMax"], parsed.env[IN_CONTAINER]) == (65_536, "20Gi", "0")
    assert "b9680" in parsed.build.label


def test_a_part_of_a_document_of_kubernetes_is_read() -> None:
    parsed = read(CONTAINERS)
    assert (parsed.model_path, parsed.unknown) == ("/workspace/models/llama-2-7b-chat.Q2_K.gguf", ())
    assert IN_CONTAINER not in parsed.env


def test_limits_hold_for_a_command_in_a_shell() -> None:
    shell = DEPLOYMENT.replace("        - /app/llama-server\n", "        - /bin/sh\n        - -c\n")
    shell = shell[: shell.index("      - args:")] + (
        "      - name: llama-server\n        image: ghcr.io/ggerganov/llama.cpp:full\n        command: [/bin/sh, -c]\n"
        "        args: ['./llama-server -m /models/mistral-7b-instruct-v0.2.Q4_K_M.gguf -c 4096 --port 8082']\n"
        "        resources:\n          limits:\n            memory: 4Gi\n"
    )
    parsed = read(shell)
    assert (parsed.env["MemoryMax"], parsed.env[IN_CONTAINER], parsed.flags.n_ctx) == ("4Gi", WITHOUT_BACKEND, 4096)


# After github.com/Osmantic/ODS, dream-server/docker-compose.base.yml (851b051).
WITH_DEFAULTS = """
services:
  llama-server:
    image: ${LLAMA_SERVER_IMAGE:-ghcr.io/ggml-org/llama.cpp:server-b9014}
    command:
      - --model
      - /models/${GGUF_FILE:-Qwen3.5-9B-Q4_K_M.gguf}
      - --n-gpu-layers
      - "999"
      - --ctx-size
      - "${CTX_SIZE:-16384}"
      - --parallel
      - "${LLAMA_PARALLEL:-1}"
    environment:
      - LLAMA_ARG_FLASH_ATTN=${LLAMA_ARG_FLASH_ATTN:-auto}
      - LLAMA_ARG_CACHE_TYPE_K=${LLAMA_ARG_CACHE_TYPE_K:-${CACHE:-q8_0}}
      - LLAMA_ARG_N_CPU_MOE
    deploy:
      resources:
        limits:
          cpus: '8.0'
          memory: 16G
  dashboard-api:
    build:
      context: ./extensions/services/dashboard-api
    environment:
      - LLAMA_ARG_SPLIT_MODE=${LLAMA_ARG_SPLIT_MODE:-}
"""


def test_defaults_of_variables_in_compose_hold() -> None:
    parsed = read(WITH_DEFAULTS)
    assert (parsed.model_path, parsed.flags.n_ctx, parsed.flags.n_parallel) == (
        "/models/Qwen3.5-9B-Q4_K_M.gguf",
        16384,
        1,
    )
    assert (parsed.flags.cache_type_k, parsed.refused, parsed.flags.n_cpu_moe) == ("q8_0", (), 0)
    assert parsed.env["PassEnvironment"] == "LLAMA_ARG_N_CPU_MOE"
    assert "b9014" in parsed.build.label


def test_limits_of_a_service_give_it_no_gpu() -> None:
    image = "${LLAMA_SERVER_IMAGE:-ghcr.io/ggml-org/llama.cpp:server-b9014}"
    parsed = read(WITH_DEFAULTS.replace(image, "ghcr.io/ggml-org/llama.cpp:server-cuda"))
    assert (parsed.env[IN_CONTAINER], parsed.env["MemoryMax"]) == (NOT_GIVEN, "16G")


@pytest.mark.parametrize(
    ("gpus", "cards"),
    [
        ("gpus: [{driver: nvidia, count: 2}]", "0,1"),
        ("gpus: [{device_ids: ['1']}]", "1"),
        ("devices: [nvidia.com/gpu=1]", "1"),
        ("devices: [/dev/dri:/dev/dri]", None),
        ("devices: [/dev/snd]", NOT_GIVEN),
        ("deploy: {resources: {reservations: {devices: [{driver: cdi, device_ids: [nvidia.com/gpu=all]}]}}}", None),
    ],
)
def test_a_service_gets_the_gpus_that_it_names(gpus: str, cards: str | None) -> None:
    parsed = read(f"services:\n  a:\n    image: x/llama.cpp:server-cuda\n    command: -m a.gguf\n    {gpus}\n")
    assert parsed.env.get(IN_CONTAINER) == cards


# The shape of the compose files for images of one's own, with the `--server` of the full image.
def test_a_service_without_an_image_is_read() -> None:
    parsed = read(
        "services:\n  llama-cpp:\n    build:\n      context: https://github.com/ggerganov/llama.cpp.git#master\n"
        "      dockerfile: .devops/full-cuda.Dockerfile\n    command: >-\n      --server\n"
        "      --model /models/airoboros-l2-13b-2.2.1.Q6_K.gguf\n      --ctx-size 4096\n      --n-gpu-layers 33\n"
        "    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n"
        "              count: 1\n              capabilities: [gpu]\n"
    )
    assert (parsed.flags.n_ctx, parsed.flags.n_gpu_layers, parsed.unknown) == (4096, 33, ())
    assert (parsed.program, parsed.env[IN_CONTAINER]) == ("llama-server", "0")


def test_an_image_of_the_command_line_alone_starts_that() -> None:
    image = "ghcr.io/ggml-org/llama.cpp:light-cuda"
    assert parse(f"docker run --gpus all {image} -m a.gguf").program == "llama-cli"
    assert parse(f"docker run --gpus all {image.replace('light', 'server')} -m a.gguf").program == "llama-server"


# github.com/ggml-org/llama.cpp/issues/2535: "error: unknown argument: -m /models/…", as of an item of a list.
def test_an_option_and_its_value_in_one_word_are_read_and_told() -> None:
    parsed = read(
        "services:\n  embedding:\n    image: ghcr.io/ggml-org/llama.cpp:server-cuda13\n    gpus: all\n    command:\n"
        "      - -m /models/unsloth/Qwen3-Embedding-4B-f16.gguf\n      - --embedding\n"
        '      - --ctx-size "4096"\n'
    )
    assert (parsed.model_path, parsed.flags.n_ctx) == ("/models/unsloth/Qwen3-Embedding-4B-f16.gguf", 4096)
    assert parsed.unknown == ("-m /models/unsloth/Qwen3-Embedding-4B-f16.gguf", '--ctx-size "4096"')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # github.com/containers/ramalama/pull/1238
        (
            "podman run --replace --name llama_rpc_cuda_0 -it --gpus=all \\\n  --runtime "
            "/usr/bin/nvidia-container-runtime -network host \\\n  quay.io/ramalama/cuda /usr/bin/rpc-server -p 50052",
            "an RPC server, which lends the devices",
        ),
        ("ggml-rpc-server -H 0.0.0.0 -p 50052 -c", "an RPC server, which lends the devices"),
        # github.com/mostlygeek/llama-swap/issues/809
        (
            "models:\n  Whisper-Large-V3-Turbo:\n    checkEndpoint: /\n    cmd: |\n      whisper-server\n"
            "        --host 127.0.0.1\n        --port ${PORT}\n        --model /models/ggml-large-v3-turbo-q8_0.bin\n",
            r"a command of whisper\.cpp",
        ),
        ("docker run --gpus all vllm/vllm-openai:v0.10.0 --model meta-llama/Llama-3.1-8B", "a command of vLLM"),
        (
            "services:\n  a:\n    image: vllm/vllm-openai\n    command: --model meta-llama/Llama-3.1-8B\n",
            "a command of vLLM",
        ),
        ("docker service create --name llama x/llama.cpp:server-cuda -m a.gguf", "no program and no option"),
        ("python server.py --model Qwen3-30B-A3B-Q4_K_M.gguf --gpu-layers 48 --api", "text-generation-webui"),
        ("FROM ./qwen2.5-coder.gguf\nPARAMETER num_ctx 32768\nPARAMETER num_gpu 99\n", "a file of Ollama"),
        ("name: qwen3\nbackend: llama-cpp\ncontext_size: 32768\ngpu_layers: 99\n", "a file of LocalAI"),
        ('{"load": {"fields": [{"key": "llm.load.contextLength", "value": 32768}]}}', "a file of LM Studio"),
        ("services:\n  a:\n    image: ghcr.io/mostlygeek/llama-swap:cuda\n    command: -a b\n", "give its config.yaml"),
        ("services:\n  llama:\n\timage: ghcr.io/ggml-org/llama.cpp:server\n", "not YAML"),
        ("apiVersion: v1\nkind: Service\nmetadata:\n  name: llama\nspec:\n  type: ClusterIP\n", "nothing in the file"),
    ],
)
def test_what_starts_no_model_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(InvalidFlags, match=why):
        parse(text)


def test_a_container_that_is_created_is_read() -> None:
    parsed = parse("docker create --gpus '\"device=1\"' --memory 16g x/llama.cpp:server-cuda -m a.gguf -ngl 99")
    assert (parsed.model_path, parsed.env[IN_CONTAINER], parsed.env["MemoryMax"]) == ("a.gguf", "1", "16g")


def test_arguments_of_koboldcpp_s_image_are_read() -> None:
    run = 'docker run --gpus all -e KCPP_ARGS="--gpulayers 99 --contextsize 16384 --multiuser 20" koboldai/koboldcpp'
    parsed = parse(run)
    assert (parsed.flags.n_ctx, parsed.flags.n_gpu_layers) == (16_384, 99)


@pytest.mark.parametrize("image", ["ghcr.io/me/llama_cpp:server-cuda", "films/llama.cpp:server-cuda", "x/vllama:y"])
def test_an_image_with_a_similar_name_starts_the_server(image: str) -> None:
    assert parse(f"docker run --gpus all {image} -m a.gguf").program == "llama-server"


def test_a_cpu_that_two_ranges_name_counts_once() -> None:
    assert cpus_given({"AllowedCPUs": "0-3,2-5"}, (), 16) == 6
    assert cpus_given({"AllowedCPUs": "0-9999," * 200 + "0"}, (), 64) == 64
