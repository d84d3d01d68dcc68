"""Commands read from files of other programs: llama-swap, router presets, compose, env files, KoboldCpp, NixOS.

Each becomes a command for bash (`containers.py` has those of containers). `config_files.py` writes the first four.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from service.engine.commands.containers import assignment, pods, services
from service.engine.commands.shell import MAX_COMMAND
from service.engine.commands.tables import known_options, other_programs
from service.engine.commands.unwrap import is_quadlet
from service.engine.commands.yaml_text import entries, listed, read_yaml
from service.engine.config import Engine
from service.engine.engines import all_engines, engine_spec
from service.engine.errors import InvalidFlags

NEEDS = "needs: "  # begins a comment of a preset that says what the router itself must be started with

_SECTION = re.compile(r"^[ \t]*\[([^\]\n]+)\][ \t]*(?:[;#].*)?$", re.M)
_PAIR = re.compile(r"^[ \t]*([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*(.*?)[ \t]*(?:[;#].*)?$", re.M)
_VARIABLE = re.compile(r"(?:export )?[A-Za-z_]\w*=(?!.*\s(?:-{1,2}[A-Za-z]|(?:\S*/)?llama-[a-z-]+(?:\s|$))).*")
_YAML = re.compile(r"^(?:(?:models|services|apiVersion)[ \t]*:|[ \t]*(?:- )?(?:cmd|image|args)[ \t]*:)", re.M)
_DOCUMENTS = re.compile(r"^---.*$", re.M)
_KIND = re.compile(r"^(?:services|apiVersion)[ \t]*:", re.M)  # begins a file of compose, a document of Kubernetes
_REMARK = re.compile(r"\s#.*$")
# What llama-server's router prints of a model that it starts: one word of its command a line.
_STARTED = re.compile(r"\bsrv[ \t]+load:[ \t]+(\S.*?)[ \t]*$", re.M)
_BEHIND_WORDS = re.compile(r"^([^'\"#]*[^'\"#\s])[ \t]+#.*$")  # a comment, which its line ends
_MACRO = re.compile(r"\$\{([A-Za-z0-9_-]+)\}")
_FENCED = re.compile(r"^[ \t]*```[a-z]{0,12}[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.S | re.M | re.I)
_STARTS = re.compile(r"(?:^|[\s/\\])(?:llama-[a-z-]+|main|server)(?:\.exe)?[ \t]+(?:[\\^`][ \t]*\r?\n\s*)?-", re.M)
_LINE_ENDS = re.compile(r"\s*(?:[\\^`][ \t]*)?\n\s*")
_IN_BACKTICKS = re.compile(r"(`+)[^`]+\1")
_OF_LOCALAI = re.compile(r"^backend:[ \t]*[\w-]*llama[\w-]*[ \t]*$", re.M)
_IN_MODELFILES = ("parameter ", "system ", "template ", "adapter ")
_FALSE = ("false", "off", "0", "no", "disabled")
_MAX_MODELS = 64
_PORT = "8080"


class LeftOut(msgspec.Struct, frozen=True):
    """Options of another program that the figures do not count. `loads`: they load another model, which takes
    memory."""

    options: tuple[str, ...]
    program: str
    loads: bool


class NamedCommand(msgspec.Struct, frozen=True):
    """A command found in a file. `name`: of the model or service there, None where the text itself is the command.

    `engine`: whose file it is, None where either engine could read it. `others`: how other commands of the text begin.
    `part`: in YAML, the key that has the command or its options, and what that holds. `as_written`: the command of
    llama-swap with its macros but the port's, which differs from model to model.
    """

    name: str | None
    command: str
    engine: Engine | None = None
    left_out: tuple[LeftOut, ...] = ()
    others: tuple[str, ...] = ()
    part: tuple[str, object] | None = None
    as_written: str | None = None


def commands_of(text: str) -> list[NamedCommand]:
    """Return the commands that a pasted text holds: one for each model of a file, else the text itself.

    Raises InvalidFlags where a file is damaged, or contains no command.
    """
    text = _out_of_markdown(text.replace("\r\n", "\n"))
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("#", ";"))]
    if other := _owner(text, lines):
        raise InvalidFlags(
            f"this is a file of {other}, which has its own options and placement: give a llama.cpp command such as "
            "`llama-server -m a.gguf -ngl 99`, or ask for advice on the model",
            field="command",
        )
    if nix := list(_from_nix(text)):
        return _bounded(nix)
    if lines and (lines[0].startswith(("{", "[{")) or lines[0] == "["):
        return [_from_json(text)]
    if (started := _STARTED.findall(text)) and (at := _program_in(started)) is not None:
        return [NamedCommand(None, shlex.join(started[at:]), _router_engine())]
    if _YAML.search(text) and (found := list(_from_yaml(text))):
        return _bounded(found)
    if any(map(_SECTION.fullmatch, lines)) and all(_SECTION.fullmatch(x) or _PAIR.fullmatch(x) for x in lines):
        is_unit = "ExecStart" in text or is_quadlet(text)
        return [NamedCommand(None, text)] if is_unit else _bounded(list(_from_preset(text)))
    variables = [_REMARK.sub("", line) for line in lines]
    if any(line.startswith("LLAMA_ARG_") for line in lines) and all(map(_VARIABLE.fullmatch, variables)):
        return [NamedCommand(None, " ".join([*map(assignment, variables), "llama-server"]))]
    if re.search(r"\bkoboldcpp(?:\.py|\.exe|-[\w.-]+)?\b", text[:500]):
        return [_kobold(_from_kobold_words(text), of_file=False)]
    return [NamedCommand(None, text)]


def _owner(text: str, lines: Sequence[str]) -> str:
    """Return the program whose file with options of its own a text is, "" for none: a Modelfile, a model of LocalAI, a
    preset of LM Studio."""
    if '"llm.load.' in text:
        return "LM Studio"
    if _OF_LOCALAI.search(text):
        return "LocalAI"
    begins = [line.lower() for line in lines if line[:1].isalpha()]
    models = begins[:1] and begins[0].startswith("from ") and any(line.startswith(_IN_MODELFILES) for line in begins)
    return "Ollama" if models else ""


def _out_of_markdown(text: str) -> str:
    """Return the code of a text that is in a Markdown fence or in backticks; other text unchanged."""
    if fences := _FENCED.findall(text):
        return (_with_programs(fences) or fences)[0]
    return text.strip().strip("`") if _IN_BACKTICKS.fullmatch(text.strip()) else text


def _with_programs(fences: Sequence[str]) -> list[str]:
    """Return the fences in which a program of the engines is started."""
    return [fence for fence in fences if _STARTS.search(fence)]


def only_command(text: str) -> NamedCommand:
    """Return the one command of a pasted text. Of several fences the first that starts a program counts.

    Raises InvalidFlags, with the names, where a file holds several models.
    """
    found = commands_of(text)
    if len(found) > 1:
        names = tuple(one.name or "" for one in found)
        detail = f"the file holds {len(found)} models: give the part of one of them"
        raise InvalidFlags(detail, field="command", choices=names)
    others = _with_programs(_FENCED.findall(text))[1:]
    return msgspec.structs.replace(found[0], others=tuple(_LINE_ENDS.sub(" ", other) for other in others))


def _bounded(commands: list[NamedCommand]) -> list[NamedCommand]:
    if not commands:
        raise InvalidFlags("the file names no model: give the section of one too", field="command")
    if len(commands) > _MAX_MODELS:
        raise InvalidFlags(f"the file holds {len(commands)} models; at most {_MAX_MODELS} are read", field="command")
    return commands


def _router_engine() -> Engine:
    """The engine whose server reads presets; KoboldCpp is built on it."""
    return next(one.name for one in all_engines() if "--models-preset" in known_options(one.name, "llama-server"))


def _from_yaml(text: str) -> Iterator[NamedCommand]:
    """Yield the commands of a file in YAML. Raises InvalidFlags for one of a known kind that starts no engine."""
    found = list(_of_documents(_DOCUMENTS.split(text)))
    kind = _KIND.search(text)
    if kind and not found:
        raise InvalidFlags(_not_started(text), field="command")
    yield from found


def _not_started(text: str) -> str:
    if "llama-swap" in text:
        return "the file starts llama-swap, whose own file has the commands: give its config.yaml"
    if any(read_yaml(part) is None for part in _DOCUMENTS.split(text) if part.strip()):
        return "the file is not YAML: give what `docker compose config`, `kubectl get -o yaml` or `helm template` print"
    return "nothing in the file starts a program of llama.cpp or ik_llama.cpp with options: give their command"


def _of_documents(parts: Sequence[str]) -> Iterator[NamedCommand]:
    for part in parts:
        content = read_yaml(part)  # of prose with such a word in it: a text, or nothing
        if not isinstance(content, dict):
            yield from (NamedCommand(one.name, one.command, part=one.part) for one in pods(content, part))
            continue
        for _, file in entries(content.get("configs")):  # of compose, with the text of a file of llama-swap
            yield from _of_documents([str(file.get("content") or "")])
        for name, model in entries(content.get("models", content)):  # or a part of that list
            if isinstance(model.get("cmd"), str):
                shared, env = content.get("macros"), [assignment(str(one)) for one in listed(model.get("env"))]
                as_written = _of_llama_swap(name, model, shared)
                command = " ".join([*env, as_written.replace("${PORT}", _PORT)])
                yield NamedCommand(name, command, part=("cmd", model["cmd"]), as_written=as_written)
        started = list(services(content)) or list(pods(content, part))
        yield from (NamedCommand(one.name, one.command, part=one.part) for one in started)


def _of_llama_swap(name: str, model: Mapping[str, Any], shared: object) -> str:
    """`cmd` with its macros but the port: the model's own, then those of all models, which may use earlier ones."""
    macros = {"PORT": "${PORT}", "MODEL_ID": name}
    for group in (shared, model.get("macros")):
        for key, value in group.items() if isinstance(group, dict) else ():
            macros[str(key)] = _with_macros(str(value), macros)
    lines = [line for line in str(model["cmd"]).splitlines() if not line.lstrip().startswith("#")]
    lines = [*(_BEHIND_WORDS.sub(r"\1", line) for line in lines[:-1]), *lines[-1:]]
    filled = _with_macros("\n".join(lines), macros)
    command = " ".join(line.rstrip("\\ ") for line in filled.splitlines())
    unknown = next((macro for macro in _MACRO.finditer(command) if macro[1] != "PORT"), None)
    if unknown:
        raise InvalidFlags(f"{name}: the file has no macro {unknown[0]}", field="command")
    return command


def _with_macros(text: str, macros: Mapping[str, str]) -> str:
    length = len(text) + sum(len(macros.get(found[1], "")) for found in _MACRO.finditer(text))
    if length > MAX_COMMAND:
        raise InvalidFlags("the macros expand to more than a command can have", field="command")
    return _MACRO.sub(lambda match: macros.get(match[1], match[0]), text)


def _from_preset(text: str) -> Iterator[NamedCommand]:
    """llama.cpp, common/preset.cpp: `[*]` is for all models, and a later key wins."""
    needs = re.findall(rf"^[;#]\s*{NEEDS}(.*)$", text, re.M)
    parts = _SECTION.split(text)
    sections = {name.strip(): dict(_PAIR.findall(body)) for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    shared = sections.pop("*", {})
    for name, own in sections.items():
        options = shared | own
        words = [word for key, value in options.items() if key not in _ROUTERS for word in _option(key, value)]
        env = [f"{key}={shlex.quote(value)}" for key, value in options.items() if key.startswith("LLAMA_ARG_")]
        yield NamedCommand(name, " ".join([*needs[:1], *env, "llama-server", shlex.join(words)]), _router_engine())


# NixOS: a service's own command, and what `services.llama-cpp` takes: `settings` and sections of `modelsPreset` have
# llama-server's options by their names, `extraFlags` its words (nixos/modules/services/misc/llama-cpp.nix).
_NIX_STARTS = re.compile(r"\bExecStart\s*=\s*(?:\"((?:[^\"\\]|\\.){0,9999})\"|''(.{0,9999}?)'')\s*;", re.S)
_NIX_SERVICE = re.compile(r"\bservices\.llama-cpp\b(?:\.[\w.-]+)?\s*=")
_NIX_PART = re.compile(r"(?:^|[\s.])(settings|modelsPreset|extraFlags)\s*=\s*[{\[]", re.M)
_NIX_SET = re.compile(r"(?:\"([^\"\n]+)\"|([\w.-]+))\s*=\s*\{")
_NIX_PAIR = re.compile(r"(?:^|[\s{;.])\"?([A-Za-z][\w-]*)\"?\s*=\s*((?:\"(?:[^\"\\]|\\.)*\"|[^;{\[\"]){1,250}+);")
_NIX_STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")
_NIX_REMARK = re.compile(r"(?:^|(?<=\s))#.*$", re.M)


def _from_nix(text: str) -> Iterator[NamedCommand]:
    """Raise InvalidFlags where a NixOS service's options are not in the text."""
    if started := _NIX_STARTS.search(text):
        yield NamedCommand(None, started[1] or started[2])
    elif _NIX_SERVICE.search(text):
        text = _NIX_REMARK.sub("", text)
        parts = {m[1]: _inside(text, m.end() - 1) for m in islice(_NIX_PART.finditer(text), _MAX_MODELS)}
        presets = parts.get("modelsPreset", "")
        words = [re.sub(r"\\(.)", r"\1", word) for word in _NIX_STRING.findall(parts.get("extraFlags", ""))]
        own = dict(re.findall(r"\bsettings\.([\w-]+)\s*=\s*([^;{]{1,999});", text)) | dict(
            _NIX_PAIR.findall(parts.get("settings", ""))
        )
        if path := re.search(r"^[ \t]*model\s*=\s*([^;]{1,999});", text, re.M):
            own.setdefault("model", path[1])
        if models := {
            m[1] or m[2]: _inside(presets, m.end() - 1) for m in islice(_NIX_SET.finditer(presets), _MAX_MODELS + 1)
        }:
            yield from (_of_nix(name, dict(_NIX_PAIR.findall(body)), words) for name, body in models.items())
        elif (own and "models-preset" not in own) or words:
            yield _of_nix(None, own, words)
        else:
            raise InvalidFlags(
                "the options of this NixOS service are not in the text: paste what `systemctl cat llama-cpp` prints",
                field="command",
            )


def _of_nix(name: str | None, options: Mapping[str, str], words: Sequence[str]) -> NamedCommand:
    strings = {key: _NIX_STRING.fullmatch(value.strip()) for key, value in options.items()}
    given = {key: found[1] if (found := strings[key]) else value.strip() for key, value in options.items()}
    named = [word for key, value in given.items() for word in _option(key, value)]
    return NamedCommand(name, f"llama-server {shlex.join([*named, *words])}", _router_engine())


def _inside(text: str, start: int) -> str:
    """Return what is between the bracket at `start` and the one that closes it."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(text[i], 0)
        if depth == 0:
            return text[start + 1 : i]
    return text[start + 1 :]


# Keys for the router itself, not options of a model's server (tools/server/README.md, "Model presets").
_ROUTERS = ("version", "load-on-startup", "stop-timeout", "dedup-cache-models")


def _option(key: str, value: str) -> list[str]:
    if key.startswith("LLAMA_ARG_"):
        return []
    known = known_options(_router_engine(), "llama-server")
    long = f"--{key}" if f"-{key}" not in known and (len(key) > 3 or "-" in key) else ""
    name = f"--{key}" if f"--{key}" in known else long or f"-{key}"
    takes_one = known.get(name, key in ("fa", "flash-attn", "fit"))
    is_switch = known.get(name) is False or value.lower() in ("true", *_FALSE[:2])
    if takes_one or not is_switch:
        return [name, value]
    return [_negated(name)] if value.lower() in _FALSE else [name]


def _negated(name: str) -> str:
    return f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else f"--no-{name.lstrip('-')}"


_KOBOLD_MODELS = re.compile(
    r"sd(?:model|t5xxl|clip|vae|lora|photomaker|upscaler)|whispermodel|tts|embeddingsmodel|music"
)


def _program_in(words: Sequence[str]) -> int | None:
    return next((i for i, word in enumerate(words) if re.search(r"(?:^|[/\\])llama-server(?:\.exe)?$", word)), None)


def _from_json(text: str) -> NamedCommand:
    """KoboldCpp's settings, or what `docker inspect` prints of a container."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFlags(f"the file is not JSON: {error}", field="command") from error
    content = content[0] if isinstance(content, list) and content else content
    known: dict[str, Any] = content if isinstance(content, dict) else {}
    if isinstance(known.get("Args"), list):
        return NamedCommand(None, shlex.join(map(str, (known.get("Path") or "llama-server", *known["Args"]))))
    if not {"gpulayers", "model_param", "contextsize"} & known.keys():
        raise InvalidFlags(
            "the JSON is not a settings file of KoboldCpp (.kcpps), nor what `docker inspect` prints", field="command"
        )
    given = {name: value for name, value in known.items() if value not in (None, "", [], -1)}
    return _kobold(given, of_file=True)


def _from_kobold_words(text: str) -> dict[str, Any]:
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise InvalidFlags(f"a quote in the command is not closed: {error}", field="command") from error
    found: dict[str, Any] = {}
    name = ""
    at = next(i for i, word in enumerate(words) if "koboldcpp" in word.lower())
    in_container = [word.partition("=")[2] for word in words[:at] if word.startswith("KCPP_ARGS=")]
    words += [word for arguments in in_container for word in shlex.split(arguments)]  # of KoboldCpp's own image
    for word in words[at + 1 :]:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            found[name] = True
        elif not name:
            found["model"] = word
        else:
            found[name] = word if found[name] is True else f"{found[name]},{word}"
    return found


def _kobold(options: Mapping[str, Any], *, of_file: bool) -> NamedCommand:
    """The llama-server command that does the same as KoboldCpp's, and the options that it leaves out.

    A settings file states every option there is, so of these only those that load another model are named.
    """
    kobold = other_programs().koboldcpp
    named = {kobold.old.get(name, name): value for name, value in options.items()}
    others = [name for name in named if name not in {*kobold.same, *kobold.read} and named[name] is not False]
    models = tuple(f"--{name}" for name in others if _KOBOLD_MODELS.match(name) and named[name] not in (True, 0))
    rest = tuple(f"--{name}" for name in others if f"--{name}" not in models) if not of_file else ()
    left_out = [LeftOut(names, "KoboldCpp", loads=names is models) for names in (models, rest) if names]
    return NamedCommand(None, _kobold_words(named), _router_engine(), tuple(left_out))


def _kobold_words(options: Mapping[str, Any]) -> str:
    """The same as words, with KoboldCpp's defaults: 8,192 tokens of context, batches of 512, flash attention, no mmap,
    a draft model that is used, and one request at a time, without the prompts and checkpoints that llama-server keeps
    in RAM."""
    kobold = other_programs().koboldcpp
    given: dict[str, Any] = {"contextsize": 8192, "batchsize": 512, **options}
    if "model_param" in given:
        given.pop("model", None)
    if str(given.get("gpulayers")) == "-1":  # it chooses
        del given["gpulayers"]
    split, backend = given.get("tensor_split"), str(given.get("usecublas", "")).lower()
    card = re.search(r"\b\d\b", backend)
    words = ["llama-server"]
    if card and not split:  # it hides the other cards
        words = [
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            *(f"{api}_VISIBLE_DEVICES={card[0]}" for api in ("CUDA", "HIP")),
            *words,
        ]
    elif card:
        words += ["-mg", card[0]]
    for name, value in given.items():
        if name in kobold.same and value is not True and not (name == "moecpu" and str(value) == "0"):
            words += [kobold.same[name], str(value[0] if isinstance(value, list) else value)]
    kind = engine_spec(_router_engine()).commands.draft_kinds[""]
    words += ["--spec-type", kind] if "-md" in words else []
    words += ["-b", str(given["batchsize"]), "-ub", str(given["batchsize"])]
    words += ["-np", "1", "-cram", "0", "-ctxcp", "0", *(["--swa-full"] if given.get("noswa") else [])]
    if split:
        words += ["-ts", ",".join(map(str, split)) if isinstance(split, list) else str(split)]
    cache = kobold.caches.get(str(given.get("quantkv", 0)), str(given.get("quantkv")))
    words += [] if cache == "f16" else ["-ctk", cache, "-ctv", cache]
    words += ["-fa", "off" if given.get("noflashattention") else "on"]
    mapped, locked = given.get("usemmap"), given.get("usemlock")
    words += ["-lm", "mmap+mlock" if mapped and locked else "mlock" if locked else "mmap" if mapped else "none"]
    words += ["-nkvo"] if given.get("lowvram") or "lowvram" in backend else []
    words += ["-sm", "row"] if "rowsplit" in backend else []
    words += ["-fit", "off"] if "gpulayers" in given and not given.get("autofit") else []
    return shlex.join(words)
