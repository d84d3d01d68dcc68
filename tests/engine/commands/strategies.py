"""Every Flags that our planner can make, by engine and tool, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from service.engine.commands.expert_rules import expert_override
from service.engine.config import Engine, Flags, Override, Tool
from service.engine.engines import engine_spec

_DEVICES = st.sampled_from(["CPU", "CUDA0", "CUDA1", "CUDA7", "Vulkan0"])
_LAYERS = st.sets(st.integers(0, 127), min_size=1, max_size=40)
_PATTERNS = st.one_of(
    _LAYERS.map(expert_override),
    st.sampled_from(["exps", r"\.ffn_.*_exps\.", r"^output\.weight$", r"blk\.(3|4)\.ffn_(?!down)", "it's", 'a"b $x']),
)
_OVERRIDES = st.lists(st.builds(Override, _PATTERNS, _DEVICES), max_size=6).map(tuple)
_SHARES = st.one_of(st.integers(0, 999).map(float), st.floats(0.001, 999, allow_nan=False))


def flags_for(engine: Engine, tool: Tool) -> st.SearchStrategy[Flags]:
    """Return a strategy of the flags that `tool` of `engine` has options for."""
    ik, server = engine == "ik_llama.cpp", tool == "server"
    optional = {
        "mla": st.sampled_from([None, 0, 1, 2, 3]) if ik else st.none(),
        "attn_max_batch": st.sampled_from([None, 128, 512, 2048]) if ik else st.none(),
        "fused_moe": st.booleans() if ik else st.just(True),
        "runtime_repack": st.booleans() if ik else st.just(False),
        "n_logits": st.sampled_from([None, 1, 64]) if ik else st.none(),
        "mmap": st.sampled_from([None, False] if ik else [None, True, False]),
        "mlock": st.booleans() if ik else st.just(False),
        "n_parallel": st.integers(1, 8) if ik or server else st.just(1),
        "threads_batch": st.sampled_from([None, 8, 64]) if ik or server else st.none(),
        "jinja": st.booleans() if server else st.just(False),
        "cpu_moe": st.booleans() if ik or server else st.just(False),
        "other": st.sampled_from([(), ("-ser 6,1", "-muge"), ("-dev CUDA0,CUDA1",)] if ik else [(), ("-dev CUDA0",)]),
        "split_mode": st.sampled_from(["layer", "graph", "none"] if ik else ["layer", "row", "none"]),
        "flash_attn": st.sampled_from(["on", "off", "auto"]),
        "cache_type_k": st.sampled_from(engine_spec(engine).commands.cache_types(tool)),
        "cache_type_v": st.sampled_from(engine_spec(engine).commands.cache_types(tool)),
    }
    return st.builds(
        Flags,
        n_ctx=st.integers(1, 1 << 20),
        n_batch=st.sampled_from([512, 2048, 4096]),
        n_ubatch=st.sampled_from([128, 512, 1024, 4096]),
        n_gpu_layers=st.sampled_from([0, 1, 30, 999]),
        tensor_split=st.lists(_SHARES, max_size=8).map(tuple),
        main_gpu=st.sampled_from([None, 0, 3]),
        overrides=_OVERRIDES,
        n_cpu_moe=st.sampled_from([0, 7]),
        no_kv_offload=st.booleans(),
        op_offload=st.booleans(),
        threads=st.sampled_from([None, 1, 96]),
        numa=st.sampled_from([None, "distribute", "numactl"]),
        **optional,
    )
