"""`advisor admin`: an operator's commands, on the machine that has the service's database."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

from service.cli.inputs import load_settings
from service.cli.lazy import LazyParser
from service.cli.output import print_json
from service.engine.decoding import wrong_value
from service.engine.errors import InvalidInput

if TYPE_CHECKING:
    from service.flows.context import Database, Records
    from service.flows.results.imports import Imported
    from service.store.results.sources import Source

_HOSTS = "{:<22}  {:<24}  {:<20}  {:<8}  {:<8}  {:<16}  {:>5}  {}"
_JOBS = "{:<10}  {:<17}  {:<17}  {:<17}  {}"
_SHOWN = 20  # refused results of an import
Answer: TypeAlias = "tuple[object, Iterable[str]]"  # the value for --json, and the lines printed without it


class Verb(NamedTuple):
    """One verb: its help, the function that adds arguments, if any, and the one that runs it, which import on use."""

    help: str
    add: Callable[[argparse.ArgumentParser], object] | None
    run: Callable[[argparse.Namespace], Answer]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=LazyParser)
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, help=verb.help)
        one.add = partial(_add, verb)


def _add(verb: Verb, parser: argparse.ArgumentParser) -> None:
    if verb.add is not None:
        verb.add(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(admin=verb.run)


def run(arguments: argparse.Namespace) -> int:
    value, lines = arguments.admin(arguments)
    if arguments.json:
        print_json(value)
    else:
        for line in list(lines) or ["there are none"]:
            print(line)
    return 0


@contextmanager
def _records() -> Iterator[Database]:
    from service.flows.context import Database
    from service.store.migrations import migrated

    with migrated(load_settings().database) as engine:
        yield Database(engine)


def _backup(arguments: argparse.Namespace) -> Answer:
    from service.store.operations.backups import back_up

    n_bytes = back_up(load_settings().database, arguments.file)
    return {"file": str(arguments.file), "n_bytes": n_bytes}, [f"{arguments.file}: {n_bytes:,} bytes"]


def _add_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="what `advisor admin backup` wrote")
    parser.add_argument(
        "--before", type=Path, metavar="FILE",
        help="where to save the current database (default: next to FILE, with the time)",
    )  # fmt: skip


_UNDONE = (
    "tokens and hosts that were revoked after the backup work again, banned accounts too, and results removed since are"
    " back: see `advisor token list`, and docs/operating.md (Restore) for the rest"
)


def _restore(arguments: argparse.Namespace) -> Answer:
    """Restore a backup. Raises StateInUse while `advisor serve` uses this folder."""
    from service.serve import sole_user
    from service.store.operations.backups import keep_what_is_there, restore

    settings = load_settings()
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    before = arguments.before or arguments.file.with_name(f"{arguments.file.name}.before-{now}")
    with nullcontext() if settings.redis_url else sole_user(settings.state_dir):
        was_there = keep_what_is_there(settings.database, before)
        restore(settings.database, arguments.file)
    told = f"what was there before is in {before}" if was_there else "there was no database before"
    lines = [f"restored; {told}", _UNDONE]
    return {"restored": str(arguments.file), "before": str(before) if was_there else None}, lines


def _dump(arguments: argparse.Namespace) -> Answer:
    from msgspec.structs import asdict

    from service.flows.results import dumps

    with _records() as context:
        if arguments.parquet:
            n_rows, path = dumps.write_parquet(context.engine, arguments.parquet), str(arguments.parquet)
            return {"file": path, "n_rows": n_rows}, [f"{path}: {n_rows:,} measured rows"]
        folder = dumps.folder_of(load_settings())
        made = dumps.write_dumps(context.engine, folder, context.clock()).dumps[:2]
    lines = [f"{folder / one.name}: {one.n_results:,} results, {one.n_bytes:,} bytes" for one in made]
    return [{**asdict(one), "folder": str(folder)} for one in made], lines


def _migrate(arguments: argparse.Namespace) -> Answer:
    from service.store.engines import make_engine
    from service.store.migrations import is_newer, migrate
    from service.store.operations import health

    engine = make_engine(load_settings().database)
    try:
        before = health.revision(engine)
        migrate(engine)
        after = health.revision(engine)
    finally:
        engine.dispose()
    was = f", were {before or 'none'}" if after != before else ", newer than this version's" if is_newer(after) else ""
    return {"tables": after, "before": before, "newer": is_newer(after)}, [f"tables of {after}{was}"]


def _hosts(arguments: argparse.Namespace) -> Answer:
    from service.flows.measuring.hosts import all_hosts

    with _records() as context:
        found = all_hosts(context)
    lines = [_HOSTS.format("ID", "HOST", "OWNER", "STATE", "SEEN BY", "LAST SEEN", "RUNS", "GPUS")]
    for one in found:
        seen = (one.seen_at or "never")[:16].replace("T", " ")
        named = (one.id, one.pseudonym, one.owner[:20], one.state, one.visibility)
        lines.append(_HOSTS.format(*named, seen, one.runs, one.gpus))
    return found, lines if found else []


def _jobs(arguments: argparse.Namespace) -> Answer:
    """List jobs, or hasten one. Raises InvalidInput for an unknown job."""
    from service.flows.operations.schedule import schedule
    from service.store.operations import jobs

    scheduled = {job.name: job for job in schedule(load_settings())}
    if arguments.name is not None and arguments.name not in scheduled:
        raise InvalidInput("no such job is scheduled", field="NAME", choices=tuple(scheduled))
    with _records() as context:
        engine, now = context.engine, context.clock()
        jobs.ensure(engine, {name: job.next_due(now) for name, job in scheduled.items()})
        if arguments.name is not None:
            jobs.hasten(engine, arguments.name, now)
        states = [jobs.states(engine)[name] for name in scheduled]
    lines = [_JOBS.format("JOB", "DUE", "LAST SUCCEEDED", "LAST FAILED", "WHAT IT DOES")]
    for one in states:
        times = (f"{at:%Y-%m-%d %H:%M}Z" if at else "never" for at in (one.due_at, one.succeeded_at, one.failed_at))
        lines.append(_JOBS.format(one.name, *times, scheduled[one.name].text))
    return states, lines


def _purge(arguments: argparse.Namespace) -> Answer:
    from service.flows.operations.retention import purge

    with _records() as context:
        purged = purge(context, load_settings(), dry_run=arguments.dry_run)
    word = "would be removed" if arguments.dry_run else "removed"
    wide = max(len(one.kind) for one in purged)
    return purged, [f"{one.kind:<{wide}} older than {one.days:>4} days: {one.rows:>8,} {word}" for one in purged]


def _add_requeue(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("ids", nargs="*", metavar="ID", default=[], help="of a request for advice or a run that failed")
    which.add_argument("--failed", type=_hours, metavar="HOURS", help="all that failed in the last HOURS hours")
    parser.add_argument("--dry-run", action="store_true", help="show what would be tried again")


def _hours(text: str) -> float:
    """Return a number of hours. Raises ArgumentTypeError."""
    if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of hours, such as 24")
    return float(text)


def _requeue(arguments: argparse.Namespace) -> Answer:
    from service.flows.operations.requeue import requeue

    with _records() as context:
        since = None if arguments.failed is None else context.clock() - timedelta(hours=arguments.failed)
        done = requeue(context, arguments.ids, since, dry_run=arguments.dry_run)
    word = "would be queued" if arguments.dry_run else "queued"
    lines = [f"advice {one} {word}" for one in done.advice] + [f"run {one} {word}" for one in done.runs]
    return done, [*lines, f"{word}: advice {len(done.advice)}, runs {len(done.runs)}"]


def _seed(arguments: argparse.Namespace) -> Answer:
    from service.flows.results import imports

    with _records() as context:
        removed = imports.remove_published(context.engine, arguments.remove) if arguments.remove else None
        n_added = 0 if removed else imports.import_published(context.engine, context.clock())
    told = f"{removed} is removed for good" if removed else f"{n_added} published results added"
    return {"removed": removed, "n_added": n_added}, [told]


def _add_sources(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    help_text = "import the newest dump of this service (https://HOST), or from a folder with its dumps.json"
    what.add_argument("--import", dest="address", metavar="FROM", help=help_text)
    what.add_argument("--forget", action="store_true", help="remove all results of the service whose --key it is")
    parser.add_argument("--key", metavar="KEY", help="the key that signs its dumps, as its operator gave it to you")


def _sources(arguments: argparse.Namespace) -> Answer:
    from service.flows.results import dumps, imports
    from service.store.results import sources

    if (arguments.address or arguments.forget) and not arguments.key:
        raise InvalidInput("--key is needed: GET /v1/dumps of the service shows it; ask its operator", field="--key")
    if arguments.address and arguments.key == dumps.list_dumps(dumps.folder_of(load_settings())).key:
        raise InvalidInput("this key signs this service's own dumps: their results are here", field="--key")
    with _records() as context:
        if arguments.address:
            found = imports.import_results(context, arguments.address, arguments.key)
            return found._asdict(), _imported_lines(found)
        if arguments.forget:
            removed = imports.forget(context, arguments.key)
            return {"removed": removed}, [f"{removed:,} results removed"]
        several = sources.every(context.engine)
        return several, _source_lines(several)


def _imported_lines(found: Imported) -> Iterator[str]:
    left = f", {len(found.left_out):,} left out" if found.left_out else ""
    yield f"{found.added:,} results added, {found.removed:,} removed, {found.known:,} known before{left}"
    for what, several in (("refused", found.refused), ("left out", found.left_out)):
        for name, reason in several[:_SHOWN]:
            yield f"{what} {name}: {reason}"
        if len(several) > _SHOWN:
            yield f"and {len(several) - _SHOWN:,} more {what}"


def _source_lines(found: Sequence[Source]) -> Iterator[str]:
    for one in found:
        yield f"{one.address}  key {one.key}  dump of {one.made_at:%Y-%m-%d %H:%M} UTC"
    if not found:
        yield "nothing was imported; other services can import yours: GET /v1/dumps shows your key"


def _add_moderate(parser: argparse.ArgumentParser) -> None:
    from service.wire.results.moderation import Action

    choices = (*get_args(Action), "reports", "removals", "audit")
    parser.add_argument("action", choices=choices, help="what to do, or what to read")
    parser.add_argument(
        "subject", nargs="?", metavar="SUBJECT",
        help="a result's id (hide, show, remove), a report's (close), a request's for removal (refuse), "
        "a host's pseudonym (revoke), a difference's name on /accuracy (settle), an account's name",
    )  # fmt: skip
    parser.add_argument("--reason", metavar="TEXT", help="why: kept in the audit log, and shown with the result")


def _moderate(arguments: argparse.Namespace) -> Answer:
    from service.flows.results.moderation import audit, open_reports, open_requests

    with _records() as context:
        if arguments.action == "reports":
            reports = open_reports(context)
            return reports, [
                f"{one.id}  {one.created_at[:10]}  {one.kind:<13}  {one.model} on {one.gpus}, result {one.result}\n"
                f"    by {one.by or 'somebody without an account'}, about {one.of or 'nobody known'}: {one.text}"
                for one in reports
            ]
        if arguments.action == "removals":
            asked = open_requests(context)
            return asked, [
                f"{one.id}  {one.created_at[:10]}  {one.model} on {one.gpus}, {one.result_state} result {one.result}\n"
                f"    {'answer to ' + one.contact if one.contact else 'gives no contact'}: {one.text}"
                for one in asked
            ]
        if arguments.action == "audit":
            acts = audit(context, arguments.subject)
            return acts, [f"{one.at}  {one.by}: {one.action} {one.subject}: {one.reason}" for one in acts]
        return _act(context, arguments)


def _act(context: Records, arguments: argparse.Namespace) -> Answer:
    import msgspec

    from service.flows.results.moderation import ON_THE_MACHINE, moderate
    from service.wire.results.moderation import Moderation

    asked = {"action": arguments.action, "subject": arguments.subject or "", "reason": arguments.reason or ""}
    try:
        wanted = msgspec.convert(asked, Moderation)
    except msgspec.ValidationError as error:
        what, field, _ = wrong_value(error, Moderation)
        says = f"say whom or what, and why with --reason: {what}"
        raise InvalidInput(says, field="SUBJECT" if field == "subject" else "--reason") from error
    done = moderate(context, ON_THE_MACHINE, wanted)
    return done, [f"{done.action} {done.subject}: {done.reason}"]


def _one(name: str, **options: Any) -> Callable[[argparse.ArgumentParser], object]:
    """Return the function that adds a verb's only argument."""
    return lambda parser: parser.add_argument(name, **options)


_FILE = _one("file", type=Path, metavar="FILE", help="a new file")
_PARQUET = _one("--parquet", type=Path, metavar="FILE", help="a Parquet file instead; needs offload-advisor[parquet]")
_NAME = _one("name", nargs="?", metavar="NAME", help="make this one due now; a running service runs it")
_DRY_RUN = _one("--dry-run", action="store_true", help="count it, and remove nothing")
_REMOVE = _one("--remove", metavar="ID", help="remove one for good, by its id here or in published.jsonl")
_MODERATE = "hide and show results, ban and vouch for accounts, revoke hosts, read reports and the audit log"
_MIGRATE = "migrate the database to this version's tables; the old version may keep running"
_SOURCES = "list, import or remove results of other services"
_JOBS_HELP = "list scheduled jobs with their last success and next run, or make one due now"
VERBS = {
    "backup": Verb("write the whole database to one file, while the service runs", _FILE, _backup),
    "moderate": Verb(_MODERATE, _add_moderate, _moderate),
    "dump": Verb("write the files of all results that are made each night, or a Parquet file", _PARQUET, _dump),
    "migrate": Verb(_MIGRATE, None, _migrate),
    "hosts": Verb("list all hosts: owner, hardware, when last seen", None, _hosts),
    "jobs": Verb(_JOBS_HELP, _NAME, _jobs),
    "purge": Verb("remove what is older than the settings allow, as the service does each night", _DRY_RUN, _purge),
    "requeue": Verb("retry failed advice and runs, once the cause is fixed", _add_requeue, _requeue),
    "restore": Verb("restore the database from a backup; stop the service first", _add_restore, _restore),
    "sources": Verb(_SOURCES, _add_sources, _sources),
    "seed": Verb("add the published results of the package, or remove one at its author's request", _REMOVE, _seed),
}
