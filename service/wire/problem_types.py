"""All types of problems, with the status, meaning and remedy of each.

`docs/problems.md`, the page `/docs/problems` and every error answer are made from this list.
"""

from __future__ import annotations

from typing import NamedTuple


class ProblemType(NamedTuple):
    """A type of problem: HTTP status, title, when it happens, and the remedy."""

    status: int
    title: str
    meaning: str
    remedy: str


PROBLEM_TYPES: dict[str, ProblemType] = {
    "malformed-json": ProblemType(
        400,
        "The body is not JSON",
        "The request's body could not be read as JSON.",
        "Look at the byte that `detail` names. In a shell, put the body in single quotes.",
    ),
    "bad-request": ProblemType(
        400,
        "The request cannot be understood",
        "The request's address or headers are not valid HTTP.",
        "Correct what `detail` names; ordinary clients send nothing like it.",
    ),
    "invalid-request": ProblemType(
        422,
        "The request has a wrong value",
        "A field is missing, unknown, of the wrong type, out of range, or contradicts another one.",
        "`field` is its path in the body or the name of the query parameter, `detail` says what is accepted.",
    ),
    "unknown-hardware": ProblemType(
        422,
        "Unknown GPU or CPU",
        "The catalogue has no GPU or CPU of that name.",
        "Use one of the nearest names in `choices`, or keep the name and add `vram_gib` and, for speed, "
        "`bandwidth_gbs`. `GET /v1/hardware/gpus?q=` searches the catalogue.",
    ),
    "invalid-hardware": ProblemType(
        422,
        "The hardware cannot be read or cannot exist",
        "The description has a size that is negative or impossible, or the text has nothing that is known as hardware.",
        "Correct `field`. `POST /v1/hardware/parse` shows how a text is understood.",
    ),
    "invalid-flags": ProblemType(
        422,
        "The engine would not accept these flags",
        "A command or a flag's value is not one that the named engine takes.",
        "Correct the flag that `detail` names.",
    ),
    "unknown-variant": ProblemType(
        422,
        "The repo has no such variant",
        "The named quantised model is not among the repo's files.",
        "Use one of `choices`, or leave the variant out to consider all of them.",
    ),
    "repo-not-found": ProblemType(
        404,
        "The Hub has no such repo",
        "Hugging Face has no public repo of that name.",
        "Check the spelling: `OWNER/NAME` as on the Hub's page. For a private one, ask on your own machine: "
        "`HF_TOKEN=hf_... advisor advise OWNER/NAME -H ...`.",
    ),
    "revision-not-found": ProblemType(
        404,
        "The repo has no such revision",
        "The repo exists, but has no branch, tag or commit of that name.",
        "Leave the revision out to have `main`, or take one that the repo's page lists.",
    ),
    "repo-gated": ProblemType(
        403,
        "The repo is gated",
        "The repo's author gives access on request, and this service has no access to its files.",
        "Name another repo with the same model: others often publish the same quants openly. Or ask on your "
        "own machine, with a token whose account was given access on the repo's page: "
        "`HF_TOKEN=hf_... advisor advise OWNER/NAME -H ...`. An operator may list it in `ADVISOR_GATED_REPOS`.",
    ),
    "repo-without-gguf": ProblemType(
        422,
        "The repo has no GGUF files",
        "The repo holds the model in another format.",
        "`choices` lists repos that have this model as GGUF.",
    ),
    "repo-too-large": ProblemType(
        422,
        "The repo is too large to read whole",
        "The repo has more variants, shards or header bytes than the service reads at once.",
        "Name one `variant`, as `OWNER/NAME:VARIANT` or in `constraints.variants`.",
    ),
    "hub-unauthorised": ProblemType(
        502,
        "The Hub refuses this service's token",
        "Hugging Face does not accept the token that this service was given.",
        "The service's operator renews `HF_TOKEN`, or unsets it to read public repos without one.",
    ),
    "hub-reply-refused": ProblemType(
        502,
        "A reply from the Hub was not followed",
        "Hugging Face, or what stands between, sent an unknown host or other bytes than were asked for.",
        "Ask again later. For a mirror, the service's operator names its hosts in `ADVISOR_HUB_HOSTS`.",
    ),
    "hub-rate-limited": ProblemType(
        503,
        "The Hub limits this service",
        "Hugging Face answered that this service has asked too often for the moment.",
        "Ask again after the seconds in `Retry-After`. An `HF_TOKEN` doubles what the Hub allows.",
    ),
    "hub-unavailable": ProblemType(
        503,
        "The Hub does not answer",
        "Hugging Face could not be reached, was too slow, or gave an answer that cannot be used.",
        "Ask again after the seconds in `Retry-After`. Repos that were read before are answered meanwhile.",
    ),
    "invalid-header": ProblemType(
        422,
        "The GGUF header is damaged",
        "A file of the repo begins like GGUF, but its metadata or tensor table contradicts itself or has no end.",
        "Ask for another variant or revision, and tell the repo's author.",
    ),
    "not-gguf": ProblemType(
        422,
        "The file is not GGUF",
        "The file does not begin with GGUF's magic number. An upload may have stored something else under that name.",
        "Ask for another variant or revision, and tell the repo's author.",
    ),
    "truncated-header": ProblemType(
        422,
        "The GGUF file ends within its header",
        "The file is shorter than its own header says: an upload was cut off.",
        "Ask for another variant or revision, and tell the repo's author.",
    ),
    "unsupported-model": ProblemType(
        422,
        "The header describes no language model",
        "The metadata lacks what every language model has, such as the architecture or the number of layers.",
        "Name a repo with a language model. Projectors, adapters and image models do not count as variants.",
    ),
    "not-found": ProblemType(
        404,
        "No such page",
        "The API has no such path.",
        "The paths are listed at `/docs`.",
    ),
    "advice-not-found": ProblemType(
        404,
        "No such advice",
        "No advice has this id. It may have been deleted.",
        "Ask again with `POST /v1/advice`: what was computed before is answered at once.",
    ),
    "wrong-key": ProblemType(
        403,
        "The key is not the one that was given",
        "Deleting an advice takes the key that was given when it was made, in the header `X-Advice-Key`; correcting or "
        "deleting a result that was sent without a token, the key in `X-Edit-Key`.",
        "Send the `delete_key` or `edit_key` of the answer to the `POST` that made it. It is shown once.",
    ),
    "method-not-allowed": ProblemType(
        405,
        "The path does not accept this method",
        "The path exists, but not for this method.",
        "The header `Allow` names those it accepts.",
    ),
    "not-acceptable": ProblemType(
        406,
        "The answer does not exist in that format",
        "The `Accept` header or `?format=` names no format that the answer has.",
        "Take `application/json`, `text/plain` or `text/markdown`; as `?format=`: `json`, `text` or `markdown`.",
    ),
    "body-too-large": ProblemType(
        413,
        "The body is too large",
        "The request's body is over the limit for this path.",
        "Leave out what is not needed: of a pasted log, only the lines about the hardware count.",
    ),
    "address-too-long": ProblemType(
        414,
        "The address is too long",
        "Path and query together are longer than anything here needs.",
        "Send what is long in a body: `POST` takes it.",
    ),
    "headers-too-large": ProblemType(
        431,
        "The headers are too large",
        "The request has more headers, or larger ones, than anything here needs.",
        "Leave out what your client or proxy adds.",
    ),
    "unsupported-media-type": ProblemType(
        415,
        "The body is not declared as JSON",
        "The API reads JSON only, and the header `Content-Type` says something else.",
        "Send `Content-Type: application/json` (curl: `--json`).",
    ),
    "rate-limited": ProblemType(
        429,
        "Too many requests",
        "The client asked more often, or for more repos not yet read here, than one client may.",
        "Ask again after the seconds in `Retry-After`. One request with `?wait=30` costs less than polling.",
    ),
    "too-many-open-advices": ProblemType(
        429,
        "Too many advices are open",
        "The client, account or place in chat has as many advices waiting or in computation as one may.",
        "Ask again after the seconds in `Retry-After`, when one of them is ready. What was computed before is answered "
        "at once, and never counts.",
    ),
    "advice-too-expensive": ProblemType(
        422,
        "The advice takes too much computing",
        "The request is estimated to take more CPU seconds than one advice may, or was stopped when it had used them.",
        "Ask for less at a time: name `constraints.variants` or one engine, fewer cards, fewer `what_if` questions. "
        "With an account's token an advice may take more; `advisor advise` on a machine of your own has no such limit.",
    ),
    "too-many-streams": ProblemType(
        429,
        "Too many open streams",
        "The client already holds as many event streams and `?wait=` requests as one client may.",
        "Close one, or poll without `wait`.",
    ),
    "not-authenticated": ProblemType(
        401,
        "The request needs a token",
        "The request has no token, or one that is unknown, revoked or expired; or a host's signature is not valid.",
        "Send `Authorization: Bearer …` with a token that `advisor token create` printed. Tokens of hosts are for "
        "`/v1/agent` only, those of accounts for everything else.",
    ),
    "not-allowed": ProblemType(
        403,
        "The token is not for this",
        "The token is valid, but lacks the scope that the request needs, or the thing belongs to somebody else.",
        "Ask the service's operator for a token with the scope that `detail` names.",
    ),
    "enrolment-code-unknown": ProblemType(
        404,
        "The enrolment code is not valid",
        "The code was never given out, has been used, or its ten minutes are over.",
        "Get a new one with `POST /v1/hosts/enrolments` and type it within ten minutes.",
    ),
    "host-not-found": ProblemType(
        404,
        "No such host",
        "No host has this id, or it is private and somebody else's.",
        "`GET /v1/hosts` lists the public hosts and, with a token, your own.",
    ),
    "host-not-active": ProblemType(
        403,
        "The host may not measure now",
        "The host is waiting for its owner's approval, is paused, or was revoked.",
        'Its owner approves it, or ends the pause, with `PATCH /v1/hosts/{id}` and `{"state": "active"}`. A revoked '
        "one is enrolled again.",
    ),
    "host-exists": ProblemType(
        409,
        "The host is already enrolled",
        "A host with this public key is known here.",
        "Run `advisor host run`; or `advisor host leave` first, which makes a new key at the next enrolment.",
    ),
    "run-not-found": ProblemType(
        404,
        "No such run",
        "No run has this id.",
        "The agent throws away what it measured and asks for another run.",
    ),
    "lease-lost": ProblemType(
        409,
        "The lease is over",
        "The run's lease ended before this call, and the run went back to the queue or to another host.",
        "The agent stops, throws away what it measured and asks for another run. If it happens often, the host's "
        "connection or clock stands still for longer than a lease.",
    ),
    "too-many-hosts": ProblemType(
        409,
        "The account has too many hosts",
        "The account's hosts and its codes for more are as many as one account may have.",
        "Revoke hosts that are gone with `DELETE /v1/hosts/{id}`. Codes that nobody used end after ten minutes.",
    ),
    "counter-too-small": ProblemType(
        409,
        "A signed call came again, or too late",
        "The call's counter is not above that of an earlier call of this host. Nothing was done.",
        "The agent goes on from the number in `choices`. If it happens often, two agents run with one key.",
    ),
    "validation-not-found": ProblemType(
        404,
        "No such validation",
        "No validation has this id.",
        "Ask for one with `POST /v1/advice/{id}/validations`.",
    ),
    "calibration-refused": ProblemType(
        409,
        "No new calibration",
        "There are too few results to fit the speed model to, or it would predict those kept out of the fit worse.",
        "Keep the calibration in force; try again when more has been measured.",
    ),
    "result-not-found": ProblemType(
        404,
        "No such result",
        "No result has this id, or it was hidden or deleted.",
        "Take an id from `GET /v1/results`.",
    ),
    "dump-not-found": ProblemType(
        404,
        "No such dump",
        "No dump has this name; those of more than seven nights are gone.",
        "Take a name from `GET /v1/dumps`.",
    ),
    "not-on-board": ProblemType(
        404,
        "Nothing of this name on the board",
        "Nothing that is shown was measured of this model, on this rig, or given by this person.",
        "Take a slug from `GET /v1/leaderboard`.",
    ),
    "no-host": ProblemType(
        409,
        "No host can measure this now",
        "Every host that you may use lacks something that the configs need; `detail` names what is missing where.",
        "`GET /v1/advice/{id}/hosts` says it for each config and host. `advisor validate … --here` measures on your "
        "own machine without a host.",
    ),
    "too-many-validations": ProblemType(
        429,
        "The account's share of other people's hosts is used up",
        "The account has as many validations open, or used as many GPU-minutes a day, as one may on hosts of others.",
        "Wait for those that are open, or for tomorrow. On hosts of your own there is no limit: name them in `hosts`.",
    ),
    "idempotency-key-reused": ProblemType(
        409,
        "The Idempotency-Key belongs to another request",
        "The header's key was sent before, with another advice or another body.",
        "Send a new key with a new request, and the same key only to repeat the same one.",
    ),
    "internal": ProblemType(
        500,
        "An error in this service",
        "Something happened that the service did not expect. It has been logged under the request's id.",
        "Ask again; if it keeps failing, report it with the `X-Request-ID` of the answer.",
    ),
    "advice-failed": ProblemType(
        500,
        "The advice could not be computed",
        "The request was in order, but computing the advice failed, several times.",
        "Ask again later; if it keeps failing, report it with the advice's id.",
    ),
    "invalid-setting": ProblemType(
        500,
        "A setting of the service is not valid",
        "An environment variable has an invalid value. Shown on the command line only.",
        "Correct the variable that `detail` names; `docs/settings.md` lists them all.",
    ),
    "state-in-use": ProblemType(
        500,
        "The state folder is in use",
        "Another `advisor serve` uses the same state folder. Shown on the command line only.",
        "Stop the other one, or set `ADVISOR_STATE_DIR` to another folder.",
    ),
    "queue-unavailable": ProblemType(
        503,
        "The queue does not answer",
        "Redis does not answer, or none could be started. Advice that is ready can still be read.",
        "Ask again after the seconds in `Retry-After`. Nothing that was accepted is lost.",
    ),
    "database-unavailable": ProblemType(
        503,
        "The database does not answer",
        "The database that holds requests and answers cannot be reached.",
        "Ask again after the seconds in `Retry-After`. Nothing that was accepted is lost.",
    ),
    "service-unavailable": ProblemType(
        503,
        "The service is not complete at the moment",
        "A part of the service does not answer, or it is too busy to take more work.",
        "Ask again after the seconds in `Retry-After`. `/ready` says which part is missing.",
    ),
}
