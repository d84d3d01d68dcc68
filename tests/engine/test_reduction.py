"""Nothing that names a person, a machine or a secret stays in what is kept; figures and flags do."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.commands.parse import parse
from service.engine.logs.read import read_log
from service.engine.reduction import reduced

DATA = Path(__file__).parents[1] / "data"
COMMANDS = [json.loads(line)["command"] for line in (DATA / "published_commands.jsonl").read_text().splitlines()]

PLANTED = {
    "llama-server -m x.gguf --api-key s3cr3tvalue -c 4096": ["s3cr3tvalue"],
    "llama-server -m x.gguf --api-key='two words' --host 10.0.0.7 --port 80": ["two", "words", "10.0.0.7"],
    "HF_TOKEN=hf_abcdefghijklmnopqrst llama-server -hf a/b": ["hf_abcdefghijklmnopqrst"],
    "export OPENAI_API_KEY=zz99; LLAMA_ARG_HOST=rig.lan llama-server": ["zz99", "rig.lan"],
    "curl -H 'Authorization: Bearer abc.def-ghijk' x": ["abc.def-ghijk"],
    '{"api_key": "k-1", "hostname": "bigrig"}': ["k-1", "bigrig"],
    "llama-server -m /home/alice/models/x.gguf  # alice's box": ["alice", "/home", "models"],
    r'llama-server.exe -m "C:\Users\Bob Smith\models\x.gguf"': ["Bob", "Smith", "Users"],
    r"llama-server.exe -m C:\Users\bob\x.gguf -c 4096": ["bob", "Users"],
    r"llama-server.exe -m \\nas01\share\x.gguf": ["nas01", "share"],
    "(venv) carol@threadripper:~/llama.cpp$ ./build/bin/llama-server -m ../m/x.gguf\nthreadripper": [
        "carol",
        "threadripper",
        "build",
    ],
    "[dave@epycbox bin]$ ls": ["dave", "epycbox"],
    "Linux mybigbox 6.8.0-45-generic #45 SMP x86_64\nmybigbox is up": ["mybigbox"],
    "Nov 21 11:47:09 nightowl llama-server[123]: load_tensors: offloaded 3/4 layers to GPU": ["nightowl"],
    "mail me: eve@example.org": ["eve@example.org"],
    "rpc at 192.168.1.20:50052 and fe80::1ff:fe23:4567:890a": ["192.168.1.20", "fe80::1ff"],
    "link/ether 52:54:00:12:34:56": ["52:54:00:12:34:56"],
    "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-5a1f0c3e-7d52-4f0e-9b1d-3c6f1a2b4d5e)": ["5a1f0c3e"],
    "Serial Number: ABC 123\nhostname = frank-pc": ["ABC", "123", "frank-pc"],
    "loading https://user:pw@files.example.org/x.gguf?sig=77": ["pw", "files.example.org", "sig"],
    "https://huggingface.co/a/b/resolve/main/x.gguf?token=77": ["77"],
}


@pytest.mark.parametrize("text", PLANTED)
def test_what_names_somebody_is_hidden(text: str) -> None:
    assert [secret for secret in PLANTED[text] if secret in reduced(text)] == []


@pytest.mark.parametrize("text", PLANTED)
def test_reducing_twice_changes_nothing_more(text: str) -> None:
    assert reduced(reduced(text)) == reduced(text)


@pytest.mark.parametrize(
    "text",
    [
        "llama-server -hf unsloth/DeepSeek-R1-GGUF:UD-Q2_K_XL -ngl 99 -ts 24/24 -b 4096",
        r"-ot 'blk\.(1|2|3)\.ffn_(up|gate)_exps\.weight=CUDA0,\.ffn_.*_exps\.=CPU'",
        r"-ot \\.ffn_.*_exps\\.=CPU",
        "| 512 | 128 | 0 | 1.234 | 414.91 | 7.1 | 18.02 |",
        "eval time = 1234.56 ms / 128 runs ( 9.64 ms per token, 103.68 tokens per second)",
        "NVIDIA-SMI 550.54.15  Driver Version: 550.54.15  CUDA Version: 12.4",
        "00000000:01:00.0 Off at 12:34:56 on 2025-11-02, https://github.com/ikawrakow/ik_llama.cpp/pull/520",
        "listening on http://127.0.0.1:8080".replace("http://", ""),
    ],
)
def test_figures_flags_and_public_names_stay_as_they_are(text: str) -> None:
    assert reduced(text) == text


def test_published_commands_mean_the_same_when_reduced() -> None:
    for command in COMMANDS:
        assert parse(reduced(command)) == parse(command)


@pytest.mark.parametrize("name", ["ik-sweep-jsonl.stderr", "ik-sweep-table.stderr", "main-bench-md.stdout"])
def test_recorded_logs_read_the_same_when_reduced(name: str) -> None:
    log = (DATA / "engine_logs" / name).read_text()
    assert read_log(reduced(log)) == read_log(log)


@given(st.text(alphabet="ab/\\~.:@\"'-=#$ \nC0f9_", max_size=300))
def test_any_text_is_reduced_at_once_for_good(text: str) -> None:
    assert reduced(reduced(text)) == reduced(text)


@pytest.mark.parametrize(
    "piece", ["/a", "a:", "a.", "1.", '"/', "\\\\a", "A_", "--host ", "a@", "/home/a ", "hf_", "C:\\"]
)
def test_a_long_paste_of_anything_is_reduced_soon(piece: str) -> None:
    begun = time.process_time()
    reduced(piece * ((1 << 18) // len(piece)))
    assert time.process_time() - begun < 2
