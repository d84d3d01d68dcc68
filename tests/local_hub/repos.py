"""The local Hub's repos: names, layouts and mixes of published ones, with headers of the real shapes.

Mixes approximate what the makers' cards state; sizes follow from them. The last repos are what goes wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import NamedTuple

from service.engine.gguf import write as gguf_file
from tests.local_hub.blobs import Blob, text
from tests.models import ALIGNMENT, gguf_bytes, gguf_files, shard_name
from tests.projectors import gemma3_file

Files = Mapping[str, Blob]


class Repo(NamedTuple):
    """One repo: files are made when first asked for. `gated`: False, or the Hub's word for how access is given."""

    files: Callable[[], Files]
    base_model: str | None = None
    gated: str | bool = False
    private: bool = False
    gguf: bool = True
    downloads: int = 1000


class Quant(NamedTuple):
    """A variant to publish: its name in the file's, its mix of types, and its number of files."""

    name: str
    mix: str
    shards: int = 1


def commit_of(repo: str, branch: str = "main") -> str:
    """Return the commit that a branch of a repo is at."""
    return hashlib.sha1(f"{repo}@{branch}".encode()).hexdigest()


@cache
def _model(shape: str, mix: str, shards: int) -> tuple[Blob, ...]:
    return tuple(Blob(f.head, len(f.head) + f.n_data) for f in gguf_files(shape, mix, shards))


def _published(shape: str, stem: str, *quants: Quant) -> dict[str, Blob]:
    """Files as makers lay them out: single files at the top, sharded ones in a folder named like the quantisation."""
    files = {"README.md": text(f"# {stem}\n"), ".gitattributes": text("*.gguf filter=lfs\n")}
    for quant in quants:
        name = f"{stem}-{quant.name}.gguf"
        if quant.shards == 1:
            files[name] = _model(shape, quant.mix, 1)[0]
            continue
        for number, blob in enumerate(_model(shape, quant.mix, quant.shards)):
            files[f"{quant.name}/{shard_name(name, number, quant.shards)}"] = blob
    return files


def _deepseek_r1() -> Files:
    files = _published(
        "DeepSeek-R1-0528",
        "DeepSeek-R1-0528",
        Quant("IQ1_S_R4", "ffn_down_exps=iq1_m_r4,exps=iq1_s_r4,*=iq5_ks", 3),
        Quant("IQ2_KT", "ffn_down_exps=iq3_kt,exps=iq2_kt,token_embd=iq4_k,output.weight=iq6_k,*=iq4_kt", 5),
        Quant("IQ2_K_R4", "ffn_down_exps=iq3_k_r4,exps=iq2_k_r4,*=q8_0", 5),
        Quant("IQ3_KT", "ffn_down_exps=iq4_kt,exps=iq3_kt,token_embd=iq4_k,output.weight=iq6_k,*=iq5_ks", 6),
        Quant("IQ3_KS", "ffn_down_exps=iq4_ks,exps=iq3_ks,token_embd=iq4_k,output.weight=iq6_k,*=iq5_ks", 7),
        Quant("IQ3_K_R4", "ffn_down_exps=iq4_ks_r4,exps=iq3_k_r4,*=q8_0", 7),
        Quant("IQ4_KS_R4", "ffn_down_exps=iq5_ks_r4,exps=iq4_ks_r4,*=q8_0", 9),
    )
    return files | {"imatrix-DeepSeek-R1-0528-Q8_0.dat": Blob(bytes(64), 1_000_000_000)}


def _qwen3_235b() -> Files:
    return _published(
        "Qwen3-235B-A22B",
        "Qwen3-235B-A22B",
        Quant("Q2_K", "q2_k", 2),
        Quant("UD-Q2_K_XL", "ffn_down_exps=q3_K,exps=q2_K,*=q6_K", 2),
        Quant("Q3_K_M", "q3_k_m", 3),
        Quant("IQ4_XS", "iq4_xs", 3),
        Quant("UD-Q4_K_XL", "ffn_down_exps=q5_K,exps=q4_K,*=q6_K", 3),
        Quant("Q4_K_M", "q4_k_m", 3),
        Quant("Q6_K", "q6_K", 4),
        Quant("Q8_0", "q8_0", 6),
    )


def _gpt_oss() -> Files:
    return _published("gpt-oss-120b", "gpt-oss-120b", Quant("mxfp4", "exps=mxfp4,*=q8_0", 3))


def _llama_70b() -> Files:
    files = _published(
        "Llama-3.3-70B",
        "Llama-3.3-70B-Instruct",
        Quant("IQ2_M", "ffn_down=iq3_s,token_embd=q4_K,output.weight=q5_K,*=iq2_s"),
        Quant("IQ3_M", "ffn_down=q4_K,token_embd=q4_K,output.weight=q6_K,*=iq3_s"),
        Quant("IQ4_XS", "iq4_xs"),
        Quant("Q4_K_M", "q4_k_m"),
        Quant("Q5_K_M", "q5_k_m"),
        Quant("Q6_K", "q6_K", 2),
        Quant("Q8_0", "q8_0", 2),
    )
    return files | {"Llama-3.3-70B-Instruct.imatrix": Blob(bytes(64), 25_000_000)}


def _qwen3_next() -> Files:
    return _published(
        "Qwen3-Next-80B-A3B",
        "Qwen3-Next-80B-A3B-Instruct",
        Quant("UD-Q2_K_XL", "ffn_down_exps=q3_K,exps=q2_K,*=q6_K"),
        Quant("Q4_K_M", "q4_k_m"),
        Quant("Q8_0", "q8_0", 2),
    )


def _qwen3_small(shape: str = "Qwen3-0.6B") -> Files:
    return _published(shape, shape, Quant("Q4_K_M", "q4_k_m"), Quant("Q8_0", "q8_0"), Quant("BF16", "bf16"))


def _extras() -> Files:
    """A model with a projector, an importance matrix, a draft model, an adapter and a vocabulary next to it."""
    adapter = gguf_file.header_bytes({"general.architecture": "gemma3", "general.type": "adapter"}, ())
    projector, n_data = gemma3_file()
    return _published("Gemma-3-12B", "gemma-3-12b-it", Quant("Q4_K_M", "q4_k_m")) | {
        "mmproj-F16.gguf": Blob(projector, len(projector) + n_data),
        "imatrix_gemma.gguf": Blob(gguf_file.header_bytes({"general.type": "imatrix"}, ()), 7_000_000),
        "gemma-3-12b-it-draft-0.5B-Q8_0.gguf": _model("Qwen3-0.6B", "q8_0", 1)[0],
        "gemma-3-12b-it-lora-F16.gguf": Blob(adapter, 90_000_000),
        "ggml-vocab-gemma-3.gguf": Blob(adapter, len(adapter)),
    }


def _not_gguf() -> Files:
    return {"model-Q4_K_M.gguf": Blob(b"<!DOCTYPE html><html><body>Not Found</body></html>", 400_000)}


def _truncated() -> Files:
    """A file cut off within its header, and one cut off within its weights."""
    head = gguf_bytes("Qwen3-0.6B", "q8_0")
    return {
        "Qwen3-0.6B-Q8_0.gguf": Blob(head[: len(head) // 2], len(head) // 2),
        "Qwen3-0.6B-BF16.gguf": Blob(gguf_bytes("Qwen3-0.6B", "bf16"), 200_000_000),
    }


def _incomplete() -> Files:
    files = _published("Qwen3-4B", "Qwen3-4B", Quant("Q8_0", "q8_0", 3), Quant("Q4_K_M", "q4_k_m"))
    del files["Q8_0/Qwen3-4B-Q8_0-00002-of-00003.gguf"]
    return files


def _original(stem: str, n_files: int) -> Files:
    shards = {f"model-{i + 1:05d}-of-{n_files:06d}.safetensors": Blob(bytes(8), 4_300_000_000) for i in range(n_files)}
    return {"README.md": text(f"# {stem}\n"), "config.json": text("{}"), **shards}


def _many(n_variants: int, n_shards: int) -> Files:
    """A repo over the limits: its files are never read."""
    blob = Blob(b"GGUF", ALIGNMENT)
    stems = [f"model-v{v:03d}" for v in range(n_variants)]
    if n_shards == 1:
        return {f"{stem}.gguf": blob for stem in stems}
    return {shard_name(f"{stem}.gguf", s, n_shards): blob for stem in stems for s in range(n_shards)}


REPOS: dict[str, Repo] = {
    "ubergarm/DeepSeek-R1-0528-GGUF": Repo(_deepseek_r1, "deepseek-ai/DeepSeek-R1-0528", downloads=2_000),
    "unsloth/Qwen3-235B-A22B-GGUF": Repo(_qwen3_235b, "Qwen/Qwen3-235B-A22B", downloads=9_000),
    "ggml-org/gpt-oss-120b-GGUF": Repo(_gpt_oss, "openai/gpt-oss-120b"),
    "bartowski/Llama-3.3-70B-Instruct-GGUF": Repo(_llama_70b, "meta-llama/Llama-3.3-70B-Instruct"),
    "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF": Repo(_qwen3_next, "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    "Qwen/Qwen3-0.6B-GGUF": Repo(_qwen3_small, "Qwen/Qwen3-0.6B"),
    "Qwen/Qwen3-4B-GGUF": Repo(partial(_qwen3_small, "Qwen3-4B"), "Qwen/Qwen3-4B"),
    "local/gemma-3-12b-it-GGUF": Repo(_extras, "google/gemma-3-12b-it"),
    "deepseek-ai/DeepSeek-R1-0528": Repo(partial(_original, "DeepSeek-R1-0528", 163), gguf=False),
    "local/no-gguf-anywhere": Repo(partial(_original, "nothing", 1), gguf=False),
    "local/gated-GGUF": Repo(partial(_qwen3_small, "Qwen3-4B"), gated="manual"),
    "local/private-GGUF": Repo(_qwen3_small, private=True),
    "local/not-a-GGUF": Repo(_not_gguf),
    "local/truncated-GGUF": Repo(_truncated),
    "local/incomplete-GGUF": Repo(_incomplete),
    "local/many-variants-GGUF": Repo(partial(_many, 201, 1)),
    "local/many-shards-GGUF": Repo(partial(_many, 5, 100)),
}
