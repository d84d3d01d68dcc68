"""The tensor algebra of ggml, and the order of its nodes."""

from __future__ import annotations

from service.engine.memory.graph import IN_PLACE, GraphBuilder, Slot, cuda_row_padding, finish


def test_a_view_of_a_view_belongs_to_the_tensor_itself() -> None:
    g = GraphBuilder()
    x = g.input("f32", 8, 4)
    v = g.reshape(g.view(x, (4, 4), x.nb[1:2]), 16)

    assert v.root is x


def test_a_strided_view_counts_the_bytes_it_spans() -> None:
    g = GraphBuilder()
    x = g.input("f32", 8, 4)

    assert g.view(x, (4, 4), x.nb[1:2]).n_bytes == 3 * 32 + 16


def test_writing_into_a_cache_takes_no_memory_of_its_own() -> None:
    g = GraphBuilder()
    cache = g.stored(Slot("cache", "", 0), "f16", 64, 256)
    written = g.copy_into(g.input("f32", 64, 32), g.view(cache, (64, 32)))

    assert written.root is cache
    assert written.kind == "f16"


def test_nodes_run_depth_first_with_sources_in_order() -> None:
    g = GraphBuilder()
    a, b = g.input("f32", 4), g.input("f32", 4)
    left, right = g.apply("SQR", a), g.apply("SQRT", b)
    g.expand(g.add(left, right))

    assert [n.op for n in g.nodes] == ["SQR", "SQRT", "ADD"]


def test_only_sources_of_the_same_layout_may_be_overwritten() -> None:
    g = GraphBuilder()
    a, b = g.input("f32", 4, 2), g.input("f32", 4)
    g.expand(g.add(a, b))
    graph = finish(g, in_place=IN_PLACE, offloadable=lambda node: False)

    assert graph.overwrites[graph.nodes[-1]] == (0,)


def test_cuda_pads_rows_of_quantised_tensors_to_512() -> None:
    assert cuda_row_padding("q8_0", 576) == 448 // 32 * 34
    assert cuda_row_padding("q8_0", 4096) == 0
    assert cuda_row_padding("f16", 576) == 0
