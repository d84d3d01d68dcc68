"""Checks without a server: the command line reads a repo, or GGUF files on this disk, and answers itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from service.engine.advise import VariantModel
from service.engine.commands import parse
from service.engine.decoding import refused
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.hardware import Assumption
from service.engine.model import Model
from service.engine.rules.companion_headers import CompanionHeaders
from service.errors import describe
from service.flows.advice.checked import checked, rig_of
from service.flows.advice.command_model import NamedRepo, assumed_variant, repo_of, variant_of
from service.flows.advice.companions import companions, companions_on_disk
from service.flows.advice.opening import opened, opened_hub, repos_seen
from service.flows.advice.reading import read_models
from service.hub.listing import RepoListing
from service.hub.references import RepoReference
from service.settings import Settings
from service.wire.advice.check import BatchCase, Checked

MAX_LINE = 4 << 20


class Headers:
    """Models by what a case calls them: each repo or folder is listed once, each header read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listed: dict[str, tuple[RepoListing, RepoReference]] = {}
        self._read: dict[tuple[str, str], VariantModel] = {}

    def named(self, case: BatchCase) -> NamedRepo:
        """Return where a case's model is: as stated, the file that the command opens, or as over HTTP."""
        parsed = parse(case.command, case.engine, build=case.build)
        path = Path(parsed.model_path or "").expanduser()
        if case.model is None and parsed.model_path and path.is_file():
            return NamedRepo(str(path))
        if case.model is not None:
            return NamedRepo(case.model)
        try:
            return repo_of(repos_seen(self._settings), None, parsed)
        except InvalidInput as error:
            missing = f"there is no file {parsed.model_path[:200]} here, and " if parsed.model_path else ""
            detail = f"{missing}{error.detail}, or `model` (--model) as a GGUF file or folder on this machine"
            raise InvalidInput(detail, field="model", choices=error.choices) from error

    def model_of(self, case: BatchCase, name: str) -> VariantModel:
        """Return the model of a case, which is in the repo or at the path `name`. Raises AdvisorError."""
        parsed = parse(case.command, case.engine, build=case.build)
        if name not in self._listed:
            with opened(self._settings, name, None) as (_, listing, reference):
                self._listed[name] = listing, reference
        listing, reference = self._listed[name]
        variant = variant_of(listing, reference, parsed)
        key = (name, variant.name)
        if key not in self._read:
            with opened_hub(self._settings) as hub:
                self._read[key] = read_models(hub, listing, [variant]).variants[0]
        return self._read[key]

    def assumed_of(self, case: BatchCase, name: str, variant: str) -> tuple[Assumption, ...]:
        """Return what was assumed of a case's variant, which was read before."""
        parsed, (listing, reference) = parse(case.command, case.engine, build=case.build), self._listed[name]
        taken = next((one for one in listing.variants if one.name == variant), None)
        return () if taken is None else assumed_variant(listing, reference, parsed, taken)

    def companion_headers(self, case: BatchCase, name: str) -> CompanionHeaders:
        """Return what the case's command loads besides its model, which was read before. Raises AdvisorError."""
        parsed, (listing, _) = parse(case.command, case.engine, build=case.build), self._listed[name]
        if listing.repo is None:
            path = Path(name)
            return companions_on_disk(parsed, case.draft, case.mmproj, path if path.is_dir() else path.parent)
        with opened_hub(self._settings) as hub:
            return companions(parsed, case.draft, case.mmproj, listing, hub.list_repo, hub.read_header)


def check_directly(settings: Settings, case: BatchCase) -> Checked:
    """Return the check of a command with a repo, or with GGUF files at a path. Raises AdvisorError."""
    return _checked(Headers(settings), case)


def model_directly(settings: Settings, case: BatchCase) -> Model:
    """Return the model that a case is about. Raises AdvisorError."""
    headers = Headers(settings)
    return headers.model_of(case, headers.named(case).repo).model


def _checked(headers: Headers, case: BatchCase) -> Checked:
    rig = rig_of(case.hardware, parsed=parse(case.command, case.engine, build=case.build))
    named = headers.named(case)
    model = headers.model_of(case, named.repo)
    assumed = (*named.assumed, *headers.assumed_of(case, named.repo, model.name))
    return checked(case, model, rig, headers.companion_headers(case, named.repo), assumed)


def check_batch(settings: Settings, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield an answer for each line that is not blank, in order: a check, or an error with its type and detail."""
    headers = Headers(settings)
    for line in lines:
        if line.strip():
            yield _answer(headers, line)


def _answer(headers: Headers, line: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"id": None}
    try:
        found["id"] = _identity(line)
        with refused(BatchCase):
            case = msgspec.json.decode(line, type=BatchCase)
        return {**found, **msgspec.to_builtins(_checked(headers, case))}
    except AdvisorError as error:
        return found | {"error": {name: value for name, value in describe(error).items() if name in _ERROR_FIELDS}}
    except Exception as error:  # one line must not cost the others
        return found | {"error": {"type": "internal", "detail": f"{type(error).__name__}: {error}"[:500]}}


_ERROR_FIELDS = ("type", "detail", "field", "choices")


def _identity(line: bytes) -> Any:
    """Return the `id` of a line, whatever else is wrong with it."""
    if len(line) > MAX_LINE:
        raise InvalidInput(f"a line has at most {MAX_LINE:,} bytes")
    try:
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the line is not a JSON object: {error}") from error
    return fields.get("id")
