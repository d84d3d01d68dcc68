"""Commands pasted in other forms (PowerShell, cmd, fish, `docker run`, a unit), rewritten for bash."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from service.engine.commands.forms import UNIT_CONTINUED, UNIT_VALUE, words_of_unit
from service.engine.commands.limits import OF_DOCKER, OF_UNITS
from service.engine.commands.powershell import from_powershell, is_powershell
from service.engine.commands.shell import ASSIGNED
from service.engine.commands.tables import other_programs

# A line of a batch file, or what stands before `&&` in cmd.
_CMD_SET = re.compile(
    r"""(?:^|&&?)[ \t]*@?set[ \t]+(?:"([A-Za-z_]\w*)=([^"\n]*)"|([A-Za-z_]\w*)=([^\n&|]*))[ \t]*(?:&&?|$)""",
    re.IGNORECASE | re.M,
)
_CARET = re.compile(r"\^[ \t]*\r?\n")
_CMD_LINE = re.compile(
    r"^[ \t]*(?:(?:@echo\b|@|rem\b|::|pause\b|title\b|chcp\b|setlocal\b|endlocal\b|cls\b|timeout\b|cd[ \t]+/d\b).*"
    r"|(?:if|for|\))[^\n]*\(|\))[ \t]*$",
    re.IGNORECASE | re.M,
)
_CMD_VARIABLE = re.compile(r"%([A-Za-z_]\w*)%|!([A-Za-z_]\w*)!")
_CMD_LINE_END = re.compile(r"(?<!\\)\n(?!\s*(?:-|$))")
_FISH_SET = re.compile(
    r"^[ \t]*set[ \t]+-[a-zA-Z]*x[a-zA-Z]*[ \t]+([A-Za-z_]\w*)[ \t]+([^\n;&]*?)[ \t]*(?:;|&&|$)", re.M
)
_UNIT_LINE = re.compile(rf"^[ \t]*(ExecStart|Environment|{'|'.join(OF_UNITS)})={UNIT_VALUE}", re.M)
_QUADLET = re.compile(r"^[ \t]*\[Container\]\s*$((?:\n(?![ \t]*\[).*)*)", re.M)  # up to the next section
_QUADLET_LINE = re.compile(rf"^[ \t]*([A-Z][A-Za-z]+)[ \t]*=[ \t]*{UNIT_VALUE}", re.M)
# Keys of a quadlet's [Container], and the options of `podman run` that they stand for (podman-systemd.unit(5)).
_OF_QUADLETS = {"AddDevice": "--device", "Environment": "-e", "EnvironmentFile": "--env-file", "Volume": "-v",
                "Memory": "--memory"}  # fmt: skip
_RUNTIMES = ("docker", "podman", "nerdctl")
_RUNNING = ("run", "create")  # a container that is created is started later
_ENVIRONMENT = ("-e", "--env")
_MOUNTS = ("-v", "--volume", "--mount")
_QUOTES = "\"'"
_CDI = "nvidia.com/gpu="  # podman-run(1), --device: the names of NVIDIA's container device interface
# Options of `docker run` by which a container gets GPUs, besides --gpus; and images that are built for the CPU alone
# (docs/docker.md of llama.cpp: `server`, `light` and `full` without a back end behind it).
_GIVES_GPUS = ("--runtime", "--privileged")
_GPU_DEVICE = re.compile(r"/dev/(?:dri|kfd|nvidia|dxg|davinci|accel)|[./]gpu=")
_CPU_IMAGE = re.compile(r"ghcr\.io/(?:ggml-org|ggerganov)/llama\.cpp:(?:server|light|full)(?:-b\d+)?")
_OTHERS = [name for name in other_programs().names if "-" in name or name.isalpha()]  # as images are called
_LIGHT = re.compile(r"light(?:-|$)")  # images that start llama-cli (.devops/cuda.Dockerfile, "light, CLI only")
NOT_GIVEN, WITHOUT_BACKEND = "none", "void"  # values of IN_CONTAINER: no GPU is given; the image has no GPU back end
IN_CONTAINER = "NVIDIA_VISIBLE_DEVICES"  # which cards the runtime gives a container, by number in nvidia-smi or UUID
# Options of `docker run` without a value; every other takes one (docker-run(1), podman-run(1)).
_SWITCHES = frozenset(
    ("--rm", "-d", "--detach", "-i", "-t", "-it", "-ti", "--interactive", "--tty", "--init", "--privileged",
     "--read-only", "--no-healthcheck", "-P", "--publish-all", "--sig-proxy", "--oom-kill-disable", "-q", "--quiet",
     "--replace", "--rmi", "--no-hosts", "--passwd", "--tls-verify")
)  # fmt: skip
_SHORT_SWITCHES = re.compile(r"-[ditqP]{2,5}")
# What the first word runs in the engines' full images (.devops/tools.sh). A short one is an option of the server's too.
_ACTIONS = {
    "--server": "llama-server", "-s": "llama-server", "--run": "llama-cli", "-r": "llama-cli",
    "--run-legacy": "llama-completion", "-l": "llama-completion", "--bench": "llama-bench", "-b": "llama-bench",
    "--perplexity": "llama-perplexity", "-p": "llama-perplexity",
}  # fmt: skip
# The one program of newer builds, and what its first word runs (app/llama.cpp of llama.cpp 0c1e57098).
_COMMANDS = {
    "serve": "llama-server", "server": "llama-server", "cli": "llama-cli", "client": "llama-cli",
    "completion": "llama-completion", "complete": "llama-completion", "bench": "llama-bench",
    "batched-bench": "llama-batched-bench", "fit-params": "llama-fit-params", "perplexity": "llama-perplexity",
}  # fmt: skip
_ONE_PROGRAM = re.compile(r"(.*[/\\])?llama(?:\.exe)?")


def as_bash(text: str) -> str:
    """Return a pasted unit, or a text of PowerShell, cmd or fish, as a command for bash; other text unchanged."""
    if unit := _from_quadlet(text) or _from_unit(text):
        return unit
    if is_powershell(text):
        return from_powershell(text)
    if _CMD_SET.search(text) or _CARET.search(text):
        return _from_cmd(text)
    if variables := _FISH_SET.findall(text):
        env = [_assignment(f"{name}={value.strip(_QUOTES)}") for name, value in variables]
        return " ".join([*env, _FISH_SET.sub("", text).strip()])
    return text


def _from_unit(text: str) -> str | None:
    lines = [(name, UNIT_CONTINUED.sub(" ", value)) for name, value in _UNIT_LINE.findall(text)]
    starts = [value for name, value in lines if name == "ExecStart" and value.strip()]
    if not starts:
        return None
    env = [word for name, value in lines if name == "Environment" for word in words_of_unit(value)]
    env += [f"{name}={value.strip()}" for name, value in lines if name in OF_UNITS and value.strip()]
    command = words_of_unit(starts[-1].lstrip("@-:+!"))
    return shlex.join(command) if not env else " ".join([*map(_assignment, env), shlex.join(command)])


def is_quadlet(text: str) -> bool:
    """Return whether a text is a unit of a container (Podman's quadlet), which need not say what is started in it."""
    return bool(_QUADLET.search(text))


def _from_quadlet(text: str) -> str | None:
    """Return the `podman run` of a quadlet: its image starts the server, if `Exec=` names no other program."""
    section = _QUADLET.search(text)
    if section is None:
        return None
    found: dict[str, list[str]] = {}
    for key, value in _QUADLET_LINE.findall(section[1]):
        found.setdefault(key, []).append(UNIT_CONTINUED.sub(" ", value).strip())
    options: list[str] = []
    for key, option in _OF_QUADLETS.items():
        values = [word for value in found.get(key, []) for word in words_of_unit(value)]
        options += [word for value in values for word in (option, value)]
    options += [word for value in found.get("PodmanArgs", []) for word in words_of_unit(value)]
    started = [word for key in ("Entrypoint", "Exec") for word in words_of_unit(found.get(key, [""])[-1])]
    return shlex.join(["podman", "run", *options, found.get("Image", ["image"])[-1], *started])


def _assignment(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={shlex.quote(value)}"


def _from_cmd(text: str) -> str:
    """A batch file, or a line of cmd: `set` holds for all that follows, a caret continues a line, `%A%` is a value.

    Of blocks only the lines inside are read. A line that begins with an option continues the one before it too.
    """
    found = [(a or b, (quoted if a else plain).strip()) for a, quoted, b, plain in _CMD_SET.findall(text)]
    values = {name.lower(): value for name, value in found}
    text = _CMD_LINE.sub("", _CMD_SET.sub("\n", _CARET.sub(" \\\n", text)))
    text = _CMD_VARIABLE.sub(lambda match: values.get((match[1] or match[2]).lower(), match[0]), text)
    set_before = (_assignment(f"{name}={value}") for name, value in found)
    return " ".join([*set_before, _CMD_LINE_END.sub(" ;\n", text.strip())])


class _Started(NamedTuple):
    """A container that is started: where its runtime and its image stand, and each option between with its place and
    value."""

    runtime: int
    image: int
    options: tuple[tuple[int, str, str], ...]


def _started(words: list[str]) -> _Started | None:
    """Return what `docker run` starts; None where the words do no such thing."""
    index = next((i for i in range(len(words)) if _runs_a_container(words[i : i + 3])), None)
    if index is None:
        return None
    at = next(i for i in range(index + 1, len(words)) if words[i] in _RUNNING) + 1
    options = list[tuple[int, str, str]]()
    while at < len(words) and words[at].startswith("-"):
        name, joined, value = words[at].partition("=")
        takes = not joined and name not in _SWITCHES and not _SHORT_SWITCHES.fullmatch(name)
        options.append((at, name, words[at + 1] if takes and at + 1 < len(words) else value))
        at += 2 if takes else 1
    return _Started(index, at, tuple(options))


def out_of_container(words: list[str]) -> list[str]:
    """Return the words that a container runs, its variables before them; none where it runs nothing; other words as
    they are.

    The program is the server, which is what the engines' images start, unless the arguments begin with another.
    """
    started = _started(words)
    if started is None:
        prepares = words[:1] and words[0].rsplit("/", 1)[-1] in _RUNTIMES and words[1:2] != ["exec"]
        return [] if prepares else words  # `docker build --target server`
    env: list[str] = []
    given: list[str] = []
    has_gpus = False
    for _, name, value in started.options:
        has_gpus = has_gpus or name in ("--gpus", *_GIVES_GPUS) or value.startswith(f"{IN_CONTAINER}=")
        has_gpus = has_gpus or (name == "--device" and gives_gpu(value))
        if name in _ENVIRONMENT:
            env.append(value)
        elif name in OF_DOCKER:
            env.append(f"{OF_DOCKER[name]}={value}")
        elif name == "--gpus":
            given += _cards_asked(value)
        elif name == "--device" and value.startswith(_CDI):
            given.append(value.removeprefix(_CDI))
    image, arguments = "".join(words[started.image : started.image + 1]), words[started.image + 1 :]
    program, arguments = _program(image, arguments)
    before = words[: started.runtime]
    launcher = [] if any(word.rsplit("/", 1)[-1] in _RUNTIMES for word in before) else before
    return [
        *launcher,
        *(e for e in env if "=" in e),
        *shown(given, image, has_gpus=has_gpus),
        *([program] if program else []),
        *arguments,
    ]


def gives_gpu(device: str) -> bool:
    """Return whether a device that is given to a container is a GPU's."""
    return _GPU_DEVICE.search(device) is not None


def _program(image: str, arguments: list[str]) -> tuple[str, list[str]]:
    """Return the program that an image starts with these arguments, "" if they name it, and its arguments."""
    named = program_of_image(image)
    if (action := _action(arguments)) is not None:
        return named.replace("llama-server", action), arguments[1:]
    return "" if arguments and not arguments[0].startswith("-") else named, arguments


def program_started(image: str, words: str) -> tuple[str, str]:
    """Return the program that an image starts with the words of a text, "" if they name it, and the rest of these."""
    try:
        arguments = shlex.split(words)
    except ValueError:
        return program_of_image(image) if not words or words.startswith("-") else "", words
    program, rest = _program(image, arguments)
    return program, words if rest == arguments else shlex.join(rest)


def in_container(words: list[str], removed: Collection[str], added: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of a `docker run` that starts its program with other options, and other variables before it.

    `removed`, `added`: words before the program, as `out_of_container` has them. [] where the words start no container,
    where one of these is no variable, or where a folder is mounted nowhere: a stored question keeps no paths.
    """
    started = _started(words)
    if started is None or not all(ASSIGNED.fullmatch(word) for word in added):
        return []
    if any(name in _MOUNTS and ":/" not in value and "=/" not in value for _, name, value in started.options):
        return []
    gone = set[int]()
    for at, name, value in started.options:
        if name in _ENVIRONMENT and value in removed:
            gone.update((at,) if "=" in words[at] else (at, at + 1))
    kept = [word for i, word in enumerate(words[: started.image]) if i not in gone]
    for word in added:
        kept += ["--gpus", "all"] if word == f"{IN_CONTAINER}=all" else ["-e", word]
    arguments = words[started.image + 1 :]
    n_program = int(bool(arguments) and (_action(arguments) is not None or not arguments[0].startswith("-")))
    return [*kept, words[started.image], *arguments[:n_program], *options]


def _action(arguments: Sequence[str]) -> str | None:
    """Return the program that a full image's first argument asks for; None where it is an option with its value."""
    first, second = [*arguments[:2], "", ""][:2]
    return _ACTIONS.get(first) if first.startswith("--") or second.startswith("-") else None


def of_one_program(words: list[str]) -> list[str]:
    """Return the words with `llama serve` as `llama-server`: newer builds have all programs in one."""
    for i, (word, following) in enumerate(pairwise(words)):
        one = _ONE_PROGRAM.fullmatch(word)
        if one and following in _COMMANDS:
            return [*words[:i], f"{one[1] or ''}{_COMMANDS[following]}", *words[i + 2 :]]
        if word.startswith("-"):
            break
    return words


def shown(cards: Sequence[str], image: str, *, has_gpus: bool) -> list[str]:
    """Return the variable that stands for the cards that a container is given; [] for all of them."""
    of_cpu = _CPU_IMAGE.fullmatch(image.partition("@")[0]) is not None
    if not has_gpus or of_cpu:
        return [f"{IN_CONTAINER}={WITHOUT_BACKEND if of_cpu else NOT_GIVEN}"]
    return [f"{IN_CONTAINER}={','.join(cards)}"] if cards and "all" not in cards else []


def _cards_asked(value: str) -> list[str]:
    """Return the cards of `--gpus`: `device=1,2`, a number of them, or `all` (docker-run(1))."""
    fields = value.strip(_QUOTES).split(",")
    named = next((i for i, field in enumerate(fields) if field.startswith("device=")), None)
    if named is not None:
        return [fields[named].removeprefix("device="), *(f for f in fields[named + 1 :] if "=" not in f)]
    count = next((field.removeprefix("count=") for field in fields if field.removeprefix("count=").isdecimal()), "")
    return [str(n) for n in range(min(int(count), 64))] if count else []


def _runs_a_container(words: list[str]) -> bool:
    of_runtime = bool(words) and words[0].rsplit("/", 1)[-1] in _RUNTIMES
    return of_runtime and (words[1:2] == ["create"] or "run" in words[1:] or words[1:] == ["container", "create"])


def program_of_image(image: str) -> str:
    """Return the program that a container's image starts, in a folder named as the image's tag (`server-vulkan`).

    `ik_llama` in the image's name says which engine it is. The image of another program starts that.
    """
    parts = image.partition(":")[0].lower().split("/")
    if other := next((name for name in _OTHERS if any(f"{one}-".startswith(f"{name}-") for one in parts)), ""):
        return other
    engine, (_, _, tag) = "ik_llama.cpp/" if "ik_llama" in image else "", image.partition("@")[0].rpartition(":")
    folder = f"{tag}/" if re.fullmatch(r"[a-z]+(?:-[a-z]+[0-9.]*)?(?:-b[0-9]+)?", tag) else ""
    return f"{engine}{folder}{'llama-cli' if _LIGHT.match(tag) else 'llama-server'}"
