"""Values of options: texts, which may come from files, and values checked against the engine's types."""

from __future__ import annotations

import argparse
import os
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from service.engine.decoding import in_words, wrong_value
from service.engine.errors import InvalidInput
from service.engine.units import in_digits

if TYPE_CHECKING:
    from service.settings import Settings

OPTIONS = {  # of fields, where they are not the field's name
    "engines": "--engine",
    "variants": "--variant",
    "kv_types": "--kv-type",
    "current_command": "--command",
    "keep_flags": "--keep",
    "preset": "--goal",
    "what_if": "--what-if",
    "text": "FILE",
}
_MAX_PASTE = 65_536
_MAX_TOKEN = 200
T = TypeVar("T")


def text_argument(value: str, field: str = "hardware") -> str:
    """Return the text itself, or the contents of `@FILE` or of standard input (`-`). Raises InvalidInput."""
    if os.path.isfile(value):
        raise InvalidInput(f"{value} is a file: write @{value} to have it read", field=field)
    if value != "-" and not value.startswith("@"):
        return value
    text = sys.stdin.read(_MAX_PASTE + 1) if value == "-" else file_text(value[1:], field, _MAX_PASTE)
    if not text.strip():
        raise InvalidInput(f"{'standard input' if value == '-' else value[1:]} is empty", field=field)
    return text


def file_text(path: str, field: str, at_most: int) -> str:
    """Return up to `at_most` + 1 characters of a file. Raises InvalidInput if it cannot be read."""
    try:
        with Path(path).open("rb") as data:  # once: it may be a pipe, such as `<(nvidia-smi)`
            is_utf16 = data.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE)  # as Windows' PowerShell writes with >
            with TextIOWrapper(data, "utf-16" if is_utf16 else "utf-8-sig", "replace") as text:
                return text.read(at_most + 1)
    except OSError as error:
        right = "name an existing file, give the text itself, or - for standard input"
        raise InvalidInput(f"cannot read {path}: {error.strerror}; {right}", field=field) from error


def token(arguments: argparse.Namespace) -> str | None:
    """Return the API token of `--token-file`, else of ADVISOR_TOKEN, else None."""
    if arguments.token_file:
        return file_text(arguments.token_file, "--token-file", _MAX_TOKEN).strip()
    return os.environ.get("ADVISOR_TOKEN", "").strip() or None


def service_address(text: str) -> str:
    """Return the address of a service, without the slash at its end. Raises InvalidInput."""
    address = text.strip().rstrip("/")
    if not address.startswith(("https://", "http://")):
        raise InvalidInput("name the service: --service https://HOST, or ADVISOR_SERVICE", field="--service")
    return address


def machine(arguments: argparse.Namespace) -> str:
    """Return the text of `--hardware`. Raises InvalidInput if it is missing."""
    if not arguments.hardware:
        example = "-H 'RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600'"
        this = 'advisor hardware says what this machine has: -H "$(advisor hardware --json)"'
        raise InvalidInput(f"say what it runs on: {example}; {this}", field="--hardware")
    return text_argument(arguments.hardware)


def machine_or_this(arguments: argparse.Namespace) -> str:
    """Return the text of `--hardware`, else this machine's as JSON."""
    if arguments.hardware:
        return text_argument(arguments.hardware)
    from service.detect import detect

    return msgspec.json.encode(detect()).decode()


def option(field: str) -> str:
    """Return the option of the command line that fills a field."""
    return OPTIONS.get(field) or f"--{field.replace('_', '-')}"


def converted(value: object, kind: type[T], field: str) -> T:
    """Return `value` as a `kind`. Raises InvalidInput, naming the wrong option."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, path, choices = wrong_value(error, kind)
        name = (path or "").partition("[")[0]
        detail = in_words(what)
        detail = detail[:1].lower() + detail[1:]
        raise InvalidInput(detail, field=option(name) if name else field, choices=choices) from error


def tokens(text: str) -> int:
    """Return a number of tokens: `16384`, or `16k` for 16 times 1,024. Raises ArgumentTypeError."""
    if not (number := in_digits(text)).isdecimal():
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of tokens, such as 16384 or 16k")
    return int(number)


def port(text: str) -> int:
    """Return a port to listen on. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a port: 0 to 65535")
    return int(text)


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """Add `--no-cache`, for `reading_settings`."""
    parser.add_argument("--no-cache", action="store_true", help="read headers again, and store none on this disk")


def reading_settings(arguments: argparse.Namespace) -> Settings:
    """Return the settings of the environment, without the cache of headers if `--no-cache` is given.

    Unless a folder is set, the cache is in the user's own cache folder.
    """
    own = not (os.environ.get("ADVISOR_CACHE_DIR") or os.environ.get("ADVISOR_STATE_DIR"))
    stated = {"ADVISOR_CACHE_DIR": str(cache_folder(os.environ))} if own else {}
    return load_settings(stated | ({"ADVISOR_CACHE_MIB": "0"} if arguments.no_cache else {}))


def load_settings(stated: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the environment, overridden by `stated`, from the command line."""
    from service import settings

    return settings.load_settings({**os.environ, **(stated or {})})


_NAME = "offload-advisor"


def cache_folder(environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the user's cache folder: XDG_CACHE_HOME, or the platform's equivalent."""
    if stated := environment.get("XDG_CACHE_HOME"):
        return Path(stated) / _NAME
    if platform == "win32" and (local := environment.get("LOCALAPPDATA")):
        return Path(local) / _NAME / "cache"
    home = Path.home()
    return (home / "Library" / "Caches" if platform == "darwin" else home / ".cache") / _NAME
