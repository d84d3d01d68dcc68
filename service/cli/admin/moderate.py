"""`advisor admin moderate`: hide and show results, ban and vouch for accounts, revoke hosts, read reports and acts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, get_args

from service.cli.inputs import load_settings
from service.cli.output import print_json
from service.wire.results.moderation import Action

if TYPE_CHECKING:
    from service.flows.context import Records

_ACTIONS: tuple[Action, ...] = get_args(Action)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "action", choices=(*_ACTIONS, "reports", "removals", "audit"), help="what to do, or what to read"
    )
    parser.add_argument(
        "subject", nargs="?", metavar="SUBJECT",
        help="a result's id (hide, show, remove), a report's (close), a request's for removal (refuse), "
        "a host's pseudonym (revoke), an account's name",
    )  # fmt: skip
    parser.add_argument("--reason", metavar="TEXT", help="why: kept in the audit log, and shown where a result is")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0."""
    from service.flows.accounts import database
    from service.flows.context import Database

    with database(load_settings()) as engine:
        context = Database(engine)
        if arguments.action == "reports":
            _print_reports(context, arguments.json)
        elif arguments.action == "removals":
            _print_removals(context, arguments.json)
        elif arguments.action == "audit":
            _print_audit(context, arguments.subject, arguments.json)
        else:
            _moderate(context, arguments)
    return 0


def _moderate(context: Records, arguments: argparse.Namespace) -> None:
    import msgspec

    from service.engine.errors import InvalidInput
    from service.flows.results.moderation import ON_THE_MACHINE, moderate
    from service.wire.results.moderation import Moderation

    asked = {"action": arguments.action, "subject": arguments.subject or "", "reason": arguments.reason or ""}
    try:
        wanted = msgspec.convert(asked, Moderation)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"say whom or what, and why with --reason: {error}", field="reason") from error
    done = moderate(context, ON_THE_MACHINE, wanted)
    print_json(done) if arguments.json else print(f"{done.action} {done.subject}: {done.reason}")


def _print_reports(context: Records, as_json: bool) -> None:
    from service.flows.results.moderation import open_reports

    found = open_reports(context)
    if as_json:
        print_json(found)
        return
    for one in found:
        print(f"{one.id}  {one.created_at[:10]}  {one.kind:<13}  {one.model} on {one.gpus}, result {one.result}")
        print(f"    by {one.by or 'somebody without an account'}, about {one.of or 'nobody known'}: {one.text}")


def _print_removals(context: Records, as_json: bool) -> None:
    from service.flows.operations.removals import open_requests

    found = open_requests(context)
    if as_json:
        print_json(found)
        return
    for one in found:
        print(f"{one.id}  {one.created_at[:10]}  {one.model} on {one.gpus}, {one.result_state} result {one.result}")
        print(f"    answer to {one.contact or 'nobody'}: {one.text}")


def _print_audit(context: Records, subject: str | None, as_json: bool) -> None:
    from service.flows.results.moderation import audit

    found = audit(context, subject)
    if as_json:
        print_json(found)
        return
    for one in found:
        print(f"{one.at}  {one.by}: {one.action} {one.subject}: {one.reason}")
