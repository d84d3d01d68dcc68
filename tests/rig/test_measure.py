"""What the rig reads of an engine's output, and how it is held to a recorded line."""

from __future__ import annotations

import random
import shlex

import pytest

from rig.commands import random_run
from rig.measure import Printed, differences, read
from service.engine.commands import parse
from service.engine.units import MIB

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
CARD = {"weights_bytes": round(126.69 * MIB), "kv_bytes": 240 * MIB, "compute_bytes": round(48.04 * MIB)}


def test_buffers_are_summed_by_device_and_part_up_to_the_graph() -> None:
    printed = read(LINES)
    assert printed.mib["CUDA0"] == {"weights": 126.69, "kv": 240.0, "compute": 48.04}
    assert printed.mib["Host"] == {"weights": 83.46, "output": 0.58, "compute": 26.05}
    assert (printed.splits, printed.nodes, printed.failed) == (3, 986, None)


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


def test_random_commands_come_again_from_their_seed_and_are_understood() -> None:
    first, again = ([random_run(random.Random(5), "llama.cpp") for _ in range(3)] for _ in range(2))
    assert first == again
    rng = random.Random(6)
    for _ in range(50):
        _, _, _, free, args = random_run(rng, "llama.cpp")
        parsed = parse(f"llama-server -m m.gguf {shlex.join(args)}", "llama.cpp")
        assert (parsed.unknown, 1 <= len(free) <= 4) == ((), True)
