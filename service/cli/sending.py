"""Sends results to a service's database: shown first, sent once the user agrees, and only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from service.cli.remote import Service
from service.engine.commands.reader import BenchTests
from service.engine.commands.render import launch
from service.engine.commands.shell import quote
from service.engine.errors import InvalidInput
from service.engine.run_flags import to_flags
from service.wire.plain_text import as_text, clean
from service.wire.results.submission_text import preview_lines
from service.wire.results.submissions import ON_DISK, Preview, SavedResult, SavedResults, Submission, Submitted


def previewed(service: Service, sent: Submission) -> Preview:
    """Return how the service understands a submission. Raises ServiceRefused, Unreachable."""
    return service.post("/v1/results/preview", sent, Preview)


def offer(
    service: Service, several: Sequence[Submission], previews: Sequence[Preview], agreed: Callable[[str], bool]
) -> list[Submitted]:
    """Show everything that would be sent, and send it if `agreed` accepts the question; return what was stored.

    Raises InvalidInput, naming the first missing thing, ServiceRefused, Unreachable.
    """
    for preview in previews:
        print(as_text(preview_lines(preview)), end="")
        if preview.missing:
            raise InvalidInput(f"this is missing: {preview.missing[0].text}", field=preview.missing[0].field)
    what = "this" if len(several) == 1 else f"these {len(several)} results"
    if not several or not agreed(f"send {what} to the database at {service.address}?"):
        return []
    kept = [service.post_once("/v1/results", one, Submitted) for one in several]
    for one in kept:
        print(_told(one))
    return kept


def _told(kept: Submitted) -> str:
    lines = [f"{'kept' if kept.is_new else 'it was there already'}: {clean(kept.url or kept.id)}"]
    if kept.state == "quarantined":
        lines.append(f"kept apart: {clean(kept.state_reason or '')}")
    if kept.edit_key:
        page = f"{clean(kept.url)}#key={clean(kept.edit_key)}" if kept.url else clean(kept.edit_key)
        lines.append(f"to correct or delete it, keep this address with its key, which is shown once: {page}")
    return "\n".join(lines)


def submissions_of(kept: SavedResults, repo: str | None = None) -> list[Submission]:
    """Return this machine's measurements as submissions, without failures.

    `repo`: of files on this disk whose origin is unknown. Raises InvalidInput if it is needed.
    """
    measured = [one for one in kept.results if one.report.rows]
    if repo is None and any(one.model.repo == ON_DISK for one in measured):
        what = "it was measured from files on this disk: name the repo that they are from, as OWNER/NAME:VARIANT"
        raise InvalidInput(what, field="--model")
    return [_submission(one, kept, repo) for one in measured]


def _submission(one: SavedResult, kept: SavedResults, repo: str | None) -> Submission:
    document, report = one.document, one.report
    tests = BenchTests((document.n_prompt,), (document.n_gen,), (), document.depths)
    path, flags = document.files[0].name, to_flags(document.flags)
    run = launch(document.engine, "bench", flags, model_path=path, tests=tests)
    words = [*run.prefix, run.program, *run.arguments]
    n_gpus = sum(gpu.count for gpu in kept.hardware.gpus)
    env = dict(run.env)
    if 0 < len(document.gpus) < n_gpus:
        env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, document.gpus))}
    command = " ".join([*(f"{name}={value}" for name, value in env.items()), *map(quote, words)])
    return Submission(
        command=command,
        rows=list(report.rows),
        hardware=kept.hardware,
        repo=repo or f"{one.model.repo}:{one.model.variant}",
        revision=None if repo else one.model.revision,
        engine=document.engine,
        build=report.engine_commit,
        measured_on=one.measured_at[:10],
    )


def saved_results(text: str) -> SavedResults | None:
    """Return what `advisor validate --here` saved, None for any other text. Raises InvalidInput if it is damaged."""
    if '"offload-advisor-results-1"' not in text[:200]:
        return None
    try:
        return msgspec.json.decode(text, type=SavedResults)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"it begins like a file of kept results but is not one: {error}", field="FILE") from error
