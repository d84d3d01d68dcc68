"""What a weight is after loading, where it is used and what crosses: ik_llama.cpp's rules, by flags, types and date."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pytest

from service.engine.builds import resolve_build
from service.engine.config import Engine, Flags
from service.engine.run.copies import copies_of
from service.engine.run.weights import UsedWeight, used_weights, weight_rules
from tests import models

GPU, RAM = 0, 1
LAYER = 3  # the first with experts
EQUAL, UNEQUAL = "exps=q4_K,*=q8_0", "ffn_gate_exps=q5_K,exps=q4_K,*=q8_0"
TRELLIS = "exps=iq3_kt,*=q8_0"  # has no interleaved partner (iqk_quantize.cpp, get_repack_info)
IQK = "exps=iq4_ks,*=q8_0"  # its interleaved partner has CUDA kernels since pull request 462
JUNE, TODAY = "2025-06-24", None


class Apart(NamedTuple):
    """Where up, gate and down of the layer's experts lie."""

    up: int
    gate: int
    down: int


def used(
    apart: Apart, flags: Flags, mix: str = EQUAL, date: str | None = JUNE, engine: Engine = "ik_llama.cpp"
) -> dict[str, UsedWeight]:
    """Return up, gate and down of one layer as a run uses them."""
    model, build = models.build("DeepSeek-R1-0528", mix), resolve_build(engine, date).rules.memory
    treated = weight_rules(engine, flags, RAM, build, copies_of(engine, model, flags, 1, build))
    names = {part: f"blk.{LAYER}.ffn_{part}_exps.weight" for part in ("up", "gate", "down")}
    places = dict(zip(names.values(), apart, strict=True))
    return dict(zip(names, used_weights(treated, model, places), strict=True))


class Expected(NamedTuple):
    """`fused`; the device that computes with gate for a token; and the types after loading, up and gate."""

    fused: bool
    gate_computed: int
    types: tuple[str, str]


CASES = {
    # ggml.c, ggml_moe_up_gate: one type and shape, else two products
    "together in RAM": (Apart(RAM, RAM, RAM), Flags(), EQUAL, Expected(True, RAM, ("q4_K", "q4_K"))),
    "together in RAM, two types": (Apart(RAM, RAM, RAM), Flags(), UNEQUAL, Expected(False, RAM, ("q4_K", "q5_K"))),
    # ggml_backend_sched_backend_id_from_cur: the first weight decides, and that is up; issue 521
    "gate on the card": (Apart(RAM, GPU, RAM), Flags(), EQUAL, Expected(True, RAM, ("q4_K", "q4_K"))),
    "up on the card": (Apart(GPU, RAM, RAM), Flags(), EQUAL, Expected(True, GPU, ("q4_K", "q4_K"))),
    "gate on the card, two types": (Apart(RAM, GPU, RAM), Flags(), UNEQUAL, Expected(False, GPU, ("q4_K", "q5_K"))),
    # llama.cpp:4912: what is in RAM is interleaved before there is a graph; discussion 532: 15.6 t/s
    "532": (Apart(RAM, GPU, RAM), Flags(runtime_repack=True), EQUAL, Expected(False, GPU, ("q4_k_r4", "q4_K"))),
    "532, up on the card": (
        Apart(GPU, RAM, RAM), Flags(runtime_repack=True), EQUAL, Expected(False, RAM, ("q4_K", "q4_k_r4")),
    ),
    "-rtr, together in RAM": (
        Apart(RAM, RAM, RAM), Flags(runtime_repack=True), EQUAL, Expected(True, RAM, ("q4_k_r4", "q4_k_r4")),
    ),
    "-rtr, together on the card": (
        Apart(GPU, GPU, RAM), Flags(runtime_repack=True), EQUAL, Expected(True, GPU, ("q4_K", "q4_K")),
    ),
    "-rtr, a type without a partner": (
        Apart(RAM, GPU, RAM), Flags(runtime_repack=True), TRELLIS, Expected(True, RAM, ("iq3_kt", "iq3_kt")),
    ),
    # llama-build-context.cpp:1598: fused_moe_up_gate off
    "-no-fmoe": (Apart(RAM, GPU, RAM), Flags(fused_moe=False), EQUAL, Expected(False, GPU, ("q4_K", "q4_K"))),
    "-no-fmoe, together": (Apart(RAM, RAM, RAM), Flags(fused_moe=False), EQUAL, Expected(False, RAM, ("q4_K", "q4_K"))),
}  # fmt: skip


@pytest.mark.parametrize("date", [JUNE, TODAY], ids=["june 2025", "today"])
@pytest.mark.parametrize("name", CASES)
def test_up_and_gate_are_one_operation_where_their_types_agree_after_loading(name: str, date: str | None) -> None:
    apart, flags, mix, expected = CASES[name]
    found = used(apart, flags, mix, date)
    up, gate, down = found["up"], found["gate"], found["down"]
    assert (up.type.name, gate.type.name) == expected.types
    assert (up.fused, gate.fused, down.fused) == (expected.fused, expected.fused, False)
    assert (up.computed, gate.computed, down.computed) == (apart.up, expected.gate_computed, apart.down)


COMBINATIONS = list(
    product(
        product((GPU, RAM), repeat=3), (EQUAL, UNEQUAL, TRELLIS, IQK),
        ("2025-03-20", "2025-05-12", "2025-06-01", JUNE, TODAY),
    )
)  # fmt: skip


@pytest.mark.parametrize("repack", [False, True], ids=["", "-rtr"])
@pytest.mark.parametrize("fused", [False, True], ids=["-no-fmoe", "-fmoe"])
def test_a_whole_matrix_crosses_only_where_a_fused_operation_has_its_weights_apart(repack: bool, fused: bool) -> None:
    """Of all places, types and builds: every other operation runs where its weight lies, for one token."""
    flags, seen = Flags(runtime_repack=repack, fused_moe=fused), 0
    for places, mix, date in COMBINATIONS:
        apart = Apart(*places)
        found = used(apart, flags, mix, date)
        one_type = found["up"].type is found["gate"].type
        assert found["gate"].fused == (fused and one_type)
        crosses = {part for part, weight in found.items() if weight.stored != weight.computed}
        assert crosses == ({"gate"} if fused and one_type and apart.up != apart.gate else set())
        interleaved = {part for part, weight in found.items() if weight.type.row_interleave > 1}
        packed = repack and mix != TRELLIS
        assert interleaved == {part for part, device in apart._asdict().items() if packed and device == RAM}
        seen += bool(crosses)
    assert (seen > 0) == fused


def copied_from(flags: Flags, mix: str, date: str | None, part: str = "up", engine: Engine = "ik_llama.cpp") -> int:
    return used(Apart(RAM, RAM, RAM), flags, mix, date, engine)[part].copied_from


def test_experts_in_ram_are_copied_from_a_batch_that_uses_most_of_them() -> None:
    """256 experts of which 8 are used: 32 * 256 / 8 (pull request 520, 2025-06-12); before, and in llama.cpp, 32."""
    assert copied_from(Flags(), EQUAL, JUNE) == 1024
    assert copied_from(Flags(), EQUAL, "2025-06-11") == 32
    assert copied_from(Flags(), EQUAL, TODAY, engine="llama.cpp") == 32


def test_a_fused_up_and_gate_stayed_on_the_cpu_until_pull_request_405() -> None:
    assert copied_from(Flags(), EQUAL, "2025-05-12") == 0
    assert copied_from(Flags(), EQUAL, "2025-05-13") == 32
    assert copied_from(Flags(), EQUAL, "2025-05-12", "down") == 32
    assert copied_from(Flags(fused_moe=False), EQUAL, "2025-05-12") == 32


def test_what_rtr_interleaves_is_copied_only_where_cuda_multiplies_by_it() -> None:
    """q4_k_r4 has no CUDA kernels; those of iq4_ks_r4 came with pull request 462, 2025-05-27."""
    assert copied_from(Flags(runtime_repack=True), EQUAL, TODAY) == 0
    assert copied_from(Flags(runtime_repack=True), IQK, "2025-05-26") == 0
    assert copied_from(Flags(runtime_repack=True), IQK, "2025-05-27") == 32
    assert copied_from(Flags(runtime_repack=True), IQK, TODAY) == 1024


def test_the_offload_policy_is_by_operation() -> None:
    """`-op 28,0,31,0`: no product with chosen experts, fused or not (ggml.h, enum ggml_op)."""
    assert copied_from(Flags(other=("-op 31,0",)), EQUAL, TODAY, "up") == 0
    assert copied_from(Flags(other=("-op 31,0",)), EQUAL, TODAY, "down") == 1024
    assert copied_from(Flags(other=("-op 31,0",), fused_moe=False), EQUAL, TODAY, "up") == 1024
    assert copied_from(Flags(other=("-op 28,0",), fused_moe=False), EQUAL, TODAY, "up") == 0


def test_the_threshold_can_be_set() -> None:
    """`-cuda offload-batch-size`, and by bytes of a weight (q4_K: 4.5 bits) for experts: pull request 1813."""
    assert copied_from(Flags(other=("-cuda fusion=1,offload-batch-size=8",)), EQUAL, TODAY) == 8 * 32
    assert copied_from(Flags(other=("-cuda offload-batch-size-per-byte=64",)), EQUAL, TODAY) == 36 * 32
    assert copied_from(Flags(other=("-cuda graphs=0",)), EQUAL, TODAY) == 1024


def test_a_gate_on_the_card_does_not_cross_for_a_batch_that_runs_there() -> None:
    gate = used(Apart(RAM, GPU, RAM), Flags(), EQUAL, TODAY)["gate"]
    assert (gate.stored, gate.computed, gate.copied_from) == (GPU, RAM, 1024)


def test_llama_cpp_has_no_fused_operation_of_up_and_gate() -> None:
    found = used(Apart(RAM, GPU, RAM), Flags(), EQUAL, TODAY, "llama.cpp")
    assert not any(weight.fused for weight in found.values())
    assert [weight.computed for weight in found.values()] == [RAM, GPU, RAM]
