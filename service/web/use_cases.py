"""What the web asks of the flows. `create_app` takes anything of this shape; tests give it one of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from service.web.bot_cases import BotFlows
from service.web.result_cases import ResultFlows
from service.wire.advice import Advice, AdviceEvent, AdviceRequest
from service.wire.agent import (
    Accepted,
    EnrolledHost,
    Greeted,
    LeasedRun,
    NewHost,
    Progress,
    Renewed,
    Report,
    Session,
)
from service.wire.check import Checked, CheckRequest
from service.wire.hardware import ParsedHardware
from service.wire.health import PartName
from service.wire.hosts import Enrolment, EnrolmentRequest, Host, HostChange, Probe
from service.wire.repo import RepoView
from service.wire.runs import ConfigHosts, Validation, ValidationRequest

if TYPE_CHECKING:
    from service.flows.accounts import Caller
    from service.flows.advise import ReadyAdvice, Requested
    from service.flows.parts import Backlog
    from service.flows.signed_calls import SignedCall, SignedHost
    from service.flows.validate import Requested as RequestedValidation


class Flows(ResultFlows, BotFlows, Protocol):
    """The use cases. All but `progress` block, and are called in a thread; all raise AdvisorError only.

    `admit_new_repo` is called before work begins on a repo that was not read here yet, and may raise RateLimited.
    """

    def request_advice(self, request: AdviceRequest, admit_new_repo: Callable[[], None]) -> Requested:
        """Return a finished advice, or one that has been queued for this request."""
        ...

    def ready_advice(self, request: AdviceRequest) -> ReadyAdvice | None:
        """Return which finished advice answers this request, with its version."""
        ...

    def read_advice(self, advice_id: str) -> Advice:
        """Return the advice as it is now. Raises AdviceNotFound."""
        ...

    def advice_progress(self, advice_id: str) -> AdviceEvent:
        """Return how far an advice is. Raises AdviceNotFound."""
        ...

    def advice_version(self, advice_id: str) -> str | None:
        """Return what says whether `read_advice` returns the same again; None while it moves. Raises AdviceNotFound."""
        ...

    def known_repos(self, limit: int) -> list[str]:
        """Return the repos read here, the latest first."""
        ...

    def validations_of_advice(self, advice_id: str) -> list[Validation]:
        """Return the last validations of an advice, the oldest first."""
        ...

    def delete_advice(self, advice_id: str, key: str) -> None:
        """Delete an advice. Raises AdviceNotFound or WrongKey."""
        ...

    def inspect(
        self, repo: str, revision: str | None, variant: str | None, admit_new_repo: Callable[[], None]
    ) -> RepoView:
        """Return a repo's variants and the model of one of them, reading what was not read yet."""
        ...

    def check(self, request: CheckRequest, admit_new_repo: Callable[[], None]) -> Checked:
        """Return what is known of a command, reading the header of its variant if it was not read yet."""
        ...

    def parse_hardware(self, text: str) -> ParsedHardware:
        """Return what a text is understood as. Raises UnknownHardware or InvalidHardware."""
        ...

    def known_gpus(self) -> list[dict[str, Any]]:
        """Return the catalogue's GPUs."""
        ...

    def known_cpus(self) -> list[dict[str, Any]]:
        """Return the catalogue's CPUs."""
        ...

    def part(self, name: PartName) -> str:
        """Return what a part of the service says where it is good. Raises ServiceUnavailable, with what is wrong."""
        ...

    def backlog(self) -> Backlog:
        """Return what waits. Raises DatabaseUnavailable."""
        ...

    def counts(self) -> bytes:
        """Return what all processes counted, in Prometheus' format. Raises QueueUnavailable."""
        ...

    def send_counts(self) -> None:
        """Add what this process counted to what all did. Raises QueueUnavailable."""
        ...

    def database_connections(self) -> tuple[int, int]:
        """Return how many connections to the database are used, and idle."""
        ...

    def progress(self, advice_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen to an advice for the length of a block: whatever workers publish, each a hint to read it again."""
        ...

    def caller_of(self, bearer: str) -> Caller:
        """Return whose token this is. Raises NotAuthenticated."""
        ...

    def create_enrolment(self, caller: Caller, asked: EnrolmentRequest, address: str) -> Enrolment:
        """Return a new code for one machine of the caller's."""
        ...

    def greet(self, code: str, address: str) -> Greeted:
        """Return whose code this is. Raises EnrolmentCodeUnknown."""
        ...

    def enrol(self, new: NewHost, authority: str) -> EnrolledHost:
        """Make a host of a machine. Raises NotAuthenticated, EnrolmentCodeUnknown or HostExists."""
        ...

    def open_session(self, call: SignedCall) -> Session:
        """Return a session for the host that signed `call`. Raises NotAuthenticated and its like."""
        ...

    def authenticate(self, call: SignedCall) -> SignedHost:
        """Return the host that made `call`. Raises NotAuthenticated, HostNotActive or CounterTooSmall."""
        ...

    def save_probe(self, host: SignedHost, probe: Probe) -> None:
        """Keep what a host says of itself. Raises InvalidInput."""
        ...

    def leave(self, host: SignedHost) -> None:
        """Revoke a host by its own wish."""
        ...

    def list_hosts(self, caller: Caller | None) -> list[Host]:
        """Return the public hosts, and the caller's own."""
        ...

    def read_host(self, host_id: str, caller: Caller | None) -> Host:
        """Return one host that the caller may see. Raises HostNotFound."""
        ...

    def change_host(self, host_id: str, asked: HostChange, caller: Caller) -> Host:
        """Change one's own host. Raises HostNotFound, HostNotActive or NotAllowed."""
        ...

    def revoke_host(self, host_id: str, caller: Caller) -> None:
        """End a host for good. Raises HostNotFound or NotAllowed."""
        ...

    def lease(self, host: SignedHost) -> LeasedRun | None:
        """Return the next run for a host."""
        ...

    def next_run(self, host: SignedHost) -> LeasedRun | None:
        """Return the next run for a host that waits."""
        ...

    def note_progress(self, host: SignedHost, run_id: str, said: Progress) -> Renewed:
        """Lengthen a lease. Raises RunNotFound, LeaseLost or InvalidInput."""
        ...

    def report(self, host: SignedHost, run_id: str, said: Report) -> Accepted:
        """End a run. Raises RunNotFound, LeaseLost or InvalidInput."""
        ...

    def queued_runs(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen for runs that are queued, each message a hint to look."""
        ...

    def request_validation(
        self, caller: Caller, advice_id: str, asked: ValidationRequest, idempotency_key: str | None
    ) -> RequestedValidation:
        """Return a new validation, or the one of this key. Raises NoHost, TooManyValidations and their like."""
        ...

    def hosts_of_advice(self, caller: Caller | None, advice_id: str) -> list[ConfigHosts]:
        """Return which hosts could measure each config, and what others lack. Raises AdviceNotFound or InvalidInput."""
        ...

    def read_validation(self, validation_id: str) -> Validation:
        """Return a validation as it is now. Raises ValidationNotFound."""
        ...

    def cancel_validation(self, caller: Caller, validation_id: str) -> None:
        """End a validation. Raises ValidationNotFound or NotAllowed."""
        ...

    def validation_progress(self, validation_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen to a validation for the length of a block, each message a hint to read it again."""
        ...
