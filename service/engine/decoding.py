"""What msgspec refuses, in the words of our errors: what is wrong, where, and what would be right there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import Any

import msgspec
from msgspec import inspect

from service.engine.errors import InvalidInput

_PATH = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>[^`]{0,500})`$", re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"^Object contains unknown field `(?P<name>[^`]{0,200})`")
_MISSING_FIELD = re.compile(r"^Object missing required field `(?P<name>[^`]{0,200})`")
ENUM_VALUE = "Invalid enum value"
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # the escape, not a backslash before the letters u0000
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_PATTERN = "Expected `str` matching regex"
_BOUNDS = (  # msgspec's messages and ours
    (re.compile(r"Object contains (unknown field `[^`]*`)"), r"\1"),
    (re.compile(r"Object missing required field `([^`]*)`"), r"`\1` is missing"),
    (re.compile(r"Expected `(?:int|float)` <= (\S+?)(?:\.0)?$"), r"this must be at most \1"),
    (re.compile(r"Expected `(?:int|float)` >= (\S+?)(?:\.0)?$"), r"this must be at least \1"),
    (re.compile(r"Expected `(?:int|float)` > (\S+?)(?:\.0)?$"), r"this must be more than \1"),
    (re.compile(r"Expected `(?:str|array)` of length >= 1"), "this must not be empty"),
    (re.compile(r"Expected `str` of length >= (\d+)"), r"this must have at least \1 characters"),
    (re.compile(r"Expected `str` of length <= (\d+)"), r"this is longer than \1 characters"),
    (re.compile(r"Expected `array` of length <= (\d+)"), r"these are more than \1"),
)
_IN_WORDS = (  # the same, for people who write no JSON
    *_BOUNDS,
    (re.compile(r"Expected `int.*`, got `str`"), "this must be a whole number, without separators"),
    (re.compile(r"Expected `float.*`, got `str`"), "this must be a number, such as 3.5"),
)
_NEAR, _A_WORD_OF = 0.7, 0.8  # of difflib's ratio: `gaol` and `goal` are 0.75; of `cores` and `physical_cores`
_SHOWN, _LISTED = 60, 20  # characters of a wrong value, and allowed values, in a sentence


def wrong_value(error: msgspec.ValidationError, kind: Any) -> tuple[str, str | None, tuple[str, ...]]:
    """Return (what is wrong, path of the field, what would be right) of an error in decoding a `kind`.

    Paths look like `hardware.gpus[0].count`. What would be right: the values of an enumeration, the nearest first; the
    names of an object's fields, only the near ones where there are any. Empty where msgspec's own sentence says it.
    """
    text = str(error)
    match = _PATH.match(text)
    what, path = (match["what"], match["path"]) if match else (text, "")
    unknown = _UNKNOWN_FIELD.match(what)
    choices: tuple[str, ...] = ()
    if what.startswith(_PATTERN):
        examples = _examples(_at(inspect.type_info(kind), _STEP.findall(path)))
        what = next((f"this must be written like {one}" for one in examples), what)
    if unknown:
        choices = _fields_meant(unknown["name"], inspect.type_info(kind), _STEP.findall(path))
    elif what.startswith(ENUM_VALUE):
        what, choices = wrong_choice(what, tuple(_values(_at(inspect.type_info(kind), _STEP.findall(path)))))
    if named := unknown or _MISSING_FIELD.match(what):
        path = f"{path}.{named['name']}" if path else named["name"]
    return _said(what, _BOUNDS), path or None, choices


def wrong_choice(said: str, values: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return (what is wrong, the values, nearest first) for msgspec's sentence `said` about a value of none of them."""
    wrong = said.removeprefix(ENUM_VALUE).strip(" '")
    close, values = near(wrong, values), tuple(dict.fromkeys(values))
    few = values if len(values) <= _LISTED else close
    meant = f"; did you mean {close[0]}?" if close else ""
    what = f"{wrong[:_SHOWN]!r} is not one of {', '.join(few)}{meant}" if few else f"there is no {wrong[:_SHOWN]} here"
    return what, tuple(dict.fromkeys((*close, *values)))


def near(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of `names` that `name` may be a misspelling or a part of, the nearest first."""
    scored = {one: _likeness(name.lower(), one.lower()) for one in names}
    return tuple(sorted((one for one in scored if scored[one] >= _NEAR), key=lambda one: -scored[one]))


def _likeness(name: str, other: str) -> float:
    is_part = bool(name) and set(name.split("_")) <= set(other.split("_"))
    return max(SequenceMatcher(a=name[:_SHOWN], b=other).ratio(), _A_WORD_OF if is_part else 0.0)


def in_words(what: str) -> str:
    """Return what is wrong, as `wrong_value` says it, for people who filled in a form or typed an option."""
    return _said(what, _IN_WORDS)


def _said(what: str, table: Iterable[tuple[re.Pattern[str], str]]) -> str:
    return next((said.sub(words, what) for said, words in table if said.fullmatch(what)), what)


@contextmanager
def refused(kind: Any) -> Iterator[None]:
    """Raise InvalidInput, with what `wrong_value` says, where msgspec refuses a `kind` in the block."""
    try:
        yield
    except msgspec.ValidationError as error:
        what, field, choices = wrong_value(error, kind)
        raise InvalidInput(what, field=field, choices=choices) from error


def has_nul(json: bytes) -> bool:
    """Return whether a text in encoded JSON holds the character NUL, which PostgreSQL keeps in no text."""
    return b"\\u0000" in json and _NUL.search(json) is not None


def require_no_nul(value: Any) -> None:
    """Raise InvalidInput with the path of a text in `value`, a Struct or plain data, that holds the character NUL."""
    encoded = msgspec.json.encode(value)
    if has_nul(encoded):
        path = next(_with_nul(msgspec.json.decode(encoded), ""), None)
        raise InvalidInput("a text holds the character NUL, which no name, path or command has", field=path)


def _with_nul(value: Any, path: str) -> Iterator[str | None]:
    if isinstance(value, str) and "\x00" in value:
        yield path or None
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from _with_nul(one, f"{path}[{i}]")
    elif isinstance(value, dict):
        for name, one in value.items():
            here = f"{path}.{name}" if path else name
            yield from [path or None] if "\x00" in name else _with_nul(one, here)


def _at(kind: inspect.Type, path: Iterable[str]) -> list[inspect.Type]:
    """The types that may stand at a path: several where one of its steps is a union."""
    here = list(_alternatives(kind))
    for step in path:
        here = [found for one in here for found in _inside(one, step)]
    return here


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    elif isinstance(kind, inspect.Metadata) and not isinstance(kind.type, inspect.StrType):
        yield from _alternatives(kind.type)
    else:  # of a text, what is said about it too
        yield kind


def _inside(kind: inspect.Type, step: str) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if field.encode_name == step:
                yield from _alternatives(field.type)
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType) and step.startswith("["):
        yield from _alternatives(kind.item_type)
    elif isinstance(kind, inspect.DictType) and step.startswith("["):
        yield from _alternatives(kind.value_type)


def _examples(kinds: Iterable[inspect.Type]) -> Iterator[str]:
    for kind in kinds:
        if isinstance(kind, inspect.Metadata):
            yield from map(str, (kind.extra_json_schema or {}).get("examples", ()))


def values_of(kind: Any) -> tuple[str, ...]:
    """Return the values of an enumeration, none of another type."""
    return tuple(_values(_alternatives(inspect.type_info(kind))))


def _fields_meant(name: str, root: inspect.Type, path: Sequence[str]) -> tuple[str, ...]:
    """The near fields of the object at `path`; else those of the parts of the whole, with their paths; else its own."""
    own = tuple(dict.fromkeys(_field_names(_at(root, path))))
    parts = dict.fromkeys(_field_names(_alternatives(root)))
    elsewhere = {one: f"{part}.{one}" for part in parts for one in _field_names(_at(root, [part]))}
    return near(name, own) or tuple(elsewhere[one] for one in near(name, elsewhere)) or own


def _field_names(kinds: Iterable[inspect.Type]) -> Iterator[str]:
    for kind in kinds:
        if isinstance(kind, inspect.StructType):
            yield from (field.encode_name for field in kind.fields)


def _values(kinds: Iterable[inspect.Type]) -> Iterator[str]:
    for kind in kinds:
        if isinstance(kind, inspect.LiteralType):
            yield from map(str, kind.values)
        elif isinstance(kind, inspect.EnumType):
            yield from (str(one.value) for one in kind.cls)
