"""Finds the files of a config: as the repo lists them, or on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from service.engine.commands.parse import parse
from service.engine.measured.chosen import Measurement
from service.hub.variants import shard_names
from service.wire.advice.advice import Advice
from service.wire.advice.repo import RepoView
from service.wire.measuring.agent import RunFile
from service.wire.results.results import ResultModel
from service.wire.results.submissions import ON_DISK
from workers.agent.local import LocalModel
from workers.agent.models import Hashes, content_sha256
from workers.agent.preflight import Declined

FilesOf: TypeAlias = Callable[[Measurement], ResultModel]


def repo_files(advice: Advice, repo: RepoView) -> FilesOf:
    """Return a function that finds a config's files in the repo's listing, with the hashes stated there."""

    def files(one: Measurement) -> ResultModel:
        variant = next((v for v in repo.variants if v.name == one.variant), None)
        found = variant.files if variant else []
        if not found or any(file.n_bytes is None or file.sha256 is None for file in found):
            raise Declined("model_missing", f"{repo.repo} does not state size and hash of {one.variant}'s files")
        made = tuple(RunFile(path=f.path, size=f.n_bytes or 0, sha256=f.sha256 or "") for f in found)
        return ResultModel(repo=advice.repo, revision=advice.revision or "", variant=one.variant, files=made)

    return files


def local_files(advice: Advice, models: Sequence[LocalModel]) -> FilesOf:
    """Return a function that finds a config's files by the name in its command, among models already hashed."""

    def files(one: Measurement) -> ResultModel:
        found = shards(advice, one, models)
        made = tuple(RunFile(path=m.file.name, size=m.file.size, sha256=m.file.sha256 or "") for m in found)
        revision = advice.revision or made[0].sha256
        repo = advice.repo if advice.revision else ON_DISK
        return ResultModel(repo=repo, revision=revision, variant=one.variant, files=made)

    return files


def hash_files(models: Sequence[LocalModel], hashes: Hashes, say: Callable[[str], None]) -> None:
    """Compute and store the content hash of files that have none. Raises Declined."""
    for model in models:
        known = hashes.get(model.path, model.path.stat())
        if known is not None and known.content is not None:
            continue
        say(f"reading {model.file.name} ({model.file.size / 2**30:,.1f} GiB) once, to know it by its content")
        content = content_sha256(model.path)
        if content is None or known is None:
            raise Declined("model_missing", f"{model.file.name} cannot be read, or changed meanwhile", transient=True)
        hashes.put(model.path, msgspec.structs.replace(known, content=content))
        hashes.save()


def model_path(advice: Advice, one: Measurement) -> Path:
    """Return the path of the first file in a config's command. Raises Declined if it names none."""
    config = next((config for config in advice.configs if config.id == one.config), None)
    named = parse(config.commands.bench, config.engine).model_path if config else None
    if named is None:
        raise Declined("model_missing", "the advice's command names no file")
    return Path(named)


def shards(advice: Advice, one: Measurement, models: Sequence[LocalModel]) -> list[LocalModel]:
    """Return a config's files in order, all from one folder. Raises Declined if one is missing."""
    first = model_path(advice, one).name
    names = shard_names(first, most=99_999)
    folders = dict.fromkeys(model.path.parent for model in models if model.file.name == first)
    for folder in folders:
        here = {model.file.name: model for model in models if model.path.parent == folder}
        if all(name in here for name in names):
            return [here[name] for name in names]
    raise Declined("model_missing", f"{first} is not in the folders here: name them with --models")
