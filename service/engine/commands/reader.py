"""Options of a command, read into the fields of Flags."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from service.engine.builds import Build
from service.engine.commands.expert_rules import dense_override
from service.engine.commands.shell import OPTION
from service.engine.commands.tables import (
    AFFECTING,
    RETIRED,
    TWO_VALUES,
    Option,
    known_options,
    newer_options,
    option_named,
)
from service.engine.config import CACHE_TYPES, ENGINES, Flags, Override
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags
from service.engine.overrides import without_commas

INTEGER = re.compile(r"[+-]?\d{1,9}")
VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?|%[A-Za-z_]\w*%|\$env:\w+")

# Where any word may follow, or none.
_FREE_TEXT = frozenset(("model_path", "alias", "overrides", "flash_attn", "no_flash_attn", "fit"))
_WORDS_FOR_A_VALUE = re.compile(r"\((?!-)|\.{3}|…")
_REMARK_BEHIND = re.compile(r"([^\s()]+)\s+(\([^()]*\))")
_SPAN = re.compile(r"(\d+)-\d+(?:[+*]\d+)?")
_SWITCH_VALUES = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}
NO_NUMBER = "-fa without a number"  # in `old`, as "bare -fa" is
_LAYERS_BY_NAME = {"auto": 999, "all": 999, "-1": 999, "-2": 999}  # llama.cpp arg.cpp; -1 in ik_llama.cpp too
_LOAD_MODES: dict[str, tuple[bool | None, bool]] = {
    "auto": (None, False),
    "none": (False, False),
    "mmap": (True, False),
    "mlock": (False, True),
    "mmap+mlock": (True, True),
    "dio": (False, False),
}
_CPU_MOE_RULE = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # llama.cpp common.h:1198
_FITTING = ("llama-server", "llama-cli", "llama-completion", "llama-mtmd-cli", "llama-fit-params")  # common_init
_MAX_SHARES = 64
_MAX_LAYERS = 512


class BenchTests(msgspec.Struct, frozen=True):
    """What llama-bench measures, in tokens: prompts, generations, (prompt, generation) pairs, depths."""

    prompts: tuple[int, ...] = ()
    generations: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    depths: tuple[int, ...] = (0,)

    @property
    def n_ctx(self) -> int:
        """The context that llama-bench allocates for the largest of them."""
        pairs = (prompt + generation for prompt, generation in self.pairs)
        return max((*self.prompts, *self.generations, *pairs), default=0) + max(self.depths, default=0)


class OptionReader:
    """Reads the words after a program. What it found: `flags()`, `tests()`, and the attributes."""

    def __init__(self, build: Build, program: str, words: list[str]) -> None:
        self.engine, self.program, self.words, self.i = build.engine, program, list(words), 0
        self.build, engine = build.rules, build.engine
        self.dialect = engine_spec(engine).commands
        self.bench = program == "llama-bench"
        self.known = known_options(engine, program)
        self.newer = newer_options(engine, program)
        self.fields: dict[str, Any] = {}
        self.rules: list[Override] = []
        self.cpu_moe: list[tuple[str, int, int]] = []  # field, value, number of -ot rules before it
        self.measured: dict[str, list[tuple[int, ...]]] = {}
        self.fit = self.build.fit and program in _FITTING
        self.model_path: str | None = None
        self.alias: str | None = None
        self.other: list[str] = []
        self.rest: list[str] = []
        self.unknown: list[str] = []
        self.old: list[str] = []
        self.used: list[str] = []
        self.varied: list[str] = []
        self.refused: list[InvalidFlags] = []

    def read(self) -> None:
        while self.i < len(self.words):
            word = self.words[self.i]
            self.i += 1
            name = word.replace("_", "-") if word.startswith("--") else word
            if not OPTION.match(word):
                self._remark(word)
                continue
            if several := words_in_one(word, self.known):
                self.unknown.append(word)
                self.words[self.i - 1 : self.i] = several
                self.i -= 1
                continue
            self.used.append(name)
            option = option_named(name, self.bench)
            if option and self._words_follow(option):
                self._remark_for(name)
            elif option:
                self._try_field(option, name)
            else:
                self._other(name)

    def flags(self) -> Flags:
        """Return the flags; what the command leaves out is the build's default of this program."""
        self.fields.setdefault("n_ctx", self.tests().n_ctx if self.bench else 0)
        self.fields.setdefault("flash_attn", self.build.flash_attn)
        self.fields.setdefault("fused_moe", self.build.fused_moe)
        self.fields.setdefault("n_gpu_layers", 999 if self.bench else self.build.n_gpu_layers)
        for field, value in self.dialect.bench_defaults.items() if self.bench else ():
            self.fields.setdefault(field, value)
        self.fit = self.fit or (self.bench and not self.dialect.bench_fits.isdisjoint(self.used))
        auto = self.program == "llama-server"
        slots = self.fields.get("n_parallel", -1 if auto and self.build.auto_slots > 1 else 1)
        if self.program == "llama-perplexity":
            slots = self._perplexity_windows()
        if self.program == "llama-embedding":  # examples/embedding/embedding.cpp of both engines
            self.fields["n_batch"] = max(self.fields.get("n_batch", Flags().n_batch), self.fields["n_ctx"])
            self.fields["n_ubatch"] = self.fields["n_batch"]
        if slots < 1:
            self.other += [] if {"-kvu", "--kv-unified"} & set(self.other) else ["-kvu"]
        self.fields["n_parallel"] = self.build.auto_slots if slots < 1 else slots
        rules = self._ordered_rules()
        return Flags(**self.fields, overrides=tuple(rules), other=tuple(self.other))

    def tests(self) -> BenchTests:
        """Return llama-bench's tests; 512 and 128 tokens where the command names none."""
        pairs = (*self.measured.get("n_pg", ()), *self.measured.get("n_gp", ()))
        return BenchTests(
            prompts=tuple(n for (n,) in self.measured.get("n_prompt", [(512,)]) if n > 0),
            generations=tuple(n for (n,) in self.measured.get("n_gen", [(128,)]) if n > 0),
            pairs=tuple((pair[0], pair[1]) for pair in pairs),
            depths=tuple(n for (n,) in self.measured.get("n_depth", [(0,)])),
        )

    def _remark(self, word: str) -> None:
        """Note an unknown word. A remark in parentheses counts as one, unless it holds options: `(-ot exps=CPU)`."""
        if not word.startswith("("):
            self.unknown.append(word)
            return
        start = self.i - 1
        end = next((j for j in range(start, len(self.words)) if self.words[j].rstrip(",.").endswith(")")), start)
        if OPTION.match(word[1:]):
            self.words[start] = word[1:]
            self.words[end] = self.words[end].rstrip(",.").removesuffix(")")
            self.i = start
        else:
            self.unknown.append(" ".join(self.words[start : end + 1]))
            self.i = end + 1

    def _words_follow(self, option: Option) -> bool:
        """Whether prose is in the place of a value, as in `-ub (see the table)`; a remark after a value is split
        off."""
        if self.i >= len(self.words) or option.kind in ("on", "off") or option.field in _FREE_TEXT:
            return False
        if behind := _REMARK_BEHIND.fullmatch(self.words[self.i]):
            self.words[self.i : self.i + 1] = [behind[1], behind[2]]
        return _WORDS_FOR_A_VALUE.match(self.words[self.i]) is not None

    def _remark_for(self, name: str) -> None:
        """Note an option that has prose as its value as one unknown word."""
        self.i += 1
        known = len(self.unknown)
        self._remark(self.words[self.i - 1])
        self.unknown[known:] = [" ".join([name, *self.unknown[known:]])]

    def _try_field(self, option: Option, name: str) -> None:
        """Read a field; note a value that cannot be parsed, so that a check can say what is wrong with the command.

        If it can only mean one number (`16k`) or rule (`[0-9]{1,2}`), that is used.
        """
        try:
            self._refuse_variable(option, name)
            self._field(option, name)
        except InvalidFlags as wrong:
            self.refused.append(wrong)
            if option.kind == "int" and len(wrong.choices) == 1:
                self._set(option.field, int(wrong.choices[0]))

    def _refuse_variable(self, option: Option, name: str) -> None:
        """Raise InvalidFlags for a value that is a variable which the text does not set, whatever the option takes."""
        follows = self._takes_value(name) and option.field not in ("model_path", "alias")
        if follows and self.i < len(self.words) and VARIABLE.fullmatch(self.words[self.i]):
            self.i += 1
            raise InvalidFlags(f"{name} {self.words[self.i - 1]}: {NOT_SET}", field=name)

    def _field(self, option: Option, name: str) -> None:
        if name not in self.known:
            self.old.append(name)
        if option.kind == "special":
            self._special(option.field, name)
        elif option.kind in ("on", "off"):
            self._set(option.field, self._switch() is (option.kind == "on"))
        elif option.kind == "tests":
            self._test(option.field, name)
        elif option.kind == "cache":
            self._cache_type(option.field, name)
        elif option.kind == "int":
            self._set(option.field, _whole(self._first(name), name))
        else:
            self.fields[option.field] = self._first(name)

    def _set(self, field: str, value: int | bool) -> None:
        self.fields[field] = value
        if field in ("cpu_moe", "n_cpu_moe") and value:
            self.cpu_moe.append((field, int(value), len(self.rules)))

    def _value(self, name: str) -> str:
        if self.i >= len(self.words):
            raise InvalidFlags(f"{name} is the last word, but needs a value", field=name)
        self.i += 1
        return self.words[self.i - 1]

    def _first(self, name: str) -> str:
        """Return the value; of llama-bench's lists, and of ranges such as 16-64+16, the first one."""
        value = self._value(name)
        if not self.bench:
            return value
        first = value.split(",")[0]
        span = _SPAN.fullmatch(first)
        if first != value or span:
            self.varied.append(f"{name} {value}")
        return span[1] if span else first

    def _switch(self) -> bool:
        following = self.words[self.i].split(",")[0] if self.i < len(self.words) else ""
        if following not in _SWITCH_VALUES:
            return True
        self.i += 1
        return _SWITCH_VALUES[following]

    def _other(self, name: str) -> None:
        """Read an option without a field: one of this program, of another, of older builds, or unknown."""
        count = 2 if name in TWO_VALUES else int(self._takes_value(name))
        values = self.words[self.i : self.i + count]
        if values and values[0] in self.known:  # a forgotten value: the next option is not swallowed
            values = []
        self.i += len(values)
        text = " ".join([name, *values])
        if name in RETIRED and name not in self.known:
            self.old.append(name)
        elif name not in self.known and name not in self.newer:
            self.unknown.append(text)
        elif name not in AFFECTING:
            self.rest.append(text)
        if name in AFFECTING:
            self.other.append(text)

    def _takes_value(self, name: str) -> bool:
        if name in self.newer:
            return self.newer[name]
        for engine in (self.engine, *ENGINES):
            for program in (self.program, "llama-bench"):
                known = known_options(engine, program)
                if name in known:
                    return known[name]
        if name in RETIRED:
            return RETIRED[name]
        return self.i < len(self.words) and not OPTION.match(self.words[self.i])

    def _test(self, field: str, name: str) -> None:
        value = self._value(name)
        numbers = [_whole(number, name) for number in value.split(",")]
        if field not in ("n_pg", "n_gp"):
            self.measured.setdefault(field, []).extend((n,) for n in numbers)
        elif len(numbers) == 2:
            self.measured.setdefault(field, []).append(tuple(numbers))
        else:
            raise InvalidFlags(f"{name} {value}: two numbers must follow, such as 512,128", field=name)

    def _perplexity_windows(self) -> int:
        """llama-perplexity's -c is one window, and a batch has several of them (perplexity.cpp: 2012, ik 2090)."""
        window = self.fields["n_ctx"] or 512
        windows = max(1, int(self.fields.get("n_batch", Flags().n_batch)) // window)
        self.fields["n_ctx"] = windows * window
        return windows

    def _ordered_rules(self) -> list[Override]:
        """A -cmoe or -ncmoe that stands before an -ot is written out where the first match wins."""
        rules = list(self.rules)
        if self.dialect.first_rule_wins and not self.bench:
            for field, value, position in reversed([m for m in self.cpu_moe if m[2] < len(self.rules)]):
                self.fields.pop(field, None)
                rules[position:position] = _cpu_moe_rules(field, value)
        return rules

    def _special(self, field: str, name: str) -> None:
        """Read an option with a meaning of its own."""
        match field:
            case "model_path":
                self.model_path = self._value(name)
            case "alias":
                self.alias = self._value(name)
            case "fit":
                self.fit = self._switch()
            case "flash_attn":
                self._flash_attn(name)
            case "no_flash_attn":
                self.fields["flash_attn"] = "off"
            case "overrides":
                self._override(name)
            case "load_mode":
                self._load_mode(name)
            case "tensor_split":
                self.fields["tensor_split"] = _shares(self._first(name), name)
            case "n_gpu_layers":
                value = self._first(name)
                by_name = _LAYERS_BY_NAME.get(value)
                self.fields["n_gpu_layers"] = _whole(value, name) if by_name is None else by_name
            case "op_policy":
                if (value := self._value(name)) == "-1,0":
                    self.fields["op_offload"] = False
                else:
                    self.other.append(f"-op {value}")
            case "threads_of_each":  # of generation and prompts (ik examples/llama-bench/llama-bench.cpp:625)
                first, _, second = self._value(name).partition(",")
                self.fields |= {"threads": _whole(first, name), "threads_batch": _whole(second or first, name)}
            case "n_cpu_ffn":  # llama.cpp writes it as rules where it stands (arg.cpp:2777, common.h:1210)
                if (layers := min(_whole(self._first(name), name), _MAX_LAYERS)) > 0:
                    self.rules.append(Override(dense_override(range(layers)), "CPU"))

    def _cache_type(self, field: str, name: str) -> None:
        value = self._first(name)
        if value not in CACHE_TYPES:
            choices = self.dialect.cache_types("server")
            raise InvalidFlags(f"{name} {value}: not a cache type of {self.engine}", field=name, choices=choices)
        self.fields[field] = value

    def _flash_attn(self, name: str) -> None:
        """Today a value must follow; a bare -fa was "on" in older builds of both engines."""
        following = self.words[self.i].lower().split(",")[0] if self.i < len(self.words) else ""
        values = self.dialect.flash_attn_words
        if self.bench and self.dialect.bench_reads_numbers and following not in ("", "0", "1"):
            self.old += [] if values.get(following) == "off" else [NO_NUMBER]
            self.i, following = self.i + 1, "off"
        elif following in values:
            self._first(name)
        else:
            self.old.append("bare -fa")
        self.fields["flash_attn"] = values.get(following, "on")

    def _load_mode(self, name: str) -> None:
        value = self._first(name)
        if value not in _LOAD_MODES:
            raise InvalidFlags(f"{name} {value}: not a load mode", field=name, choices=tuple(_LOAD_MODES))
        self.fields["mmap"], self.fields["mlock"] = _LOAD_MODES[value]

    def _override(self, name: str) -> None:
        """Rules are split at ','; a llama-bench that splits them at ';' splits its tests at ','."""
        value = self._value(name)
        pieces = value.split(",")
        if " " in value and not all(
            "=" in piece for piece in pieces
        ):  # words, as in `blk\.(7 layers, not published)=CPU`
            self.unknown.append(f"{name} {value}")
            return
        separator = self.dialect.bench_rule_separator if self.bench else ","
        if separator != ",":
            if len(pieces) > 1 or self.rules:
                self.varied.append(f"{name} {value}")
            pieces = [] if self.rules else pieces[0].split(separator)
        wrong = next((piece for piece in pieces if "=" not in piece), None)
        if wrong is not None:
            pieces = without_commas(value).split(separator)
        understood = all("=" in piece for piece in pieces)
        if understood:
            self.rules += [Override(pattern, device) for pattern, _, device in (p.partition("=") for p in pieces)]
        if wrong is not None:
            said = f"{name} {wrong}: a rule is REGEX=DEVICE, without ',' or '=' in the regex"
            meant = f"{shlex.quote(separator.join(pieces))} instead of {shlex.quote(value)}"
            raise InvalidFlags(said, field=name, choices=(meant,) if understood else ())


def _cpu_moe_rules(field: str, value: int) -> list[Override]:
    if field == "cpu_moe":
        return [Override(_CPU_MOE_RULE, "CPU")]
    return [Override(rf"blk\.{layer}{_CPU_MOE_RULE}", "CPU") for layer in range(min(value, _MAX_LAYERS))]


def words_in_one(word: str, known: Mapping[str, bool]) -> list[str]:
    """Return the option and its value that one word holds (`-m a.gguf`, an item of a list in YAML), else [].

    A program takes it for the name of an option.
    """
    if not any(char.isspace() for char in word):
        return []
    try:
        words = shlex.split(word)
    except ValueError:
        return []
    return words if len(words) > 1 and words[0] in known else []


READ_AS = ", and the engine reads "  # what it takes in place of a value, and starts
NOT_SET = "a variable whose value is not in the text"


def _whole(text: str, name: str) -> int:
    if INTEGER.fullmatch(text):
        return int(text)
    if re.match(r"[+-]?\d{10}", text):  # std::stoi throws from 2^31 on, and no option has use for as much
        raise InvalidFlags(f"{name} {text}: the number is too large", field=name)
    read = re.match(r"[+-]?\d{1,9}", text)  # std::stoi takes the digits that it begins with
    so_far = f"{READ_AS}{read[0]}" if read else ""
    raise InvalidFlags(f"{name} {text}: a whole number must follow{so_far}", field=name, choices=_meant(text))


def _meant(text: str) -> tuple[str, ...]:
    """The number that `16k`, `32,768` or `32_768` stands for, if it is one of them."""
    if thousands := re.fullmatch(r"(\d{1,5})k(?:i?b|tokens)?", text, re.I):
        return (str(int(thousands[1]) * 1024),)
    if re.fullmatch(r"\d{1,3}(?:[,._']\d{3}){1,2}", text):
        return (re.sub(r"\D", "", text),)
    return ()


def _shares(text: str, name: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(piece) for piece in re.split(r"[,/]", text) if piece)
    except ValueError:
        shares = (-1.0,)
    if len(shares) > _MAX_SHARES or any(not 0 <= share < 1e9 for share in shares):
        raise InvalidFlags(f"{name} {text}: numbers such as 3,1 must follow, one for each GPU", field=name)
    return shares
