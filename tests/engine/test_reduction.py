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
from tests.sampling import some_of

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
    "password: hunter22secret": ["hunter22secret"],
    "user=alice pass=secretpw12": ["alice", "secretpw12"],
    "passwd=zz9 pwd: 'two words' Passphrase = \"a b\" db_password=q7 secret=r8": ["zz9", "two", "a b", "q7", "r8"],
    "password = don't": ["don", "t'"],
    '"password": "a b", "user": "grace"': ["a b", "grace"],
    r"{\"password\": \"two words\"}": ["two", "words"],
    'PASSWORD="never closed': ["never", "closed"],
    "login: alice, Username=bob DB_USER=carol": ["alice", "bob", "carol"],
    "wget --user=alice --password=pw1; curl -u bob:pw2; sshpass -p pw3 ssh x": ["alice", "pw1", "bob", "pw2", "pw3"],
    "token: abcdefghijklmnop1234 api_key: zz99": ["abcdefghijklmnop1234", "zz99"],
    "ssh root@bigrig": ["bigrig"],
    "ssh -p 22 -i ~/.ssh/id alice@bigrig nvidia-smi\nbigrig is up": ["alice", "bigrig"],
    "scp x.gguf bigrig:/data/alice/\nrsync -a y bob@nas:/vol1/z": ["bigrig", "/data", "bob", "nas", "vol1"],
    "bob@bigrig:~/ai$ password: hunter22secret": ["bob", "bigrig", "hunter22secret"],
    r"C:\Users\Bob Smith\x.gguf by Bob Smith": ["Bob", "Smith", "Users"],
    "/home/bob smith/x and /mnt/c/Users/Eve Mary Jones/y.gguf": ["bob", "smith", "Eve", "Mary", "Jones"],
    "/Users/Bob Smith/x.gguf": ["Bob", "Smith"],
    "-v /home/bob/m:/models /a//b/bob/x": ["bob"],
    "HTTPS://bob:pw@files.lan/x": ["bob", "pw", "lan"],
    "llama-cli -m x.gguf -p \"Dear diary\" --prompt='it is I' -n 9 -sys You --system-prompt 'Be Bob'": [
        *("Dear", "diary", "it is", "You", "Be Bob"),
    ],
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
        "3 passed, pass 1 of 2, pass: 3, pass = 1/2, the password is long, passing by, bypass: yes",
        "llama-server --user-batch 3 -ub 512; systemctl --user start x",
        "mkdir -p models; llama-bench -p 512 -n 128 -p '1024,2048'; --prompt-cache x --system-prompt-file y -p a",
        "user 0m1.2s, user time: 3, n_user = 4, user is new",
        "print_info: BOS token             = 151934 'tok0151934'",
        "example_format: 'You are helpful\\n\\nUser: Hello\\n\\nAssistant: Hi'",
        '"CUDA_Host": 162.01, "user": {"a": 1}, "password": null',
        "print_info: EOG token = 2 '</s>', <script>a</script>, </think>",
        "huggingface://afrideva/Tiny-GGUF/tiny.q2_k.gguf",
    ],
)
def test_figures_flags_and_public_names_stay_as_they_are(text: str) -> None:
    assert reduced(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (r"-m C:\Users\Bob Smith\models\x.gguf -c 4096", "-m x.gguf -c 4096"),
        ("-m /home/bob smith/x.gguf -c 4096", "-m x.gguf -c 4096"),
        ("cat </home/bob/x", "cat <x"),
        ('{"password": "a b", "n": 3}', '{"password": "hidden", "n": 3}'),
    ],
)
def test_what_stands_around_a_secret_or_a_folder_stays(text: str, left: str) -> None:
    assert reduced(text) == left


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


FILLERS = (
    *(
        "|",
        "'",
        "\\",
        "|-|-",
        "' '",
        '"',
        "\\\\",
        "C:\\",
        "/a/",
        "/a",
        "a:",
        "a.",
        "1.",
        '"/',
        "\\\\a",
        "A_",
        "--host ",
    ),
    *(
        "a@",
        "/home/a ",
        "hf_",
        "x",
        "word ",
        "(a) ",
        "[a@b ",
        "#",
        "= ",
        "::",
        "password: ",
        "user",
        "ssh ",
        "</",
        "e:",
    ),
    *("a longword" * 40 + " ", "/home/a b", "C:\\Users\\a ", "a://b ", "-", "\t", "\u00e9", "\n", "|\n", "/a \n"),
)
MIXED = "".join("".join(FILLERS[::step]) for step in (1, 2, 3, 5, 7))


PASTES = [(piece, line) for piece in (MIXED, MIXED.replace("\n", ""), *FILLERS) for line in (1 << 20, 4_000)]


@pytest.mark.parametrize(("piece", "line"), some_of(PASTES, 3), ids=lambda value: repr(value)[:14])
def test_a_long_paste_of_anything_is_reduced_soon(piece: str, line: int) -> None:
    """A megabyte held the interpreter, and all who asked it, for a second."""
    text = "\n".join([piece * (line // len(piece) + 1)] * ((1 << 20) // line))
    begun = time.process_time()
    reduced(text)
    assert time.process_time() - begun < 0.4


def test_the_end_of_an_endless_line_is_left_out_and_that_is_said() -> None:
    left = reduced("a line\n" + "word " * 30_000 + "\nthe next")
    first, cut, last = left.split("\n")
    assert (first, last) == ("a line", "the next")
    assert cut.endswith("word [117,236 characters of this line left out]")
    assert reduced(left) == left


def test_a_long_line_within_bounds_stays_whole() -> None:
    assert reduced("word " * 20_000) == "word " * 20_000
