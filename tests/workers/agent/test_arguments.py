"""No document makes a word that is not ours: options of a list, numbers, patterns of the grammar, this host's paths."""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from service.engine.commands.parse import parse
from service.engine.commands.reader import BenchTests
from service.engine.commands.tables import OPTIONS, TESTS
from service.engine.config import ENGINES, Engine
from service.engine.errors import InvalidFlags
from service.engine.run_flags import is_tensor_pattern, to_flags
from service.wire.measuring.agent import RunDocument
from tests.sampling import examples
from tests.workers.agent.documents import DOCUMENT, MAINLINE, flags_of, spoiled
from workers.agent.arguments import engine_command, host_environment, sweep_rows

MODEL = "/models/a b.gguf"
PROGRAMS = {"ik_llama.cpp": "/opt/bin/llama-sweep-bench", "llama.cpp": "/opt/bin/llama-bench"}
SWEEP = ("--sweep-stride", "--output-format", "-wb")
NAMES = {name for option in (*OPTIONS, *TESTS) for name in option.names}
NAMES |= {"-n", "--sweep-stride", "--output-format", "-wb", "-r", "-o", "-v"}
VALUE = re.compile(
    r"\d+(\.\d+)?(e-?\d+)?|-1,0|\d+([,/]\d+(\.\d+)?)*|[\d.,/]+|on|off|auto|none|layer|row|graph|tensor|attn|jsonl|mmap|mlock|"
    r"mmap\+mlock|distribute|isolate|numactl|f32|f16|bf16|q\d_[01]|iq4_nl|q8_KV"
)


def words_of(document: RunDocument) -> tuple[str, ...]:
    return engine_command(document, PROGRAMS[document.engine], SWEEP, MODEL, {}, numactl="/usr/bin/numactl").words


def test_a_run_of_ik_llama_cpp_measures_the_rows_next_to_its_depths() -> None:
    command = engine_command(DOCUMENT, PROGRAMS["ik_llama.cpp"], SWEEP, MODEL, {"HOME": "/tmp/x"})
    assert " ".join(command.words) == (
        "/opt/bin/llama-sweep-bench -m /models/a b.gguf -c 16384 -b 2048 -ub 1024 -ngl 999 -fa on -ctk q8_0 -ctv q8_0 "
        r"-ts 3,1.5 -ot blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps=CUDA0 -ot exps=CPU -t 16 "
        "-n 64 --sweep-stride 2 --output-format jsonl -wb"
    )
    assert command.environment == {"HOME": "/tmp/x"}
    assert command.last_depth == 4096


def test_an_older_build_is_given_only_the_options_that_it_knows() -> None:
    command = engine_command(DOCUMENT, PROGRAMS["ik_llama.cpp"], ("-c", "-ub"), MODEL, {})
    assert command.words[-2:] == ("-n", "64")
    assert command.last_depth == 4096


def test_a_run_of_llama_cpp_measures_its_depths_and_ends_by_itself() -> None:
    command = engine_command(MAINLINE, PROGRAMS["llama.cpp"], (), MODEL, {}, repeats=3)
    assert " ".join(command.words) == (
        "/opt/bin/llama-bench -m /models/a b.gguf -p 1024 -n 64 -d 0,2000,4000 -b 2048 -ub 1024 -ngl 999 -fa on "
        r"-ctk q8_0 -ctv q8_0 -ts 3/1.5 -ot blk\.[3-5]\.ffn_(up|gate|down|gate_up)_exps=CUDA0;exps=CPU -t 16 "
        "-r 3 -o jsonl -v"
    )
    assert command.last_depth is None


@pytest.mark.parametrize(
    ("n_ctx", "n_ubatch", "depths", "rows"),
    [
        (16384, 512, (0,), (1, 0)),
        (16384, 512, (0, 2000, 4000), (4, 4096)),
        (65536, 2048, (0, 12000, 24000), (6, 24576)),
        (16384, 4096, (0, 2000, 4000), (1, 4096)),
        (4096, 4096, (0, 2000, 4000), (1, 0)),
        (4096, 512, (0, 2048, 100_000), (4, 2048)),
        (4096, 512, (4000,), (7, 3584)),
    ],
)
def test_rows_lie_a_micro_batch_apart_and_fit_the_context(
    n_ctx: int, n_ubatch: int, depths: tuple[int, ...], rows: tuple[int, int]
) -> None:
    flags = replace(DOCUMENT.flags, n_ctx=n_ctx, n_ubatch=n_ubatch)
    assert sweep_rows(replace(DOCUMENT, flags=flags, depths=depths)) == rows


def test_a_context_without_room_for_a_row_is_refused() -> None:
    with pytest.raises(InvalidFlags, match="no room"):
        words_of(replace(DOCUMENT, flags=replace(DOCUMENT.flags, n_ctx=256)))


def test_what_an_engine_lacks_is_refused_not_left_out() -> None:
    for change in ({"mla": 3}, {"cache_type_k": "q6_0"}, {"runtime_repack": True}):
        with pytest.raises(InvalidFlags):
            words_of(replace(MAINLINE, flags=replace(MAINLINE.flags, **change)))


def test_interleaved_memory_needs_numactl() -> None:
    document = replace(DOCUMENT, flags=replace(DOCUMENT.flags, numa="distribute"))
    assert words_of(document)[:3] == ("/usr/bin/numactl", "--interleave=all", PROGRAMS["ik_llama.cpp"])
    with pytest.raises(InvalidFlags, match="numactl"):
        engine_command(document, PROGRAMS["ik_llama.cpp"], SWEEP, MODEL, {})


def test_an_engine_sees_its_cards_and_nothing_of_the_agents_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "LD_PRELOAD", "GGML_CUDA_NO_PINNED", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/cuda/lib64")
    cards = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-00000000-2222-3333-4444-555555555555"]
    found = host_environment("/tmp/run", "cuda", cards)
    assert found["CUDA_VISIBLE_DEVICES"] == ",".join(cards)
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (found["HIP_VISIBLE_DEVICES"], found["GGML_VK_VISIBLE_DEVICES"]) == ("-1", "")
    assert (found["HOME"], found["LD_LIBRARY_PATH"]) == ("/tmp/run", "/usr/local/cuda/lib64")
    assert "secret" not in found.values()
    assert host_environment("/tmp/run", "cpu", ())["CUDA_VISIBLE_DEVICES"] == "-1"


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_the_words_read_back_to_the_same_flags(engine: Engine, data: st.DataObject) -> None:
    document = replace(DOCUMENT, engine=engine, flags=data.draw(flags_of(engine)), depths=(0, 100, 200))
    read = parse(shlex.join(words_of(document)), engine)
    meant = to_flags(document.flags)
    if engine == "llama.cpp":
        assert read.tests == BenchTests(prompts=(1024,), generations=(64,), depths=(0, 100, 200))
        meant = replace(meant, n_ctx=read.flags.n_ctx)
    assert asdict(read.flags) == asdict(meant)
    assert (read.model_path, read.unknown, read.old, read.refused) == (MODEL, (), (), ())
    check_words(words_of(document))


@pytest.mark.parametrize("document", [DOCUMENT, MAINLINE], ids=["ik_llama.cpp", "llama.cpp"])
@given(data=st.data())
@examples(200)
def test_no_document_makes_a_word_that_is_not_ours(document: RunDocument, data: st.DataObject) -> None:
    value: Any = data.draw(spoiled(msgspec.to_builtins(document)))
    try:
        decoded = msgspec.json.decode(msgspec.json.encode(value), type=RunDocument)
        words = words_of(decoded)
    except (msgspec.ValidationError, InvalidFlags):
        return
    check_words(words)


def check_words(words: tuple[str, ...]) -> None:
    """Each word is the program, its model, an option of ours, a number or name of a closed list, or `-ot` rules."""
    start = next(i for i, word in enumerate(words) if word in PROGRAMS.values())
    assert words[:start] in ((), ("/usr/bin/numactl", "--interleave=all"))
    assert words[start + 1 : start + 3] == ("-m", MODEL)
    before = ""
    for word in words[start + 3 :]:
        if before == "-ot":
            for rule in word.split(";"):
                pattern, _, device = rule.partition("=")
                assert is_tensor_pattern(pattern)
                assert re.fullmatch(r"CPU|(CUDA|ROCm|Vulkan|SYCL)\d{1,2}", device)
        else:
            assert word in NAMES or VALUE.fullmatch(word), word
        before = word
