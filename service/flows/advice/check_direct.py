"""Checks without a server: the command line reads a repo, or GGUF files on this disk, by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from service.engine.advise import VariantModel
from service.engine.commands.parse import ParsedCommand, parse
from service.engine.decoding import refused
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.model import Model
from service.engine.rules.companion_headers import CompanionHeaders
from service.errors import describe
from service.flows.advice.checked import checked, rig_of
from service.flows.advice.command_model import NamedRepo, assumed_variant, repo_of, variant_of
from service.flows.advice.companions import companions, companions_on_disk
from service.flows.advice.opening import is_on_disk, opened, opened_hub, repos_seen
from service.flows.advice.reading import read_models
from service.hub.listing import RepoListing, Variant
from service.hub.references import RepoReference
from service.settings import Settings
from service.wire.advice.check import BatchCase, Checked

MAX_LINE = 4 << 20


class DirectChecks:
    """Checks commands one after the other: each repo or folder is listed once, each header read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listed: dict[str, tuple[RepoListing, RepoReference]] = {}
        self._read: dict[tuple[str, str], VariantModel] = {}

    def check(self, case: BatchCase) -> Checked:
        """Return the check of a command. Raises AdvisorError."""
        parsed = parse(case.command, case.engine, build=case.build)
        rig = rig_of(case.hardware, parsed=parsed)
        named = self._named(case, parsed)
        listing, reference, variant = self._variant(named.repo, parsed)
        model = self._model(named.repo, listing, variant)
        assumed = (*named.assumed, *assumed_variant(listing, reference, parsed, variant))
        headers = self._companions(case, parsed, listing, variant, Path(named.repo))
        return checked(case, model, rig, headers, assumed)

    def model_of(self, case: BatchCase) -> Model:
        """Return the model of a case's command. Raises AdvisorError."""
        parsed = parse(case.command, case.engine, build=case.build)
        name = self._named(case, parsed).repo
        listing, _, variant = self._variant(name, parsed)
        return self._model(name, listing, variant).model

    def _named(self, case: BatchCase, parsed: ParsedCommand) -> NamedRepo:
        """Return where a case's model is: as stated, else the command's own file, else as the server finds it."""
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

    def _variant(self, name: str, parsed: ParsedCommand) -> tuple[RepoListing, RepoReference, Variant]:
        """Return the listing of a repo or path, and the variant in it that the command runs."""
        if name not in self._listed:
            with opened(self._settings, name, None) as (_, listing, reference):
                self._listed[name] = listing, reference
        return *self._listed[name], variant_of(*self._listed[name], parsed)

    def _model(self, name: str, listing: RepoListing, variant: Variant) -> VariantModel:
        key = (name, variant.name)
        if key not in self._read:
            with opened_hub(self._settings) as hub:
                self._read[key] = read_models(hub, listing, [variant]).variants[0]
        return self._read[key]

    def _companions(
        self, case: BatchCase, parsed: ParsedCommand, listing: RepoListing, variant: Variant, path: Path
    ) -> CompanionHeaders:  # fmt: skip
        asked = [(name, None) if name and is_on_disk(name) else (None, name) for name in (case.draft, case.mmproj)]
        (draft, far_draft), (mmproj, far_mmproj) = asked
        folder = None if listing.repo else path if path.is_dir() else path.parent
        here = companions_on_disk(parsed, draft, mmproj, folder)
        if listing.repo is None and not (far_draft or far_mmproj):
            return here
        with opened_hub(self._settings) as hub:
            found = companions(parsed, far_draft, far_mmproj, listing, variant, hub.list_repo, hub.read_header)
        return msgspec.structs.replace(
            found,
            draft=found.draft if far_draft else here.draft or found.draft,
            projector=found.projector if far_mmproj else here.projector or found.projector,
        )


def check_directly(settings: Settings, case: BatchCase) -> Checked:
    """Return the check of one command on a model of the Hub or of this disk. Raises AdvisorError."""
    return DirectChecks(settings).check(case)


def check_batch(settings: Settings, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield an answer for each non-blank line, in order: a check, or an error with its type and detail."""
    checks = DirectChecks(settings)
    for line in lines:
        if line.strip():
            yield _answer(checks, line)


def _answer(checks: DirectChecks, line: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"id": None}
    try:
        # Its `id` is told even if the rest of it is invalid.
        if len(line) > MAX_LINE:
            raise InvalidInput(f"a line has at most {MAX_LINE:,} bytes")
        try:
            fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"the line is not a JSON object: {error}") from error
        found["id"] = fields.get("id")
        with refused(BatchCase):
            case = msgspec.json.decode(line, type=BatchCase)
        return {**found, **msgspec.to_builtins(checks.check(case))}
    except AdvisorError as error:
        return found | {"error": {name: value for name, value in describe(error).items() if name in _ERROR_FIELDS}}
    except Exception as error:  # a bug met by one line must not lose the answers to the others
        return found | {"error": {"type": "internal", "detail": f"{type(error).__name__}: {error}"[:500]}}


_ERROR_FIELDS = ("type", "detail", "field", "choices")
