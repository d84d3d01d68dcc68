"""docs/logs.md: every event that is logged, and every field of one."""

from __future__ import annotations

from typing import get_args

from service.logs import EventName

MEANINGS: dict[EventName, str] = {
    "request": "The service answered a request: one line each, with every id that it came to know on the way.",
    "request.failed": "A request met an error that nobody planned; the answer was a 500. A fault of ours: report it.",
    "request.overdue": "A request was not answered in the time that one may take, and was given up.",
    "limit.uncounted": "Redis did not answer, so a request was not counted; `refused` says whether it was turned away.",
    "advice.queued": "A new advice was committed and given to the workers.",
    "advice.started": "A worker began with an advice.",
    "advice.ready": "A worker finished an advice.",
    "advice.failed": "An advice ended without an answer; `problem` is what its reader is told.",
    "advice.retried": "An attempt at an advice ended in an error that nobody planned; it is tried again.",
    "validation.created": "Runs were queued for an advice.",
    "run.leased": "A host took a run.",
    "run.reported": "A host ended a run; `outcome` is the run's state now, `queued` where it is tried again.",
    "runs.taken_back": "Leases were over, or nobody took runs in time: they went back to the queue, or ended.",
    "question.taken": "A bot committed a question and acknowledged it.",
    "question.answered": "A bot gave its answer.",
    "question.postponed": "A question could not be looked at and stays for later.",
    "question.failed": "Answering a question met an error that nobody planned. A fault of ours: report it.",
    "question.abandoned": "A question was given up after a dozen attempts.",
    "question.lost": "An answer reached nobody: `detail` says why. `advisor doctor` says what to do about it.",
    "message.refused": "Discord or Slack does not take a message of ours as it is: `status`, and their own `code`.",
    "message.gone": "Discord or Slack no longer takes messages at this address, or not from this bot (`code`).",
    "message.undelivered": "Discord or Slack did not answer, or asked to wait; the message is sent again.",
    "hub.asked_again": "The Hub failed or asked to wait; the same is asked again after `pause_seconds`.",
    "hub.refused": "The Hub failed or asked to wait for longer than we do; the client is told so.",
    "address.refused": "A host outside resolved to an address that is not public: it was not asked there.",
    "redis.silent": "Redis did not answer.",
    "database.silent": "The database did not answer.",
    "database.made": "There were no tables, and they were made: a new database.",
    "database.newer": "The tables were made by a later version, and are used as they are.",
    "valkey.ended": "The embedded Valkey ended; it is started again.",
    "process.started": "A process of the service, or an agent, is there.",
    "process.ending": "The API was told to end, once for each signal that it got.",
    "process.ended": "A worker ended with `code`, the next starts after `pause_seconds`; or a killed agent left `n`.",
    "process.refused": "A process could not start.",
    "task.failed": "A task in the background, or a scheduled job, failed; it is tried again.",
    "job.ended": "A scheduled job, `task`, was done and changed `n` things.",
    "calibration.refused": "The speed model was not refitted: too few results, or it would predict worse.",
    "rows.purged": "What is older than an operator keeps it was removed.",
    "removal.asked": "Somebody asks for a result to be removed: `advisor admin moderate removals`, or `/moderation`.",
    "run.began": "An agent began with a run.",
    "run.ended": "An agent ended a run.",
    "run.crashed": "An agent met an error that nobody planned; the run goes back to the service.",
    "agent.idle": "An agent takes no runs now, and why.",
    "download.evicted": "An agent deleted a download to make room for another one, as its owner's policy says.",
    "library": "A library logged something; `logger` is its name, `detail` what it said.",
}

FIELDS: dict[str, str] = {
    "timestamp": "when, in UTC",
    "level": "debug, info, warning or error",
    "role": "which kind of process: api, worker, bots, agent",
    "pid": "its process id",
    "event": "a name of the list above",
    "request_id": "of the request that began all this: given by a proxy as `X-Request-ID`, else made by us",
    "advice_id": "an advice",
    "validation_id": "a validation",
    "run_id": "a run",
    "host_id": "a host",
    "result_id": "a result",
    "question_id": "a question to a bot, by the platform's id of it",
    "account": "an account's id; never its name, never a token",
    "method": "of a request",
    "path": "a request's path as a template, such as `/v1/advice/{advice_id}`; never what stood in it",
    "status": "of an answer",
    "duration_ms": "how long it took",
    "outcome": "how it ended",
    "problem": "a type of docs/problems.md",
    "attempt": "which attempt it was",
    "failure": "the kind of a run's failure",
    "n": "how many",
    "repo": "a repo of the Hub (an agent's own log only)",
    "file": "a model's file (an agent's own log only)",
    "service": "the service that an agent works for",
    "host": "an agent's pseudonym",
    "network": "what keeps an engine from the network",
    "files": "what keeps an engine from files",
    "platform": "discord or slack",
    "task": "a task in the background",
    "program": "a process that the service keeps running",
    "code": "how a process ended, or what Discord or Slack calls a refusal",
    "pause_seconds": "how long until it is tried again",
    "refused": "whether somebody was turned away",
    "error": "the class of an error, or what a driver said",
    "detail": "a sentence",
    "logger": "a library's logger",
    "exception": "a traceback, without the values of variables",
}
_INTRODUCTION = """\
# Logs

Every process of the service and every agent writes one JSON object a line to standard error; to a person at a terminal,
readable lines instead. `ADVISOR_LOG_LEVEL` (debug, info, warning, error) says from which level on, for agents too.

## One request's whole story

The id of a request is in its answer as `X-Request-ID`. It goes into the row of what was asked for, and from there into
every line that a worker or a scheduled job writes about it; a host that measures gets it with the run, writes it into
its own log, and sends it with each of its calls. So the same word finds a request in all logs, wherever they lie:

    grep -h 8f14e45fceea167a api.log worker.log agent.log | sort

An advice, run or host is found by its id in the same way. What a person sees of an advice is its id, in the address.

## What is not logged

No bodies, no query strings, no credentials or signatures, no addresses of clients, no names of accounts, no hardware or
prompts that somebody typed; paths as templates, with ids of ours only. Two things of the outside are: a request id that
a proxy gave (8 to 64 letters, digits, dots, hyphens and underscores), and what the database's or Redis' driver said
when it failed, which names hosts of the operator's. Libraries speak from `warning` on (from `info` on where the level
is `debug`); clients of HTTP never below `warning`, for they name signed addresses.

This file is written by `make openapi`.
"""


def logs_markdown() -> str:
    """Return docs/logs.md."""
    lines = [_INTRODUCTION, "## Events\n", "| event | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {MEANINGS[name]} |" for name in get_args(EventName)]
    lines += ["\n## Fields\n", "| field | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items()]
    return "\n".join(lines) + "\n"
