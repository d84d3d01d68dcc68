"""A machine for the agent's tests: one program that is never run, one model of two shards, two cards."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec.structs import replace

from service.engine.gguf.header import Tensor
from service.engine.gguf.write import header_bytes
from service.engine.hardware import Hardware
from service.wire.measuring.agent import RunDocument, RunFile
from service.wire.measuring.hosts import EngineBuild, Probe
from tests.workers.agent.documents import DOCUMENT
from workers.agent.local import EngineProgram, LocalGpu, Machine
from workers.agent.models import Hashes, find_models
from workers.agent.policy import ModelPolicy, Policy

CARDS = (
    LocalGpu(index=0, backend="cuda", uuid="GPU-00000000-aaaa-bbbb-cccc-000000000000"),
    LocalGpu(index=1, backend="cuda", uuid="GPU-11111111-aaaa-bbbb-cccc-000000000000"),
)
SHARDS = ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf")


def make_machine(folder: Path) -> tuple[Machine, RunDocument]:
    """Return a machine with all that a run needs in `folder`, and the document of that run."""
    program = folder / "bin" / "llama-sweep-bench"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/false\n")
    sha256 = hashlib.sha256(program.read_bytes()).hexdigest()
    files = []
    for number, name in enumerate(SHARDS):
        path = folder / "models" / "Q4" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = header_bytes({"general.architecture": "llama"}, [Tensor("output.weight", "F32", (32, 2), 0, 256)])
        path.write_bytes(data + bytes([number]) * 256)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        files.append(RunFile(path=f"Q4/{name}", size=path.stat().st_size, sha256=content))
    build = EngineBuild(engine="ik_llama.cpp", sha256=sha256, options=("--sweep-stride", "--output-format", "-wb"))
    machine = Machine(
        probe=Probe(agent="offload-advisor/test", hardware=Hardware(gpus=[]), engines=(build,)),
        gpus=CARDS,
        engines=(EngineProgram(path=program, build=build),),
        models=(),
    )
    document = replace(DOCUMENT, engine_builds=("0" * 64, sha256), files=tuple(files))
    return look_again(machine, folder), document


def look_again(machine: Machine, folder: Path) -> Machine:
    """Return the machine with the models that are there now."""
    policy = Policy(models=ModelPolicy(folders=(str(folder / "models"),)))
    return replace(machine, models=find_models(policy, Hashes(folder / "hashes.json")))
