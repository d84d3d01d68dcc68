"""Options of the engines' programs: which of them set which field of Flags, and which others exist.

`options.json` lists every name that today's programs know, by whether a value follows: ik_llama.cpp 8337e4cd3
(common/common.cpp `gpt_params_find_arg`, examples/llama-bench/llama-bench.cpp) and llama.cpp 0c1e57098 (`--help`).
"""

from __future__ import annotations

from functools import cache
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine
from service.engine.engines import engine_spec

MODEL_REPO = ("-hf", "-hfr", "--hf-repo")  # names of the option for the model's repo,
MODEL_URL = ("-mu", "--model-url")  # and of that for its address

Kind: TypeAlias = Literal["int", "text", "cache", "on", "off", "special", "tests"]


class Option(msgspec.Struct, frozen=True):
    """An option with a field of Flags. `names`: spellings of both engines, old ones too; the first known is printed.

    Kinds: a whole number, a text, a cache type, a switch that turns the field on or off (bare, or with 0|1 where the
    program wants a value), llama-bench's token counts, or one with a meaning of its own (`OptionReader`).
    """

    field: str
    kind: Kind
    names: tuple[str, ...]


def _option(field: str, kind: Kind, names: str) -> Option:
    return Option(field, kind, tuple(names.split()))


# fmt: off
OPTIONS: tuple[Option, ...] = (
    #       field              kind       spellings
    _option("model_path",      "special", "-m --model"),
    _option("n_ctx",           "int",     "-c --ctx-size"),
    _option("n_batch",         "int",     "-b --batch-size"),
    _option("n_ubatch",        "int",     "-ub --ubatch-size"),
    _option("n_gpu_layers",    "special", "-ngl --gpu-layers --n-gpu-layers"),
    _option("fit",             "special", "-fit --fit"),
    _option("flash_attn",      "special", "-fa --flash-attn"),
    _option("no_flash_attn",   "special", "-no-fa --no-flash-attn"),
    _option("cache_type_k",    "cache",   "-ctk --cache-type-k"),
    _option("cache_type_v",    "cache",   "-ctv --cache-type-v"),
    _option("mla",             "int",     "-mla --mla-use --mla-attn"),
    _option("attn_max_batch",  "int",     "-amb --attention-max-batch --attn-max-batch"),
    _option("split_mode",      "text",    "-sm --split-mode"),
    _option("tensor_split",    "special", "-ts --tensor-split"),
    _option("main_gpu",        "int",     "-mg --main-gpu"),
    _option("no_kv_offload",   "on",      "-nkvo --no-kv-offload"),
    _option("no_kv_offload",   "off",     "-kvo --kv-offload"),
    _option("overrides",       "special", "-ot --override-tensor --override-tensors"),
    _option("cpu_moe",         "on",      "-cmoe --cpu-moe"),
    _option("n_cpu_moe",       "int",     "-ncmoe --n-cpu-moe"),
    _option("n_cpu_ffn",       "special", "-ncffn --n-cpu-ffn"),
    _option("op_offload",      "off",     "-nopo --no-op-offload"),
    _option("op_offload",      "on",      "--op-offload"),
    _option("op_policy",       "special", "-op --offload-policy"),
    _option("fused_moe",       "off",     "-no-fmoe --no-fused-moe"),
    _option("fused_moe",       "on",      "-fmoe --fused-moe"),
    _option("runtime_repack",  "on",      "-rtr --run-time-repack"),
    _option("n_logits",        "int",     "-wgt --worst-graph-tokens"),
    _option("n_parallel",      "int",     "-np --parallel"),
    _option("threads",         "int",     "-t --threads"),
    _option("threads_batch",   "int",     "-tb --threads-batch"),
    _option("threads_of_each", "special", "-tgb --threads-gen-batch"),
    _option("mmap",            "off",     "--no-mmap"),
    _option("mmap",            "on",      "-mmp --mmap"),
    _option("mlock",           "on",      "--mlock"),
    _option("load_mode",       "special", "-lm --load-mode"),
    _option("numa",            "text",    "--numa"),
    _option("jinja",           "on",      "--jinja"),
    _option("jinja",           "off",     "--no-jinja"),
    _option("alias",           "special", "-a --alias"),
)

# llama-bench only: what is measured.
TESTS: tuple[Option, ...] = (
    _option("n_prompt",        "tests",   "-p --n-prompt"),
    _option("n_gen",           "tests",   "-n --n-gen"),
    _option("n_pg",            "tests",   "-pg"),
    _option("n_gp",            "tests",   "-gp"),
    _option("n_depth",         "tests",   "-d --n-depth"),
)
# fmt: on

# Options without a field of their own that change memory, placement or speed: kept in Flags.other, printed again.
# Meaning: docs/parameters.md of ik_llama.cpp, `--help` of both.
_AFFECTING = """
-dev --device -ser --smart-expert-reduction -ger --grouped-expert-routing -mqkv --merge-qkv -muge
--merge-up-gate-experts --merge-up-gate-exps -khad --k-cache-hadamard -vhad --v-cache-hadamard -gr --graph-reuse
-no-gr --no-graph-reuse -no-fug --no-fused-up-gate -no-mmad --no-fused-mul-multiadd -smgs
--split-mode-graph-scheduling -sas --scheduler-async -smf16 --split-mode-f16 -smf32 --split-mode-f32 -grt
--graph-reduce-type -gap --graph-attn-precision -mea --max-extra-alloc --max-gpu -cuda --cuda-params -no-ooae
--no-offload-only-active-experts -thp --transparent-huge-pages --defer-experts --prefetch-experts
--prefetch-experts-threads --fit-margin -gfm --gpu-fit-margin -fitt --fit-target -fitc --fit-ctx -ictk
--indexer-cache-type-k -ctk-first --cache-type-k-first -ctk-last --cache-type-k-last -ctv-first --cache-type-v-first
-ctv-last --cache-type-v-last --swa-compress --swa-full -dsa --dsa -dsatk --dsa-top-k -cram --cache-ram -ctx-ckpt
--ctx-checkpoints -ctxcp -md --model-draft -ngld --gpu-layers-draft --n-gpu-layers-draft -ctkd --cache-type-k-draft
-ctvd --cache-type-v-draft -cd --ctx-size-draft --spec-draft-model --spec-draft-ngl --spec-type -mm --mmproj
-mmu --mmproj-url --no-mmproj-offload -mmdev --mmproj-device -hfd -hfrd --hf-repo-draft --spec-draft-hf
--spec-draft-type-k --spec-draft-type-v -otd --override-tensor-draft --spec-draft-override-tensor -devd --device-draft
--spec-draft-device
-cmoed --cpu-moe-draft --spec-draft-cpu-moe -ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe
--spec-draft-n-max -mtprot --mtp-requantize-output-tensor --rpc -rpc
-kvu --kv-unified -no-kvu --no-kv-unified -nr --repack --no-repack
--no-host -lzm --lazy-mode --moe-cache-mib -C --cpu-mask -Cr --cpu-range --cpu-strict --poll --prio -ooae
--offload-only-active-experts -hf -hfr --hf-repo -hff --hf-file
"""
AFFECTING = frozenset(_AFFECTING.split())

# Options without a field that today's programs no longer have, or refuse with a hint: whether a value follows.
_RETIRED_BARE = """
-ooae --offload-only-active-experts -mtp --multi-token-prediction -no-mtp --no-multi-token-prediction -rcache
--rope-cache --no-dio
"""
_RETIRED_WITH_VALUE = """
-fdn --fused-delta-net -dt --defrag-thold -gan --grp-attn-n -gaw --grp-attn-w --draft --draft-max --draft-n --draft-min
--draft-n-min --draft-p-min --spec-stage --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits
--suffix-pattern-len --suffix-max-depth --suffix-corpus -cd --ctx-size-draft
"""
RETIRED = dict.fromkeys(_RETIRED_BARE.split(), False) | dict.fromkeys(_RETIRED_WITH_VALUE.split(), True)

TWO_VALUES = frozenset(["--lora-scaled", "--control-vector-scaled", "--control-vector-layer-range", "--spec-replace"])


def environment_options(engine: Engine, program: str) -> dict[str, str]:
    """Return the environment variables that stand for an option of the program, by that option's name.

    No llama-bench reads any (`env:` in the help of llama.cpp's programs; arg.cpp:787).
    """
    return {} if program == "llama-bench" else engine_spec(engine).commands.options.environment


@cache
def known_options(engine: Engine, program: str) -> dict[str, bool]:
    """Return every option name that today's `program` of `engine` accepts: whether a value follows it.

    A program that is not listed (llama-cli, llama-perplexity, …) takes the options of the engine's llama-server.
    """
    programs = engine_spec(engine).commands.options.programs
    names = programs.get(program, programs["llama-server"])
    return dict.fromkeys(names.value.split(), True) | dict.fromkeys(names.bare.split(), False)


@cache
def newer_options(engine: Engine, program: str) -> dict[str, bool]:
    """Return the options of `program` that came after the newest build known here: whether a value follows each."""
    names = engine_spec(engine).commands.options.newer
    if program == "llama-bench":
        return {}
    return dict.fromkeys(names.value.split(), True) | dict.fromkeys(names.bare.split(), False)


@cache
def option_named(name: str, bench: bool) -> Option | None:
    """Return the option of Flags (or, for llama-bench, of its tests) that is spelled `name` in any build."""
    return next((o for o in ((*TESTS, *OPTIONS) if bench else OPTIONS) if name in o.names), None)


def option_names(name: str) -> tuple[str, ...]:
    """Return every spelling of the option that is spelled `name` in any build; only `name` if it has no field."""
    option = option_named(name, bench=False)
    return option.names if option and name in option.names else (name,)
