"""Commands written as files of other programs: llama-swap's YAML, llama-server's router presets, compose, an env file.

`read_files.py` reads them back. The docstring of each format's function has its rules and their source.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from service.engine.commands.parse import parse
from service.engine.commands.read_files import NEEDS
from service.engine.commands.render import Launch, bash
from service.engine.commands.tables import environment_options, known_options, option_names
from service.engine.config import Engine, FileFormat
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags

_PLAIN_YAML = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A model to serve. `name`: what clients call it. `server`, `docker`, `systemd`: its commands, as an advice has
    them (the latter two are empty on a Mac). `remarks`: lines that become comments above it.
    """

    name: str
    engine: Engine
    server: str
    docker: str = ""
    systemd: str = ""
    remarks: tuple[str, ...] = ()


def config_file(form: FileFormat, models: Sequence[Served], together: Sequence[Sequence[str]] = ()) -> str:
    """Return the text of a file with which another program serves these models; it ends in a newline.

    `together`: sets of names that fit side by side; llama-swap keeps those running at the same time. Raises
    InvalidFlags where the format cannot express a command, with the part that it cannot; only llama-swap's and the
    preset hold several models.
    """
    if form == "llama-swap":
        return "\n".join(_llama_swap(models, together)) + "\n"
    if form == "preset":
        return "\n".join(_preset(models)) + "\n"
    if len(models) != 1:
        raise InvalidFlags(f"a file for {form} holds one model, not {len(models)}", field="as", choices=_SEVERAL)
    one = models[0]
    if form in ("compose", "systemd") and not (one.docker if form == "compose" else one.systemd):
        raise InvalidFlags(_NO_IMAGE if one.systemd else _NOT_ON_A_MAC, field="as", choices=_SEVERAL)
    if form == "env":
        return "\n".join(_environment(one)) + "\n"
    if form == "systemd":
        return f"{one.systemd}\n"
    return "\n".join(_compose(one)) + "\n"


_SEVERAL = ("llama-swap", "preset")
_NO_IMAGE = "the engine's container image does not serve this config or machine: use systemd, llama-swap or preset"
_NOT_ON_A_MAC = "macOS has no systemd, and gives containers no GPU: use llama-swap or preset"


def launch_of(line: str) -> Launch:
    """Return the launch that a command of an advice, printed for bash, states: the inverse of `bash`."""
    parsed = parse(line)
    return Launch(parsed.env, parsed.prefix, parsed.words.program or parsed.program, parsed.words.options)


def _llama_swap(models: Sequence[Served], together: Sequence[Sequence[str]]) -> Iterator[str]:
    """mostlygeek/llama-swap, config-schema.json and docs/configuration.md: `cmd` is split as a POSIX shell would
    (internal/config/commands.go), `${PORT}` is the port that it gives. Sets of models that run together are `matrix`
    sets: one of them is enough for a model to stay when another of it is asked for.
    """
    yield "# https://github.com/mostlygeek/llama-swap: start with --config this-file.yaml"
    yield "models:"
    for one in models:
        launch = launch_of(one.server)
        yield from (f"  # {remark}" for remark in one.remarks)
        yield f"  {_yaml(one.name)}:"
        if launch.env:
            yield "    env:"
            yield from (f"      - {_yaml(f'{name}={value}')}" for name, value in launch.env.items())
        yield "    cmd: |"
        bare = Launch({}, launch.prefix, launch.program, launch.arguments)
        yield f"      {bash(bare)} --port ${{PORT}}"
    sets = [names for names in together if len(names) > 1]
    if sets:
        short = {one.name: f"m{i}" for i, one in enumerate(models, 1)}
        yield "matrix:  # which of them fit in memory side by side; a model in no set runs alone"
        yield "  vars:"
        yield from (f"    {short[name]}: {_yaml(name)}" for name in short)
        yield "  sets:"
        yield from (
            f"    set{i}: {_yaml(' & '.join(short[name] for name in names))}" for i, names in enumerate(sets, 1)
        )


def _yaml(text: str) -> str:
    """A YAML scalar: plain where no part of it has another meaning, else as JSON, which YAML 1.2 includes."""
    return text if _PLAIN_YAML.fullmatch(text) and text.lower() not in _YAML_WORDS else json.dumps(text)


_YAML_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def _preset(models: Sequence[Served]) -> Iterator[str]:
    """llama.cpp, common/preset.cpp: keys are options without their dashes, an unknown one ends the router's start, a
    key stands once in a section, and a value ends at `;` or `#`. Host, port and alias are the router's own.
    """
    for one in models:
        if "--models-preset" not in known_options(one.engine, "llama-server"):
            raise InvalidFlags(
                f"{one.engine} has no router and so no presets: use llama-swap, or --engine llama.cpp", field="as"
            )
    launches = [launch_of(one.server) for one in models]
    around = {_around(launch) for launch in launches}
    if len(around) > 1:
        raise InvalidFlags(
            f"the router starts all models alike, but these need different starts: {'; '.join(sorted(around))}; "
            "use llama-swap", field="as",
        )  # fmt: skip
    yield "; llama-server --models-preset this-file.ini"
    yield from (f"; {NEEDS}{text}" for text in around if text)
    yield "version = 1"
    for one, launch in zip(models, launches, strict=True):
        yield ""
        yield from (f"; {remark}" for remark in one.remarks)
        yield f"[{one.name}]"
        options = [(_long_name(one.engine, name), value or "true") for name, value in _options(one.engine, launch)]
        if wrong := next((f"{name} {value}" for name, value in options if re.search(r"[;#\n]", value)), None):
            raise InvalidFlags(f"a value of a preset ends at ; and #: {wrong}", field="as")
        if len(dict(options)) < len(options):
            raise InvalidFlags("a preset takes each option once, and this command repeats one", field="as")
        yield from (f"{name} = {value}" for name, value in options)


def _around(launch: Launch) -> str:
    """What stands before the program: variables and a launcher such as `numactl`."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in launch.env.items()), *launch.prefix])


def _options(engine: Engine, launch: Launch) -> Iterator[tuple[str, str | None]]:
    """Each option of a launch as it is spelled there, with its value; None for one that takes none."""
    known = known_options(engine, "llama-server")
    words = iter(launch.arguments)
    for word in words:
        yield word, next(words) if known.get(word, True) else None


def _long_name(engine: Engine, option: str) -> str:
    """The longest spelling that the engine knows, without dashes: the key of a preset."""
    known = known_options(engine, "llama-server")
    return max((name for name in option_names(option) if name in known), key=len, default=option).lstrip("-")


def _environment(one: Served) -> Iterator[str]:
    """`LLAMA_ARG_*` variables, as llama-server's own --help names them (`env:`)."""
    launch = launch_of(one.server)
    by_option = {name: variable for variable, name in environment_options(one.engine, "llama-server").items()}
    if not by_option or engine_spec(one.engine).commands.variables_read_last:  # few, and a few words for on
        raise InvalidFlags(
            f"{one.engine} takes few options from the environment: use compose or systemd, or --engine llama.cpp",
            field="as",
        )
    if launch.prefix:
        raise InvalidFlags(f"an env file cannot hold `{' '.join(launch.prefix)}`: use systemd", field="as")
    lines, missing = [], []
    for option, value in _options(one.engine, launch):
        variable = next((by_option[name] for name in option_names(option) if name in by_option), None)
        lines.append(f"{variable}={value or 1}")
        missing += [] if variable else [option]
    if missing:
        raise InvalidFlags(f"no variable stands for {', '.join(missing)}: use compose or systemd", field="as")
    yield from (f"# {remark}" for remark in one.remarks)
    yield from (f"{name}={value}" for name, value in launch.env.items())
    yield from lines


def _compose(one: Served) -> Iterator[str]:
    """A service of compose-spec/compose-spec (05-services.md, build.md, deploy.md), from what `docker run` would do."""
    build, run = (shlex.split(line, comments=True) for line in one.docker.split("\n", 1))
    found: dict[str, list[str]] = {}
    words, position = run[2:], 0
    while words[position].startswith("-"):
        name = words[position]
        bare = name == "--rm"
        found.setdefault(name, []).append("" if bare else words[position + 1])
        position += 1 if bare else 2
    image, arguments = words[position], words[position + 1 :]
    asked = list(zip(build[2:-1:2], build[3:-1:2], strict=True))
    yield from (f"# {remark}" for remark in one.remarks)
    yield from (line for line in one.docker.splitlines() if line.startswith("#"))
    yield from ("services:", "  llama:", f"    image: {_yaml(image)}")
    yield "    build:  # in a checkout of the engine's source, which lies next to this file"
    yield f"      context: ./{one.engine}"
    for name, key in (("-f", "dockerfile"), ("--target", "target")):
        yield f"      {key}: {_yaml(dict(asked)[name])}"
    values = [value for name, value in asked if name == "--build-arg"]
    yield from ("      args:", *(f"        - {json.dumps(value)}" for value in values)) if values else ()
    yield "    command:"
    yield from (f"      - {json.dumps(word.replace('$', '$$'))}" for word in arguments)
    for name, key in (("-e", "environment"), ("-p", "ports"), ("-v", "volumes"), ("--device", "devices")):
        if name in found:
            yield f"    {key}:"
            yield from (f"      - {json.dumps(value.replace('$', '$$'))}" for value in found[name])
    if "--ulimit" in found:
        yield from ("    ulimits:", "      memlock: -1")
    if "--gpus" in found:
        yield from ("    deploy:", "      resources:", "        reservations:", "          devices:")
        yield from ("            - driver: nvidia", "              count: all", "              capabilities: [gpu]")
    yield "    restart: unless-stopped"
