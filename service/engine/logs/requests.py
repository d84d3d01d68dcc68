"""Requests in what programs print while people use them: how long a prompt took, and how long the output after it.

A request is not a row of a benchmark: the rate of its prompt is over the whole prompt, from what the cache held to its
end, and its output begins where the prompt ends. Every request is proved (tokens / time is the printed rate), or a
sentence says why it is not.

- llama-server: `prompt eval time =`, `eval time =`, `stop processing: n_tokens =` (older: `n_past =`), or the `timings`
  of its JSON (llama.cpp 0c1e57098 tools/server/server-context.cpp, recorded). It counts the output's first token, which
  comes out of the prompt's last batch: of n tokens, n - 1 were decoded in the time printed (the cache ends one short).
- ik_llama.cpp's llama-server: the same times, with `slot is processing task` and `slot released … n_past=` before
  `id_slot=` and `id_task=`, as text or JSON (8337e4cd3 examples/server/server-context.cpp:812-838, 2017, 3429).
- llama-cli and older programs: `llama_perf_context_print:`, `llama_print_timings:`, where runs are decodes.
- ollama: the block that `--verbose` prints, or the counts and durations of its JSON.
- KoboldCpp: `CtxLimit:…, Process:…, Generate:…`.
- `/metrics` of llama-server, which adds up all requests, so it shows one only if there was just one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.logs.bench_rows import RowReader

Program: TypeAlias = Literal["llama-server", "llama-cli", "ollama", "koboldcpp"]
# Why the times of a request are not those of one request alone.
DRAFTED = "tokens were drafted and accepted several at a time"
TOGETHER = "another request ran at the same time"

_N = r"(\d{1,9})"
_F = r"(\d{1,9}(?:\.\d{1,9})?)"
_EVAL = re.compile(
    rf"(prompt )?eval time\s*=\s*{_F}\s*ms\s*/\s*{_N}\s*(tokens|runs)\s*"
    rf"\(\s*{_F}\s*ms per token,\s*{_F}\s*tokens per second\)"
)
_IK_TASK = r"id_slot\"?[=:](\d{1,4}),? ?\"?id_task\"?[=:](-?\d{1,9})"
_OF_WHOM = re.compile(
    rf"\bid\s+\d{{1,4}} \| task\s+-?\d{{1,9}} \||\bllama_(?:perf_context_print|print_timings):|{_IK_TASK}"
)
_TASK = re.compile(rf"id(?<=\bid)\s+(\d{{1,4}}) \| task\s+(-?\d{{1,9}}) \||{_IK_TASK}")
_RELEASED = re.compile(rf"(?:stop processing: n_(?:tokens|past) = |slot released\b.{{0,300}}?n_past\"?[=:]){_N}")
_LAUNCHED = re.compile(r"launch_slot_: .{0,80}?processing task|slot is processing task")
_DRAFT = re.compile(r"draft acceptance(?: rate)?\s*=")
_OLLAMA = re.compile(r"^\s*(prompt eval|eval) (count|duration|rate):\s+(\S{1,40})(?: token\(s\)| tokens/s)?\s*$")
_KOBOLD = re.compile(  # before 1.57: ContextLimit, Processing and Generation
    rf"C(?:tx|ontext)Limit:\s?{_N}/\d+,(?: Amt:{_N}/\d+,)?(?: Init:{_F}s,)? Process(?:ing)?:{_F}s "
    rf"\((?:{_F}ms/T = )?{_F}T/s\), Generat(?:e|ion):{_F}s \((?:{_F}ms/T = )?{_F}T/s\)"
)
_KOBOLD_BENCH = re.compile(rf"^\s*(Processing|Generation)(Time|Speed): {_F}\s?(?:s|T/s)\s*$")
_COUNTED = re.compile(rf"(Processing Prompt|Generating)[^(]{{0,20}}\({_N} / {_N} tokens\)")
_METRIC = re.compile(r"^llamacpp:(\w{1,60})(?:\{[^}]{0,200}\})? (\d{1,15}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?)$")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|ms|µs|us|ns|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
_PRINTED = 0.005_01  # half of the last digit of a rate or of milliseconds with two decimals
_MEMORY = re.compile(
    r"[\w\[\]:.-]{1,61}(?: +(?:KV|RS|model|compute|output))? +buffer size *= *\d+\.\d\d MiB|splits = \d+"
    r"|offloaded \d+/\d+ layers to GPU|build: \w+ \(\w+\)"
)
_KEPT = (_EVAL, _RELEASED, _LAUNCHED, _DRAFT, _OLLAMA, _KOBOLD, _KOBOLD_BENCH, _COUNTED, _METRIC, _MEMORY)
_NUMBERS = (
    *("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "draft_n", "tokens_evaluated"),
    *("prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration"),
)
_JSON = ('"timings"', '"prompt_eval_duration"', '"predicted_ms"', '"time_to_first_token"')


class Request(NamedTuple):
    """One request, with its times in seconds.

    `n_cached` is how many tokens of the prompt the cache held already, None if that is not told. `n_output` tokens were
    decoded in `output_seconds`; 0 means none. `flaw` says why its times are not those of this request alone, None if
    they are. `line` is the index of the line with the times.
    """

    program: Program
    line: int
    n_cached: int | None
    n_prompt: int
    prompt_seconds: float
    n_output: int
    output_seconds: float
    flaw: str | None = None

    @property
    def depth(self) -> int:
        """Return how many tokens the cache holds where the output begins."""
        return (self.n_cached or 0) + self.n_prompt


class Totals(NamedTuple):
    """What `/metrics` of llama-server has added up since its start, in tokens and seconds.

    `longest` is the most tokens that the cache has held. `n_running` is how many requests are being processed now.
    """

    n_prompt: float = 0.0
    prompt_seconds: float = 0.0
    n_output: float = 0.0
    output_seconds: float = 0.0
    n_cached: float = 0.0
    longest: float = 0.0
    n_running: float = 0.0

    def since(self, before: Totals, flaw: str | None = None) -> Request:
        """Return the one request by which the totals grew; its first token of output comes out of its prompt."""
        grown = Totals(*(now - then for now, then in zip(self, before, strict=True)))
        n_output = max(int(grown.n_output) - 1, 0)
        return Request(
            "llama-server", 0, int(grown.n_cached), int(grown.n_prompt), grown.prompt_seconds,
            n_output, grown.output_seconds, flaw,
        )  # fmt: skip


_TOTALS = {
    "prompt_tokens_total": "n_prompt",
    "prompt_seconds_total": "prompt_seconds",
    "tokens_predicted_total": "n_output",
    "tokens_predicted_seconds_total": "output_seconds",
}
_MAY_LACK = {  # older servers print none of them
    "prompt_tokens_cached_total": "n_cached",
    "n_tokens_max": "longest",
    "requests_processing": "n_running",
}


class Requests(NamedTuple):
    """The requests that were read, in their order, and a sentence for each line that only looks like timings."""

    found: tuple[Request, ...]
    refused: tuple[str, ...] = ()


def read_requests(lines: Sequence[str]) -> Requests:
    """Return the requests that lines of logs, terminals or JSON tell of. Never raises."""
    refused: list[str] = []
    found = [*_llama(lines, refused), *_ollama(lines, refused), *_kobold(lines, refused), *_objects(lines, refused)]
    found += _metrics(lines, refused)
    return Requests(tuple(sorted(found, key=lambda one: one.line)), tuple(refused))


def read_totals(lines: Sequence[str]) -> Totals | None:
    """Return what `/metrics` of llama-server has added up; None if the lines are something else."""
    found = {match[1]: float(match[2]) for line in lines if (match := _METRIC.match(line))}
    named = {**_TOTALS, **_MAY_LACK}
    totals = {named[name]: value for name, value in found.items() if name in named}
    return Totals(**totals) if found.keys() >= _TOTALS.keys() else None


def without_words(lines: Sequence[str]) -> list[str]:
    """Return only the parts of lines that tell of requests and memory, nothing that anybody wrote to a model."""
    found: list[str] = []
    for line in lines:
        value = _decoded(line)
        if isinstance(value, dict):
            found.append(msgspec.json.encode(_figures(value)).decode())
        elif match := next((match for pattern in _KEPT if (match := pattern.search(line))), None):
            whom = _OF_WHOM.search(line)
            apart = whom and (whom.end() <= match.start() or match.end() <= whom.start())
            found.append(f"{whom[0]} {match[0]}" if whom and apart else match[0])
    if not found and isinstance(value := _decoded("\n".join(lines)), dict):
        found.append(msgspec.json.encode(_figures(value)).decode())
    return found


def _figures(value: dict[str, Any]) -> dict[str, Any]:
    named = {name: one for name, one in value.items() if name in _NUMBERS and isinstance(one, int | float)}
    timings = value.get("timings")
    return {**named, "timings": _figures(timings)} if isinstance(timings, dict) else named


class _Half(NamedTuple):
    line: int
    n: int
    seconds: float
    task: tuple[str, str] | None
    runs: bool


def _llama(lines: Sequence[str], refused: list[str]) -> Iterator[Request]:
    ends = {of[1]: int(end[1]) for line in lines if (end := _RELEASED.search(line)) and (of := _task(line))}
    shared = _shared_tasks(lines)
    prompt: _Half | None = None
    task: tuple[str, str] | None = None
    for at, line in enumerate(lines):
        task = _task(line) or task
        match = _EVAL.search(line) if "eval time" in line else None
        if match is None:
            continue
        half = _half(at, match, task)
        if half is None:
            refused.append(f"line {at + 1}: its milliseconds and its rate do not match")
        elif match[1]:
            if prompt is not None:
                yield _request(lines, prompt, prompt._replace(n=0, seconds=0.0), ends, shared)
            prompt = half
        else:
            yield _request(lines, prompt or half._replace(n=0, seconds=0.0), half, ends, shared)
            prompt = None
    if prompt is not None:
        yield _request(lines, prompt, prompt._replace(n=0, seconds=0.0), ends, shared)


def _shared_tasks(lines: Sequence[str]) -> set[str]:
    """Return the tasks during which a task of another slot ran: each was slower than it is alone."""
    running: dict[str, str] = {}
    shared: set[str] = set()
    for line in lines:
        of = _task(line)
        if of is None:
            continue
        if _LAUNCHED.search(line):
            running[of[0]] = of[1]
            shared |= set(running.values()) if len(running) > 1 else set()
        elif _RELEASED.search(line) and running.get(of[0]) == of[1]:
            del running[of[0]]
    return shared


def _half(at: int, match: re.Match[str], task: tuple[str, str] | None) -> _Half | None:
    n, ms, rate = int(match[3]), float(match[2]), float(match[6])
    timed = (n, n - 1) if match[4] == "tokens" and not match[1] else (n,)  # newer servers divide by what was decoded
    if n and not any(_agree(each, ms / 1e3, rate, _PRINTED / 1e3) for each in timed):
        return None
    return _Half(at, n, ms / 1e3, task, "llama_p" in match.string)


def _request(lines: Sequence[str], prompt: _Half, output: _Half, ends: dict[str, int], shared: set[str]) -> Request:
    if prompt.runs:
        return Request("llama-cli", output.line, 0, prompt.n, prompt.seconds, output.n, output.seconds)
    end = ends.get(output.task[1]) if output.task else None
    cached = max(end + 1 - prompt.n - output.n, 0) if end is not None else None
    flaw = None
    if any(_DRAFT.search(line) for line in lines[output.line : output.line + 5]):
        flaw = DRAFTED
    elif output.task and output.task[1] in shared:
        flaw = TOGETHER
    return Request(
        "llama-server", output.line, cached, prompt.n, prompt.seconds, max(output.n - 1, 0), output.seconds, flaw
    )


def _task(line: str) -> tuple[str, str] | None:
    match = _TASK.search(line)
    return (match[1] or match[3], match[2] or match[4]) if match else None


def _ollama(lines: Sequence[str], refused: list[str]) -> Iterator[Request]:
    block: dict[tuple[str, str], str] = {}
    for at, line in enumerate(lines):
        match = _OLLAMA.match(line)
        if match is None:
            continue
        block[match[1], match[2]] = match[3]
        if (match[1], match[2]) != ("eval", "rate"):
            continue
        try:
            prompt, output = (_phase(block, name) for name in ("prompt eval", "eval"))
        except (KeyError, ValueError):
            refused.append(f"line {at + 1}: ollama prints counts, durations and rates: paste all six lines")
        else:
            yield Request("ollama", at, None, *prompt, *output)
        block = {}


def _phase(block: dict[tuple[str, str], str], name: str) -> tuple[int, float]:
    n, seconds, rate = int(block[name, "count"]), _seconds(block[name, "duration"]), float(block[name, "rate"])
    if not _agree(n, seconds, rate, 1e-9):
        raise ValueError("the count over the duration is not the rate")
    return n, seconds


def _seconds(text: str) -> float:
    """Return the seconds of a duration as Go prints it, such as 2m7.682s or 133.4ms. Raises ValueError."""
    parts = _DURATION.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError("no duration")
    return sum(float(value) * _UNITS[unit] for value, unit in parts)


def _kobold(lines: Sequence[str], refused: list[str]) -> Iterator[Request]:
    counted: dict[str, int] = {}
    lately: Request | None = None
    summary: dict[tuple[str, str], float] = {}
    told_at = 0
    for at, line in enumerate(lines):
        if (told := _KOBOLD_BENCH.match(line)) is not None:
            told_at, summary[told[1], told[2]] = at, float(told[3])
            if told.groups()[:2] == ("Generation", "Speed"):
                yield from _kobold_benchmark(at, summary, lately, refused)
                summary = {}
            continue
        for kind, done, whole in (count.groups() for count in _COUNTED.finditer(line)):
            counted[kind] = int(whole if kind == "Processing Prompt" else done)
        match = _KOBOLD.search(line)
        if match is None:
            continue
        held, amount = int(match[1]), int(match[2]) if match[2] else counted.get("Generating")
        process, generate = (float(match[4]), float(match[6])), (float(match[7]), float(match[9]))
        n_output = amount if amount is not None else round(generate[0] * generate[1])
        candidates = [n for n in (held - n_output, counted.get("Processing Prompt")) if n and n > 0]
        n_prompt = next((n for n in candidates if _agree(n, *process, _PRINTED)), round(process[0] * process[1]))
        if n_prompt > 0 and process[0] > 0 and generate[0] > 0 and _agree(n_output, *generate, _PRINTED):
            cached = max(held - n_output - n_prompt, 0)
            lately = Request("koboldcpp", at, cached, n_prompt, process[0], n_output, generate[0])
            yield lately
        else:
            refused.append(f"line {at + 1}: too few tokens, or too short a time, for a rate")
        counted = {}
    if summary:
        yield from _kobold_benchmark(told_at, summary, lately, refused)


def _kobold_benchmark(
    at: int, summary: dict[tuple[str, str], float], lately: Request | None, refused: list[str]
) -> Iterator[Request]:
    """Yield the request of `--benchmark`, if its own line is not there too.

    It begins with an empty cache and fills the context, which is a multiple of 128 as KoboldCpp offers it.
    """
    try:
        process, generate = ((summary[name, "Time"], summary[name, "Speed"]) for name in ("Processing", "Generation"))
    except KeyError:
        refused.append(f"line {at + 1}: KoboldCpp's benchmark prints a time and a speed of both: paste all four lines")
        return
    if lately is not None and all(  # the same times, there to 0.01 s and here to 0.001 s
        abs(there - here) < _PRINTED * 1.1
        for there, (here, _) in ((lately.prompt_seconds, process), (lately.output_seconds, generate))
    ):
        return
    n_prompt, n_output = (round(seconds * rate) for seconds, rate in (process, generate))
    agree = _agree(n_prompt, *process, _PRINTED / 10) and _agree(n_output, *generate, _PRINTED / 10)
    if agree and (n_prompt + n_output) % 128 == 0:
        yield Request("koboldcpp", at, 0, n_prompt, process[0], n_output, generate[0])
    else:
        refused.append(f"line {at + 1}: its seconds and its rates do not make a context of a multiple of 128 tokens")


def _objects(lines: Sequence[str], refused: list[str]) -> Iterator[Request]:
    """Yield the requests in JSON, which is one value a line (as curl or a stream shows it) or one over all lines."""
    if not any(mark in line for line in lines for mark in _JSON):
        return
    whole = _decoded("\n".join(lines))
    pieces = [(0, whole)] if whole is not None else [(at, _decoded(line)) for at, line in enumerate(lines)]
    for at, value in pieces:
        for one in value if isinstance(value, list) else [value]:
            request = _object(at, one, refused) if isinstance(one, dict) else None
            if request is not None:
                yield request


def _decoded(text: str) -> Any:
    start = text.find("{") if not text.lstrip().startswith("[") else text.find("[")
    if start < 0 or not any(mark in text for mark in _JSON):
        return None
    try:
        return msgspec.json.decode(text[start:].strip())
    except (msgspec.DecodeError, RecursionError):
        return None


def _object(at: int, one: dict[str, Any], refused: list[str]) -> Request | None:
    timings = one.get("timings")
    if not isinstance(timings, dict):
        timings = one
    try:
        if "predicted_ms" in timings:
            return _server_object(at, one, timings)
        if "prompt_eval_duration" in one and "eval_duration" in one:
            n, m = int(one["prompt_eval_count"]), int(one["eval_count"])
            return Request("ollama", at, None, n, one["prompt_eval_duration"] / 1e9, m, one["eval_duration"] / 1e9)
    except (KeyError, TypeError, ValueError):
        refused.append(f"line {at + 1}: the timings in this JSON are incomplete")
        return None
    if isinstance(one.get("stats"), dict) and "time_to_first_token" in one["stats"]:
        what = "its stats do not say how long the prompt took: its developer log has `prompt eval time`"
        refused.append(f"line {at + 1}: LM Studio: {what}")
    return None


def _server_object(at: int, one: dict[str, Any], timings: dict[str, Any]) -> Request:
    n, m = int(timings["prompt_n"]), int(timings["predicted_n"])
    cached = timings.get("cache_n")
    if cached is None and isinstance(one.get("tokens_evaluated"), int):
        cached = one["tokens_evaluated"] - n
    flaw = DRAFTED if timings.get("draft_n") else None
    seconds = (float(timings["prompt_ms"]) / 1e3, float(timings["predicted_ms"]) / 1e3)
    return Request("llama-server", at, cached, n, seconds[0], max(m - 1, 0), seconds[1], flaw)


def _metrics(lines: Sequence[str], refused: list[str]) -> Iterator[Request]:
    totals = read_totals(lines)
    if totals is None:
        return
    at = next(at for at, line in enumerate(lines) if (match := _METRIC.match(line)) and match[1] in _TOTALS)
    one = totals.since(Totals())
    times = min(totals.n_prompt, totals.prompt_seconds, totals.output_seconds)
    if totals.longest != one.n_prompt + one.n_output or totals.n_cached or times <= 0:
        what = "it adds up requests of several depths: send the server's log, or the `timings` of an answer"
        refused.append(f"line {at + 1}: /metrics: {what}")
        return
    yield one._replace(line=at)


def _agree(n: int, seconds: float, rate: float, half: float) -> bool:
    """Return whether `n` tokens in `seconds` make this rate, of which two decimals are printed.

    `half` is how many seconds the time may be off, because it was rounded when it was printed.
    """
    if n <= 0 or seconds - half <= 0:
        return n <= 0
    slack = _PRINTED + 1e-6 * rate
    return n / (seconds + half) - slack <= rate <= n / (seconds - half) + slack


MAX_ROWS = 1_000
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
Tps = Annotated[float, msgspec.Meta(gt=0, le=1e7)]


class MeasuredSpeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A speed that somebody measured with `n_kv` tokens in the cache, in tokens a second.

    `n_prompt` is how many tokens the prompt had; null means at least one whole micro-batch.
    """

    n_kv: Count = 0
    pp_tps: Tps | None = None
    tg_tps: Tps | None = None
    n_prompt: Count | None = None


class Speeds(NamedTuple):
    """The speeds in a log. `of_requests`: of a server's requests, else of benchmark rows; `unused`: why those of other
    requests are left out, a sentence for each."""

    rows: tuple[MeasuredSpeed, ...]
    of_requests: bool = False
    unused: tuple[str, ...] = ()


def read_speeds(lines: Sequence[str]) -> Speeds:
    """Return the speeds in a log: those of benchmark rows if it has any, else those of a server's requests."""
    reader = RowReader()
    rows = [
        MeasuredSpeed(n_kv=row.n_kv, pp_tps=row.pp_tps, tg_tps=row.tg_tps, n_prompt=row.n_prompt or None)
        for line in lines
        for row in reader.read(line)
    ]
    if rows:
        return Speeds(tuple(rows[:MAX_ROWS]))
    found = read_requests(lines).found
    speeds = [speed for one in found if one.flaw is None for speed in speeds_of(one)]
    return Speeds(tuple(speeds[:MAX_ROWS]), bool(found), tuple(one.flaw for one in found if one.flaw))


def speeds_of(one: Request) -> Iterator[MeasuredSpeed]:
    """Yield the speeds of a request: of its prompt, after what the cache held already, and of its output."""
    for n, seconds, name, n_kv in (
        (one.n_prompt, one.prompt_seconds, "pp_tps", one.n_cached or 0),
        (one.n_output, one.output_seconds, "tg_tps", one.depth),
    ):
        if n and seconds > 0 and 0.01 <= n / seconds < 1e7:
            n_prompt = n if name == "pp_tps" else None
            yield MeasuredSpeed(n_kv=n_kv, n_prompt=n_prompt, **{name: round(n / seconds, 2)})
