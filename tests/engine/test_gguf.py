"""The parser against gguf's writer and reader, and against everything that a file can lie about."""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from service.engine.errors import AdvisorError, InvalidHeader, NotGguf, TruncatedHeader, UnsupportedModel
from service.engine.ggml_types import type_named
from service.engine.gguf import write as gguf_file
from service.engine.gguf.header import ArraySummary, Header, merge_shards
from service.engine.gguf.parser import MAX_HEADER_BYTES, MAX_KEPT, MAX_TEXT_BYTES, HeaderParser, parse_header
from service.engine.gguf.window import NeedMore, Window
from service.engine.model import build_model
from tests.models import build_header, gguf_bytes, gguf_files
from tests.sampling import examples

U32, U64, I32, F32, BOOL, STRING, ARRAY = 4, 10, 5, 6, 7, 8, 9


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, body: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + body


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def file(
    entries: list[bytes] | None = None, tensors: list[bytes] | None = None, *, version: int = 3, magic: bytes = b"GGUF",
    n_entries: int | None = None, n_tensors: int | None = None,
) -> bytes:  # fmt: skip
    entries, tensors = entries or [], tensors or []
    counts = (len(tensors) if n_tensors is None else n_tensors, len(entries) if n_entries is None else n_entries)
    return magic + struct.pack("<IQQ", version, *counts) + b"".join(entries + tensors)


# --- what is read


@pytest.mark.parametrize("name", ["Qwen3-0.6B", "DeepSeek-V2-Lite", "gpt-oss-20b", "Gemma-3-12B"])
def test_a_header_comes_back_as_it_was_built(name: str) -> None:
    built, data = build_header(name, "q4_k_m"), gguf_bytes(name, "q4_k_m")
    parsed = parse_header(data)
    assert parsed.tensors == built.tensors
    assert parsed.n_bytes == len(data)
    assert {k: v for k, v in parsed.metadata.items() if k in built.metadata} == pytest.approx(built.metadata)


def test_large_arrays_are_counted_and_small_ones_kept() -> None:
    data = file([
        entry("a", ARRAY, struct.pack("<IQ3I", U32, 3, 7, 8, 9)),
        entry("b", ARRAY, struct.pack("<IQ", U32, 5000) + bytes(20_000)),
        entry("c", ARRAY, struct.pack("<IQ", STRING, 2) + text("x") + text("y")),
        entry("d", ARRAY, struct.pack("<IQ", F32, 0)),
    ])  # fmt: skip
    assert parse_header(data).metadata == {"a": [7, 8, 9], "b": ArraySummary(5000), "c": ArraySummary(2), "d": []}


def test_many_small_arrays_are_not_all_kept() -> None:
    """A byte of a kept array takes eight as an element of a list: what is kept altogether is bounded."""
    many = [entry(f"k{i}", ARRAY, struct.pack("<IQ", 0, 4096) + bytes(4096)) for i in range(400)]
    kept = [v for v in parse_header(file(many)).metadata.values() if isinstance(v, list)]
    assert sum(len(v) for v in kept) == MAX_KEPT


def test_texts_are_refused_where_they_are_more_together_than_is_kept() -> None:
    """A header is stored for ever: what any one file may leave there is bounded."""
    half = [entry(f"k{i}", STRING, text(b"x" * (MAX_TEXT_BYTES // 2 - 2))) for i in range(2)]
    assert len(parse_header(file(half)).metadata) == 2
    with pytest.raises(InvalidHeader, match="2 MiB together"):
        parse_header(file([*half, entry("one_more", STRING, text("x"))]))


def test_version_2_is_read_as_version_3() -> None:
    assert parse_header(file([entry("k", U32, struct.pack("<I", 5))], version=2)).metadata == {"k": 5}


def test_the_data_section_begins_at_the_stated_alignment() -> None:
    data = file([entry("general.alignment", U32, struct.pack("<I", 4096))], [tensor("t", (8,), offset=8192)])
    assert parse_header(data).n_bytes == 4096


def test_text_that_is_no_utf8_is_shown_with_replacement() -> None:
    assert parse_header(file([entry("k", STRING, text(b"a\xffb"))])).metadata == {"k": "a\ufffdb"}


# --- agreement with the gguf package

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "uint8": st.integers(0, 2**8 - 1), "int8": st.integers(-(2**7), 2**7 - 1),
    "uint16": st.integers(0, 2**16 - 1), "int16": st.integers(-(2**15), 2**15 - 1),
    "uint32": st.integers(0, 2**32 - 1), "int32": st.integers(-(2**31), 2**31 - 1),
    "uint64": st.integers(0, 2**64 - 1), "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32, allow_nan=False), "float64": st.floats(allow_nan=False), "bool": st.booleans(),
    "string": st.text(st.characters(codec="utf-8"), max_size=20),
}  # fmt: skip
METADATA = st.dictionaries(
    st.text("abc.x_", min_size=1, max_size=12).map(lambda k: f"m.{k}"),
    st.sampled_from(sorted(SCALARS)).flatmap(lambda kind: st.tuples(st.just(kind), SCALARS[kind])),
    max_size=8,
)
ARRAYS = st.dictionaries(
    st.text("abc", min_size=1, max_size=6).map(lambda k: f"n.{k}"),
    st.one_of(
        st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20),
        st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=20),
        st.lists(st.booleans(), min_size=1, max_size=20),
        st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20),
    ),
    max_size=4,
)
# Every type of the package but those of activations, which no file has (scripts/write_types.py).
QUANTISED = tuple(kind.name for kind in gguf.GGMLQuantizationType if kind.name not in ("Q8_1", "Q8_K"))
TENSORS = st.dictionaries(
    st.text("blk.0_w", min_size=1, max_size=20),
    st.tuples(st.sampled_from(QUANTISED), st.integers(1, 3), st.lists(st.integers(1, 3), max_size=3)),
    max_size=6,
)


def write_with_gguf(
    path: Path, metadata: dict[str, Any], arrays: dict[str, Any], tensors: dict[str, Any], align: int
) -> None:
    writer = gguf.GGUFWriter(str(path), "llama")
    if align != 32:
        writer.add_custom_alignment(align)
    for key, (kind, value) in metadata.items():
        getattr(writer, f"add_{kind}")(key, value)
    for key, values in arrays.items():
        writer.add_array(key, values)
    for name, (kind, n_blocks, rows) in tensors.items():
        quant = gguf.GGMLQuantizationType[kind]
        if kind in ("F32", "F16"):
            writer.add_tensor(name, np.zeros([*rows, n_blocks], dtype=kind.replace("F", "float")))
        else:
            n_bytes = n_blocks * gguf.GGML_QUANT_SIZES[quant][1]
            writer.add_tensor(name, np.zeros([*rows, n_bytes], dtype=np.uint8), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@given(METADATA, ARRAYS, TENSORS, st.sampled_from([32, 64, 8]))
@examples(150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_what_gguf_writes_is_read_as_ggufs_own_reader_reads_it(
    tmp_path: Path, metadata: dict[str, Any], arrays: dict[str, Any], tensors: dict[str, Any], align: int
) -> None:
    path = tmp_path / "written.gguf"
    write_with_gguf(path, metadata, arrays, tensors, align)
    ours, theirs = parse_header(path.read_bytes(), path.stat().st_size), gguf.GGUFReader(str(path))
    shown = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    kept = {k: v for k, v in shown.items() if not (isinstance(v, list) and isinstance(v[0], str))}
    assert {k: v for k, v in ours.metadata.items() if not isinstance(v, ArraySummary)} == kept
    for key, value in ours.metadata.items():
        if isinstance(value, ArraySummary):
            assert value.length == len(shown[key])
    # By id: 41 is q1_0 in the package, q1_0_g128 in ik_llama.cpp and here.
    ours_table = [(t.name, type_named(t.type).id, t.dims, t.nbytes, ours.n_bytes + t.offset) for t in ours.tensors]
    assert ours_table == [
        (t.name, t.tensor_type.value, tuple(int(d) for d in t.shape), int(t.n_bytes), int(t.data_offset))
        for t in theirs.tensors
    ]


def test_what_gguf_writes_for_big_endian_machines_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "big.gguf"), "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(InvalidHeader, match="big-endian"):
        parse_header((tmp_path / "big.gguf").read_bytes())


# --- what asks for more


def n_bytes_needed(data: bytes) -> int | None:
    try:
        parse_header(data)
    except NeedMore as more:
        return more.n_bytes
    return None


def test_every_prefix_of_a_header_asks_for_more_and_never_for_less_than_there_is() -> None:
    data = gguf_bytes("Qwen3-0.6B", "q8_0", small=True)
    whole = parse_header(data)
    end = len(data) - 31  # the padding behind the tensor table need not be there
    for n in [*range(3000), *range(3000, end, 37), end]:
        needed = n_bytes_needed(data[:n])
        assert parse_header(data[:n]) == whole if needed is None else n < needed <= len(data)
        with pytest.raises((TruncatedHeader, NeedMore)):
            parse_header(data[:n], n)


def test_a_file_that_ends_inside_its_header_or_its_weights_is_truncated() -> None:
    data = gguf_bytes("Qwen3-0.6B", "q8_0", small=True)
    with pytest.raises(TruncatedHeader, match="inside its header"):
        parse_header(data[:5000], 5000)
    with pytest.raises(TruncatedHeader, match="it is truncated"):
        parse_header(data, len(data))


def test_growing_by_what_is_asked_for_reaches_the_end() -> None:
    data, stop, steps = gguf_bytes("Qwen3-0.6B", "q8_0"), 1 << 20, 0
    while True:
        steps += 1
        try:
            header = parse_header(memoryview(data)[:stop])
            break
        except NeedMore as more:
            stop = max(more.n_bytes, 2 * stop)
    assert header.n_bytes == len(data)
    assert steps == 4


# --- what is refused


@pytest.mark.parametrize(
    "data", [b"GGML" + bytes(60), b"PK\x03\x04", b"<!DOCTYPE html>", b"\x7fELF", b"gguf", b"G\x00"]
)
def test_other_files_are_no_gguf(data: bytes) -> None:
    with pytest.raises(NotGguf):
        parse_header(data)


LONG = struct.pack("<Q", 2**63)
HOSTILE = {
    "version 1": file(version=1),
    "version 4": file(version=4),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "tensor count": file(n_tensors=2**63),
    "entry count": file(n_entries=2**40),
    "key length": file([LONG], n_entries=1),
    "text length": file([entry("k", STRING, LONG)]),
    "array length": file([entry("k", ARRAY, struct.pack("<IQ", U32, 2**62))]),
    "text array length": file([entry("k", ARRAY, struct.pack("<IQ", STRING, 2**62))]),
    "text in array": file([entry("k", ARRAY, struct.pack("<IQ", STRING, 1) + LONG)]),
    "array of arrays": file([entry("k", ARRAY, struct.pack("<IQ", ARRAY, 1))]),
    "array of unknown": file([entry("k", ARRAY, struct.pack("<IQ", 77, 1))]),
    "value type": file([entry("k", 13, bytes(8))]),
    "same key twice": file([entry("k", U32, bytes(4))] * 2),
    "alignment 0": file([entry("general.alignment", U32, struct.pack("<I", 0))]),
    "alignment 33": file([entry("general.alignment", U32, struct.pack("<I", 33))]),
    "alignment 1 GiB": file([entry("general.alignment", U32, struct.pack("<I", 1 << 30))]),
    "alignment text": file([entry("general.alignment", STRING, text("32"))]),
    "tensor name length": file(tensors=[LONG], n_tensors=1),
    "no dimensions": file(tensors=[tensor("t", ())]),
    "five dimensions": file(tensors=[tensor("t", (1, 1, 1, 1, 1))]),
    "dimension 0": file(tensors=[tensor("t", (32, 0))]),
    "product overflows": file(tensors=[tensor("t", (2**32, 2**32))]),
    "dimension overflows": file(tensors=[tensor("t", (2**63,))]),
    "type": file(tensors=[tensor("t", (32,), kind=9999)]),
    "row is not a multiple of a block": file(tensors=[tensor("t", (33,), kind=8)]),
    "tensor name of 64 bytes": file(tensors=[tensor("t" * 64, (32,))]),
    "alignment u64": file([entry("general.alignment", 10, struct.pack("<Q", 32))]),
    "offset is not aligned": file(tensors=[tensor("t", (32,), offset=3)]),
    "same tensor twice": file(tensors=[tensor("t", (32,))] * 2),
}  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_header_that_no_engine_would_load_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidHeader) as caught:
        parse_header(data, 1 << 30)
    assert caught.value.detail


def test_a_header_that_claims_more_than_the_limit_is_refused_before_it_is_read() -> None:
    length = MAX_HEADER_BYTES // 4 + 1
    with pytest.raises(InvalidHeader, match="larger than 64 MiB"):
        parse_header(file([entry("k", ARRAY, struct.pack("<IQ", U32, length))]))


def test_an_offset_outside_the_file_is_truncation() -> None:
    data = file(tensors=[tensor("t", (32,), offset=1 << 50)])
    with pytest.raises(TruncatedHeader):
        parse_header(data, 1 << 30)


@given(st.binary(max_size=400))
def test_no_bytes_end_in_anything_but_a_header_or_a_refusal(tail: bytes) -> None:
    for data in (tail, b"GGUF\x03\x00\x00\x00" + tail):
        try:
            assert isinstance(parse_header(data, len(data)), Header)
        except (AdvisorError, NeedMore):
            continue


@given(st.data())
@examples(300)
def test_no_flipped_byte_ends_in_anything_but_a_header_or_a_refusal(data: st.DataObject) -> None:
    head = bytearray(gguf_bytes("Qwen3-0.6B", "q8_0", small=True))
    for _ in range(data.draw(st.integers(1, 4))):
        head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(AdvisorError, NeedMore):
        parse_header(head, 1 << 40)


def test_a_claim_of_many_empty_texts_costs_no_more_than_its_bytes() -> None:
    data = file([entry("k", ARRAY, struct.pack("<IQ", STRING, 2**22) + bytes(8 * 2**16))])
    started = time.process_time()
    with pytest.raises(NeedMore):
        parse_header(data)
    assert time.process_time() - started < 5


def test_a_type_that_neither_engine_has_yet_is_named_and_its_bytes_are_those_up_to_the_next_tensor() -> None:
    data = file([], [tensor("a", (64,), 999), tensor("b", (32,), offset=4096), tensor("c", (64,), 700, 8192)])
    header = parse_header(data, 10_000 + 4096)
    n_data = 10_000 + 4096 - header.n_bytes
    assert [(t.type, t.nbytes) for t in header.tensors] == [
        ("type_999", 4096),
        ("f32", 128),
        ("type_700", n_data - 8192),
    ]
    with pytest.raises(UnsupportedModel, match="type_700, type_999: a type newer than this service knows"):
        build_model(header)
    with pytest.raises(InvalidHeader, match="inside the one before it"):
        parse_header(file([], [tensor("a", (64,), 999), tensor("b", (32,), 999)]), 1 << 20)


# --- shards


def test_shards_are_merged_with_all_tensors() -> None:
    parts = [parse_header(f.head, len(f.head) + f.n_data) for f in gguf_files("Qwen3-0.6B", "q8_0", 3)]
    merged = merge_shards(parts)
    assert [t.name for t in merged.tensors] == [t.name for t in build_header("Qwen3-0.6B", "q8_0").tensors]
    assert merged.n_bytes == sum(p.n_bytes for p in parts)
    assert merged.metadata["general.architecture"] == "qwen3"


def split(number: int, count: int, n_tensors: int = 0) -> Header:
    metadata: dict[str, gguf_file.Value] = {"split.no": number, "split.count": count, "split.tensors.count": n_tensors}
    return parse_header(
        gguf_file.header_bytes(metadata, build_header("Qwen3-0.6B", "q8_0").tensors[number : number + 1])
    )


def test_shards_that_do_not_belong_together_are_refused() -> None:
    assert len(merge_shards([split(0, 2, 2), split(1, 2)]).tensors) == 2
    for wrong in (
        [], [split(0, 2)], [split(1, 2), split(0, 2)], [split(0, 2), split(0, 2)], [split(0, 3), split(1, 3)],
        [split(0, 2, 7), split(1, 2)],
    ):  # fmt: skip
        with pytest.raises(InvalidHeader):
            merge_shards(wrong)


# --- in pieces


@pytest.mark.parametrize("size", [1, 7, 4096, 65_536])
def test_a_header_fed_in_pieces_is_the_same_and_complete_at_the_same_byte(size: int) -> None:
    data = gguf_bytes("Qwen3-0.6B", "q8_0", small=True)
    whole, end = parse_header(data), len(data) - 31
    parser, fed, found = HeaderParser(len(data) + 10**12), 0, None
    while found is None:
        assert fed < parser.needed <= len(data)
        found = parser.feed(data[fed : fed + size])
        fed += size
    assert found == whole
    assert fed <= end + 31 + size


@given(st.data())
@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_where_a_header_is_cut_changes_nothing(data: st.DataObject) -> None:
    content = file(
        [
            entry("a", STRING, text("x" * data.draw(st.integers(0, 50)))),
            entry("b", ARRAY, struct.pack("<IQ", STRING, 3) + text("xyz") + text("") + text("w" * 300)),
            entry("c", ARRAY, struct.pack("<IQ", U32, 5000) + bytes(20_000)),
            entry("d", ARRAY, struct.pack("<IQ3I", U32, 3, 7, 8, 9)),
        ],
        [tensor("t", (8,)), tensor("u", (4, 2), offset=32)],
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=12)))
    parser = HeaderParser()
    pieces = [content[a:b] for a, b in pairwise([0, *cuts, len(content)])]
    found = [header for piece in pieces if (header := parser.feed(piece)) is not None]
    assert found[0] == parse_header(content)


@given(st.data())
@examples(20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_many_texts_of_any_length_are_passed_as_one_by_one_wherever_they_are_cut(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.sampled_from((0, 1, 7, 10, 62, 63, 64, 255, 256, 300)), min_size=1, max_size=6))
    texts = [text("\n" * length) for length in lengths * data.draw(st.integers(1, 200))]
    body = b"".join(texts)
    window, left = Window(), len(texts)
    for a, b in pairwise(sorted({0, *data.draw(st.lists(st.integers(0, len(body)), max_size=4)), len(body)})):
        window.add(body[a:b])
        left = window.skip_strings(left, 1 << 10)
        window.commit()
        ends = list(accumulate(map(len, texts), initial=0))
        assert (left, window.absolute) == next(
            (len(texts) - n, end) for n, end in enumerate(ends) if end + 8 > b or n == len(texts)
        )
    too_long = Window()
    too_long.add(body + text("\n" * 300))
    with pytest.raises(InvalidHeader, match="300 bytes"):
        too_long.skip_strings(len(texts) + 1, 299)


def test_memory_stays_flat_however_large_the_vocabulary_is() -> None:
    """Four megabytes besides the piece that is fed and the tensor table, whatever the header claims."""
    word = text("token" * 4)
    start = file([], n_entries=2, n_tensors=0)
    piece = word * 2048
    tracemalloc.start()
    parser = HeaderParser()
    parser.feed(start + text("tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, STRING, 2048 * 200))
    for _ in range(200):
        assert parser.feed(piece) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(piece) * 2 + (4 << 20)
    assert parser.feed(entry("last", U32, struct.pack("<I", 5))) is not None


GAP = [tensor("a", (64,)), tensor("b", (64,), offset=512)]
DISORDER = [tensor("b", (64,), offset=256), tensor("a", (64,))]


@pytest.mark.parametrize("tensors", [GAP, DISORDER, [tensor("a", (64,), offset=32)]], ids=["gap", "disorder", "start"])
def test_tensors_that_are_not_one_behind_the_other_are_said_for_they_are_not_loaded_everywhere(
    tensors: list[bytes],
) -> None:
    header = parse_header(file([], tensors))
    assert header.misplaced
    assert "expected at" in header.misplaced
    assert merge_shards([header]).misplaced == header.misplaced
    in_order = [tensor("t" * 63, (64,)), tensor("b", (64,), offset=256)]
    assert parse_header(file([], in_order)).misplaced is None


def test_tensors_that_lie_over_each_other_are_refused() -> None:
    with pytest.raises(InvalidHeader, match="inside the one before it"):
        parse_header(file([], [tensor("a", (64,)), tensor("b", (64,), offset=128)]))
