"""Plans what `advisor up` starts: a config or a command, and what to start instead if memory was short."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from service.cli.inputs import converted
from service.engine.config import CPU, Engine
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, EngineChoice, GoalRequest

if TYPE_CHECKING:
    from service.engine.advice import AdvisedConfig
    from service.engine.commands.render import Launch
    from service.engine.measured.classify import Failure
    from service.settings import Settings
    from service.wire.advice.advice import Advice

_CONTEXT, _LEAST_CONTEXT = 8_192, 1_024
_LEAST_RESERVE = 512


class UpRequest(NamedTuple):
    """The part of the request that is the same for every start. `repo`: on the Hub, or local GGUF files."""

    settings: Settings
    repo: str
    hardware: str
    engine: Engine
    folder: Path
    context: int
    port: int | None = None


class Plan(NamedTuple):
    """One start. `config`: None if a command was given; `model`: the first file, if it is on this machine; `images`:
    the projector, if it was fetched."""

    asked: UpRequest
    what: str
    advice: Advice | None = None
    config: AdvisedConfig | None = None
    given: Launch | None = None
    model: Path | None = None
    images: Path | None = None

    @property
    def repo(self) -> str | None:
        """The repo and variant to start, OWNER/NAME:VARIANT; None if unknown."""
        if self.advice is None or self.config is None or self.advice.repo.count("/") != 1:
            return None
        return f"{self.advice.repo}:{self.config.variant}"

    @property
    def projector(self) -> Path | None:
        """The projector that the config loads: where its command has it, or else in the folder of models."""
        from service.engine.commands.companions import projector_of
        from service.engine.commands.parse import parse

        found = projector_of(parse(self.config.commands.server, self.config.engine)) if self.config else None
        if found is None or found.path is None:
            return None
        if self.images is not None:
            return self.images
        path = Path(found.path).expanduser().absolute()
        return path if path.is_file() else self.asked.folder / path.name

    def steps(self) -> Iterator[str]:
        """Yield what would be done before the start, one line per step."""
        yield f"plan: {self.what}"
        if self.model is None:
            also = f", with {self.projector.name}," if self.projector else ""
            yield f"fetch: {self.asked.repo}{also} into {self.asked.folder}; an interrupted download resumes"

    def launch(self, program: Path) -> Launch:
        from service.engine.commands.parse import parse
        from service.engine.commands.render import launch

        made = self.given
        if made is None:
            _, config = _advised(self)
            shown = parse(config.commands.server, config.engine).model_path or config.variant
            path = str(self.model or self.asked.folder / Path(shown).name)
            images = [f"--mmproj {self.projector}"] if self.projector else []
            flags = msgspec.structs.replace(config.flags, other=(*config.flags.other, *images))
            made = launch(config.engine, "server", flags, model_path=path, port=self.asked.port)
        words = made.arguments
        if self.asked.engine == "llama.cpp" and not {"-lv", "--verbosity", "--log-verbosity"} & set(words):
            words += ("-lv", "4")  # below it llama.cpp prints no buffer sizes
        return msgspec.structs.replace(made, program=str(program), arguments=words)

    def fetched(self, say: Callable[[str], None]) -> Plan:
        """Return the plan with its files downloaded, resuming where possible. Raises AdvisorError."""
        if self.model is not None:
            return self
        from service.cli.fetching import fetch

        projector = self.projector.name if self.projector else None
        model, images = fetch(self.asked, *_advised(self), projector, say)
        return self._replace(model=model, images=images)

    def without(self, failure: Failure, log: str) -> Plan | None:
        """Return a plan for less memory: between what was allocated and what was refused. None if nothing fits."""
        from service.engine.logs.read import taken_mib

        device = failure.device or CPU
        taken = taken_mib(log.splitlines()).get(device, 0.0)
        held = taken + (failure.needed_mib or 0.0) / 2
        if held <= 0:
            return None
        told = f"{device} gave {taken:,.0f} MiB and not {failure.needed_mib or 0:,.0f} more"
        images = self.projector is not None
        if device == CPU:
            return _planned(self.asked, Constraints(max_ram_gib=held / 1024, images=images), told)
        rows = self.config.devices if self.config else []
        capacity = next((row.capacity_mib for row in rows if row.device == device), 0.0)
        reserve = max(_LEAST_RESERVE, int(capacity - held))
        return _planned(self.asked, Constraints(reserve_mib=reserve, images=images), told) if capacity else None


def first_plan(
    settings: Settings, arguments: argparse.Namespace, hardware: str, engine: Engine, advice: bytes | None
) -> Plan:
    """Return the plan that `advisor up` asks for. Raises AdvisorError if nothing fits, or nothing can be started."""
    folder = (arguments.models or Path("~/models")).expanduser()
    asked = UpRequest(
        settings=settings, repo=arguments.what, hardware=hardware, engine=engine, folder=folder,
        context=_CONTEXT if arguments.context is None else arguments.context, port=arguments.port,
    )  # fmt: skip
    if advice is not None:
        return _of_advice(asked, advice)
    if " " in arguments.what.strip():
        return _of_command(asked, arguments.what)
    plan = _planned(asked, Constraints(images=arguments.images), "")
    if plan is None:
        raise InvalidInput(f"nothing in {arguments.what} fits this machine", field="WHAT")
    return plan


def _of_advice(asked: UpRequest, data: bytes) -> Plan:
    from service.wire.advice.advice import Advice

    try:
        advice = msgspec.json.decode(data, type=Advice)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"not the output of `advisor advise --json`: {error}", field="WHAT") from error
    asked = asked._replace(repo=advice.repo)
    plan = _best(asked, advice, "")
    if plan is None:
        raise InvalidInput(f"the advice has no config for {asked.engine}, which is here", field="WHAT")
    if advice.revision is None and plan.projector is not None and not plan.projector.is_file():
        raise InvalidInput(f"the projector {plan.projector.name} is not here: put it into {asked.folder}", field="WHAT")
    return plan


def _of_command(asked: UpRequest, command: str) -> Plan:
    from service.engine.commands.config_files import launch_of
    from service.engine.commands.parse import parse

    parsed = parse(command, asked.engine)
    if parsed.program != "llama-server" or not parsed.model_path or parsed.refused or parsed.prefix:
        what = "a command of llama-server with its model's path (-m) is started; others are for `advisor check`"
        raise InvalidInput(parsed.refused[0].detail if parsed.refused else what, field="WHAT")
    model = Path(parsed.model_path).expanduser().absolute()
    if not model.is_file():
        raise InvalidInput(f"there is no file {model.name} there", field="WHAT")
    given = launch_of(command)
    words = tuple(str(model) if word == parsed.model_path else word for word in given.arguments)
    if "--port" in words[:-1]:
        asked = asked._replace(port=int(words[words.index("--port") + 1]))
    elif asked.port:
        words += ("--port", str(asked.port))
    given = msgspec.structs.replace(given, arguments=words)
    asked = asked._replace(repo=str(model), context=parsed.flags.n_ctx or asked.context)
    return Plan(asked=asked, what="your command", given=given, model=model)


def _planned(asked: UpRequest, constraints: Constraints, told: str) -> Plan | None:
    """Return the best config under some constraints, with less context if nothing fits."""
    from service.flows.advice.direct import advise_directly

    wanted = msgspec.structs.replace(constraints, engines=[EngineChoice(name=asked.engine)])
    context = asked.context
    while context >= min(_LEAST_CONTEXT, asked.context):
        goal = converted(
            {
                "context": context,
                "depth": context // 2,
                "prompt": min(1_024, context // 4),
                "output": min(256, context // 4),
            },
            GoalRequest,
            "goal",
        )
        plan = _best(asked, advise_directly(asked.settings, asked.repo, asked.hardware, goal, wanted, None), told)
        if plan is not None:
            return plan
        context //= 2
    return None


def _best(asked: UpRequest, advice: Advice, told: str) -> Plan | None:
    config = next((one for one in advice.configs if one.engine == asked.engine), None)
    if config is None:
        return None
    here = Path(asked.repo).expanduser()
    model = here.absolute() if here.is_file() else None
    what = f"{config.variant}, {config.flags.n_ctx:,} tokens of context: {config.commands.server}"
    return Plan(asked=asked, what=f"{told}: {what}" if told else what, advice=advice, config=config, model=model)


def _advised(plan: Plan) -> tuple[Advice, AdvisedConfig]:
    assert plan.advice is not None  # noqa: S101 - for mypy: both are there where no command was given
    assert plan.config is not None  # noqa: S101
    return plan.advice, plan.config
