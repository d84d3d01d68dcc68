"""`advisor submit`: a benchmark that you ran, sent to a service's database after you have seen what was understood."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from service.cli.inputs import file_text, text_argument
from service.cli.output import FAILURE, print_json
from service.engine.errors import InvalidInput

if TYPE_CHECKING:
    from service.cli.remote import Service
    from service.wire.submissions import Preview, Submission

_MAX_PASTE = 1 << 20
_MAX_TOKEN = 200
_OPTIONS = {"text": "FILE", "command": "--command", "hardware": "--hardware", "repo": "--model"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "file", metavar="FILE", help="the command and what it printed, or what `validate --here` kept; - reads it"
    )
    parser.add_argument("--service", metavar="ADDRESS", help="https://HOST of the service (default: ADVISOR_SERVICE)")
    parser.add_argument("--command", metavar="COMMAND", help="that was run, where FILE does not have it")
    parser.add_argument("--hardware", "-H", help="it ran on: shorthand, JSON, or pasted tool output; @FILE reads it")
    parser.add_argument("--model", metavar="MODEL", help="OWNER/NAME:VARIANT, where the command does not name it")
    parser.add_argument("--engine", choices=("ik_llama.cpp", "llama.cpp"), help="default: guessed from the command")
    parser.add_argument("--build", metavar="BUILD", help="of the engine: 2025-05-11, b3700 or 8337e4cd3")
    parser.add_argument("--remarks", metavar="TEXT", help="shown beside the result")
    parser.add_argument("--measured-on", metavar="DAY", help="2026-11-21 (default: today)")
    parser.add_argument("--yes", action="store_true", help="send it without asking")
    parser.add_argument("--json", action="store_true", help="print the preview, or what was kept, as the API's JSON")
    parser.add_argument("--token-file", metavar="FILE", help="holds a token with the scope submit (or ADVISOR_TOKEN)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0: it was sent; 1: it was not."""
    from service.cli.remote import Service

    with closing(Service(_address(arguments), _token(arguments))) as service:
        return _run(arguments, service)


def _run(arguments: argparse.Namespace, service: Service) -> int:
    from service.cli.sending import asked_here, kept_results, offer, previewed, submissions_of

    text = sys.stdin.read(_MAX_PASTE + 1) if arguments.file == "-" else file_text(arguments.file, "FILE", _MAX_PASTE)
    kept = kept_results(text)
    if kept is not None:
        several = submissions_of(kept, arguments.model)
        previews = [previewed(service, one) for one in several]
    else:
        one, preview = _completed(service, _submission(arguments, text), interactive=_at_terminal(arguments))
        several, previews = [one], [preview]
    if arguments.json and not arguments.yes:
        for each in previews:
            print_json(each)
        return FAILURE
    agreed = (lambda question: True) if arguments.yes else asked_here
    sent = offer(service, several, previews, agreed)
    if not sent:
        print("nothing was sent: say yes, or add --yes", file=sys.stderr)
    return 0 if sent else FAILURE


def _submission(arguments: argparse.Namespace, text: str) -> Submission:
    from service.cli.inputs import converted
    from service.wire.submissions import Submission

    stated: dict[str, Any] = {
        "text": text,
        "command": arguments.command,
        "hardware": text_argument(arguments.hardware) if arguments.hardware else None,
        "repo": arguments.model,
        "engine": arguments.engine,
        "build": arguments.build,
        "remarks": arguments.remarks,
        "measured_on": arguments.measured_on,
    }
    return converted(stated, Submission, "submit")


def _completed(service: Service, sent: Submission, *, interactive: bool) -> tuple[Submission, Preview]:
    """Ask on the terminal for what is missing, until nothing is, or nothing is answered."""
    import msgspec

    from service.cli.sending import previewed
    from service.wire.text import clean

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


def _at_terminal(arguments: argparse.Namespace) -> bool:
    return arguments.file != "-" and not arguments.json and sys.stdin.isatty()


def _address(arguments: argparse.Namespace) -> str:
    address = (arguments.service or os.environ.get("ADVISOR_SERVICE", "")).strip().rstrip("/")
    if not address.startswith(("https://", "http://")):
        raise InvalidInput("say to which service: --service https://HOST, or ADVISOR_SERVICE", field="--service")
    return address


def _token(arguments: argparse.Namespace) -> str | None:
    if arguments.token_file:
        return file_text(arguments.token_file, "--token-file", _MAX_TOKEN).strip()
    return os.environ.get("ADVISOR_TOKEN", "").strip() or None
