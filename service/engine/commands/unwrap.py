"""Forms that a command is pasted in: PowerShell, `docker run`, a systemd unit. Each becomes what bash would run."""

from __future__ import annotations

import re
import shlex

from service.engine.commands.forms import words_of_unit

_SET = re.compile(
    r"""^\s*\$env:([A-Za-z_]\w*)\s*=\s*(?:'([^'\n]*)'|"([^"\n]*)"|([^\s;]+))\s*;?\s*""", re.IGNORECASE | re.M
)
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_BACKTICK = re.compile(r"`[ \t]*\r?\n")
_UNIT_LINE = re.compile(r"^[ \t]*(ExecStart|Environment)=(.*(?:\\\n.*)*)", re.M)
_RUNTIMES = ("docker", "podman", "nerdctl")
_ENVIRONMENT = ("-e", "--env")
# Options of `docker run` without a value; every other takes one (docker-run(1)).
_SWITCHES = frozenset(
    ("--rm", "-d", "--detach", "-i", "-t", "-it", "-ti", "--interactive", "--tty", "--init", "--privileged",
     "--read-only", "--no-healthcheck", "-P", "--publish-all", "--sig-proxy", "--oom-kill-disable", "-q", "--quiet")
)  # fmt: skip
_ACTIONS = ("--server", "-s", "--run", "-r", "--bench", "-b")  # tools.sh of the engines' full images


def as_bash(text: str) -> str:
    """Return a pasted unit or PowerShell text as a command for bash; other text as it is."""
    if unit := _from_unit(text):
        return unit
    if "$env:" in text.lower() or _BACKTICK.search(text):
        return _from_powershell(text)
    return text


def _from_unit(text: str) -> str | None:
    lines = [(name, value.replace("\\\n", " ")) for name, value in _UNIT_LINE.findall(text)]
    starts = [value for name, value in lines if name == "ExecStart" and value.strip()]
    if not starts:
        return None
    env = [word for name, value in lines if name == "Environment" for word in words_of_unit(value)]
    command = words_of_unit(starts[-1].lstrip("@-:+!"))
    return shlex.join(command) if not env else " ".join([*map(_assignment, env), shlex.join(command)])


def _assignment(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={shlex.quote(value)}"


def _from_powershell(text: str) -> str:
    env = [f"{name}={shlex.quote(a or b or c)}" for name, a, b, c in _SET.findall(text)]
    rest = _BACKTICK.sub(" \\\n", _SET.sub("", text)).strip().removeprefix("&").strip()
    return " ".join([*env, _SINGLE.sub(lambda match: shlex.quote(match[1].replace("''", "'")), rest)])


def out_of_container(words: list[str]) -> list[str]:
    """Return the words that a container runs, its variables before them; other words as they are.

    The program is the server, which is what the engines' images start, unless the arguments begin with another.
    """
    index = next((i for i in range(len(words)) if _runs_a_container(words[i : i + 3])), None)
    if index is None:
        return words
    before, rest = words[:index], words[words.index("run", index) + 1 :]
    env: list[str] = []
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        name, joined, value = rest[at].partition("=")
        takes = not joined and name not in _SWITCHES
        if name in _ENVIRONMENT:
            env.append(rest[at + 1] if takes and at + 1 < len(rest) else value)
        at += 2 if takes else 1
    image, arguments = rest[at : at + 1], rest[at + 1 :]
    if arguments and arguments[0] in _ACTIONS:
        arguments = arguments[1:]
    program = [] if arguments and not arguments[0].startswith("-") else [program_of_image("".join(image))]
    launcher = [] if any(word.rsplit("/", 1)[-1] in _RUNTIMES for word in before) else before
    return [*launcher, *(e for e in env if "=" in e), *program, *arguments]


def _runs_a_container(words: list[str]) -> bool:
    return bool(words) and words[0].rsplit("/", 1)[-1] in _RUNTIMES and "run" in words[1:]


def program_of_image(image: str) -> str:
    """Return the program that a container's image starts. `ik_llama` in its name says which engine it is."""
    return "ik_llama.cpp/llama-server" if "ik_llama" in image else "llama-server"
