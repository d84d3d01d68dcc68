"""Renders advices as a file for another program, with a name for each model, and which fit side by side."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.advice import AdvisedConfig
from service.engine.catalogue import resolve
from service.engine.commands.config_files import config_file
from service.engine.config import FileFormat
from service.engine.errors import InvalidFlags, InvalidInput
from service.engine.side_by_side import SideBySide, served, side_by_side
from service.wire.advice.advice import Advice

FILE_NAMES: dict[FileFormat, str] = {
    "llama-swap": "llama-swap.yaml",
    "preset": "models.ini",
    "compose": "compose.yaml",
    "env": "llama.env",
    "systemd": "llama-server.service",
}


def named_configs(advices: Sequence[Advice], rank: int = 1) -> dict[str, AdvisedConfig]:
    """Return a config of each advice by the name that a server's clients use for it: repo without owner, and variant.

    `rank`: of the first advice's config; the others contribute their first. Raises InvalidInput if an advice has none,
    or two would share a name.
    """
    found: dict[str, AdvisedConfig] = {}
    for i, advice in enumerate(advices):
        wanted = rank if i == 0 else 1
        config = next((one for one in advice.configs if one.rank == wanted), None)
        if config is None:
            raise InvalidInput(f"the advice for {advice.repo} has no config #{wanted}", field="config")
        name = _name(advice.repo, config.variant)
        if name in found:
            raise InvalidInput(f"{name} is there twice: each model once", field="with")
        found[name] = config
    return found


def together(advices: Sequence[Advice]) -> SideBySide:
    """Return which of the advices' first configs fit in memory at once. Raises InvalidInput for different hardware."""
    if any(advice.hardware != advices[0].hardware for advice in advices):
        raise InvalidInput("these advices are for different hardware", field="with")
    return side_by_side(named_configs(advices), resolve(advices[0].hardware))


def advised_file(form: FileFormat, advices: Sequence[Advice], rank: int = 1) -> str:
    """Return a file that serves one config of each advice, ending in a newline.

    Raises InvalidInput as `named_configs`, and if the format cannot hold them.
    """
    models = [served(name, config) for name, config in named_configs(advices, rank).items()]
    sets = together(advices).together if len(advices) > 1 and rank == 1 else []
    return config_file(form, models, sets)


def files_of(advice: Advice) -> list[tuple[str, FileFormat]]:
    """Return the formats that can hold an advice's first config, each with its readable title."""
    return [(title, form) for form, title in _TITLES.items() if advice.configs and _holds(form, advice)]


_TITLES: dict[FileFormat, str] = {
    "llama-swap": "llama-swap", "preset": "llama-server presets", "compose": "Docker Compose",
    "env": "environment variables", "systemd": "systemd",
}  # fmt: skip


def _holds(form: FileFormat, advice: Advice) -> bool:
    try:
        return bool(advised_file(form, [advice]).strip())
    except InvalidFlags:
        return False


def _name(repo: str, variant: str) -> str:
    name = repo.rstrip("/").rpartition("/")[2].removesuffix(".gguf").removesuffix("-GGUF")
    return name if variant.lower() in name.lower() else f"{name}-{variant}"
