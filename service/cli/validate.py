"""`advisor validate`: has configs of an advice measured, on hosts of the service or on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.inputs import file_text, token
from service.cli.output import FAILURE, MORE, confirmed, form_arguments, print_json
from service.engine.commands.shell import quote
from service.engine.errors import InvalidInput
from service.engine.hardware_text.form import to_shorthand
from service.wire.advice.advice import Advice
from service.wire.plain_text import clean

if TYPE_CHECKING:
    from service.cli.remote import Service
    from service.wire.advice.repo import RepoView
    from service.wire.measuring.runs import Validation, ValidationRequest
    from service.wire.results.submissions import SavedResults

_MAX_ADVICE = 16 << 20
_RANKED = "ranked by what was measured"
_NOT_RANKED = (
    "ranked as predicted, because what other people's hosts measure counts only once they are proven (docs/trust.md)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "advice",
        nargs="?",
        metavar="ADVICE",
        help="address of the advice, https://HOST/v1/advice/ID; with --here or --print also @FILE",
    )
    parser.add_argument(
        "--config", type=int, action="append", metavar="RANK", help="measure only this config; may be repeated"
    )
    parser.add_argument(
        "--baseline", action=argparse.BooleanOptionalAction, default=None,
        help="also measure the command in use that was given with the request (default: if there is one)",
    )  # fmt: skip
    parser.add_argument(
        "--here", action="store_true", help="measure on this machine, without an account; asks before it sends anything"
    )
    parser.add_argument("--print", action="store_true", help="only print the benchmark commands, for you to run")
    here = parser.add_argument_group("with --here")
    here.add_argument(
        "--engine-dir", type=Path, action="append", metavar="DIR",
        help="folder of llama-sweep-bench or llama-bench (default: found on PATH); may be repeated",
    )  # fmt: skip
    here.add_argument(
        "--models", type=Path, action="append", metavar="DIR",
        help="folder with the GGUF files, at any depth (default: as in the command); may be repeated",
    )  # fmt: skip
    here.add_argument(
        "--result", type=Path, metavar="FILE", help="file to save the measurements to (default: a new one here)"
    )
    parser.add_argument("--minutes", type=int, default=10, help="maximum minutes for one run (default: 10)")
    hosts = parser.add_argument_group("on the service's hosts (a token in ADVISOR_TOKEN, with the scope validate)")
    hosts.add_argument("--host", action="append", metavar="ID", help="use only this host; may be repeated")
    hosts.add_argument("--mode", choices=("validate", "tune"), default="validate", help="tune: search around the best")
    hosts.add_argument("--token-file", metavar="FILE", help="file with the token (default: ADVISOR_TOKEN)")
    hosts.add_argument(
        "--follow", metavar="ADDRESS", help="follow a running validation: https://HOST/v1/validations/ID"
    )
    form_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0 if something was measured, else 1."""
    if arguments.follow:
        return _follow(arguments)
    if not arguments.advice:
        raise InvalidInput("name the advice by its address, such as https://HOST/v1/advice/ID", field="ADVICE")
    if arguments.print:
        return _print_commands(arguments)
    return _measure_locally(arguments) if arguments.here else _request(arguments)


def _request(arguments: argparse.Namespace) -> int:
    from service.cli.remote import Service, ServiceRefused, split_address
    from service.wire.measuring.runs import Validation
    from service.wire.plain_text import wrapped

    _refuse(arguments, ("engine_dir", "models", "result"), "goes with --here")
    if arguments.advice.startswith("@"):
        raise InvalidInput("a service measures only its own advice; for advice in a file, use --here", field="ADVICE")
    address, advice_id = split_address(arguments.advice, "advice")
    key = token(arguments)
    if key is None:
        here = f"advisor validate {arguments.advice} --here"
        what = f"a token is needed, with the scope validate; without one it can be measured on this machine: {here}"
        raise InvalidInput(what, field="ADVISOR_TOKEN")
    service = Service(address, key)
    advice = service.get(f"/v1/advice/{advice_id}", Advice)
    try:
        path = f"/v1/advice/{advice_id}/validations"
        validation = service.post_once(path, _asked(arguments, advice), Validation)
    except ServiceRefused as refused:
        if refused.slug != "no-host":
            raise
        print("\n".join(wrapped(refused.detail)), file=sys.stderr)
        print(f"on this machine, without a host: advisor validate {arguments.advice} --here", file=sys.stderr)
        return FAILURE
    return _followed(arguments, service, validation, advice)


def _follow(arguments: argparse.Namespace) -> int:
    from service.cli.remote import Service, split_address
    from service.wire.measuring.runs import Validation

    address, validation_id = split_address(arguments.follow, "validations")
    service = Service(address, token(arguments))
    validation = service.get(f"/v1/validations/{validation_id}", Validation)
    advice = service.get(f"/v1/advice/{validation.advice}", Advice)
    return _followed(arguments, service, validation, advice)


def _followed(arguments: argparse.Namespace, service: Service, validation: Validation, before: Advice) -> int:
    from service.cli.following import ask_to_cancel, follow, ranking
    from service.cli.progress import Progress

    try:
        with Progress() as progress:
            validation = follow(service, validation, progress)
    except KeyboardInterrupt:
        print(ask_to_cancel(service, validation), file=sys.stderr)
        return 130
    _print(arguments, validation)
    if not any(run.outcome for run in validation.runs):
        return FAILURE
    if not arguments.json:
        after = service.get(f"/v1/advice/{before.id}", Advice)
        counts = any(config.measured for config in after.configs)
        print(f"\n{_RANKED if counts else _NOT_RANKED}:")
        for line in ranking(before, after):
            print(line)
    return 0


def _print_commands(arguments: argparse.Namespace) -> int:
    advice = _read(arguments.advice)[0]
    for line in bench_lines(advice, _configs(arguments, advice), arguments.advice):
        print(line)
    return 0


def _measure_locally(arguments: argparse.Namespace) -> int:
    from service.cli.local_validation import measure_locally

    if arguments.baseline:
        raise InvalidInput("with --here, only configs of the advice are measured", field="--baseline")
    _refuse(arguments, ("host", "token_file", "mode"), "is for hosts of a service: leave it out with --here")
    advice, repo = _read(arguments.advice)
    validation, kept = measure_locally(advice, repo, _configs(arguments, advice), arguments)
    _print(arguments, validation)
    if not arguments.json and not arguments.advice.startswith("@"):
        _offer(arguments, kept)
    return 0 if any(run.state == "succeeded" for run in validation.runs) else FAILURE


def _offer(arguments: argparse.Namespace, kept: SavedResults) -> None:
    """Show the measurements, and ask on the terminal whether to send them to the advice's service."""
    from service.cli.remote import Service, split_address
    from service.cli.sending import offer, previewed, submissions_of

    several = submissions_of(kept)
    if several and sys.stdin.isatty():
        address, _ = split_address(arguments.advice, "advice")
        with closing(Service(address, token(arguments))) as service:
            offer(service, several, [previewed(service, one) for one in several], confirmed)


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Raise InvalidInput for an option that would have no effect."""
    for name in names:
        if getattr(arguments, name) not in (None, "validate"):
            option = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{option} {why}", field=option)


def _read(source: str) -> tuple[Advice, RepoView | None]:
    """Return an advice from an address or `@FILE`, and its repo's listing if a service can be asked."""
    import msgspec

    from service.cli.remote import Service, split_address
    from service.wire.advice.repo import RepoView

    if source.startswith("@"):
        try:
            advice = msgspec.json.decode(file_text(source[1:], "ADVICE", _MAX_ADVICE), type=Advice)
        except msgspec.MsgspecError as error:
            what = f"{source[1:]} is not the output of `advisor advise --json`: {error}"
            raise InvalidInput(what, field="ADVICE") from error
        return _with_configs(advice), None
    address, advice_id = split_address(source, "advice")
    service = Service(address)
    advice = _with_configs(service.get(f"/v1/advice/{advice_id}", Advice))
    return advice, service.get(f"/v1/repos/{advice.repo}?revision={advice.revision}", RepoView)


def _with_configs(advice: Advice) -> Advice:
    if not advice.configs:
        raise InvalidInput(f"the advice is {advice.state} and has no config to measure", field="ADVICE")
    return advice


def _configs(arguments: argparse.Namespace, advice: Advice) -> list[str] | None:
    """Return the ids of the configs named by rank, None if none was."""
    ranked = {config.rank: config.id for config in advice.configs}
    unknown = [rank for rank in arguments.config or () if rank not in ranked]
    if unknown:
        raise InvalidInput(f"the advice has no config #{unknown[0]}, but 1 to {len(ranked)}", field="--config")
    return [ranked[rank] for rank in arguments.config or ()] or None


def _print(arguments: argparse.Namespace, validation: Validation) -> None:
    from service.wire.measuring.validation_text import validation_lines
    from service.wire.plain_text import as_markdown, as_text

    if arguments.json:
        print_json(validation)
    else:
        render = as_markdown if arguments.markdown else as_text
        print(render(validation_lines(validation, arguments.detail, MORE)), end="")


def _asked(arguments: argparse.Namespace, advice: Advice) -> ValidationRequest:
    from service.cli.inputs import converted
    from service.wire.measuring.runs import ValidationRequest

    stated = {
        "mode": arguments.mode,
        "configs": _configs(arguments, advice),
        "baseline": arguments.baseline if arguments.baseline is not None else True,
        "hosts": arguments.host,
        "minutes": arguments.minutes,
    }
    return converted(stated, ValidationRequest, "validate")


def bench_lines(advice: Advice, configs: Sequence[str] | None, source: str = "") -> Iterator[str]:
    """Yield, for each config (None: the first), its benchmark command, how to check its output, and how to send it.

    `source`: the advice's address, to whose service it is sent.
    """
    wanted = configs or [advice.configs[0].id]
    for config in advice.configs:
        if config.id not in wanted:
            continue
        log = f"bench-{config.rank}.log"
        bench = clean(config.commands.bench)
        model = f"--model {quote(f'{advice.repo}:{config.variant}')} " if advice.revision else ""
        hardware = quote(to_shorthand(advice.hardware))
        yield f"# #{config.rank}: {clean(config.variant)} with {config.engine}"
        yield f"{bench} 2>&1 | tee {log}"
        yield "# then, measured next to predicted:"
        yield f"advisor check {quote(bench)} {model}--hardware {hardware} --log {log}"
        if source.startswith("http"):
            from service.cli.remote import split_address

            service, _ = split_address(source, "advice")
            yield "# and, to put it into the database, after you have seen all that is sent:"
            told = f"--command {quote(bench)} {model}--hardware {hardware}"
            yield f"advisor submit {log} --service {quote(service)} {told}"
