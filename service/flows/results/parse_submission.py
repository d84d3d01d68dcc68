"""Parses a submission into rows, command, model and machine, and says what it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, get_args

import msgspec

from service.engine.advice import SpeedPoint
from service.engine.builds import BuildAsked, parse_build, resolve_build
from service.engine.catalogue import is_one_machine, resolve, rigs_of
from service.engine.catalogue.names import gpu_meant
from service.engine.commands.companions import drafts
from service.engine.commands.parse import ParsedCommand, parse
from service.engine.commands.tables import may_be_own
from service.engine.config import ENGINES, Engine
from service.engine.decoding import require_no_nul
from service.engine.errors import InvalidFlags, InvalidHardware, InvalidInput
from service.engine.hardware import Assumption, Backend, Gpu, Hardware, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.hardware_text.form import canonical, rig_key
from service.engine.logs.read import read_log
from service.engine.logs.requests import DRAFTED, Program
from service.engine.measured.chosen import Measurement, as_run
from service.engine.measured.identity import model_identity, rig_identity
from service.engine.measured.roofline import Prediction, bounding_rig, most_pp, most_tg
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import Depth, depths_of, measured_speed, memory_of
from service.engine.memory.contents import plain_bytes
from service.engine.model import Model
from service.engine.reduction import reduced
from service.engine.rules.case import Case, case_of
from service.engine.run.devices import rig_of_command
from service.engine.run.settings import drafts_next_tokens
from service.engine.run_flags import RunFlags
from service.engine.speed.predict import speed_point
from service.engine.submission.command import plain_command
from service.engine.submission.reading import Reading, disagreement, read_paste
from service.engine.submission.tables import Tool
from service.engine.units import GIB, MIB
from service.engine.versions import versions
from service.flows.advice.command_model import NamedRepo, repo_of, variant_of
from service.flows.advice.reading import read_models
from service.flows.advice.repos import listed
from service.flows.context import Context
from service.flows.results.cells import cell_of, files_of
from service.flows.results.read_results import day_of
from service.hub.listing import RepoListing
from service.hub.references import checked_revision, parse_reference
from service.store.advice import listings
from service.store.results import calibrations
from service.store.results.results import filed_under, rows_key_of
from service.wire.results.results import ResultModel, Seen
from service.wire.results.submissions import Missing, Submission

MOST_POINTS = 24
_ROUGHLY = 1.1
_MERGES = frozenset(("-muge", "--merge-up-gate-experts", "--merge-up-gate-exps", "-mqkv", "--merge-qkv"))
MOST_REMARKS = 2_000  # characters as stored; replacing a name may make them longer than they were sent
_BETWEEN = "\n\x1e\n"
_OLDEST = timedelta(days=3 * 365)
_WANTED = {
    "text": "what a benchmark or a server printed: a table, JSON, CSV or SQL, or a server's timings",
    "command": "the command that was run: paste its line too, or give `command`",
    "hardware": "the machine: such as `2x RTX 3090, EPYC 7302, 256GB DDR4-3200 8ch`, or what nvidia-smi prints",
    "repo": "the model's repo on Hugging Face, as OWNER/NAME:VARIANT",
}
_OF_OLLAMA = "the layers and the context that Ollama chose, such as `llama-server -m a.gguf -ngl 99 -c 4096`"


class ParsedSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a submission. `command` and `log` are reduced.

    `missing`: what it lacks, in the order to ask for it; `choices`: repos that it may be about. `warnings`: what is
    probably wrong, though it can be sent. `filed`: the fields of the result, once nothing is missing.
    """

    missing: tuple[Missing, ...] = ()
    choices: tuple[str, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    tool: Tool | None = None
    engine: Engine | None = None
    build: str | None = None
    command: str | None = None
    log: str = ""
    hardware: Hardware | None = None
    assumed: tuple[Assumption, ...] = ()
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    remarks: str | None = None
    filed: dict[str, Any] | None = None


class _Command(msgspec.Struct, frozen=True):
    """A command parsed twice: as given, to find the model's repo; and reduced, for everything else."""

    given: ParsedCommand
    parsed: ParsedCommand
    text: str
    assumed: tuple[Assumption, ...]


def parse_submission(context: Context, asked: Submission, admit_new_repo: Callable[[], None]) -> ParsedSubmission:
    """Return a parsed submission; its model's header is read once nothing is missing.

    Raises InvalidInput and its subclasses for what is present but wrong, and the Hub's errors.
    """
    require_no_nul(msgspec.structs.replace(asked, text=""))
    _measured_at(context, asked)  # a wrong date is reported even for an incomplete submission
    if asked.revision:
        checked_revision(asked.revision)
    said = read_paste(asked.text)
    told = _Told.of(asked, said)
    rows = tuple(asked.rows or said.rows)
    if rows and not measured_speed(rows):
        raise InvalidInput("no depth has both a prompt and an output measured: run both", field="text")
    command, hardware = _command(asked, said, told.command), _hardware(asked, said)
    lacking = [name for name, value in (("text", rows), ("command", command), ("hardware", hardware)) if not value]
    named = _repo(context, asked, command) if command else NamedRepo("")
    choices: tuple[str, ...] = ()
    if isinstance(named, InvalidInput):
        lacking, choices, named = [*lacking, "repo"], named.choices, NamedRepo("")
    known = ParsedSubmission(
        missing=tuple(Missing(name, _wanted(name, said.tool)) for name in lacking),
        choices=choices,
        rows=rows,
        tool=said.tool,
        engine=command.parsed.engine if command else asked.engine,
        build=_build_text(asked) or said.build,
        command=command.text if command else None,
        log=told.text,
        hardware=hardware,
        assumed=(
            *said.assumed,
            *named.assumed,
            *(command.assumed if command else ()),
            *(resolve(hardware).assumed if hardware else ()),
        ),
        dropped=said.dropped,
        remarks=told.remarks[:MOST_REMARKS] or None,
    )
    if command is None or hardware is None or lacking:
        return known
    return _filed(context, asked, said, known, command, hardware, named.repo, admit_new_repo)


def _wanted(name: str, tool: Tool | None) -> str:
    return _OF_OLLAMA if (name, tool) == ("command", "ollama") else _WANTED[name]


def _repo(context: Context, asked: Submission, command: _Command) -> NamedRepo | InvalidInput:
    try:
        return repo_of(listings.Listings(context.engine), asked.repo, command.given)
    except InvalidInput as error:
        return error


class _Told(NamedTuple):
    """A submission's texts, reduced together, so that a name that one of them gives away is hidden in all."""

    text: str
    command: str
    remarks: str

    @classmethod
    def of(cls, asked: Submission, said: Reading) -> _Told:
        given = plain_command(asked.command) if asked.command else said.command
        log = asked.text if said.log is None else said.log
        texts = [text.replace("\x1e", "") for text in (log, given or "", asked.remarks or "")]
        return cls(*reduced(_BETWEEN.join(texts)).split(_BETWEEN))


def _command(asked: Submission, said: Reading, text: str) -> _Command | None:
    given = plain_command(asked.command) if asked.command else said.command
    if given is None:
        return None
    engine, assumed = _engine(asked, said)
    parsed = parse(text, engine)
    build, unknown = _build(parsed.engine, asked, said)
    parsed = parse(text, parsed.engine, build=build)
    # A command that no program accepts, or that stands for several runs, is refused.
    if parsed.refused:
        raise InvalidFlags(parsed.refused[0].detail, field="command", choices=parsed.refused[0].choices)
    for word in parsed.unknown:
        if not may_be_own(parsed.engine, parsed.program, word.partition(" ")[0]):
            raise InvalidFlags(f"{parsed.program} of {parsed.engine} has no option {word[:80]!r}", field="command")
    if parsed.varied:
        what = f"{parsed.varied[0][:80]} has several values: send the rows of each value separately, with their command"
        raise InvalidFlags(what, field="command")
    if engine is None:
        assumed = (Assumption("engine", parsed.engine, "guessed from the command's program and options", "everything"),)
    return _Command(parse(given, parsed.engine), parsed, text, (*assumed, *unknown))


def _engine(asked: Submission, said: Reading) -> tuple[Engine | None, tuple[Assumption, ...]]:
    """Return the engine as stated, else as its log says, else the only one that has this commit."""
    if asked.engine:
        return asked.engine, ()
    try:
        logged = read_log(asked.text).engine if asked.text else None
    except InvalidInput:
        logged = None
    if logged or not said.build:
        return logged, ()
    having = [engine for engine in ENGINES if _known_build(engine, said.build)]
    return (having[0], ()) if len(having) == 1 else (None, ())


def _known_build(engine: Engine, build: BuildAsked | str) -> bool:
    try:
        resolve_build(engine, build)
    except InvalidInput:
        return False
    return True


def _build(engine: Engine, asked: Submission, said: Reading) -> tuple[BuildAsked | str | None, tuple[Assumption, ...]]:
    """Return the build whose defaults apply, as stated or printed, if known here. Raises InvalidInput for no build."""
    build = asked.build or said.build
    stated = parse_build(asked.build) if isinstance(asked.build, str) else asked.build
    if stated is not None and stated.date is not None:
        resolve_build(engine, stated)
    if build is None or _known_build(engine, build):
        return build, ()
    what = "it is not among the builds known here: today's defaults are used"
    return None, (
        Assumption("build", _build_text(asked) or said.build or "", what, "defaults and the meaning of flags"),
    )


def _build_text(asked: Submission) -> str | None:
    build = asked.build
    if isinstance(build, BuildAsked):
        return build.commit or build.date or (f"b{build.number}" if build.number is not None else None)
    return build.strip() if build else None


def _hardware(asked: Submission, said: Reading) -> Hardware | None:
    """Return the machine in canonical form, without what distinguishes it from others of its kind."""
    stated = asked.hardware
    hardware = parse_hardware(stated) if isinstance(stated, str) else (stated or said.hardware)
    if hardware is None:
        return None
    hardware = canonical(hardware)
    if said.hardware is not None:
        _require_listed(hardware, canonical(said.hardware))
    if said.backend and hardware.gpus:
        hardware = _driven_by(hardware, said.backend, stated=hardware.backend if stated else None)
    gpus = [msgspec.structs.replace(gpu, uuids=None) for gpu in hardware.gpus]
    return msgspec.structs.replace(hardware, gpus=gpus, notes=None)


def _driven_by(hardware: Hardware, said: Backend, stated: Backend | None) -> Hardware:
    """Return the machine with the back end that the output names.

    It is left out where it goes without saying (CUDA, Metal) or drives only some of the cards. Raises InvalidHardware
    if another one was stated, or if it drives none of the cards.
    """
    if stated and stated != said:
        what = f"the output is of a build for {said}, the hardware states {stated}: they are from two runs"
        raise InvalidHardware(what, field="hardware")
    rigs = rigs_of(hardware)
    several_makers = len(rigs) > 1 and not is_one_machine(rigs)
    usual = {card.backend for card in rigs[0].cards} == {said} and said in ("cuda", "metal")
    if stated or (said != "vulkan" if several_makers else usual):
        return hardware
    return msgspec.structs.replace(hardware, backend=said)


def _require_listed(hardware: Hardware, listed: Hardware) -> None:
    """Raise InvalidHardware if the output lists a card that the stated machine lacks.

    Drivers of AMD and Intel may give a name that no card has (`AMD Radeon Graphics`, `AMD Instinct MI50/MI60`). It may
    be any stated card of this maker that is not listed by its own name. An unknown name of NVIDIA is another card.
    """
    left = Counter({gpu.name: gpu.count for gpu in hardware.gpus})
    for gpu in sorted(listed.gpus, key=_is_no_card):
        maker, absent = f"{gpu.name.partition(' ')[0]} ", gpu.count
        for name in left:
            if name == gpu.name or (_is_no_card(gpu) and name.startswith(maker)):
                found = min(absent, left[name])
                left[name] -= found
                absent -= found
        if absent:
            there = gpu.count - absent or "none"
            what = f"the output lists {gpu.count}x {gpu.name[:80]}; of these the hardware has {there}"
            raise InvalidHardware(what, field="hardware")


def _is_no_card(gpu: Gpu) -> bool:
    return not gpu.name.startswith("NVIDIA ") and not gpu_meant(gpu.name, gpu.vram_gib)[0]


def _filed(
    context: Context, asked: Submission, said: Reading, known: ParsedSubmission, command: _Command, hardware: Hardware,
    repo: str, admit_new_repo: Callable[[], None],
) -> ParsedSubmission:  # fmt: skip
    listing, name, model = _model(context, asked, command, repo, admit_new_repo)
    fitted = calibrations.in_force(context.engine)
    rig = rig_of_command(hardware, command.parsed, fitted)
    case = case_of(command.parsed, model, rig, command.text, "cuda")
    _require_same_run(case, said, known.rows)
    _require_same_size(case, said, name)
    flags, cell, dropped = _cell(case, listing, name, known.rows)
    identity = model_identity(repo.partition(":")[0], model)
    memory = memory_of(asked.text)
    filed = filed_under(identity, rig_identity(hardware, resolve(hardware, fitted))) | {
        "repo": listing.repo,
        "variant": name,
        "model": _files(listing, name),
        "flags": flags,
        "cell": cell,
        "hardware_key": rig_key(hardware),
        "rows_key": rows_key_of(identity.slug, case.engine, known.rows),
        "prediction": _prediction(case, bounding_rig(hardware), known.rows),
        "seen": Seen(buffers=memory.buffers, graph_splits=memory.graph_splits),
        "measured_at": _measured_at(context, asked),
    }
    warnings = tuple(_too_large(model, name, resolve(hardware, fitted)))
    return msgspec.structs.replace(known, filed=filed, dropped=(*known.dropped, *dropped), warnings=warnings)


def _too_large(model: Model, variant: str, rig: Rig) -> Iterator[str]:
    """Say where the weights are larger than all memory of the machine: a drive can hold the rest, but it is more often
    another variant or another machine."""
    weights = model.n_bytes
    cards = sum(card.total for card in rig.cards if not card.unified)
    if weights <= rig.ram_bytes + cards:
        return
    room = f"{rig.ram_bytes / GIB:,.0f} GiB of RAM" + (f" and {cards / GIB:,.0f} GiB on its cards" if cards else "")
    yield (
        f"the weights of {variant} take {weights / GIB:,.0f} GiB, more than this machine has ({room}): check the "
        "variant and the hardware, or say in the remarks that a drive held the rest"
    )


def _model(
    context: Context, asked: Submission, command: _Command, repo: str, admit_new_repo: Callable[[], None]
) -> tuple[RepoListing, str, Model]:
    reference = parse_reference(repo, asked.revision)
    with listed(context, reference, admit_new_repo) as listing:
        variant = variant_of(listing, reference, command.given)
        models = read_models(context.hub, listing, [variant])
    return listing, variant.name, models.variants[0].model


def _require_same_run(case: Case, said: Reading, rows: tuple[MeasuredRow, ...]) -> None:
    """Raise InvalidInput if the command, its output and the machine cannot belong to one run."""
    if said.tool in get_args(Program) and (drafts(case.parsed) or drafts_next_tokens(case.engine, case.flags)):
        raise InvalidInput(f"the command drafts tokens: {DRAFTED}", field="text")
    refused = next((rule.refused for rule in case.rules if rule.refused), None)
    if refused or case.unknown_devices:
        what = refused or f"there is no device {case.unknown_devices[0][:64]!r} on this machine"
        raise InvalidFlags(what, field="command")
    wrong = disagreement(case.parsed, case.flags, said.tool, said.stated, rows) if said.tool else None
    if wrong:
        raise InvalidInput(f"{wrong}: they are from two runs", field="text")


def _require_same_size(case: Case, said: Reading, variant: str) -> None:
    """Raise InvalidInput if the weights that the output names are of another file.

    Where the head is the token embedding, ik_llama.cpp and older llama.cpp count it twice in a benchmark's rows, and
    so does ik_llama.cpp with each tensor that it merges or splits (8337e4cd3 src/llama.cpp:4836, 8967).
    """
    ours, with_head = case.model.n_bytes, sum(plain_bytes(case.model).values())
    twice = case.flags.split_mode == "graph" or _MERGES.intersection(case.parsed.used)
    ranges = [(ours, 2 * with_head)] if twice else [(ours, ours), (with_head, with_head)]
    if not said.sizes or any(
        least / _ROUGHLY <= size <= most * _ROUGHLY for size in said.sizes for least, most in ranges
    ):
        return
    printed = " or ".join(map(_size, said.sizes[:2]))
    what = f"the output names weights of {printed}, {variant} has {_size(ours)}: name the variant that ran"
    raise InvalidInput(what, field="repo")


def _size(n_bytes: float) -> str:
    return f"{n_bytes / GIB:,.2f} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:,.2f} MiB"


def _cell(
    case: Case, listing: RepoListing, variant: str, rows: Sequence[MeasuredRow]
) -> tuple[RunFlags | None, str | None, tuple[str, ...]]:
    """Return the flags and cell that make it comparable, or None for both and the reason why it is not."""
    if any(depth.behind for depth in depths_of(rows)):
        return None, None, ("it is not compared with other results: prompts end where its outputs begin",)
    try:
        run = as_run(case.flags, case.parsed)
        files = files_of(listing, variant)
    except InvalidFlags as outside:
        return None, None, (f"it is not compared with other results: {outside.detail}",)
    one = Measurement(
        kind="baseline", config=None, name="", engine=case.engine, variant=variant, flags=run.flags, depths=(),
        n_prompt=0, n_gen=0, devices=case.table, speed=[],
    )  # fmt: skip
    return run.flags, cell_of(one, files), run.dropped


def _files(listing: RepoListing, variant: str) -> ResultModel | None:
    try:
        files = files_of(listing, variant)
    except InvalidFlags:
        files = ()
    if listing.repo is None or listing.revision is None:
        return None
    return ResultModel(repo=listing.repo, revision=listing.revision, variant=variant, files=files)


def _prediction(case: Case, bound: Rig, rows: Sequence[MeasuredRow]) -> Prediction:
    """Return the prediction for the run, at the depths and prompt sizes that were measured."""
    depths = depths_of(rows)
    spread = {round(i * (len(depths) - 1) / max(MOST_POINTS - 1, 1)) for i in range(MOST_POINTS)}
    return Prediction(
        devices=case.table,
        speed=[_point(case, depths[i]) for i in sorted(spread if len(depths) > MOST_POINTS else range(len(depths)))],
        most_tg=most_tg(case.model, bound),
        most_pp=most_pp(case.model, bound),
        calibration=versions(case.rig.fitted.version if case.rig.fitted else None).calibration,
    )


def _point(case: Case, depth: Depth) -> SpeedPoint:
    """Return the prediction for one depth; for a request, at the middle of its prompt and of its output."""
    n_prompt = depth.prompts[0].n_prompt
    n_ubatch = max(min(case.flags.n_ubatch, n_prompt), 1)
    flags = msgspec.structs.replace(case.flags, n_ubatch=n_ubatch)
    if not depth.behind:
        return speed_point(depth.n_kv, case.speed(depth.n_kv, flags=flags))
    prompt = case.speed(depth.n_kv - (n_prompt + n_ubatch) // 2, flags=flags)
    output = case.speed(depth.n_kv + depth.outputs[0].n_gen // 2, flags=flags)
    return speed_point(depth.n_kv, msgspec.structs.replace(output, pp=prompt.pp))


def _measured_at(context: Context, asked: Submission) -> datetime:
    now = context.clock()
    if asked.measured_on is None:
        return now
    day = day_of(asked.measured_on, "measured_on")
    if not now - _OLDEST <= day <= now + timedelta(days=1):
        raise InvalidInput("a day within the last three years, not in the future", field="measured_on")
    return min(day, now)
