"""docs/logs.md: every event that is logged, and every field of one."""

from __future__ import annotations

from typing import get_args

from service.logs import EventName

MEANINGS: dict[EventName, str] = {
    "request": "The service answered a request: one line each, with every id that it came to know on the way.",
    "request.failed": "A request met an error that nobody planned; the answer was a 500. A fault of ours: report it.",
    "request.overdue": "A request was not answered within the time limit, and was abandoned.",
    "limit.uncounted": "Redis did not answer, so a request was not counted; `refused` says whether it was refused.",
    "advice.queued": "A new request for advice was committed and given to the workers.",
    "advice.started": "A worker began computing advice.",
    "advice.ready": "A worker finished computing advice.",
    "advice.failed": "A request for advice ended without an answer; `problem` is what the client is told.",
    "advice.retried": "An attempt at computing advice ended in an unexpected error; it is tried again.",
    "validation.created": "Runs were queued for advised configs.",
    "run.leased": "A host took a run.",
    "run.reported": "A host ended a run; `outcome` is the run's state now: `queued` if it will be tried again.",
    "runs.taken_back": "Leases ended, or no host took runs in time: the runs went back to the queue, or ended.",
    "question.taken": "A bot committed a question and acknowledged it.",
    "question.answered": "A bot gave its answer.",
    "question.postponed": "A question could not be handled now and is kept for later.",
    "question.failed": "Answering a question failed with an unexpected error: report this bug.",
    "question.abandoned": "A question was abandoned after a dozen attempts.",
    "question.lost": "An answer reached nobody: `detail` says why. `advisor doctor` says what to do about it.",
    "message.refused": "Discord or Slack refuses a message: `status`, and their own `code`.",
    "message.gone": "Discord or Slack no longer takes messages at this address, or not from this bot (`code`).",
    "message.undelivered": "Discord or Slack did not answer, or asked to wait; the message is sent again.",
    "hub.asked_again": "The Hub failed or asked to wait; the request is retried after `pause_seconds`.",
    "hub.refused": "The Hub failed, or asked for a longer wait than we allow; the client is told so.",
    "address.refused": "An outside host resolved to an address that is not public, so it was not contacted.",
    "redis.silent": "Redis did not answer.",
    "database.silent": "The database did not answer.",
    "database.made": "There were no tables, so they were created: a new database.",
    "database.newer": "The tables were created by a newer version, and are used as they are.",
    "valkey.ended": "The embedded Valkey ended; it is started again.",
    "process.started": "A process of the service, or an agent, started.",
    "process.ending": "The API was told to shut down, once for each signal received.",
    "process.ended": "A worker ended with `code`, the next starts after `pause_seconds`; or a killed agent left `n`.",
    "process.refused": "A process could not start.",
    "task.failed": "A task in the background, or a scheduled job, failed; it is tried again.",
    "job.ended": "A scheduled job, `task`, finished and changed `n` things.",
    "calibration.refused": "The speed model was not refitted: too few results, or it would predict worse.",
    "rows.purged": "What is older than the operator's settings allow was removed.",
    "removal.asked": "Somebody asks for a result to be removed: `advisor admin moderate removals`, or `/moderation`.",
    "run.began": "An agent began a run.",
    "run.ended": "An agent ended a run.",
    "run.crashed": "An agent failed with an unexpected error; the run goes back to the service.",
    "agent.idle": "An agent takes no runs now, and why.",
    "download.evicted": "An agent deleted a download to make room for another one, as its owner's policy says.",
    "library": "A library logged something; `logger` is its name, `detail` what it said.",
}

FIELDS: dict[str, str] = {
    "timestamp": "when, in UTC",
    "level": "debug, info, warning or error",
    "role": "which kind of process: api, worker, bots, agent",
    "pid": "its process id",
    "event": "a name from the list above",
    "request_id": "of the request that started this: from a proxy as `X-Request-ID`, or else generated",
    "advice_id": "a request for advice",
    "validation_id": "a validation",
    "run_id": "a run",
    "host_id": "a host",
    "result_id": "a result",
    "question_id": "a question to a bot, by the platform's id",
    "account": "an account's id; never its name, never a token",
    "method": "of a request",
    "path": "a request's path as a template, such as `/v1/advice/{advice_id}`; never with actual values",
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
    "refused": "whether the request was refused",
    "error": "the class of an error, or what a driver said",
    "detail": "a sentence",
    "logger": "a library's logger",
    "exception": "a traceback, without the values of variables",
}
_INTRODUCTION = """\
# Logs

Every process of the service and every agent writes one JSON object per line to standard error, or readable lines if
that is a terminal. `ADVISOR_LOG_LEVEL` (debug, info, warning, error) sets the lowest level, for agents too.

## Following one request

Every answer has the id of its request as `X-Request-ID`. The id is stored with the request, and appears in every line
that a worker or a scheduled job writes about it. A host that measures gets it with the run, writes it to its own log,
and sends it with each of its calls. So one id finds a request in all logs:

    grep -h 8f14e45fceea167a api.log worker.log agent.log | sort

Advice, runs and hosts are found by their ids in the same way. The id of advice is in the address that a person sees.

## What is not logged

No bodies, query strings, credentials, signatures, client addresses or account names are logged, and no hardware or
prompts that somebody typed. Paths are templates, with only our own ids. Two things come from outside: a request id that
a proxy gave (8 to 64 letters, digits, dots, hyphens and underscores), and the errors of the database's and Redis'
drivers, which name the operator's hosts. Libraries log from `warning` up (from `info` if the level is `debug`), and
HTTP clients never below `warning`, because they name signed addresses.

This file is written by `make openapi`.
"""


def logs_markdown() -> str:
    """Return docs/logs.md."""
    lines = [_INTRODUCTION, "## Events\n", "| event | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {MEANINGS[name]} |" for name in get_args(EventName)]
    lines += ["\n## Fields\n", "| field | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items()]
    return "\n".join(lines) + "\n"
