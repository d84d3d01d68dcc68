"""What a command loads besides its model, on the machine of a case."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from service.engine.builds import Build, BuildRules
from service.engine.commands.companions import draft_command, draft_context, loads_draft, projector_of
from service.engine.commands.parse import ParsedCommand
from service.engine.config import CPU, Device, Engine, Flags, Override
from service.engine.engines import engine_spec
from service.engine.gguf.header import Header
from service.engine.hardware import Rig
from service.engine.memory.companions import Companion, draft_model, next_token_context, projector
from service.engine.memory.encoder import Images, image_tokens, kinds_of
from service.engine.memory.figures import Memory
from service.engine.model import Model
from service.engine.run.devices import chosen_devices
from service.engine.run.resolved import ResolvedRun, resolve_run


class CompanionHeaders(msgspec.Struct, frozen=True):
    """Headers of what a command loads besides its model; None where it loads none, or where it is not known.

    `repo_listed`: the files of the model's repo are known, so that without a projector here `-hf` finds none.
    `head_in_repo`: whether one of them holds next-token layers alone; None where the files are not known.
    """

    draft: Model | None = None
    projector: Header | None = None
    repo_listed: bool = False
    head_in_repo: bool | None = None


NO_COMPANIONS = CompanionHeaders()


def companions_of(
    parsed: ParsedCommand, run: ResolvedRun, memory: Memory, headers: CompanionHeaders
) -> tuple[Companion, ...]:
    """Return the memory of the companions of a command whose model takes `memory`. Raises InvalidFlags."""
    taken = [int(memory.total(i).expected) for i in range(len(run.devices))]
    found = [*drafting_companions(parsed, run, taken, headers)]
    images = projector_companion(parsed, run.flags, run.devices, headers)
    return tuple(found if images is None else [*found, images])


def drafting_companions(
    parsed: ParsedCommand, run: ResolvedRun, taken: Sequence[int], headers: CompanionHeaders
) -> list[Companion]:
    """Return the memory of what drafts, where so many bytes of each device are `taken`. Raises InvalidFlags."""
    asked, flags, devices = draft_command(parsed), run.flags, run.devices
    places = _places(asked, devices, run.rig)
    own = _as_usable(parsed, asked.flags, flags, [devices[i].name for i in places])
    contexts = max(flags.n_parallel, 1) if parsed.build.rules.draft_per_slot else 1
    n_ctx, n_parallel = draft_context(parsed) or own.n_ctx // contexts, 1 if contexts > 1 else own.n_parallel
    of_draft = msgspec.structs.replace(own, n_ctx=n_ctx, n_parallel=n_parallel)
    found = [next_token_context(run, own)]
    if headers.draft is not None and loads_draft(parsed) and (places or not draft_elsewhere(parsed, devices, run.rig)):
        left = [msgspec.structs.replace(devices[i], free=max(devices[i].free - taken[i], 0)) for i in places]
        draft = resolve_run(
            run.engine, headers.draft, of_draft, run.rig, left, run.build, run.environment, allocator=run.allocator
        )
        found.append(draft_model(draft, places, len(devices), contexts))
    return [one for one in found if one is not None]


def projector_companion(
    parsed: ParsedCommand, flags: Flags, devices: Sequence[Device], headers: CompanionHeaders
) -> Companion | None:
    """Return the memory of a command's projector; None where it loads none, or its header is not known."""
    loaded = projector_of(parsed)
    if headers.projector is None or loaded is None:
        return None
    names = [device.name for device in devices]
    first = names.index(loaded.device) if loaded.device in names else 0
    device = first if loaded.on_gpu and devices else len(devices)
    return projector(headers.projector, len(devices), device, images_of(parsed, flags))


def refuses_projector(engine: Engine, header: Header, build: Build) -> str | None:
    """Return why a build of an engine cannot load a projector, or None. Kinds are known for today's build."""
    if not build.rules.loads_projector:
        return f"the server of {engine} {build.label} loads no projector for images or sound"
    known = engine_spec(engine).projectors
    unknown = sorted(kinds_of(header) - known) if known is not None else []
    return f"{engine} has no projector of the kind {unknown[0][:40]}" if unknown else None


def larger_than_context(header: Header, images: Images, room: int) -> tuple[str, str] | None:
    """Return what to say of images as large as a request's context of `room` tokens, and the option against it."""
    most = image_tokens(header, images)
    if most < room:
        return None
    said = f"a large image has {most:,} tokens, and a request has a context of {room:,}"
    return said, f"--image-max-tokens {max(room // 2, 1)}"


def images_of(parsed: ParsedCommand, flags: Flags) -> Images:
    """Return what a command and its build say about images."""
    loaded = projector_of(parsed)
    return images_by(parsed.build.rules, flags, loaded.image_tokens if loaded else None)


def images_by(rules: BuildRules, flags: Flags, asked: int | None = None) -> Images:
    """Return what a build's rules and flags say about images; `asked`: of how many tokens they may be."""
    attention = "whole" if rules.encoder == "flash" and flags.flash_attn == "off" else rules.encoder
    return Images(attention, rules.image_tokens, rules.gemma4_image_tokens, asked)


def _as_usable(parsed: ParsedCommand, asked: Flags, usable: Flags, names: Sequence[str]) -> Flags:
    """The draft's flags with the context the model runs with, and rules that name devices by their place in `names`."""
    own = [
        Override(rule.pattern, f"CUDA{names.index(rule.device)}" if rule.device in names else CPU)
        for rule in asked.overrides
        if rule.device in (CPU, *names)
    ]
    main = usable.main_gpu if usable.main_gpu is not None and usable.main_gpu < len(names) else None
    alone = parsed.build.rules.own_draft_settings
    follows = engine_spec(parsed.engine).commands.draft_takes_rules and not alone
    return msgspec.structs.replace(
        asked,
        n_ctx=usable.n_ctx,
        main_gpu=main,
        overrides=usable.overrides if follows else tuple(own),
        tensor_split=() if alone else usable.tensor_split[: len(names)],
    )


def draft_elsewhere(parsed: ParsedCommand, devices: Sequence[Device], rig: Rig) -> tuple[str, ...]:
    """Return the GPUs of a command's draft model that its model does not use (`-devd`; without it, all)."""
    known = {device.name for device in devices}
    return tuple(one.name for one in chosen_devices(draft_command(parsed), rig)[0] if one.name not in known)


def _places(asked: ParsedCommand, devices: Sequence[Device], rig: Rig) -> list[int]:
    names = {device.name for device in chosen_devices(asked, rig)[0]}
    return [i for i, device in enumerate(devices) if device.name in names]
