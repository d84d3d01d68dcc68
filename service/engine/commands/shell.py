"""Splitting a command line into words as bash does, and the inverse: quoting, folding.

Parsing is lenient, because commands are pasted from chats: line continuations, shell prompts, Windows paths, a missing
backslash at a line's end, typographic quotes. Variables that the text itself sets are expanded (`Variables`). What only
a shell could know (`$(…)`, arithmetic of variables) is an error that names it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from math import prod

from service.engine.errors import InvalidFlags

ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\(")
_NAMED = re.compile(r"\$(?:\{(\w+)(?:\[[@*]\])?(?::?-([^{}]*))?\}|([A-Za-z_]\w*))")
_IN_SUM = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$?\b([A-Za-z_]\w*)")
_NUMBER = re.compile(r"0|[1-9]\d{0,8}")  # with a zero before it, it would be octal
_OWN_ARGUMENTS = re.compile(r"\$[@*](?!\w)|\$\{[@*]\}")
_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_MOST = 65_536  # characters


class Variables:
    """Variables that the text read so far has set. `used`: the names that were expanded."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self._words: dict[str, list[str]] = {}
        self._expanded = 0

    def read(self, word: str) -> bool:
        """Take a word that only such words precede on its line. Return whether it is one: `export`, `A=1`."""
        assigned = ASSIGNED.fullmatch(word)
        if assigned:
            self._words[assigned[1]] = [assigned[2]]
        return assigned is not None or word in _DECLARING

    def at(self, text: str, start: int) -> tuple[list[str], int] | None:
        """Return the words that stand for what is expanded at a `$`, and where it ends; None where nothing is known.

        A script's own arguments are none. Raises InvalidFlags for a text that expands without end.
        """
        if own := _OWN_ARGUMENTS.match(text, start):
            return [], own.end()
        found = _NAMED.match(text, start)
        name = (found[1] or found[3]) if found else ""
        if found is None or (name not in self._words and found[2] is None):
            return None
        words = self._words.get(name, [found[2] or ""])
        self._expanded += sum(len(word) + 1 for word in words)
        if self._expanded > _MOST:
            raise InvalidFlags("the variables expand to more than a command can have", field="command")
        self.used.add(name)
        return words, found.end()

    def number(self, found: re.Match[str]) -> str:
        """Return the value of a name in a sum if it is a number, else the name."""
        words = self._words.get(found[1] or found[2], [])
        if len(words) != 1 or not _NUMBER.fullmatch(words[0]):
            return found[0]
        self.used.add(found[1] or found[2])
        return words[0]

    def array_at(self, text: str, start: int) -> tuple[str, bool, str, int] | None:
        """Return the name of the array `NAME=( … )` at a place, whether words are added, those, and where it ends."""
        found = _ARRAY.match(text, start)
        if found is None:
            return None
        depth, end = 1, found.end()
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        return None if depth else (found[1], bool(found[2]), text[found.end() : end - 1], end)

    def set_array(self, name: str, words: Sequence[str], *, added: bool) -> None:
        self._words[name] = [*(self._words.get(name, []) if added else []), *words]


MAX_COMMAND = 65_536

_WINDOWS = re.compile(
    r"(?:^|[\s'\"])(?:[A-Za-z]:\\|\.\\(?=[A-Za-z][\w-]))|\.exe\b|(?:^|\s)(?:-m|--model)\s+(?:[\w.-]+\\)+[\w.-]+\.gguf\b"
)
_PRODUCT = re.compile(r"\s*\d{1,9}(?:\s*[*+]\s*\d{1,9})*\s*")
_LAUNCHER_GROUPS = 4
_NEAR = 100  # characters to the next line's first word; words in which a command has an option
_REDIRECT = re.compile(r"(?!<[^<>\s]+>$)(?:\d?(?:>>?|<)&?\S*|&>\S*)")  # `<file>` stands for a name
OPTION = re.compile(r"--?[A-Za-z]")
_CONTINUED = re.compile(r"\\[ \t\r]*(?=\n|#|$)")
_CONTINUED_IN_LINE = re.compile(r"\\[ \t\r]*(?=\n|#|$)|\\[ \t]+(?=--?[A-Za-z])")
_HAS_OPTION = re.compile(r"\s--?[A-Za-z]")
_NEXT_OPTION = re.compile(r"(?<=\s)--?[A-Za-z][\w-]*(?=\s)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SEPARATORS = ("&&", "||", "|", ";", "&")
_PRINTED_QUOTES = (("“”„‟", '"'), ("‘’‚‛", "'"))
PRINTED_DASHES = "–—−"
# What a shell prints before a line: of bash and its kin, of cmd and PowerShell; a bare `>` only before all else.
_PROMPT = re.compile(
    r"^[ \t]*(?:\([\w.-]+\)[ \t]+)?(?:(?:PS[ \t]+)?(?:[A-Za-z]:|\[\w+\])\\(?:(?! -)[^>\n\"'])*(?<!\s)>"
    r"|\[?[\w.-]+@[\w.-]+(?:[: ][^\n$#%>\"']*)?[$#%>]|[$%❯➜](?=[ \t])|(?<![\s\S])>)[ \t]*",
    re.M,
)
# What the engines print first, on a line of its own, or where a terminal has put it behind the command's last word.
_PRINTED = re.compile(
    r"(?:^|(?<=\S))ggml_[a-z_]+: |^(?:load_backend: |build(?:_info)?: |main: |llama_model_loader: |Log start|INFO \[ "
    r"|\d+\.\d\d\.\d{3}\.\d{3} [A-Z] |(?:warn|warning|error): |\| model +\||GNU gdb |Starting program: )",
    re.M,
)
# A program, and a line that starts one; what a debugger is given, by its prompt and before it.
_PROGRAM = re.compile(r"(?:\S*[/\\])?llama-[a-z-]+(?:\.exe)?")
_NEXT_PROGRAM = re.compile(rf"{_PROGRAM.pattern}[ \t]+\\?-")
_DEBUGGED = re.compile(r"^[ \t]*\((?:gdb|lldb)\)[ \t]+(?:r|run|start|set args)[ \t]+(?=-)", re.M)
_DEBUGGER_OF = re.compile(r"\b(?:gdb|lldb)[ \t]+(?:--?\S+[ \t]+)*([^\s-]\S*)[ \t]*$", re.M)
_LOGICAL_CORES = re.compile(r"\$\(nproc(?: --all)?\)|`nproc(?: --all)?`")
_THREADS = ("-t", "--threads", "-tb", "--threads-batch")
_UNEXPANDED = "\0"  # before a substitution in a word: no text has this character left
# What bash reads differently than it is read here.
_REMARK = re.compile(r"\\[ \t]+#[^\n]*|\\[ \t]*\r?\n[ \t]*#[^\n]*")
_BLANKS = re.compile(r"\\[ \t]+(?=\r?\n[ \t]*-)")
_ENDED = re.compile(r"[^\s\\`^(][ \t]*\r?\n[ \t]*(--?[A-Za-z][\w-]*)")
_DASH = re.compile(rf"(?<!\S)[{PRINTED_DASHES}]{{1,2}}[A-Za-z][\w-]*")
_QUOTE = re.compile(rf"(?<=[\s=])[{_PRINTED_QUOTES[0][0]}{_PRINTED_QUOTES[1][0]}]\S{{0,40}}")
# Words of a comment behind a command, and an option behind them, which is none that is commented out by itself.
_COMMENTED = re.compile(r"^[^\n\"'#]*[^\s\\\"'#][ \t]+(#[ \t]*[A-Za-z][^\n#]*?)[ \t]--?[A-Za-z][\w-]*(?=[ \t]|$)", re.M)
_SHOWN = 60
# Words that begin a line of a script which is a command of its own: no backslash is missing behind it.
_VERBS = frozenset(
    ("export", "unset", "set", "cd", "pushd", "source", ".", "echo", "printf", "ulimit", "module", "conda", "sleep")
)


class _Reader:
    """Splits one text into words; `commands` are lists of words, cut at pipes, `;` and `&&`.

    `inside`: the variables of the text around an array's words.
    """

    def __init__(self, text: str, inside: Variables | None = None, *, windows: bool = False) -> None:
        self.text, self.i = text, 0
        self.variables, self.inside = inside or Variables(), inside is not None
        self.windows = windows
        self.word: str | None = None
        self.depth = 0  # of parentheses, which a remark has
        self.commands: list[list[str]] = [[]]
        self.line = 0  # how many words the command has from earlier lines
        self.continued = False  # whether the line ends in a backslash
        self.setting = True  # whether the line has set variables so far, and nothing else

    def read(self) -> list[list[str]]:
        while self.i < len(self.text):
            self._step(self.text[self.i])
        self._end_word()
        return [words for command in self.commands if (words := self._without_expanded(command))]

    def _without_expanded(self, command: list[str]) -> list[str]:
        """Drop assignments of variables that were expanded: they have had their effect."""
        used = self.variables.used
        return [w for w in command if not ((a := ASSIGNED.fullmatch(w)) and a[1] in used)] if used else command

    def _step(self, char: str) -> None:
        separator = next((s for s in _SEPARATORS if self.text.startswith(s, self.i) and self.depth <= 0), None)
        if char.isspace():
            self._end_word()
            if char == "\n":
                self._end_line()
            self.i += 1
        elif (self.word is None and self._array()) or (char == "$" and self._expand()):
            pass
        elif char == "#" and self.word is None:
            self._skip_line()
        elif separator and (self.word is None or (separator == ";" and self.text[self.i + 1 : self.i + 2].isspace())):
            self._end_word()
            self.commands.append([])
            self.line, self.setting = 0, True
            self.i += len(separator)
        elif char == "'":
            self._single_quoted()
        elif char == '"':
            self._double_quoted()
        elif char == "\\":
            self._backslash()
        elif self.text.startswith(("$(", "`"), self.i):
            self._add(self._substitution())
        else:
            self.depth += {"(": 1, ")": -1}.get(char, 0)
            self._add(char)
            self.i += 1

    def _add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def _end_word(self) -> None:
        if self.word is not None:
            self.setting = self.setting and self.variables.read(self.word)
            self.commands[-1].append(self.word)
        self.word = None

    def _end_line(self) -> None:
        """Cut a line that is a command of its own, such as `export A=1`, out of the words around it."""
        current = self.commands[-1]
        if not self.continued and current[self.line :] and current[self.line] in _VERBS:
            self.commands[-1:] = [current[self.line :], current[: self.line]]
        elif not self.continued and self._is_whole(current):
            self.commands.append([])
        self.setting = self.setting or not self.continued
        self.line, self.continued = len(self.commands[-1]), False

    def _is_whole(self, words: list[str]) -> bool:
        """Whether what follows on the next line is no part of a command with options, such as what it printed, or of
        several words without any, such as `git pull`.
        """
        rest = self.text[self.i : self.i + _NEAR].lstrip()
        begins_a_word = rest[:1].isalnum() or rest.startswith((".", "/", "~"))
        has_options = any(OPTION.match(word) for word in words[:_NEAR])
        if not has_options:
            return len(words) > 1 and not self.setting and begins_a_word
        if _NEXT_PROGRAM.match(rest) and any(map(_PROGRAM.fullmatch, words)):
            return True
        return not OPTION.match(words[-1]) and begins_a_word

    def _expand(self, *, quoted: bool = False) -> bool:
        """Expand a variable, outside quotes split at blanks. Return whether it is known."""
        found = self.variables.at(self.text, self.i)
        if found is None:
            return False
        values, self.i = found
        for n, word in enumerate(values if quoted else [part for value in values for part in value.split()]):
            if n:
                self._end_word()
            self._add(word)
        return True

    def _array(self) -> bool:
        """Read `NAME=( … )`, whose words `"${NAME[@]}"` stands for. Return whether one is here."""
        found = None if self.inside or not self.setting else self.variables.array_at(self.text, self.i)
        if found is None:
            return False
        name, added, words, self.i = found
        array = _Reader(words, self.variables, windows=self.windows)
        inner = [word for command in array.read() for word in command]
        self.variables.set_array(name, inner, added=added)
        return True

    def _skip_line(self) -> None:
        """Skip a remark: to the line's end, or to the next option where a page has removed the line breaks."""
        flat = self.continued and "\n" not in self.text and _NEXT_OPTION.search(self.text, self.i)
        end = flat.start() if flat else self.text.find("\n", self.i)
        self.i = len(self.text) if end < 0 else end

    def _backslash(self) -> None:
        ends = _CONTINUED if self.word is not None else _CONTINUED_IN_LINE
        rest = ends.match(self.text, self.i)
        if rest:  # a continued line, with the blanks or the comment that a paste leaves after the backslash
            self._end_word()
            self.i = rest.end()
            self.continued = True
        elif self.windows:
            self._add("\\")
            self.i += 1
        else:
            self._add(self.text[self.i + 1 : self.i + 2])
            self.i += 2

    def _single_quoted(self) -> None:
        end = self.text.find("'", self.i + 1)
        if end >= 0:
            self._add(self.text[self.i + 1 : end])
            self.i = end + 1
        elif self.word:  # an apostrophe in a remark
            self._add("'")
            self.i += 1
        else:
            raise InvalidFlags(f"a quote is not closed: {self.text[self.i : self.i + 40]}", field="command")

    def _double_quoted(self) -> None:
        start, self.i = self.i, self.i + 1
        nothing = self.variables.at(self.text, self.i) if self.word is None else None
        if nothing and not nothing[0] and self.text[nothing[1] : nothing[1] + 1] == '"':  # `"$@"` is no word at all
            self.i = nothing[1] + 1
            return
        self._add("")
        while self.i < len(self.text) and self.text[self.i] != '"':
            if self.text[self.i] == "\\" and self.text[self.i + 1 : self.i + 2] in ('"', "$", "`", "\\", "\n"):
                self._add(self.text[self.i + 1].replace("\n", ""))
                self.i += 2
            elif self.text.startswith(("$((", "`"), self.i):
                self._add(self._substitution())
            elif self.text[self.i] == "$" and self._expand(quoted=True):
                pass
            else:
                self._add(self.text[self.i])
                self.i += 1
        if self.i >= len(self.text):
            raise InvalidFlags(f"a quote is not closed: {self.text[start : start + 40]}", field="command")
        self.i += 1

    def _substitution(self) -> str:
        """Evaluate `$((…))` of numbers and variables, `*` and `+`; anything else only a shell knows."""
        if self.text[self.i] == "`":
            end = self.text.find("`", self.i + 1)
            if end < 0:  # a stray backtick of Markdown
                self.i += 1
                return ""
        else:
            end = self._closing()
        piece = self.text[self.i : end + 1]
        self.i = end + 1
        inner = _IN_SUM.sub(self.variables.number, piece[3:-2])
        if not (piece.startswith("$((") and piece.endswith("))") and _PRODUCT.fullmatch(inner)):
            return _UNEXPANDED + piece
        factors = (map(int, term.split("*")) for term in inner.split("+"))
        return str(sum(map(prod, factors)))

    def _closing(self) -> int:
        depth = 0
        for j in range(self.i + 1, len(self.text)):
            depth += {"(": 1, ")": -1}.get(self.text[j], 0)
            if depth == 0:
                return j
        raise InvalidFlags(f"a parenthesis is not closed: {self.text[self.i : self.i + 40]}", field="command")


def split_commands(text: str) -> list[list[str]]:
    """Return the words of each command in `text`, prompts and redirections left out.

    Raises InvalidFlags for a text over 64 KiB and for an unclosed quote. `expanded` is for substitutions.
    """
    if len(text) > MAX_COMMAND:
        raise InvalidFlags(f"a command of {len(text)} characters: at most {MAX_COMMAND} are read", field="command")
    text = _without_output(_out_of_debugger(_typed_quotes(_CONTROL.sub(" ", text)).strip(" \n\t*")))
    reader = _Reader(_PROMPT.sub("", text), windows=is_windows(text))
    return [words for command in reader.read() if (words := _without_redirections(command))]


def _without_output(text: str) -> str:
    """Return a text up to what its command printed."""
    printed = _PRINTED.search(text)
    command = text[: printed.start()] if printed else text
    return command if _HAS_OPTION.search(command) else text


def _out_of_debugger(text: str) -> str:
    """Return the command that a debugger is told to run (`(gdb) r -m …`), with the program that it was started on."""
    run = _DEBUGGED.search(text)
    if run is None:
        return text
    started = _DEBUGGER_OF.search(text[: run.start()])
    return f"{started[1] if started else ''} {text[run.end() :]}".lstrip()


def is_windows(text: str) -> bool:
    """Whether a command has paths or programs of Windows, where a backslash stands for itself."""
    return _WINDOWS.search(text) is not None


def expanded(words: list[str]) -> list[str]:
    """Return the words, with `-1` for threads of `$(nproc)`, which it means to both engines.

    Raises InvalidFlags where a word has another substitution that only a shell can make.
    """
    known = []
    for before, word in zip(("", *words), words, strict=False):
        _, unexpanded, piece = word.partition(_UNEXPANDED)
        of_threads = before in _THREADS and _LOGICAL_CORES.fullmatch(piece)
        if unexpanded and not of_threads:
            raise InvalidFlags(f"only a shell knows what {piece[:80]} is: write the value", field="command")
        known.append("-1" if of_threads else word)
    return known


def _typed_quotes(text: str) -> str:
    """Return a text with ASCII quotes; a single apostrophe is not one."""
    for printed, typed in _PRINTED_QUOTES:
        if printed[0] in text or typed == '"':
            text = re.sub(f"[{printed}]", typed, text)
    return text


def _without_arrays(text: str) -> str:
    """Return a text without its arrays, in which a line's end ends nothing."""
    nothing, kept, at = Variables(), "", 0
    for found in _ARRAY.finditer(text):
        if found.start() < at:
            continue
        array = nothing.array_at(text, found.start())
        if array is None:  # it is not closed
            break
        kept, at = kept + text[at : found.start()], array[3]
    return kept + text[at:]


def repairs(text: str) -> tuple[str, ...]:
    """Return a sentence for each place where bash would read `text` differently than it is meant, and read here.

    Somebody who pastes it into a terminal runs another command there: one that ends early, has unknown options, etc.
    """
    said, text = [], _without_arrays(text)
    if remark := _REMARK.search(text):
        shown = " ".join(remark[0].strip("\\ \t\r\n").split())[:_SHOWN]
        said.append(f"bash ends the command at the comment `{shown}`: remove it, with its line")
    elif _BLANKS.search(text):
        said.append("there are blanks after a backslash, and bash ends the command there: remove them")
    elif (ended := _ENDED.search(text)) and "(" not in text[: ended.start()]:
        said.append(f"bash ends the command before the line of {ended[1]}: the line above it needs a backslash")
    if dash := _DASH.search(text):
        said.append(f"`{dash[0][:_SHOWN]}` has a typographic dash, and no option begins with that: type a plain one")
    if quote := _QUOTE.search(text):
        said.append(f"`{quote[0][:_SHOWN]}` has a typographic quote, which bash reads as a letter: type a plain one")
    return tuple(said)


def commented(text: str) -> str:
    """Return the words that begin a comment with options behind them on the line of a command, "" if there is none."""
    found = _COMMENTED.search(text)
    return found[1][:_SHOWN] if found else ""


def _without_redirections(words: list[str]) -> list[str]:
    """Drop `2>&1`, `> file`, and the `>` that a shell's second prompt leaves before a line."""
    kept: list[str] = []
    skip = False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if skip:
            skip = False
        elif _REDIRECT.fullmatch(word):
            skip = word.endswith((">", "<")) and not OPTION.match(following)
        else:
            kept.append(word)
    return kept


def quote(word: str) -> str:
    """Return `word` quoted for bash; a leading `~/` stays outside the quotes, where bash expands it."""
    if word.startswith("~/"):
        return "~/" + (shlex.quote(word[2:]) if len(word) > 2 else "")
    return shlex.quote(word)


def raw_words(text: str) -> list[str]:
    """Return the words between blanks outside quotes, with their quotes."""
    return [m[0] for m in re.finditer(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"\\])+", text)]


def by_option(words: Sequence[str]) -> list[list[str]]:
    """Return the words in groups that begin with an option each, but for what precedes the first one."""
    groups: list[list[str]] = []
    for word in words:
        if groups and not OPTION.match(word):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def fold(command: str, width: int = 100) -> str:
    """Return a rendered command on several lines, broken before options, each but the last ending in a backslash.

    bash, and `parse`, read the same words as in one line. A line is longer than `width` only if one option is. A line
    for Windows stays one, and a text of several lines as it is.
    """
    if is_windows(command) or "\n" in command:  # where no backslash continues a line; of several, a file's
        return command
    groups = [" ".join(group) for group in by_option(raw_words(command))]
    started = 1 + _until_the_program(groups)
    lines = [" ".join(groups[:started])]
    for group in groups[started:]:
        if len(lines) > 1 and len(lines[-1]) + len(group) + 5 <= width:
            lines[-1] += " " + group
        else:
            lines.append(group)
    return " \\\n  ".join(lines)


def _until_the_program(groups: list[str]) -> int:
    """The index of the program's group where a launcher precedes it (`numactl -N 0 -m 0 llama-server`), else 0."""
    if not groups[:1] or groups[0].split(" ")[-1] != "numactl":
        return 0
    return next((i for i, group in enumerate(groups[:_LAUNCHER_GROUPS]) if "llama-" in group), 0)
