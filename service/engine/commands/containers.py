"""Containers described in YAML: services of compose, containers of Kubernetes and of a chart's values.

Each becomes a command for bash. compose-spec/compose-spec (05-services.md, 12-interpolation.md, deploy.md);
kubernetes.io/docs/reference (Container v1 core; "Define a Command and Arguments for a Container"; device plugins).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from service.engine.commands.limits import PASSED, of_pod, of_service
from service.engine.commands.unwrap import IN_CONTAINER, gives_gpu, program_started, shown
from service.engine.commands.yaml_text import at, entries, listed

_MOST_CARDS, _DEEPEST = 64, 24
_INNERMOST = re.compile(r"(?<!\$)\$\{(\w+)(?::?([-?])([^${}]*))?\}")
_OF_KUBERNETES = re.compile(r"\$\((\w+)\)")  # $(NAME): a variable of the container
_CDI = "nvidia.com/gpu="
# What gives a container of Kubernetes its GPUs, besides resources: read from the text of its document.
_POD_GPUS = re.compile(r"^\s*(?:-\s+)?(?:runtimeClassName:|privileged:\s*true|path:\s*[\"']?/dev/(?:dri|kfd))", re.M)
_SWAPS = "llama-swap"  # an image that holds no command: its own file does
_MOST_NESTED = 8


def assignment(line: str) -> str:
    """Return `NAME=value`, which may be exported or quoted, quoted for bash."""
    name, _, value = line.removeprefix("export ").partition("=")
    return f"{name.strip()}={shlex.quote(value.strip().strip(chr(34)).strip(chr(39)))}"


class Contained(NamedTuple):
    """A container that starts a program of the engines. `part`: the key that has its options, and what that holds."""

    name: str
    command: str
    part: tuple[str, object] | None


def services(content: Mapping[str, Any]) -> Iterator[Contained]:
    """Yield each service of compose that starts a program of the engines."""
    for name, service in entries(content.get("services", content)):
        words = _words(service.get("command"))
        image, built = (str(service.get(key, "")) for key in ("image", "build"))
        entry = _words(service.get("entrypoint"))
        named = f"{image} {entry} {words} {f'{name} {built}' if built else ''}"
        if _SWAPS in image or "llama" not in named.lower():
            continue
        if words or " -" in entry or any(pair.startswith("LLAMA_ARG_") for pair in _pairs(service.get("environment"))):
            key = "command" if words else "entrypoint" if entry else "image"
            yield Contained(name, _of_service(service, entry, words), _part(service, key))


def interpolated(text: str) -> str:
    """Return a text of compose with the defaults of its variables (`${A:-1}`); those without one stay."""
    for _ in range(_MOST_NESTED):
        replaced = _INNERMOST.sub(lambda m: m[3] if m[2] == "-" else "\0{" + m[1] + "}", text)
        if replaced == text:
            break
        text = replaced
    return text.replace("$$", "$").replace("\0", "$")


def _words(value: object) -> str:
    """The words of a command in compose: a string is split by a shell's rules, a list has them; `$$` stands for `$`."""
    if isinstance(value, list):
        return shlex.join(interpolated(_scalar(word)) for word in value)
    return interpolated(str(value or ""))


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_service(service: Mapping[str, Any], entry: str, words: str) -> str:
    image = interpolated(str(service.get("image", "")))
    pairs = [interpolated(pair) for pair in _pairs(service.get("environment"))]
    devices = [*_reserved(service), *(one for one in listed(service.get("gpus")) if isinstance(one, dict))]
    given = [str(one) for one in listed(service.get("devices")) if gives_gpu(str(one))]
    named = [str(card).removeprefix(_CDI) for one in devices for card in listed(one.get("device_ids"))]
    named += [one.removeprefix(_CDI) for one in given if one.startswith(_CDI)]
    counts = [one["count"] for one in devices if isinstance(one.get("count"), int)]
    has_gpus = bool(devices or given) or any(service.get(key) for key in ("gpus", "runtime", "privileged"))
    return _command(
        image,
        entry,
        words,
        pairs,
        of_service(service),
        shown(named or _first(sum(counts)), image, has_gpus=has_gpus or _is_shown(pairs)),
    )


def _command(
    image: str, entry: str, words: str, pairs: Sequence[str], limits: Iterator[str], cards: Sequence[str]
) -> str:  # fmt: skip
    """Return the command that a container runs, its variables and limits before it."""
    env = [assignment(pair) for pair in (*pairs, *cards, *limits, *_passed(pairs)) if "=" in pair]
    if not entry:
        entry, words = program_started(image, words)
    return " ".join(word for word in [*env, entry, words] if word)


def _first(count: int) -> list[str]:
    return [str(n) for n in range(min(count, _MOST_CARDS))]


def _is_shown(pairs: Sequence[str]) -> bool:
    return any(one.startswith(IN_CONTAINER) for one in pairs)


def _pairs(env: object) -> list[str]:
    """The variables of a container, `NAME=value`; `NAME` alone comes from outside the text."""
    if isinstance(env, dict):
        return [name if value is None else f"{name}={_scalar(value)}" for name, value in env.items()]
    return [str(one) for one in listed(env) if one]


def _passed(pairs: Sequence[str]) -> list[str]:
    """Say which variables that stand for options are set outside the text, if at all."""
    names = [one for one in pairs if one.startswith("LLAMA_ARG_") and "=" not in one]
    return [f"{PASSED}={' '.join(names)}"] if names else []


def _reserved(service: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The devices that a service reserves (compose-spec, deploy.md, "devices")."""
    found = listed(at(service, "deploy", "resources", "reservations", "devices"))
    return [one for one in found if isinstance(one, dict)]


def _part(container: Mapping[str, Any], *keys: str) -> tuple[str, object] | None:
    return next(((key, container[key]) for key in keys if container.get(key)), None)


def pods(content: object, text: str) -> Iterator[Contained]:
    """Yield each container of Kubernetes that starts a program of the engines.

    `text`: the document that `content` is. A chart's values may hold a container, too.
    """
    found = list(_containers("", content, 0))
    title = str(at(content, "metadata", "name") or "")
    for name, container in found:
        command = _of_pod(container, text)
        if command:
            named = title if len(found) == 1 and title else name or title or "container"
            yield Contained(named, command, _part(container, "args", "command"))


def _containers(name: str, part: object, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    if depth > _DEEPEST:
        return
    if isinstance(part, list):
        for one in part:
            yield from _containers(name, one, depth + 1)
    elif isinstance(part, dict):
        lists = any(isinstance(part.get(key), list) for key in ("args", "command"))
        if lists or (_image(part) and {"args", "command", "env"} & part.keys()):
            yield str(part.get("name") or name), part
            return
        for key, one in part.items():
            if key != "initContainers":
                yield from _containers(str(key), one, depth + 1)


def _image(container: Mapping[str, Any]) -> str:
    """The image of a container; a chart has its repository and tag apart."""
    image = container.get("image")
    if isinstance(image, dict):
        return f"{image.get('repository') or ''}:{image.get('tag') or 'latest'}" if image.get("repository") else ""
    return str(image or "")


def _of_pod(container: Mapping[str, Any], text: str) -> str:
    """Return the command of a container; "" where it starts nothing of the engines."""
    image, pairs = _image(container), list(_pod_pairs(container.get("env")))
    values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    entry, words = (_pod_words(container.get(key), values) for key in ("command", "args"))
    asked = any(name.startswith("LLAMA_ARG_") for name in pairs)
    if _SWAPS in image or "llama" not in f"{image} {entry} {words}".lower() or not (entry or words or asked):
        return ""
    limits = at(container, "resources", "limits")
    extended = {key: n for key, n in (limits if isinstance(limits, dict) else {}).items() if "/" in str(key)}
    counts = [int(n) for key, n in extended.items() if key == "nvidia.com/gpu" and str(n).isdecimal()]
    has_gpus = bool(extended or at(container, "resources", "claims")) or _is_shown(pairs)
    has_gpus = has_gpus or _POD_GPUS.search(text) is not None
    unsaid = not image or (_is_shown(pairs) and not counts)
    cards = [] if unsaid else shown(_first(sum(counts)), image, has_gpus=has_gpus)
    return _command(image, entry, words, pairs, of_pod(limits), cards)


def _pod_words(value: object, values: Mapping[str, str]) -> str:
    words = [_scalar(word) for word in value] if isinstance(value, list) else [str(value or "")]
    filled = [_OF_KUBERNETES.sub(lambda m: values.get(m[1], f"${{{m[1]}}}"), word) for word in words]
    return shlex.join(filled) if isinstance(value, list) else filled[0]


def _pod_pairs(env: object) -> Iterator[str]:
    """Yield the variables of a container: a list of names and values, or in a chart's values a mapping. What comes
    from a secret or a map of settings is not in the text."""
    named = [(one.get("name"), one.get("value")) for one in listed(env) if isinstance(one, dict)]
    for name, value in [*named, *(env.items() if isinstance(env, dict) else ())]:
        if name:
            inside = value.get("value") if isinstance(value, dict) else value
            yield str(name) if inside is None else f"{name}={_scalar(inside)}"
