"""Downloads a config's files from the Hub with the agent's own code, which resumes and verifies hashes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.inputs import cache_folder
from service.cli.local_files import repo_files
from service.cli.progress import Progress
from service.engine.config import CPU
from service.engine.errors import InvalidInput
from service.engine.measured.chosen import chosen
from service.flows.advice.opening import opened
from service.flows.advice.repo_view import inspect_directly
from service.structs import made_from
from service.wire.measuring.agent import RunDocument, RunFile
from workers.agent.download import PART, download
from workers.agent.policy import DownloadPolicy, Policy
from workers.agent.preflight import Declined
from workers.agent.state import State
from workers.agent.usage import UsageOfDay

if TYPE_CHECKING:
    from service.cli.replanning import UpRequest
    from service.engine.advice import AdvisedConfig
    from service.wire.advice.advice import Advice

_MOST_GIB = 1 << 20
_LOOKED_SECONDS = 1.0


def fetch(
    asked: UpRequest, advice: Advice, config: AdvisedConfig, projector: str | None, say: Callable[[str], None]
) -> tuple[Path, Path | None]:
    """Return the first file of a config's variant, and its projector, downloading into the folder what is missing.

    `projector`: the name of its file, if the config loads one.

    Raises InvalidInput if the repo does not provide the files, or the disk lacks room for them.
    """
    if advice.goal is None or advice.revision is None:
        raise InvalidInput(f"{asked.repo} names no files on the Hub", field="WHAT")
    one = chosen(advice.configs, advice.goal, None, None, [config.id], baseline=False).measurements[0]
    view = inspect_directly(asked.settings, advice.repo, advice.revision)
    try:
        files = repo_files(advice, view)(one)
        with_images = (*files.files, _projector(asked, advice, projector)) if projector else files.files
        cards = tuple(range(sum(device.device != CPU for device in one.devices)))
        document = made_from(
            RunDocument, one, engine_builds=("0" * 64,), seconds=60, gpus=cards,
            repo=files.repo, revision=files.revision, files=with_images,
        )  # fmt: skip
        policy = Policy(
            downloads=DownloadPolicy(repos=(files.repo,), max_gib=_MOST_GIB, folder=str(asked.folder.absolute()))
        )
        state = State(cache_folder(os.environ) / "fetched")
        state.make()
        with Progress() as progress:
            shown = _Shown(progress, asked.folder, sum(file.size for file in with_images))
            paths = download(document, policy, shown.look, UsageOfDay(state), asked.settings.hf_endpoint)
    except Declined as refused:
        raise InvalidInput(refused.failure.text, field="WHAT") from refused
    say(f"fetched: {', '.join(path.name for path in paths)}, each with the hash that the repo states")
    return paths[0], paths[-1] if projector else None


def _projector(asked: UpRequest, advice: Advice, name: str) -> RunFile:
    with opened(asked.settings, advice.repo, advice.revision) as (_, listing, _):
        there = [one for one in listing.other_files if one.kind == "mmproj" and Path(one.path).name == name]
    found = min(there, key=lambda one: one.path.count("/"), default=None)
    if found is None or found.n_bytes is None or found.sha256 is None:
        raise Declined("model_missing", f"{advice.repo} does not state size and hash of {name}")
    return RunFile(path=found.path, size=found.n_bytes, sha256=found.sha256)


class _Shown:
    """Shows a download's progress, when called between blocks; never ends it."""

    def __init__(self, progress: Progress, folder: Path, n_bytes: int) -> None:
        self._progress, self._folder, self._bytes, self._next = progress, folder, n_bytes, 0.0

    def look(self) -> str | None:
        """Return None, as only Ctrl-C ends a download; what has arrived stays."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOOKED_SECONDS
            here = sum(path.stat().st_size for path in self._folder.rglob(f"*.gguf{PART}"))
            self._progress.show(here / max(self._bytes, 1), "fetching, and comparing hashes")
        return None
