"""The protocol between the service and the agent on a GPU host: `/v1/agent/*`. The agent always calls.

Every call except the two of enrolment is signed with the host's Ed25519 key, over the text of `signed_text`, with a
counter that only grows; all except `POST /v1/agent/sessions` also carry the session's token.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from service.engine.config import Engine
from service.engine.logs.read import LogBuffers
from service.engine.measured.classify import Failure
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import MAX_GPUS, RunFlags
from service.wire.measuring.hosts import Sha256, Visibility
from service.wire.measuring.runs import DeviceUse

HOST_HEADER = "Advisor-Host"
COUNTER_HEADER = "Advisor-Counter"
SIGNATURE_HEADER = "Advisor-Signature"
SESSION_SECONDS = 3600
POLL_SECONDS = 25
MAX_LOG_CHARACTERS = 256 << 10

Code: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{16,64}$(?!\n)", examples=["d04M8cGGN9WemVKtjBURsw"])]
Base64: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9+/]{16,128}={0,2}$")]
Fence: TypeAlias = Annotated[int, Meta(ge=1)]
Text: TypeAlias = Annotated[str, Meta(max_length=200)]


def signed_text(authority: str, method: str, path: str, host: str, counter: int, body: bytes) -> bytes:
    """Return the text that a host signs for one call: the service (`host[:port]` of its URL), the call, the host, its
    counter, and the body's hash. So no signature is valid for another service, call, host or time."""
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join(("offload-advisor-agent-1", authority, method, path, host, str(counter), digest)).encode()


def enrolment_text(authority: str, code: str, public_key: str) -> bytes:
    """Return the text that a new host signs to prove that it has the private key."""
    code_digest = hashlib.sha256(code.encode()).hexdigest()
    return "\n".join(("offload-advisor-enrol-1", authority, code_digest, public_key)).encode()


def key_fingerprint(public_key: str) -> str:
    """Return the fingerprint that machine and owner compare before approval: 64 bits of the key's SHA-256,
    `ab12-cd34-…`."""
    digest = hashlib.sha256(public_key.encode()).hexdigest()
    return "-".join(digest[i : i + 4] for i in range(0, 16, 4))


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/agent/greeting`: a code, sent before anything else."""

    code: Code


class Greeted(msgspec.Struct, frozen=True, kw_only=True):
    """The code's owner and the service, for the person at the machine to confirm."""

    service: str
    owner: str
    visibility: Visibility
    expires_at: str


class NewHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/agent/hosts`: the code, the machine's public key, and `enrolment_text` signed with it (base64)."""

    code: Code
    public_key: Base64
    signature: Base64
    agent: Text


class EnrolledHost(msgspec.Struct, frozen=True, kw_only=True):
    """The new host's id and pseudonym; it waits until its owner approves it."""

    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]
    pseudonym: str
    state: Literal["waiting"]


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a signed call without arguments: `{}`."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/agent/sessions` (signed, empty object): a token for an hour."""

    token: str
    expires_in: int
    state: Literal["waiting", "active", "paused"]


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/agent/leases`: wait up to `wait` seconds for a run. 204 when there is none."""

    wait: Annotated[int, Meta(ge=0, le=POLL_SECONDS)] = POLL_SECONDS


class RunFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the model's files in the repo, as it must be before an engine opens it."""

    path: Annotated[str, Meta(pattern=r"^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._ +/-]{0,400}\.gguf$(?!\n)")]
    size: Annotated[int, Meta(ge=1)]
    sha256: Sha256

    @property
    def name(self) -> str:
        """The file's name without its folders in the repo."""
        return self.path.rpartition("/")[2]


class RunOutline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a run that is the same on every host. `depths`: tokens in the cache at which to measure.

    `n_prompt`, `n_gen`: tokens per repeat. `seconds`: limit on measuring, without loading.
    """

    engine: Engine
    repo: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}$")]
    revision: Annotated[str, Meta(pattern=r"^[0-9a-f]{40,64}$")]
    files: Annotated[tuple[RunFile, ...], Meta(min_length=1, max_length=256)]
    flags: RunFlags
    depths: Annotated[tuple[Annotated[int, Meta(ge=0, le=1 << 22)], ...], Meta(min_length=1, max_length=16)]
    n_prompt: Annotated[int, Meta(ge=1, le=1 << 16)]
    n_gen: Annotated[int, Meta(ge=1, le=4096)]
    seconds: Annotated[int, Meta(ge=10, le=3600)]


class RunDocument(RunOutline, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run as data, from which the agent writes the command; it runs nothing else.

    `engine_builds`: sha256 of this host's programs that know the flags, newest first. `gpus`: indices into the host's
    own list, in the order that the flags' CUDA0, CUDA1 … mean.
    """

    engine_builds: Annotated[tuple[Sha256, ...], Meta(min_length=1, max_length=32)]
    gpus: Annotated[tuple[Annotated[int, Meta(ge=0, lt=MAX_GPUS)], ...], Meta(max_length=MAX_GPUS)]


class LeasedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run leased to this host for `lease_seconds`, and longer while it renews. `fence` accompanies every write.

    `request`: the id of the request for it, for logs; agents send it as `X-Request-ID` in calls about the run.
    `asked_by`: the requesting account's name, for the host's policy; `is_owners`: it is the host owner's account.
    """

    run: str
    fence: int
    lease_seconds: float
    document: RunDocument
    request: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{8,64}$")] | None = None
    asked_by: Annotated[str, Meta(max_length=120)] | None = None
    is_owners: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/agent/runs/{id}/progress`: renews the lease, with new rows and the current step."""

    fence: Fence
    step: Literal["checking", "downloading", "loading", "measuring"]
    text: Text | None = None
    rows: Annotated[tuple[MeasuredRow, ...], Meta(max_length=200)] = ()


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is renewed, unless `stop`: the run was cancelled, or the host paused or revoked."""

    stop: bool
    why: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/agent/runs/{id}/report`: the end of a run, with rows, a failure, or both.

    `files_confirmed`: the content hash of every file was computed and matches the run. `gpu_seconds`: cards times
    seconds. `log`: reduced on the host. `devices`: memory and mean power as sampled.
    """

    fence: Fence
    rows: Annotated[tuple[MeasuredRow, ...], Meta(max_length=1000)] = ()
    failure: Failure | None = None
    engine_sha256: Sha256 | None = None
    engine_version: Text | None = None
    engine_commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    buffers: Annotated[tuple[LogBuffers, ...], Meta(max_length=64)] = ()
    graph_splits: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    devices: Annotated[tuple[DeviceUse, ...], Meta(max_length=MAX_GPUS)] = ()
    load_seconds: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    page_cache: Literal["cold", "warm", "unknown"] = "unknown"
    files_confirmed: bool = False
    gpu_seconds: Annotated[float, Meta(ge=0, le=1e7)] = 0
    log: Annotated[str, Meta(max_length=MAX_LOG_CHARACTERS)] = ""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The report is stored. `result`: the id of its result, if it made one; `again`: the run went back to the queue."""

    result: str | None
    again: bool
