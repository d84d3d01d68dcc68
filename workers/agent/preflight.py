"""Preflight: finds this machine's program, files and cards for a run, or says why it is not started."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from service.engine.measured.classify import Failure, FailureKind
from service.wire.measuring.agent import RunDocument, RunFile
from workers.agent.engines import program_sha256
from workers.agent.local import EngineProgram, LocalGpu, LocalModel, Machine
from workers.agent.models import header_sha256
from workers.agent.policy import Policy, allows_engine, allows_gpu


class Declined(Exception):
    """The run is not started here; `failure` is what to report."""

    def __init__(self, kind: FailureKind, text: str, *, transient: bool = False) -> None:
        super().__init__(text)
        self.failure = Failure(kind=kind, transient=transient, text=text[:500])


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure a run with. `models`: the shards in order."""

    program: EngineProgram
    models: tuple[LocalModel, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the paths of the shards."""
        return tuple(model.path for model in self.models)


def prepare(document: RunDocument, machine: Machine, policy: Policy) -> Prepared:
    """Return what to measure a run with, all of it checked again. Raises Declined.

    The program must still have its hash; each file must have the known name, size and header, and its content must be
    the document's if it has been hashed.
    """
    _require_threads(document, policy)
    program, models = _program(document, machine, policy), _models(document, machine)
    cards_of(document, machine.gpus, policy)
    return Prepared(program=program, models=models)


def _require_threads(document: RunDocument, policy: Policy) -> None:
    """Check the owner's limit of threads. An engine without a stated number uses all cores."""
    flags, most = document.flags, policy.max_threads
    wanted = max(flags.threads or 0, flags.threads_batch or 0) or os.cpu_count() or 1
    if most is not None and wanted > most:
        raise Declined("refused_by_policy", f"this host's policy allows {most} threads, the run needs {wanted}")


def are_confirmed(document: RunDocument, models: Iterable[LocalModel]) -> bool:
    """Return whether every file's content is known to be the document's."""
    known = {(model.file.name, model.file.sha256) for model in models}
    return all((file.name, file.sha256) in known for file in document.files)


def _program(document: RunDocument, machine: Machine, policy: Policy) -> EngineProgram:
    here = {program.build.sha256: program for program in machine.engines if program.build.engine == document.engine}
    found = next((here[sha256] for sha256 in document.engine_builds if sha256 in here), None)
    if found is None:
        raise Declined("engine_missing", f"this host has no build of {document.engine} that this run was made for")
    if not allows_engine(policy, found.build.sha256):
        raise Declined("refused_by_policy", f"this host's policy does not allow this build of {document.engine}")
    try:
        same = program_sha256(found.path) == found.build.sha256
    except OSError:
        same = False
    if not same:
        raise Declined("engine_missing", f"the program of {document.engine} has just changed", transient=True)
    return found


def cards_of(document: RunDocument, gpus: Sequence[LocalGpu], policy: Policy) -> list[LocalGpu]:
    """Return the run's cards in the order of CUDA0, CUDA1 … `gpus`: all of this machine's. Raises Declined."""
    here = {gpu.index: gpu for gpu in gpus}
    missing = [index for index in document.gpus if index not in here]
    if missing or len(set(document.gpus)) < len(document.gpus):
        raise Declined("refused_by_policy", f"this host has no GPUs {list(document.gpus)}: it has {sorted(here)}")
    cards = [here[index] for index in document.gpus]
    if len({gpu.backend for gpu in cards}) > 1:
        raise Declined("refused_by_policy", "GPUs of several kinds in one run are not measured here")
    denied = [gpu.index for gpu in cards if not allows_gpu(policy, gpu.index, gpu.uuid)]
    if denied:
        raise Declined("refused_by_policy", f"this host's policy does not allow GPU {denied[0]}")
    return cards


def _models(document: RunDocument, machine: Machine) -> tuple[LocalModel, ...]:
    """Return the shards, all from one folder, since an engine finds them by the name of the first."""
    folders = dict.fromkeys(model.path.parent for model in machine.models)
    complete = [found for folder in folders if (found := _in_folder(document.files, machine.models, folder))]
    if not complete:
        names = {file.name for file in document.files}
        others = names <= {model.file.name for model in machine.models}
        why = "; other files of that name are, with another size or content, or not in one folder" if others else ""
        raise Declined(
            "model_missing", f"{document.files[0].name} of {document.repo} is not in this host's folders{why}"
        )
    models = next((found for found in complete if are_confirmed(document, found)), complete[0])
    for model in models:
        if header_sha256(model.path, model.file.size) != model.file.header_sha256:
            raise Declined("model_missing", f"{model.file.name} has just changed", transient=True)
    return models


def _in_folder(files: Sequence[RunFile], models: Sequence[LocalModel], folder: Path) -> tuple[LocalModel, ...] | None:
    """Return the shards in one folder, None unless all are there and none is known to have other content."""
    here = {model.file.name: model for model in models if model.path.parent == folder}
    found = [here.get(file.name) for file in files]
    fitting = [
        model
        for model, file in zip(found, files, strict=True)
        if model is not None and model.file.size == file.size and model.file.sha256 in (None, file.sha256)
    ]
    return tuple(fitting) if len(fitting) == len(files) else None
