"""What parameters in paths and queries mean, in the OpenAPI document: said once for all operations that have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_MEANINGS = {
    "advice_id": "Of an advice, as the answer to its request has it.",
    "arch": "The family of the model, as its header names it: `deepseek2`, `qwen3moe`.",
    "contributor": "The pseudonym of who sent it.",
    "cursor": "`next` of the page before.",
    "depth": "Tokens in the cache at which speeds are compared.",
    "engine": "Results of this engine only.",
    "host": "The pseudonym of the host that measured it.",
    "host_id": "Of a host, as its enrolment or the list of hosts has it.",
    "limit": "Rows in one page.",
    "model": "The model's slug, as in the address of its page.",
    "name": "Of the repo: what stands behind the `/`.",
    "origin": "How it came here: from an agent, from a submission, or published elsewhere.",
    "owner": "Of the repo: what stands before the `/`.",
    "platform": "The kind of machine, by its channels of memory.",
    "q": "Words that the name of the model, the cards or the variant has.",
    "ram": "The class of RAM, in GiB.",
    "repo": "The Hugging Face repo, as OWNER/NAME.",
    "result_id": "Of a result, as the answer to its submission or a list has it.",
    "rig": "The cards, by slug: `2x-rtx-3090`.",
    "run_id": "Of the run that was leased.",
    "since": "Received on this day or later, as YYYY-MM-DD.",
    "sort": "What the rows are ordered by.",
    "tier": "Results of this trust tier only.",
    "trust": "Results of this trust tier at least.",
    "until": "Received on this day or before, as YYYY-MM-DD.",
    "validation_id": "Of a validation, as the answer to its request has it.",
    "variant": "The quantised model: `Q4_K_M`.",
    "vram": "The class of the cards' memory together, in GiB.",
}
_ELSEWHERE = {
    ("read_dump", "name"): "Of the file, as the list of dumps has it.",
    ("read_leaderboard", "since"): "Measured on this day or later, as YYYY-MM-DD.",
}


def explain(operations: Iterable[dict[str, Any]]) -> None:
    """Give every parameter a meaning, and no null: a request has a text there, or nothing."""
    for spec in operations:
        for one in spec.get("parameters", ()):
            name = one["name"]
            meaning = _ELSEWHERE.get((spec["operationId"], name)) or _MEANINGS.get(name)
            if meaning and not one.get("description"):
                one["description"] = meaning
            one["schema"].pop("description", None)
            _leave_out_null(one["schema"])


def _leave_out_null(schema: dict[str, Any]) -> None:
    several = [kind for kind in schema.pop("oneOf", ()) if kind != {"type": "null"}]
    if len(several) == 1:
        schema |= several[0]
    elif several:
        schema["oneOf"] = several
    if "enum" in schema:
        schema["enum"] = [value for value in schema["enum"] if value is not None]
    if isinstance(schema.get("type"), list):
        schema["type"] = next(kind for kind in schema["type"] if kind != "null")
