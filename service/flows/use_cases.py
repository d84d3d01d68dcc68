"""All use cases of one context, as the web calls them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from redis import asyncio as redis_async
from sqlalchemy import QueuePool

from service.engine.catalogue import known_cpus, known_gpus, resolve
from service.engine.hardware_text import parse_hardware, to_shorthand
from service.flows import accounts, advise, check, hosts, inspect, parts, runs, signed_calls, validate, validated
from service.flows.accounts import Caller
from service.flows.advise import ReadyAdvice, Requested
from service.flows.bot_cases import BotCases
from service.flows.context import Context
from service.flows.result_cases import ResultCases
from service.flows.signed_calls import SignedCall, SignedHost
from service.queue.listening import Listener
from service.queue.progress import PATTERNS, WAITING_RUNS, channel, validation_channel
from service.store import listings
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


class UseCases(ResultCases, BotCases):
    """What the web asks of the flows. Every method but `progress` blocks; all raise AdvisorError only."""

    def __init__(self, context: Context, listener: redis_async.Redis) -> None:
        super().__init__(context)
        self._listener = Listener(listener, *PATTERNS)

    def request_advice(self, request: AdviceRequest, admit_new_repo: Callable[[], None]) -> Requested:
        """See `service.flows.advise.request_advice`."""
        return advise.request_advice(self._context, request, admit_new_repo)

    def ready_advice(self, request: AdviceRequest) -> ReadyAdvice | None:
        """See `service.flows.advise.ready_advice`."""
        return advise.ready_advice(self._context, request)

    def read_advice(self, advice_id: str) -> Advice:
        """See `service.flows.advise.read_advice`."""
        return advise.read_advice(self._context, advice_id)

    def advice_progress(self, advice_id: str) -> AdviceEvent:
        """See `service.flows.advise.advice_progress`."""
        return advise.advice_progress(self._context, advice_id)

    def advice_version(self, advice_id: str) -> str | None:
        """See `service.flows.advise.advice_version`."""
        return advise.advice_version(self._context, advice_id)

    def known_repos(self, limit: int) -> list[str]:
        """See `service.store.listings.repos_like`."""
        return listings.repos_like(self._context.engine, "", limit)

    def validations_of_advice(self, advice_id: str) -> list[Validation]:
        """See `service.flows.validated.validations_of_advice`."""
        return validated.validations_of_advice(self._context, advice_id)

    def delete_advice(self, advice_id: str, key: str) -> None:
        """See `service.flows.advise.delete_advice`."""
        advise.delete_advice(self._context, advice_id, key)

    def inspect(
        self, repo: str, revision: str | None, variant: str | None, admit_new_repo: Callable[[], None]
    ) -> RepoView:
        """See `service.flows.inspect.inspect`."""
        return inspect.inspect(self._context, repo, revision, variant, admit_new_repo)

    def check(self, request: CheckRequest, admit_new_repo: Callable[[], None]) -> Checked:
        """See `service.flows.check.check_command`."""
        return check.check_command(self._context, request, admit_new_repo)

    def parse_hardware(self, text: str) -> ParsedHardware:
        """Return what a text is understood as. Raises UnknownHardware or InvalidHardware."""
        hardware = parse_hardware(text)
        return ParsedHardware(hardware, to_shorthand(hardware), list(resolve(hardware).assumed))

    def known_gpus(self) -> list[dict[str, Any]]:
        """Return the catalogue's GPUs."""
        return [msgspec.to_builtins(row) for row in known_gpus()]

    def known_cpus(self) -> list[dict[str, Any]]:
        """Return the catalogue's CPUs."""
        return [msgspec.to_builtins(row) for row in known_cpus()]

    def part(self, name: PartName) -> str:
        """See `service.flows.parts.part`."""
        return parts.part(self._context, name)

    def backlog(self) -> parts.Backlog:
        """See `service.flows.parts.backlog`."""
        return parts.backlog(self._context)

    def counts(self) -> bytes:
        """See `service.flows.parts.counts`."""
        return parts.counts(self._context)

    def send_counts(self) -> None:
        """See `service.flows.parts.send_counts`."""
        parts.send_counts(self._context.redis)

    def database_connections(self) -> tuple[int, int]:
        """Return how many connections of this process are used, and idle."""
        pool = self._context.engine.pool
        return (pool.checkedout(), pool.checkedin()) if isinstance(pool, QueuePool) else (0, 0)

    def progress(self, advice_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen to an advice: whatever workers publish about it, each a hint to read it again."""
        return self._listener.listen(channel(advice_id))

    def caller_of(self, bearer: str) -> Caller:
        """See `service.flows.accounts.caller_of`."""
        return accounts.caller_of(self._context.engine, bearer, self._context.clock())

    def create_enrolment(self, caller: Caller, asked: EnrolmentRequest, address: str) -> Enrolment:
        """See `service.flows.hosts.create_enrolment`."""
        return hosts.create_enrolment(self._context, caller, asked, address)

    def greet(self, code: str, address: str) -> Greeted:
        """See `service.flows.hosts.greet`."""
        return hosts.greet(self._context, code, address)

    def enrol(self, new: NewHost, authority: str) -> EnrolledHost:
        """See `service.flows.hosts.enrol`."""
        return hosts.enrol(self._context, new, authority)

    def open_session(self, call: SignedCall) -> Session:
        """See `service.flows.signed_calls.open_session`."""
        return signed_calls.open_session(self._context, call)

    def authenticate(self, call: SignedCall) -> SignedHost:
        """See `service.flows.signed_calls.authenticate`."""
        return signed_calls.authenticate(self._context, call)

    def save_probe(self, host: SignedHost, probe: Probe) -> None:
        """See `service.flows.hosts.save_probe`."""
        hosts.save_probe(self._context, host, probe)

    def leave(self, host: SignedHost) -> None:
        """See `service.flows.hosts.leave`."""
        hosts.leave(self._context, host)

    def list_hosts(self, caller: Caller | None) -> list[Host]:
        """See `service.flows.hosts.list_hosts`."""
        return hosts.list_hosts(self._context, caller)

    def read_host(self, host_id: str, caller: Caller | None) -> Host:
        """See `service.flows.hosts.read_host`."""
        return hosts.read_host(self._context, host_id, caller)

    def change_host(self, host_id: str, asked: HostChange, caller: Caller) -> Host:
        """See `service.flows.hosts.change_host`."""
        return hosts.change_host(self._context, host_id, asked, caller)

    def revoke_host(self, host_id: str, caller: Caller) -> None:
        """See `service.flows.hosts.revoke_host`."""
        hosts.revoke_host(self._context, host_id, caller)

    def lease(self, host: SignedHost) -> LeasedRun | None:
        """See `service.flows.runs.lease`."""
        return runs.lease(self._context, host)

    def next_run(self, host: SignedHost) -> LeasedRun | None:
        """See `service.flows.runs.next_run`."""
        return runs.next_run(self._context, host)

    def note_progress(self, host: SignedHost, run_id: str, said: Progress) -> Renewed:
        """See `service.flows.runs.note_progress`."""
        return runs.note_progress(self._context, host, run_id, said)

    def report(self, host: SignedHost, run_id: str, said: Report) -> Accepted:
        """See `service.flows.runs.report`."""
        return runs.report(self._context, host, run_id, said)

    def queued_runs(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen for runs that are queued, each message a hint to look."""
        return self._listener.listen(WAITING_RUNS)

    def request_validation(
        self, caller: Caller, advice_id: str, asked: ValidationRequest, idempotency_key: str | None
    ) -> validate.Requested:
        """See `service.flows.validate.request_validation`."""
        return validate.request_validation(self._context, caller, advice_id, asked, idempotency_key)

    def hosts_of_advice(self, caller: Caller | None, advice_id: str) -> list[ConfigHosts]:
        """See `service.flows.validate.hosts_of_advice`."""
        return validate.hosts_of_advice(self._context, caller, advice_id)

    def read_validation(self, validation_id: str) -> Validation:
        """See `service.flows.validated.read_validation`."""
        return validated.read_validation(self._context, validation_id)

    def cancel_validation(self, caller: Caller, validation_id: str) -> None:
        """See `service.flows.validated.cancel_validation`."""
        validated.cancel_validation(self._context, caller, validation_id)

    def validation_progress(self, validation_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Listen to a validation: whatever happens to its runs, each message a hint to read it again."""
        return self._listener.listen(validation_channel(validation_id))
