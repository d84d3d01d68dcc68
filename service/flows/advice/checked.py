"""The check of a command whose model is known: the part that needs no database."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.advise import VariantModel
from service.engine.calibration import Calibration
from service.engine.catalogue import resolve
from service.engine.check.learning import Reported
from service.engine.check.run import check
from service.engine.commands.parse import ParsedCommand
from service.engine.hardware import Assumption, Hardware, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.rules.companion_headers import NO_COMPANIONS, CompanionHeaders
from service.engine.run.devices import rig_of_command
from service.structs import made_from
from service.wire.advice.check import BatchCase, Checked, CheckRequest


def rig_of(
    hardware: Hardware | str, fitted: Calibration | None = None, parsed: ParsedCommand | None = None
) -> Rig:  # fmt: skip
    """Return the machine of a request, unrounded (the canonical form rounds). Raises InvalidHardware and its subclass.

    `fitted`: the calibration fitted here, if any. `parsed`: the command, whose device names may tell which build of
    the engine it was written for.
    """
    stated = parse_hardware(hardware) if isinstance(hardware, str) else hardware
    return resolve(stated, fitted) if parsed is None else rig_of_command(stated, parsed, fitted)


def checked(
    asked: CheckRequest | BatchCase, variant: VariantModel, rig: Rig,
    companion_headers: CompanionHeaders = NO_COMPANIONS, assumed: Sequence[Assumption] = (),
    reported: Sequence[Reported] = (),
) -> Checked:  # fmt: skip
    """Return the check of a request whose model is known. Raises InvalidInput.

    `assumed`: how the model was found. `reported`: what other people's logs say of its memory.
    """
    report = check(
        asked.command,
        asked.engine,
        variant.model,
        rig,
        depths=asked.depths,
        allocator=asked.allocator,
        measured=asked.measured or (),
        log=asked.log,
        companion_headers=companion_headers,
        build=asked.build,
        reserve_mib=asked.reserve_mib,
        reported=reported,
    )
    files, assumed = variant.files, [*assumed, *report.assumed]
    return made_from(Checked, report, repo=files.repo, revision=files.revision, variant=variant.name, assumed=assumed)
