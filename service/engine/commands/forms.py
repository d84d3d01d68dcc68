"""A launch in other forms than bash's line: PowerShell, `docker run`, a systemd unit. `unwrap.py` reads them back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from service.engine.commands.render import Launch, bash
from service.engine.config import Engine
from service.engine.engines import engine_spec

PORT = 8080
_BLACKWELL, _CUDA_OF_BLACKWELL = 10.0, "12.8.1"  # which the image's 12.6.2 cannot compile for (CUDA 12.8 release notes)
_PLAIN = re.compile(r"-{0,2}[A-Za-z0-9_/\\][A-Za-z0-9_/\\.:=+-]*|-{1,2}[A-Za-z][A-Za-z-]*")
_UNIT_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@+-]+")
_DOCKERFILES = {"cuda": "cuda", "rocm": "rocm", "sycl": "intel", "vulkan": "vulkan"}
_DEVICES = {
    "cuda": ("--gpus", "all"),
    "rocm": ("--device", "/dev/kfd", "--device", "/dev/dri"),
    "sycl": ("--device", "/dev/dri"),
    "vulkan": ("--device", "/dev/dri"),
}


def powershell(command: Launch) -> str:
    """Return a launch for PowerShell: one line for each variable, then the command.

    Quoted by about_Quoting_Rules: in single quotes, which are doubled inside. Words with a comma are quoted, because a
    bare comma makes an array. `~/` becomes $HOME in double quotes, because a quoted tilde is not expanded. No word
    contains a double quote, which Windows PowerShell would lose.
    """
    lines = [f"$env:{name} = {_single(value)}" for name, value in command.env.items()]
    words = [*command.prefix, command.program, *command.arguments]
    return "\n".join([*lines, " ".join(word if _PLAIN.fullmatch(word) else _single(word) for word in words)])


def _single(word: str) -> str:
    if word.startswith("~/") and not re.search(r'["$`]', word):
        return f'"$HOME{word[1:]}"'
    return "'" + word.replace("'", "''") + "'"


def docker(
    engine: Engine, command: Launch, backend: str, models_dir: str, *, pins: bool, capabilities: Sequence[float] = ()
) -> str:
    """Return the lines that build the engine's own image and run a server from it, for bash; "" if it cannot run it.

    `capabilities`: compute capabilities of the cards, for which it is built; ik_llama.cpp's is for 8.6 alone otherwise.
    The images listen on all addresses. `models_dir` is mounted where the arguments expect it. `pins`: weights in RAM
    are locked, which the container must be permitted. Sources: docker/README.md of ik_llama.cpp, docs/docker.md of
    llama.cpp.
    """
    if backend == "cuda" and not engine_spec(engine).commands.image_serves(command.arguments, capabilities):
        return ""
    image, path, target = engine_spec(engine).commands.image
    file: str = path.format(_DOCKERFILES.get(backend, "cpu"))
    outside = models_dir if models_dir.startswith(("/", "~")) else f"./{models_dir}"
    inside = models_dir if models_dir.startswith("/") else "/app/" + models_dir.removeprefix("~/")
    words = ["docker", "run", "--rm", *_DEVICES.get(backend, ()), *(["--ulimit", "memlock=-1"] if pins else [])]
    for name, value in command.env.items():
        words += ["-e", f"{name}={value}"]
    words += ["-p", f"{PORT}:{PORT}", "-v", f"{outside}:{inside}:ro"]
    arguments = [_under(models_dir, inside, word) for word in command.arguments]
    run = Launch({}, (), words[0], (*words[1:], image, *arguments, "--port", str(PORT)))
    asked = "".join(f" --build-arg {shlex.quote(argument)}" for argument in _build_arguments(engine, capabilities))
    lines = [f"docker build -t {image} --target {target}{asked} -f {file} .", bash(run)]
    return "\n".join([*lines, *_without_launcher(command.prefix)])


def _without_launcher(prefix: Sequence[str]) -> Iterator[str]:
    """Yield comments on numactl, which no image has (docker/ik_llama-cuda.Containerfile, .devops/cuda.Dockerfile)."""
    if prefix:
        yield f"# the speeds are those with `{' '.join(prefix)}`, but the image has no numactl"
    if "-m" in prefix:
        nodes = prefix[prefix.index("-m") + 1]
        yield f"# to bind the container: --cpuset-mems {nodes}, and --cpuset-cpus with the CPUs of these nodes (lscpu)"


def _build_arguments(engine: Engine, capabilities: Sequence[float]) -> Iterator[str]:
    """Yield arguments of docker/ik_llama-cuda.Containerfile (0089016d9) and .devops/cuda.Dockerfile of llama.cpp."""
    if capabilities:
        yield f"CUDA_DOCKER_ARCH={';'.join(str(round(10 * number)) for number in sorted(set(capabilities)))}"
        if engine_spec(engine).commands.image_lacks_blackwell and max(capabilities) >= _BLACKWELL:
            yield f"CUDA_VERSION={_CUDA_OF_BLACKWELL}"


def _under(models_dir: str, inside: str, word: str) -> str:
    return inside + word.removeprefix(models_dir) if word.startswith(models_dir + "/") else word


def systemd(command: Launch, description: str, *, pins: bool) -> str:
    """Return a unit that runs a server; relative paths are below /srv/llama, those that begin with `~/` below the
    user's home. systemd.service(5), systemd.exec(5), systemd.syntax(7).
    """
    program = command.program if "/" in command.program else f"/usr/local/bin/{command.program}"
    prefix = [word if "/" in word or i else f"/usr/bin/{word}" for i, word in enumerate(command.prefix)]
    words = [*prefix, program, *command.arguments]
    lines = ["[Unit]", f"Description={_percent(description)}", "After=network-online.target", "", "[Service]"]
    at_home = any(word.startswith("~/") for word in words)
    words = [word.removeprefix("~/") for word in words]
    lines += ["User=llama", f"WorkingDirectory={'~' if at_home else '/srv/llama'}"]
    lines += [f"Environment={unit_word(f'{name}={value}')}" for name, value in command.env.items()]
    lines += [f"ExecStart={' '.join(map(unit_word, words))}", "Restart=on-failure"]
    lines += ["LimitMEMLOCK=infinity"] if pins else []
    return "\n".join([*lines, "", "[Install]", "WantedBy=multi-user.target"])


def unit_word(word: str) -> str:
    """Quote a word of a unit: C escapes in double quotes, and neither specifiers nor variables."""
    if _UNIT_PLAIN.fullmatch(word):
        return word
    return '"' + _percent(word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")) + '"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")


# A value over several lines, and what joins them: between these, comments are skipped (systemd.syntax(7)). `cat <<EOF`
# takes two backslashes for one.
UNIT_VALUE = r"((?:.*\\[ \t]*\r?\n(?:[ \t]*[#;].*\n)*)*.*)"
UNIT_CONTINUED = re.compile(r"\\+[ \t]*\r?\n(?:[ \t]*[#;].*\n)*")
_WORD_OF_UNIT = re.compile(r'"((?:\\.|[^"\\])*)"|\'((?:\\.|[^\'\\])*)\'|(\S+)')


def raw_words_of_unit(line: str) -> list[str]:
    """Return the words of an `ExecStart=` or `Environment=` value as they are written."""
    return [found[0] for found in _WORD_OF_UNIT.finditer(line)]


def words_of_unit(line: str) -> list[str]:
    """Return the words of an `ExecStart=` or `Environment=` value: the inverse of what `systemd` writes."""
    found: list[tuple[str, str, str]] = _WORD_OF_UNIT.findall(line)
    words = [double or single or bare for double, single, bare in found]
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$").replace("%%", "%") for word in words]
