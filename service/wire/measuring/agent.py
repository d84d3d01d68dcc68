"""The protocol between this service and the agent on a GPU host: `/v1/agent/*`. The agent always calls.

Every call but the two of enrolment is signed with the host's Ed25519 key, over the text of `signed_text`, with a
counter that only grows; all but `POST /v1/agent/sessions` also carry the session's token.
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

Code: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{16,64}$")]
Base64: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9+/]{16,128}={0,2}$")]
Fence: TypeAlias = Annotated[int, Meta(ge=1)]
Text: TypeAlias = Annotated[str, Meta(max_length=200)]


def signed_text(authority: str, method: str, path: str, host: str, counter: int, body: bytes) -> bytes:
    """Return what a host signs for one call: which service (`host[:port]` of its URL), what, who, its number, with
    which body. No signature can be used for another service, call, host or time."""
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join(("offload-advisor-agent-1", authority, method, path, host, str(counter), digest)).encode()


def enrolment_text(authority: str, code: str, public_key: str) -> bytes:
    """Return what a new host signs to show that it has the key it sends."""
    code_digest = hashlib.sha256(code.encode()).hexdigest()
    return "\n".join(("offload-advisor-enrol-1", authority, code_digest, public_key)).encode()


def key_fingerprint(public_key: str) -> str:
    """Return what machine and owner compare before he approves it: 64 bits of the key's SHA-256, `ab12-cd34-…`."""
    digest = hashlib.sha256(public_key.encode()).hexdigest()
    return "-".join(digest[i : i + 4] for i in range(0, 16, 4))


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /v1/agent/greeting`: a code, before anything else is sent."""

    code: Code


class Greeted(msgspec.Struct, frozen=True, kw_only=True):
    """Whose code this is, and what service this is, for the person at the machine to confirm."""

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
    """The body of a signed call that says nothing more: `{}`."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/agent/sessions` (signed, empty object): a token for an hour."""

    token: str
    expires_in: int
    state: Literal["waiting", "active", "paused"]


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/agent/leases`: wait up to `wait` seconds for a run. 204 when there is none."""

    wait: Annotated[int, Meta(ge=0, le=POLL_SECONDS)] = POLL_SECONDS


class RunFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the model, in the repo: what it must be before an engine opens it."""

    path: Annotated[str, Meta(pattern=r"^(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._ +/-]{0,400}\.gguf$(?!\n)")]
    size: Annotated[int, Meta(ge=1)]
    sha256: Sha256

    @property
    def name(self) -> str:
        """The file's name, without the folders that it has in the repo."""
        return self.path.rpartition("/")[2]


class RunOutline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a run is the same on every host. `depths`: tokens in the cache at which to measure.

    `n_prompt`, `n_gen`: of one repeat. `seconds`: of measuring, loading not counted.
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
    """One run as data: the agent writes the command from it, and runs nothing that it does not say.

    `engine_builds`: sha256 of the programs on this host that know the flags, the newest first. `gpus`: indices into the
    host's own list, in the order that CUDA0, CUDA1 … of the flags mean.
    """

    engine_builds: Annotated[tuple[Sha256, ...], Meta(min_length=1, max_length=32)]
    gpus: Annotated[tuple[Annotated[int, Meta(ge=0, lt=MAX_GPUS)], ...], Meta(max_length=MAX_GPUS)]


class LeasedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is this host's for `lease_seconds`, and longer while it renews. `fence` goes with every write.

    `request`: the id of the request that asked for it, for logs; agents send it as `X-Request-ID` with calls about it.
    `asked_by`: the name of the account that asked, for the host's policy; `is_owners`: it is that of the host's owner.
    """

    run: str
    fence: int
    lease_seconds: float
    document: RunDocument
    request: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{8,64}$")] | None = None
    asked_by: Annotated[str, Meta(max_length=120)] | None = None
    is_owners: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/agent/runs/{id}/progress`: renews the lease; rows that are new, and the step. Answered by `Renewed`."""

    fence: Fence
    step: Literal["checking", "downloading", "loading", "measuring"]
    text: Text | None = None
    rows: Annotated[tuple[MeasuredRow, ...], Meta(max_length=200)] = ()


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is renewed; `stop`: the run was cancelled, or the host paused or revoked."""

    stop: bool
    why: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/agent/runs/{id}/report`: the end of a run. Rows or a failure, one must be there.

    `files_confirmed`: the content hash of every file was computed and is the run's. `gpu_seconds`: cards times seconds.
    `log`: reduced on the host. `power`, `temperature` are samples' means.
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
    """The report is stored. `result`: its id, where it made one; `again`: the run went back to the queue."""

    result: str | None
    again: bool
