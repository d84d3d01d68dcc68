"""Documents of runs: one as the service writes it, and any that hypothesis can think of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from service.engine.commands.expert_rules import dense_override, expert_override
from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.run_flags import RunFlags, RunOverride
from service.wire.measuring.agent import RunDocument, RunFile

SHARD = RunFile(path="IQ4_KS/Qwen3-30B-A3B-IQ4_KS.gguf", size=1000, sha256="ab" * 32)
DOCUMENT = RunDocument(
    engine="ik_llama.cpp",
    engine_builds=("cd" * 32,),
    repo="ubergarm/Qwen3-30B-A3B-GGUF",
    revision="0123456789abcdef0123456789abcdef01234567",
    files=(SHARD,),
    gpus=(1, 0),
    flags=RunFlags(
        n_ctx=16384,
        n_ubatch=1024,
        tensor_split=(3.0, 1.5),
        overrides=(
            RunOverride(r"blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps", "CUDA0"),
            RunOverride("exps", "CPU"),
        ),
        cache_type_k="q8_0",
        cache_type_v="q8_0",
        threads=16,
    ),
    depths=(0, 2000, 4000),
    n_prompt=1024,
    n_gen=64,
    seconds=300,
)
MAINLINE = replace(DOCUMENT, engine="llama.cpp")

HOSTILE = [
    ";", "$(id)", "`id`", "a\nb", "--rpc", "-m", "/etc/passwd", "-m /etc/passwd", "--lora", "--log-file", "../../x", "",
    "exps;-m", "exps,x=CPU", "exps=CPU", "-ot", "CUDA0\n", "\0", "é", "1e999", "NaN", "|sh", "&", "x y", "--help",
    -1, 0, 1, 2**31, 2**63, 1.5, -0.0, 1e300, None, True, [], {}, ["exps"], {"pattern": "--rpc", "device": "CPU"},
]  # fmt: skip


def flags_of(engine: Engine) -> st.SearchStrategy[RunFlags]:
    """Return a strategy of the flags that the engine's bench program has options for."""
    ik = engine == "ik_llama.cpp"
    layers = st.sets(st.integers(0, 99), min_size=1, max_size=20)
    patterns = layers.map(expert_override) | layers.map(dense_override) | st.sampled_from(["exps", r"\.ffn_.*_exps\."])
    overrides = st.builds(RunOverride, patterns, st.sampled_from(["CPU", "CUDA0", "CUDA7", "ROCm1", "Vulkan15"]))
    shares = st.integers(0, 1_000_000).map(float) | st.floats(0.001, 999, allow_nan=False)
    types = st.sampled_from(engine_spec(engine).commands.cache_types("bench"))
    return st.builds(
        RunFlags,
        n_ctx=st.integers(1 << 17, 1 << 22),
        n_batch=st.integers(1, 1 << 16),
        n_ubatch=st.integers(1, 1 << 16),
        n_gpu_layers=st.integers(0, 999),
        split_mode=st.sampled_from(["none", "layer", "graph", "attn"] if ik else ["none", "layer", "row", "tensor"]),
        tensor_split=st.lists(shares, max_size=16).map(tuple),
        main_gpu=st.none() | st.integers(0, 15),
        overrides=st.lists(overrides, max_size=8).map(tuple),
        cpu_moe=st.booleans() if ik else st.just(False),
        n_cpu_moe=st.integers(0, 999),
        no_kv_offload=st.booleans(),
        flash_attn=st.sampled_from(["on", "off", "auto"]),
        cache_type_k=types,
        cache_type_v=types,
        mla=st.none() | st.integers(0, 3) if ik else st.none(),
        attn_max_batch=st.none() | st.integers(0, 1 << 16) if ik else st.none(),
        fused_moe=st.booleans() if ik else st.just(True),
        runtime_repack=st.booleans() if ik else st.just(False),
        op_offload=st.booleans(),
        threads=st.none() | st.integers(1, 1024),
        threads_batch=st.none() | st.integers(1, 1024) if ik else st.none(),
        mmap=st.sampled_from([None, False] if ik else [None, True, False]),
        mlock=st.booleans() if ik else st.just(False),
        numa=st.sampled_from([None, "distribute", "isolate", "numactl"]),
    )


@st.composite
def spoiled(draw: st.DrawFn, document: Any) -> Any:
    """Return a document's JSON value with some of its leaves, fields or all of it replaced by what a stranger sends."""
    value = document
    for _ in range(draw(st.integers(1, 3))):
        value = _spoil(draw, value)
    return value


def _spoil(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        extra = {draw(st.sampled_from(["other", "env", "program", "-m", "argv"])): "x"} if draw(st.booleans()) else {}
        return value | {key: _spoil(draw, value[key])} | (extra if not draw(st.integers(0, 4)) else {})
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], _spoil(draw, value[index]), *value[index + 1 :]]
    return draw(st.sampled_from(HOSTILE) | st.text(max_size=20) | st.integers())
