"""Trust: which results are refused, which are quarantined, and each one's tier (docs/trust.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection

from service.engine.advice import SpeedPoint
from service.engine.builds import date_of_today, resolve_build
from service.engine.catalogue import resolve
from service.engine.config import Engine as EngineName
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.hardware import Hardware
from service.engine.measured.doubts import doubt_of, elsewhere, same_figures, too_fast
from service.engine.measured.identity import match_kind
from service.engine.measured.nearby import Place, agree, outlier
from service.engine.measured.roofline import require_possible
from service.engine.measured.summary import measured_speed
from service.flows.context import Records
from service.store.results import results
from service.store.results import trust as store
from service.store.results.board import FLOORS
from service.store.results.results import OPERATOR, StoredResult
from service.store.results.trust import Witness
from service.wire.measuring.runs import TrustTier

OLD_ENOUGH = timedelta(days=14)
"""The age an account needs before its measurements replicate anything, unless an operator vouches for it."""
BUILDS_APART = 60
"""Days: engines change what they do in less than a year; within two months few changes touch one config."""
NEW_HOST = "our agent ran it on a new host: it counts as agent-run once a replicated result has confirmed it"
NOTHING_BOUNDS = "the model's header could not be read, so its highest possible speed is unknown"
_MOST_PASSES = 3
OUTLIER = "far from the others of its cell: "
_WAITING = timedelta(days=60)


def judged(context: Records, row: StoredResult) -> StoredResult:
    """Return a new result with its tier, quarantined with the reason if there is a doubt.

    Raises InvalidInput for the impossible: faster than its rig's memory and arithmetic allow, or of no machine.
    """
    doubt = None
    if row.failure is None:
        if row.origin == "submitted" and not row.hardware.gpus and not (row.hardware.cpu and row.hardware.cpu.model):
            raise InvalidInput("it names neither a GPU nor a CPU", field="hardware")
        if row.prediction is not None and row.prediction.most_tg > 0:
            require_possible(row.rows, row.prediction.most_tg, row.prediction.most_pp)
        doubt = _doubt(context, row)
    with context.engine.connect() as connection:
        tier, reason = _tier(connection, row)
    state = row.state if doubt is None else "quarantined"
    return msgspec.structs.replace(row, tier=tier, state=state, state_reason=doubt or reason or row.state_reason)


def judge_again(context: Records, row: StoredResult) -> None:
    """Judge a stored result as if it had just arrived, whatever was decided before."""
    new = judged(context, msgspec.structs.replace(row, state="shown", state_reason=None))
    with store.writing(context.engine) as connection:
        if results.state_in(connection, row.id) == row.state:  # nobody has deleted or hidden it meanwhile
            results.change(connection, row.id, state=new.state, state_reason=new.state_reason, tier=new.tier)
            settle_in(connection, row.cell, context.clock())


def _doubt(context: Records, row: StoredResult) -> str | None:
    away = elsewhere(row.command or "", [buffers.device for buffers in row.seen.buffers])
    if away is not None or row.origin == "published":
        return away or doubt_of(row.rows)
    if row.prediction is None or row.prediction.most_tg <= 0:
        return NOTHING_BOUNDS
    speed = row.prediction.speed
    fast = too_fast(row.rows, speed) if row.prediction.own_rig else None
    return doubt_of(row.rows, speed) or fast or _print_of_another(context, row)


def _print_of_another(context: Records, row: StoredResult) -> str | None:
    """Return a doubt if a stored result has the same figures: two measurements are never identical by chance."""
    known = store.same_model(context.engine, row.model_slug, row.engine, row.rows_key)
    for other, rows in known.items():
        if other != row.id and same_figures(row.rows, rows):
            return f"the same figures as result {other}: a measurement counts only once"
    return None


def settle_in(connection: Connection, cell: str | None, now: datetime) -> None:
    """Decide anew what a cell's results say of each other: which are replicated, which hosts that proves, which are
    outliers. Idempotent. `cell` None, for a result in no cell, does nothing.

    Part of the transaction (`store.trust.writing`) that adds or changes a result, so that no crash separates them.
    """
    if cell is None:
        return
    for _ in range(_MOST_PASSES):  # outliers depend on the others' tiers, which change in the same pass
        found = store.of_cell(connection, cell)
        changed = False
        verdict = _verdict(found, now)
        touched = store.set_proofs(connection, cell, sorted(verdict.proven), found)
        for one in sorted(found, key=lambda w: w.id):
            changes = _changes(connection, one, verdict)
            if changes:
                results.change(connection, one.id, **changes)
                changed = True
        for host in sorted(touched):
            _retier(connection, host)
        if not changed:
            return


def settle(context: Records, cell: str | None) -> None:
    """Call `settle_in` in a transaction of its own."""
    with store.writing(context.engine) as connection:
        settle_in(connection, cell, context.clock())


def sweep(context: Records) -> int:
    """Settle cells whose owners may have become old enough; return how many."""
    cells = store.cells_that_wait(context.engine, context.clock() - _WAITING)
    for cell in cells:
        settle(context, cell)
    return len(cells)


def settle_account(context: Records, account_id: str) -> None:
    """Decide anew everything an account takes part in, after its standing has changed."""
    for cell in store.cells_of_account(context.engine, account_id):
        settle(context, cell)
    with store.writing(context.engine) as connection:
        for host in store.hosts_of_account(connection, account_id):
            _retier(connection, host)


class _Verdict(NamedTuple):
    """Ids of replicated results, ids of hosts proven by them, and the reasons of outliers by result id."""

    replicated: set[str]
    proven: set[str]
    outliers: dict[str, str]


class _Measured(NamedTuple):
    witness: Witness
    speed: list[SpeedPoint]
    built: date
    established: bool


def _verdict(found: Sequence[Witness], now: datetime) -> _Verdict:
    verdict = _Verdict(set(), set(), {})
    for machines in _by_rig(found):
        them = [
            _Measured(w, measured_speed(w.rows), built_on(w.engine, w.build, w.measured_at), _established(w, now))
            for w in machines
        ]
        verdict.outliers.update(_outliers(them))
        _replications([m for m in them if _counts(m.witness, verdict.outliers)], verdict)
    return verdict


def _by_rig(found: Sequence[Witness]) -> list[list[Witness]]:
    """Group results by machine: same GPUs, CPU and RAM. One that does not state its CPU matches no other."""
    machines: list[tuple[Hardware, Any, list[Witness]]] = []
    known: dict[str | None, list[Witness]] = {}
    for one in found:
        if one.hardware_key is not None and one.hardware_key in known:
            known[one.hardware_key].append(one)
            continue
        try:
            rig = resolve(one.hardware)
        except AdvisorError:
            continue
        alike = (them for machine, other, them in machines if match_kind(machine, other, one.hardware, rig) == "exact")
        group = next(alike, None)
        if group is None:
            group = []
            machines.append((one.hardware, rig, group))
        group.append(one)
        if rig.cpu_model is not None:
            known[one.hardware_key] = group
    return [them for _, _, them in machines]


def built_on(engine: EngineName, build: str | None, measured_at: datetime) -> date:
    """Return the date of the engine's build if known, else that of the measurement."""
    try:
        known = resolve_build(engine, build) if build else None
    except InvalidInput:
        known = None
    if known is None or known.newer:
        return measured_at.date()
    return date.fromisoformat(known.date or date_of_today(engine))


def _established(one: Witness, now: datetime) -> bool:
    return one.owner_since is not None and (one.owner_trusted_at is not None or one.owner_since <= now - OLD_ENOUGH)


def _place(one: Witness) -> Place:
    return "gpu" if one.hardware.gpus and (one.flags is None or one.flags.n_gpu_layers > 0) else "cpu"


def _counts(one: Witness, outliers: Mapping[str, str]) -> bool:
    """Whether a result may confirm another: shown, or quarantined only as an outlier that it no longer is."""
    lifted = one.state == "quarantined" and (one.state_reason or "").startswith(OUTLIER)
    return one.id not in outliers and (one.state == "shown" or lifted)


def _outliers(them: Sequence[_Measured]) -> Iterator[tuple[str, str]]:
    """Yield outliers: results that differ from every other owner's newest result of the same or a higher tier.

    Agents' results are compared only with agents', because accounts and pastes cost nothing.
    """
    standing = [m for m in them if m.witness.state == "shown" or (m.witness.state_reason or "").startswith(OUTLIER)]
    for one in standing:
        others = {
            m.witness.account_id: m.speed
            for m in standing
            if m.witness.account_id != one.witness.account_id
            and FLOORS[m.witness.tier] >= FLOORS[one.witness.tier]
            and (m.witness.origin == "agent" or one.witness.origin != "agent")
            and _near_builds(m, one)
        }
        why = outlier(one.speed, list(others.values()), _place(one.witness))
        if why is not None:
            yield one.witness.id, OUTLIER + why


def _near_builds(one: _Measured, other: _Measured) -> bool:
    return abs((one.built - other.built).days) <= BUILDS_APART


def _replications(them: Sequence[_Measured], verdict: _Verdict) -> None:
    """Add replicated results and proven hosts to `verdict`.

    Agreeing agents on hosts of two established owners replicate each other. A host is proven by agreeing with a result
    that two other owners have replicated.
    """
    agents = [m for m in them if m.witness.origin == "agent" and m.witness.host_id and m.witness.account_id]
    near: dict[str, list[_Measured]] = {m.witness.id: [] for m in agents}
    for one, other in combinations(agents, 2):
        strangers = one.witness.host_id != other.witness.host_id and one.witness.account_id != other.witness.account_id
        if strangers and _near_builds(one, other) and agree(one.speed, other.speed, _place(one.witness)):
            near[one.witness.id].append(other)
            near[other.witness.id].append(one)
    for one in agents:
        sound = [other for other in near[one.witness.id] if other.established]
        if one.established and sound:
            verdict.replicated.add(one.witness.id)
        if any(_replicated_without(other, one, near) for other in sound):
            verdict.proven.add(one.witness.host_id or "")


def _replicated_without(one: _Measured, other: _Measured, near: Mapping[str, Sequence[_Measured]]) -> bool:
    owner = other.witness.account_id
    return any(third.established and third.witness.account_id != owner for third in near[one.witness.id])


def _changes(connection: Connection, one: Witness, verdict: _Verdict) -> dict[str, object]:
    """Return the fields of a result that must change. An operator's decision stands."""
    tier, reason = ("replicated", None) if one.id in verdict.replicated else _tier(connection, one)
    wanted: dict[str, object] = {"tier": tier}
    by_rule = one.state == "shown" or (one.state_reason or "").startswith(OUTLIER)
    if by_rule and not (one.state_reason or "").startswith(OPERATOR):
        why = verdict.outliers.get(one.id)
        wanted |= {"state": "quarantined", "state_reason": why} if why else {"state": "shown", "state_reason": reason}
    return {name: value for name, value in wanted.items() if getattr(one, name) != value}


def _tier(connection: Connection, one: StoredResult | Witness) -> tuple[TrustTier, str | None]:
    """Return the tier of a result that nothing replicates, and the reason if it is below an agent's."""
    if one.origin != "agent" or one.host_id is None:
        return "self-reported", None
    if store.counts_as_agent(connection, one.host_id):
        return "agent-run", None
    return "self-reported", NEW_HOST


def _retier(connection: Connection, host: str) -> None:
    """Update the tier of a host's results in all cells to its current standing; replicated ones keep theirs."""
    good = store.counts_as_agent(connection, host)
    tiers: tuple[TrustTier, TrustTier] = ("self-reported", "agent-run")
    before, after = tiers if good else tiers[::-1]
    for one, state_reason in store.agent_results(connection, host, before):
        changes: dict[str, object] = {"tier": after}
        if state_reason in (None, NEW_HOST):
            changes["state_reason"] = None if good else NEW_HOST
        results.change(connection, one, **changes)
