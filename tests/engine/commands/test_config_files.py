"""Commands in the files of other programs, held to those programs' own schema and examples, and read back."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from service.engine.commands.config_files import Served, config_file, launch_of
from service.engine.commands.forms import docker, systemd
from service.engine.commands.parse import parse
from service.engine.commands.read_files import commands_of
from service.engine.commands.render import Launch, bash, launch
from service.engine.commands.unwrap import IN_CONTAINER, NOT_GIVEN
from service.engine.config import ENGINES, Engine, FileFormat, Flags, Override
from service.engine.errors import InvalidFlags
from tests.engine.commands.strategies import flags_for

DATA = Path(__file__).parents[2] / "data"
SCHEMA = Draft7Validator(json.loads((DATA / "llama_swap" / "config-schema.json").read_text()))
ENV = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0"}
EXPERTS = Flags(
    n_ctx=32768, n_batch=4096, n_ubatch=4096, overrides=(Override(r"blk\.(7|1[0-9])\.ffn_.*_exps\.$", "CPU"),)
)  # fmt: skip
SEVERAL: tuple[FileFormat, ...] = ("llama-swap", "preset")


def model(
    engine: Engine, flags: Flags, name: str = "m", env: dict[str, str] = ENV, prefix: tuple[str, ...] = ()
) -> Served:
    command = launch(engine, "server", flags, model_path="models/o/Some-GGUF/a b.gguf", env=env, prefix=prefix)
    return Served(
        name=name,
        engine=engine,
        server=bash(command),
        docker=docker(engine, Launch(command.env, (), command.program, command.arguments), "cuda", "models", pins=True),
        systemd=systemd(command, "a model", pins=True),
        remarks=("about 10 t/s",),
    )


def same(text: str, line: str, engine: Engine) -> None:
    """Both mean the same flags, variables and launcher."""
    ours, theirs = parse(line, engine), parse(text, engine)
    assert (theirs.flags, theirs.env, theirs.prefix, theirs.unknown) == (ours.flags, ours.env, ours.prefix, ())
    assert (theirs.model_path or "").endswith("models/o/Some-GGUF/a b.gguf")


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_what_llama_swap_and_the_router_are_given_is_the_command(engine: Engine, data: st.DataObject) -> None:
    one = model(engine, data.draw(flags_for(engine, "server")), prefix=("numactl", "--interleave=all"))
    same(commands_of(config_file("llama-swap", [one]))[0].command, one.server, engine)
    if engine == "llama.cpp":
        same(commands_of(config_file("preset", [one]))[0].command, one.server, engine)


@pytest.mark.parametrize("form", ["compose", "systemd"])
@pytest.mark.parametrize("engine", ENGINES)
def test_one_service_is_the_command(engine: Engine, form: FileFormat) -> None:
    one = model(engine, EXPERTS)
    text = config_file(form, [one])
    parsed, ours = parse(text, engine), parse(one.server, engine)
    assert (parsed.flags, parsed.env, parsed.unknown) == (ours.flags, ours.env, ())


def test_variables_are_the_command_where_there_is_one_for_every_option() -> None:
    one = model("llama.cpp", EXPERTS)
    text = config_file("env", [one])
    assert "LLAMA_ARG_CTX_SIZE=32768\n" in text
    parsed, ours = parse(text), parse(one.server)
    assert parsed.flags == ours.flags
    assert {name: parsed.env[name] for name in ENV} == ENV
    with_images = model("llama.cpp", msgspec.structs.replace(EXPERTS, other=("--mmproj models/p.gguf",)))
    assert "LLAMA_ARG_MMPROJ=models/p.gguf\n" in config_file("env", [with_images])
    with pytest.raises(InvalidFlags, match="no variable stands for -tb"):
        config_file("env", [model("llama.cpp", msgspec.structs.replace(EXPERTS, threads_batch=8))])
    with pytest.raises(InvalidFlags, match=r"ik_llama\.cpp takes few options from the environment"):
        config_file("env", [model("ik_llama.cpp", EXPERTS)])


def test_llama_swaps_file_keeps_its_schema_and_says_what_runs_together() -> None:
    models = [model(engine, EXPERTS, name) for engine, name in zip((*ENGINES, "llama.cpp"), "abc", strict=True)]
    content = msgspec.yaml.decode(config_file("llama-swap", models, [["a", "c"]]))
    SCHEMA.validate(content)
    assert list(content["models"]) == ["a", "b", "c"]
    assert content["models"]["a"]["env"] == [f"{name}={value}" for name, value in ENV.items()]
    assert shlex.split(content["models"]["a"]["cmd"])[-2:] == ["--port", "${PORT}"]
    assert content["matrix"] == {"vars": {"m1": "a", "m2": "b", "m3": "c"}, "sets": {"set1": "m1 & m3"}}


def test_the_models_of_llama_swaps_own_example_are_read_with_their_macros_and_variables() -> None:
    found = {one.name: one.command for one in commands_of((DATA / "llama_swap" / "config.example.yaml").read_text())}
    assert list(found) == ["gpt-oss-120b", "unlisted-model", "docker-llama"]
    parsed = parse(found["gpt-oss-120b"])
    assert (parsed.model_path, parsed.env["CUDA_VISIBLE_DEVICES"]) == ("path/to/gpt-oss-120B.gguf", "0,1,2")
    assert parsed.program.startswith("llama-server")
    assert parse(found["docker-llama"]).model_path == "/models/Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"


def test_a_preset_gives_shared_options_to_each_of_its_models() -> None:
    text = (
        "; a comment\nversion = 1\n[*]\nn-gpu-layers = 99\nflash-attn = on\nno-mmap = true\n"
        "[small]\nmodel = /models/a.gguf\nctx-size = 8192 ; behind a value\nLLAMA_ARG_BATCH = 1024\n"
        "[large]\nmodel = /models/b.gguf\nn-gpu-layers = 20\njinja = false\nload-on-startup = true\n"
    )
    small, large = (parse(one.command) for one in commands_of(text))
    assert (small.flags.n_ctx, small.flags.n_gpu_layers, small.flags.n_batch) == (8192, 99, 1024)
    assert (large.model_path, large.flags.n_gpu_layers, large.flags.jinja) == ("/models/b.gguf", 20, False)
    assert (small.flags.mmap, large.flags.mmap, small.unknown, large.unknown) == (False, False, (), ())
    with pytest.raises(InvalidFlags) as refused:
        parse(text)
    assert refused.value.choices == ("small", "large")


def test_a_router_starts_all_models_alike() -> None:
    other = model("llama.cpp", EXPERTS, "other", {"CUDA_VISIBLE_DEVICES": "1"})
    with pytest.raises(InvalidFlags, match="these need different starts"):
        config_file("preset", [model("llama.cpp", EXPERTS), other])
    with pytest.raises(InvalidFlags, match="has no router"):
        config_file("preset", [model("ik_llama.cpp", EXPERTS)])


@pytest.mark.parametrize("form", ["compose", "env", "systemd"])
def test_a_file_for_one_model_refuses_two(form: FileFormat) -> None:
    with pytest.raises(InvalidFlags) as refused:
        config_file(form, [model("llama.cpp", EXPERTS), model("llama.cpp", EXPERTS, "n")])
    assert refused.value.choices == SEVERAL


def test_compose_is_read_in_each_spelling_of_its_parts() -> None:
    text = """
services:
  database:
    image: postgres:18
    command: postgres -c shared_buffers=1GB
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    gpus: all
    command: -m /models/a.gguf -ngl 99 --ctx-size 16384 -ot "exps=CPU"
    environment:
      CUDA_VISIBLE_DEVICES: 0
"""
    (one,) = commands_of(text)
    parsed = parse(one.command)
    assert (one.name, parsed.program, parsed.flags.n_ctx) == ("llama", "llama-server", 16384)
    assert parsed.env == {"CUDA_VISIBLE_DEVICES": "0"}
    assert parsed.flags.overrides == (Override("exps", "CPU"),)


@pytest.mark.parametrize(
    ("devices", "given"), [("device_ids: ['1', '3']", "1,3"), ("count: 2", "0,1"), ("count: all", None)]
)
def test_the_cards_that_a_service_reserves_are_read(devices: str, given: str | None) -> None:
    text = f"""services:
  llama:
    image: ghcr.io/ggml-org/llama.cpp:server-cuda
    command: -m /models/a.gguf -c 8
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, {devices}}}]}}}}}}
"""
    assert parse(text).env.get(IN_CONTAINER) == given


KOBOLD: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "koboldcpp.exe --model a.gguf --gpulayers 99 --moecpu 30 --contextsize 32768 --tensor_split 3 1 --quantkv 1",
        {"n_gpu_layers": 99, "n_cpu_moe": 30, "n_ctx": 32768, "tensor_split": (3.0, 1.0), "cache_type_k": "q8_0"},
    ),
    (
        "koboldcpp --model a.gguf --usecublas lowvram 0 rowsplit --blasbatchsize 1024",
        {"no_kv_offload": True, "n_ubatch": 1024, "split_mode": "row"},
    ),
    ("koboldcpp --model a.gguf --usecuda normal 1 mmq --tensor_split 1 3", {"main_gpu": 1, "split_mode": "layer"}),
    ("python koboldcpp.py a.gguf --lowvram --batchsize 2048", {"no_kv_offload": True, "n_ubatch": 2048, "n_ctx": 8192}),
)


@pytest.mark.parametrize(("text", "flags"), KOBOLD)
def test_koboldcpps_command_is_read_as_llama_server(text: str, flags: dict[str, Any]) -> None:
    parsed = parse(text)
    assert (parsed.program, parsed.model_path, parsed.unknown) == ("llama-server", "a.gguf", ())
    assert {name: getattr(parsed.flags, name) for name in flags} == flags
    assert (parsed.old, parsed.flags.mmap) == ((), False)


def test_koboldcpp_runs_one_request_at_a_time_and_windows_are_whole_only_if_asked_for() -> None:
    """LostRuins/koboldcpp issues 2235 (windows by default since June 2026) and 2464 (`noswa`)."""
    plain, whole = (parse(f"koboldcpp --model a.gguf --gpulayers 99{more}").flags for more in ("", " --noswa"))
    assert (plain.n_parallel, plain.other) == (1, ("-cram 0", "-ctxcp 0"))
    assert "--swa-full" in whole.other


def test_what_is_not_counted_of_koboldcpp_is_kept_and_the_card_it_names_is_the_only_one() -> None:
    parsed = parse("koboldcpp --model a.gguf --usecublas 1 mmq --quiet --multiuser 4 --sdmodel sd.safetensors")
    assert [(left.options, left.loads) for left in parsed.left_out] == [
        (("--sdmodel",), True),
        (("--quiet", "--multiuser"), False),
    ]
    assert parsed.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert parse("koboldcpp --model a.gguf --gpulayers 9").left_out == ()


def test_a_settings_file_of_koboldcpp_is_read() -> None:
    parsed = parse((DATA / "koboldcpp" / "qwen08rpctest.kcpps").read_text())
    assert parsed.model_path == "/home/user/Downloads/Qwen3.5-0.8B-Q8_0.gguf"
    assert (parsed.flags.n_ctx, parsed.flags.n_batch, parsed.flags.threads, parsed.unknown) == (8192, 512, 7, ())
    with pytest.raises(InvalidFlags, match="not a settings file of KoboldCpp"):
        parse('{"a": 1}')


def test_a_launch_is_found_again_in_its_line() -> None:
    command = launch("llama.cpp", "server", EXPERTS, model_path="a b.gguf", env=ENV, prefix=("numactl", "-N", "0"))
    assert launch_of(bash(command)) == command


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidFlags):
        assert commands_of(text)


def test_a_compose_service_with_variables_alone_is_read() -> None:
    text = (
        "services:\n  llama:\n    image: ghcr.io/ggml-org/llama.cpp:server-cuda\n    gpus: all\n    environment:\n"
        "      LLAMA_ARG_HF_REPO: unsloth/Qwen3-4B-GGUF:Q4_K_M\n      LLAMA_ARG_CTX_SIZE: 16384\n"
        "      LLAMA_ARG_N_GPU_LAYERS: 99\n"
    )
    parsed = parse(text)
    assert (parsed.program, parsed.flags.n_ctx, parsed.flags.n_gpu_layers) == ("llama-server", 16384, 99)
    assert IN_CONTAINER not in parsed.env
    assert parse(text.replace("    gpus: all\n", "")).env[IN_CONTAINER] == NOT_GIVEN


def test_a_part_of_a_llama_swap_file_and_short_keys_of_a_preset_are_read() -> None:
    (part,) = commands_of(
        '  "qwen3-8b":\n    cmd: >\n      llama-server\n      -m a.gguf\n      --port ${PORT} -ngl 99\n    ttl: 6\n'
    )
    assert part.name == "qwen3-8b"
    assert parse(part.command).flags.n_gpu_layers == 99
    (preset,) = commands_of("[*]\nfitt = 300\nctk = q8_0\n\n[a.gguf]\nmodel = a.gguf\n")
    assert parse(preset.command).unknown == ()


# As posted in llama.cpp issue 9556: a service without the list around it.
def test_a_service_of_compose_alone_is_read() -> None:
    service = (
        "llamacpp-server:\n  image: ghcr.io/ggml-org/llama.cpp:server-cuda\n  environment:\n"
        "    LLAMA_ARG_MODEL: /model/a.gguf\n    LLAMA_ARG_N_GPU_LAYERS: -1\n"
    )
    (one,) = commands_of(service)
    assert (one.name, parse(service).model_path) == ("llamacpp-server", "/model/a.gguf")


# As posted in llama.cpp issue 17060.
@pytest.mark.parametrize("form", ["{}", "[{}]", "[\n  {}\n]"])
def test_what_docker_prints_of_a_container_is_read(form: str) -> None:
    container = {"Id": "499c", "Path": "/app/llama-server", "Args": ["-ngl", "99", "-m", "/m/a b.gguf", "-c", "0"]}
    parsed = parse(form.replace("{}", json.dumps(container, indent=1)))
    assert (parsed.words.program, parsed.model_path) == ("/app/llama-server", "/m/a b.gguf")
    assert parsed.flags.n_gpu_layers == 99


# As posted in llama.cpp issues 18143 and 24681: a word of the command that the router starts on each line.
def test_what_the_router_prints_of_a_model_it_starts_is_read() -> None:
    printed = (
        "spawning server instance with args:", "  /app/llama-server", "  --model", "  /m/a.gguf", "  -ncmoe", "  30",
        "  --split-mode", "  tensor", "  --tensor-split", "  30,25",
    )  # fmt: skip
    parsed = parse("\n".join(f"llama-cpp       | 0.05.862.781 I srv          load: {line}" for line in printed))
    assert (parsed.model_path, parsed.flags.n_cpu_moe, parsed.flags.split_mode) == ("/m/a.gguf", 30, "tensor")
    assert (parsed.flags.tensor_split, parsed.unknown) == ((30.0, 25.0), ())


# The shape of a list of 2026 for an env file.
def test_a_list_of_variables_may_have_remarks() -> None:
    parsed = parse("LLAMA_ARG_CTX_SIZE=8192\nLLAMA_ARG_MMPROJ_OFFLOAD=false          # == --no-mmproj-offload\n")
    assert (parsed.program, parsed.flags.n_ctx) == ("llama-server", 8192)


# As posted in llama.cpp issue 23502.
def test_a_switch_of_a_preset_may_be_on_or_1() -> None:
    parsed = parse("[a]\nm = a.gguf\nmlock = on     ; lock\nkvu = on\njinja = 1\nfa = on\n")
    assert (parsed.unknown, parsed.flags.mlock, parsed.flags.flash_attn) == ((), True, "on")
    assert "-kvu" in parsed.words.options


# As posted in llama-swap issue 281: a folded macro ends in a line break.
def test_a_folded_macro_is_no_broken_line() -> None:
    macros = "macros:\n  llama: >\n    /bin/llama-server\n    -t 10\n"
    text = f"{macros}models:\n  a:\n    cmd: |\n      ${{llama}}\n      -m a.gguf\n"
    (one,) = commands_of(text)
    assert one.command.split() == ["/bin/llama-server", "-t", "10", "-m", "a.gguf"]
    assert "\n" not in one.command


# As posted in llama-swap issue 240: a file of llama-swap inside one of compose.
def test_a_file_of_llama_swap_inside_one_of_compose_is_read() -> None:
    inner = "models:\n  a:\n    cmd: >\n      /app/llama-server\n      -m a.gguf\n      --ctx-size 8192\n"
    text = "configs:\n  swap:\n    content: |\n" + "".join(f"      {line}\n" for line in inner.splitlines())
    text += "services:\n  llama-swap:\n    image: ghcr.io/mostlygeek/llama-swap:cuda\n"
    (one,) = commands_of(text)
    assert (one.name, parse(one.command).flags.n_ctx) == ("a", 8192)


# As in public repositories of 2026 (unsloth/Qwen3.8-Flash-Next-GGUF on a Strix Halo, in part); modelsPreset shortened.
NIX_SETTINGS = """\
  services.llama-cpp = {
    enable = true;
    package = pkgs.llama-cpp-vulkan;
    openFirewall = true;
    settings = {
      host = "::";
      port = 8080;
      hf-repo = "unsloth/Qwen3.8-Flash-Next-GGUF:UD-Q3_K_XL";
      alias = "qwen3.8-flash-next";
      ctx-size = 262144;
      n-gpu-layers = 999;
      flash-attn = "on";
      # Unified memory: with mmap the weights would sit in both page cache and GTT.
      load-mode = "none";
      parallel = 1;
      jinja = true;
      metrics = true;
      temp = 1.0;
    };
  };
  systemd.services.llama-cpp = {
    # The first start downloads t
  };"""
NIX_FLAGS = """\
services.llama-cpp = {
  enable = true;
  package = pkgs.llama-cpp.override { cudaSupport = true; };
  model = "/var/lib/llama/Qwen3-30B-A3B-Q4_K_M.gguf";
  host = "0.0.0.0";
  port = 8080;
  extraFlags = [
    "-c" "32768"
    "-ngl" "99"
    "--flash-attn" "on"
    "-ot" "exps=CPU"
  ];
};"""
NIX_PRESETS = """\
services.llama-cpp = {
    enable = true;
    host = globals.hosts.chewie.ipv4;
    modelsPreset = {
      "qwen3.6-27b-instruct" = {
        model = aiModels."qwen36-27b";
        # --- Memory & GPU ---
        ctx-size = "131072";
        n-gpu-layers = "9999";
        flash-attn = "on";
        cache-type-k = "q4_0";
        jinja = "on";
      };
      "other" = { model = "/m/b.gguf"; ctx-size = 4096; };
    };
  };"""
NIX_UNIT = """\
ExecStart = ''
  ${pkgs.llama-cpp}/bin/llama-server \\
    -m /models/a.gguf \\
    -c 4096
'';"""


def test_a_nixos_service_is_read_by_its_settings() -> None:
    parsed = parse(NIX_SETTINGS)
    assert (parsed.engine, parsed.unknown, parsed.refused) == ("llama.cpp", (), ())
    assert (parsed.flags.n_ctx, parsed.flags.n_gpu_layers, parsed.flags.mmap) == (262_144, 999, False)
    assert "--hf-repo unsloth/Qwen3.8-Flash-Next-GGUF:UD-Q3_K_XL" in parsed.flags.other
    one = parse('services.llama-cpp = { enable = true; settings.hf-repo = "unsloth/Qwen3.6-35B-A3B-GGUF:UD-IQ4_XS"; };')
    assert one.flags.other[0] == "--hf-repo unsloth/Qwen3.6-35B-A3B-GGUF:UD-IQ4_XS"


def test_a_nixos_service_is_read_by_its_words_and_its_unit() -> None:
    parsed = parse(NIX_FLAGS)
    assert (parsed.model_path, parsed.flags.n_ctx) == ("/var/lib/llama/Qwen3-30B-A3B-Q4_K_M.gguf", 32_768)
    assert [(rule.pattern, rule.device) for rule in parsed.flags.overrides] == [("exps", "CPU")]
    unit = parse(NIX_UNIT)
    assert (unit.program, unit.model_path, unit.flags.n_ctx) == ("llama-server", "/models/a.gguf", 4096)


def test_the_models_of_a_nixos_preset_are_commands_and_an_expression_is_quoted() -> None:
    names = {one.name: parse(one.command) for one in commands_of(NIX_PRESETS)}
    assert names["qwen3.6-27b-instruct"].model_path == 'aiModels."qwen36-27b"'
    assert names["other"].flags.n_ctx == 4096
    (refused,) = parse('services.llama-cpp.settings = { model = "a.gguf"; ctx-size = cfg.context; };').refused
    assert "cfg.context" in refused.detail


def test_a_nixos_service_without_options_is_refused_with_what_to_paste() -> None:
    with pytest.raises(InvalidFlags, match="systemctl cat llama-cpp"):
        parse("{ pkgs, ... }:\n{\n  services.llama-cpp = {\n    enable = true;\n  };\n}")
