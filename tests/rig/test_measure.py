"""What the rig reads of an engine's output, and how it is held to a recorded line."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest

from rig.commands import random_run
from rig.measure import PROGRAMS, Printed, differences, read, recorded
from service.engine.commands.parse import parse
from service.engine.config import Engine
from service.engine.units import MIB

DATA = Path(__file__).parent.parent / "data"
# Printed by llama-server of 0c1e57098 on the rig, two cards, Qwen3-0.6B in q4_0.
LINES = """\
load_tensors:   CPU_Mapped model buffer size =    83.46 MiB
load_tensors:        CUDA0 model buffer size =   126.69 MiB
load_tensors:        CUDA1 model buffer size =   193.27 MiB
llama_context:  CUDA_Host  output buffer size =     0.58 MiB
llama_kv_cache:      CUDA0 KV buffer size =   240.00 MiB
llama_kv_cache:      CUDA1 KV buffer size =   208.00 MiB
sched_reserve:      CUDA0 compute buffer size =    48.04 MiB
sched_reserve:      CUDA1 compute buffer size =    48.04 MiB
sched_reserve:  CUDA_Host compute buffer size =    26.05 MiB
sched_reserve: graph: nodes = 986, splits = 3, input objects = 4, input tensors = 6
llama_kv_cache:      CUDA0 KV buffer size =   999.00 MiB
""".splitlines()
# Printed by llama-sweep-bench of 8337e4cd3 on the rig for line 1 of memory_split_ik.jsonl, MiniMax-M2 in q8_0.
IK_LINES = """\
llm_load_tensors:  CUDA_Host buffer size = 228286.76 MiB
llm_load_tensors:      CUDA1 buffer size =   622.77 MiB
llm_load_tensors: CUDA_Split buffer size =  4528.66 MiB
llama_kv_cache_init: CUDA_Split KV buffer size =   992.09 MiB
llama_init_from_model:  CUDA_Host  output buffer size =     0.76 MiB
llama_init_from_model: split_mode_graph_scheduling = 0
llama_init_from_model:      CUDA0 compute buffer size =    64.00 MiB
llama_init_from_model:      CUDA1 compute buffer size =   396.75 MiB
llama_init_from_model:  CUDA_Host compute buffer size =    82.01 MiB
llama_init_from_model: graph nodes  = 4036
llama_init_from_model: graph splits = 312
""".splitlines()
CARD = {"weights_bytes": round(126.69 * MIB), "kv_bytes": 240 * MIB, "compute_bytes": round(48.04 * MIB)}


def test_buffers_are_summed_by_device_and_part_up_to_the_graph() -> None:
    printed = read(LINES)
    assert printed.mib["CUDA0"] == {"weights": 126.69, "kv": 240.0, "compute": 48.04}
    assert printed.mib["Host"] == {"weights": 83.46, "output": 0.58, "compute": 26.05}
    assert (printed.splits, printed.nodes, printed.failed) == (3, 986, None)


def test_what_deepseek_v4_keeps_for_its_compressors_belongs_to_the_caches() -> None:
    line = "llama_kv_cache_dsv4:      CUDA0 DSV4 csa state buffer size =     1.31 MiB"
    assert read([*LINES[:5], line, *LINES[5:]]).mib["CUDA0"]["kv"] == 241.31


def test_an_engine_that_ends_before_is_a_failure_with_its_last_words() -> None:
    assert read([*LINES[:3], "error: failed to load model"]).failed is not None


@pytest.mark.parametrize(
    ("taken", "splits", "wrong"), [(0, 3, []), (1, 3, ["CUDA0"]), (0, 4, ["graph_splits"]), (-128, 3, ["CUDA0"])]
)
def test_a_card_is_held_to_the_byte(taken: int, splits: int, wrong: list[str]) -> None:
    row = {"args": [], "measured": {"devices": {"CUDA0": CARD}, "graph_splits": 3, "graph_nodes": 986}}
    printed: Printed = read(LINES)._replace(taken=((sum(CARD.values()) + taken,),), splits=splits)
    assert [line.partition(":")[0] for line in differences(row, printed)] == wrong


def test_the_pool_of_a_first_operation_is_no_difference() -> None:
    row = {"args": [], "measured": {"devices": {"CUDA0": CARD}, "graph_splits": 3, "graph_nodes": 986}}
    total = sum(CARD.values())
    assert differences(row, read(LINES)._replace(taken=((total, total + 4096),))) == []


def test_what_all_cards_have_together_is_held_to_the_sum_of_what_was_printed() -> None:
    row, run = list(recorded(DATA / "memory_split_ik.jsonl"))[1]
    assert (run.tool, run.free_mib) == ("sweep", (73716, 135162))
    assert differences(row, read(IK_LINES)) == []
    other = [line.replace("4528.66", "4528.76") for line in IK_LINES]
    assert differences(row, read(other)) == ["all cards weights_mib: 5151.53 MiB, recorded 5151.43"]


def test_a_mapped_file_is_held_to_no_figure_of_ram() -> None:
    devices = {"CPU": {"weights_mib": None, "compute_mib": 82.01}, "CUDA0": {"compute_mib": 64.0}}
    row = {"args": [], "measured": {"devices": devices, "graph_splits": 312, "graph_nodes": 4036}}
    assert differences(row, read(IK_LINES)) == []


@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp"])
def test_random_commands_come_again_from_their_seed_and_are_understood(engine: Engine) -> None:
    first, again = ([random_run(random.Random(5), engine) for _ in range(3)] for _ in range(2))
    assert first == again
    rng = random.Random(6)
    for _ in range(50):
        _, _, tool, free, args = random_run(rng, engine)
        parsed = parse(f"{PROGRAMS[tool]} -m m.gguf {shlex.join(args)}", engine)
        assert (parsed.unknown, 1 <= len(free) <= 4) == ((), True)
