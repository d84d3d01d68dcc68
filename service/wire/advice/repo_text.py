"""Renders `advisor inspect`: a repo's variants, and the model of one of them."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.units import GIB, MIB
from service.wire.advice.repo import CostView, LayerView, ModelView, RepoView, VariantView
from service.wire.plain_text import clean, wrapped

_MOST_TYPES = 4


def render_repo(repo: RepoView) -> str:
    """Return the inspection of a repo as plain text: variants, other files, then the model layer by layer."""
    lines = [f"{repo.repo}{' @ ' + repo.revision[:12] if repo.revision else ''}", ""]
    lines += [part for variant in repo.variants for part in wrapped(_variant(variant))]
    for kind, paths in repo.other_files.items():
        lines.append(f"{kind}: {', '.join(paths[:6])}{f' and {len(paths) - 6} more' if len(paths) > 6 else ''}")
    if repo.model:
        lines += ["", *(part for line in _model(repo.model) for part in wrapped(line))]
    if repo.cost:
        lines += ["", _cost(repo, repo.cost)]
    if repo.model and repo.revision and len(repo.variants) > 1:
        lines += [
            "",
            f"another variant: {repo.repo}:{next(v.name for v in repo.variants if v.name != repo.model.variant)}",
        ]
    return "\n".join(clean(line) for line in lines) + "\n"


def _variant(variant: VariantView) -> str:
    size = "size unknown" if variant.n_bytes is None else f"{variant.n_bytes / GIB:8.2f} GiB"
    files = f"{len(variant.files):>3} file{'s' if len(variant.files) > 1 else ' '}"
    read = ""
    if variant.header:
        types = ", ".join(list(variant.header.bytes_by_type)[:_MOST_TYPES])
        read = f"  {variant.header.bpw:6.3f} bits per weight: {types}"
    if variant.unreadable:
        read = f"  cannot be read: {variant.unreadable}"
    return f"{variant.name:<24} {size}  {files}{read}".rstrip()


def _cost(repo: RepoView, cost: CostView) -> str:
    headers = [variant.header for variant in repo.variants if variant.header]
    n_bytes, n_jumps = sum(header.n_bytes for header in headers), sum(header.by_jump for header in headers)
    jumps = f", {n_jumps} of them without the tokenizer they share" if n_jumps else ""
    requests = f"{cost.requests} request{'s' * (cost.requests != 1)}"
    return (
        f"read {len(headers)} header{'s' * (len(headers) != 1)} of {n_bytes / 1e6:.1f} MB{jumps}, with {requests}, "
        f"{cost.n_bytes / 1e6:.1f} MB, in {cost.seconds:.1f} s"
    )


def _model(model: ModelView) -> Iterator[str]:
    yield f"{model.variant}: {model.name}, architecture {model.architecture}, {model.n_parameters / 1e9:.1f} B weights"
    nextn = f" ({model.n_layer_nextn} for next-token prediction)" if model.n_layer_nextn else ""
    yield f"{model.n_layer} layers{nextn}, embedding {model.n_embd:,}, vocabulary {model.n_vocab:,}"
    if model.n_expert:
        yield f"{model.n_expert} experts, {model.n_expert_used} used per token"
    yield f"trained for {model.n_ctx_train:,} tokens; {'tied' if model.tied else 'separate'} output head"
    yield f"{model.n_bytes / GIB:.2f} GiB, {model.bpw:.3f} bits per weight"
    yield f"by role: {_shares(model.bytes_by_role)}"
    yield f"by type: {_shares(model.bytes_by_type)}"
    yield f"cache per token: {', '.join(f'{n:,} bytes as {kind}' for kind, n in model.cache_bytes_per_token.items())}"
    yield ""
    yield from _layers(model.layers)


def _shares(by_name: dict[str, int]) -> str:
    return ", ".join(f"{name} {_size(n)}" for name, n in by_name.items())


def _size(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB / 10 else f"{n_bytes / MIB:.1f} MiB"


def _layers(layers: list[LayerView]) -> Iterator[str]:
    """Yield one line per kind of layer; identical layers share one, wherever they are."""
    alike: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        alike.setdefault(_look(layer), []).append(number)
    for look, numbers in alike.items():
        yield f"layer{'s' if len(numbers) > 1 else ''} {_runs(numbers)}: {look}"


def _runs(numbers: list[int]) -> str:
    """Return ascending numbers as ranges: 0-10, 13, 16."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _look(layer: LayerView) -> str:
    roles = ", ".join(f"{name} {n / MIB:.1f}" for name, n in layer.roles.items())
    heads = f"{layer.n_head} heads, {layer.n_head_kv} of K and V"
    heads = {"recurrent": "state", "feed_forward": "no state"}.get(layer.kind, heads)
    window = f", window {layer.window:,}" if layer.window else ""
    return f"{layer.kind} ({heads}{window}), {layer.n_bytes / MIB:,.1f} MiB: {roles} ({', '.join(layer.types)})"
