"""`advisor submit`: sends your benchmark to a service's database, after showing how it was understood."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from service.cli.inputs import file_text, service_address, text_argument, token
from service.cli.output import FAILURE, confirmed, print_json
from service.engine.errors import InvalidInput

if TYPE_CHECKING:
    from service.cli.remote import Service
    from service.engine.submission.reading import Reading
    from service.wire.results.submissions import Preview, Submission

_MAX_PASTE = 1 << 20
_OPTIONS = {"text": "FILE", "command": "--command", "hardware": "--hardware", "repo": "--model"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the command and what it printed, or what `validate --here` saved; - reads standard input",
    )
    parser.add_argument("--service", metavar="ADDRESS", help="the service, https://HOST (default: ADVISOR_SERVICE)")
    parser.add_argument("--command", metavar="COMMAND", help="the command that was run, if it is not in FILE")
    parser.add_argument(
        "--hardware", "-H", help="what it ran on: shorthand, JSON, or pasted tool output; @FILE reads it from there"
    )
    parser.add_argument("--model", metavar="MODEL", help="OWNER/NAME:VARIANT, if the command does not name it")
    parser.add_argument("--engine", choices=("ik_llama.cpp", "llama.cpp"), help="default: guessed from the command")
    parser.add_argument("--build", metavar="BUILD", help="build of the engine: 2025-05-11, b3700 or 8337e4cd3")
    parser.add_argument("--remarks", metavar="TEXT", help="a note to show next to the result")
    parser.add_argument("--measured-on", metavar="DAY", help="such as 2026-11-21 (default: today)")
    parser.add_argument(
        "--source", metavar="URL", help="where somebody else published it; it is cited, without a licence"
    )
    parser.add_argument("--yes", action="store_true", help="send without asking")
    parser.add_argument("--json", action="store_true", help="print the preview, or what was stored, as the API's JSON")
    parser.add_argument(
        "--token-file", metavar="FILE", help="file with a token with the scope submit (default: ADVISOR_TOKEN)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0 if it was sent, else 1."""
    from service.cli.remote import Service

    with closing(Service(_address(arguments), token(arguments))) as service:
        from_input = arguments.file == "-"
        text = sys.stdin.read(_MAX_PASTE + 1) if from_input else file_text(arguments.file, "FILE", _MAX_PASTE)
        return _run(arguments, service, text)


def send_log(text: str, hardware: str, repo: str | None, *, agreed: bool) -> None:
    """Send a server's command and log to the service of ADVISOR_SERVICE.

    `agreed`: only show it, without asking. Raises AdvisorError if something is missing or the service fails.
    """
    from service.cli.remote import Service

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    told = parser.parse_args(["log", f"--hardware={hardware}", *(["--yes"] if agreed else [])])
    told.model = repo
    with closing(Service(_address(told), token(told))) as service:
        _run(told, service, text)


def _run(arguments: argparse.Namespace, service: Service, text: str) -> int:
    from service.cli.sending import offer, previewed, saved_results, submissions_of

    kept = saved_results(text)
    if kept is not None:
        several = submissions_of(kept, arguments.model)
        previews = [previewed(service, one) for one in several]
    else:
        asks = arguments.file != "-" and not arguments.json and sys.stdin.isatty()
        one, preview = _completed(service, _submission(arguments, text), interactive=asks)
        several, previews = [one], [preview]
    if arguments.json and not arguments.yes:
        for each in previews:
            print_json(each)
        return FAILURE
    agreed = (lambda question: True) if arguments.yes else confirmed
    sent = offer(service, several, previews, agreed)
    if not sent:
        print("nothing was sent: say yes, or add --yes", file=sys.stderr)
    return 0 if sent else FAILURE


def _submission(arguments: argparse.Namespace, text: str) -> Submission:
    from service.cli.inputs import converted
    from service.wire.results.submissions import Submission

    figures = _figures(text)
    stated: dict[str, Any] = {
        "text": figures.log if figures else text,
        "command": arguments.command or (figures.command if figures else None),
        "hardware": text_argument(arguments.hardware) if arguments.hardware else _listed(figures),
        "repo": arguments.model,
        "engine": arguments.engine,
        "build": arguments.build or (figures.build if figures else None),
        "remarks": arguments.remarks,
        "measured_on": arguments.measured_on,
        "source": arguments.source,
    }
    return converted(stated, Submission, "submit")


def _listed(figures: Reading | None) -> object:
    import msgspec

    return msgspec.to_builtins(figures.hardware) if figures else None


def _figures(text: str) -> Reading | None:
    """Return the reading of a server's or chat's log; None for a benchmark's. Text that people wrote to a model never
    leaves this machine, so a log that cannot be read is refused (InvalidInput)."""
    from service.engine.logs.requests import read_requests
    from service.engine.submission.reading import read_paste

    try:
        said = read_paste(text)
    except InvalidInput:
        if any(read_requests(text.splitlines())):
            raise
        return None
    return said if said.log is not None else None


def _completed(service: Service, sent: Submission, *, interactive: bool) -> tuple[Submission, Preview]:
    """Ask on the terminal for what is missing, until nothing is, or an answer is empty."""
    import msgspec

    from service.cli.sending import previewed
    from service.wire.plain_text import clean

    preview = previewed(service, sent)
    while preview.missing and interactive:
        missing = preview.missing[0]
        if missing.field == "text":
            break
        asked = f"{clean(missing.text)}\n{_OPTIONS.get(missing.field, missing.field)}: "
        print(asked, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        if not answer:
            break
        sent = msgspec.structs.replace(sent, **{missing.field: answer})
        preview = previewed(service, sent)
    if preview.missing:
        missing = preview.missing[0]
        raise InvalidInput(f"missing: {clean(missing.text)}", field=_OPTIONS.get(missing.field, missing.field))
    return sent, preview


def _address(arguments: argparse.Namespace) -> str:
    return service_address(arguments.service or os.environ.get("ADVISOR_SERVICE", ""))
