"""What a container or unit lets its command take, as words before the command, by systemd's names.

systemd.resource-control(5) and systemd.exec(5), docker-run(1), compose-spec 05-services.md and deploy.md,
kubernetes.io/docs/concepts/configuration/manage-resources-containers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from service.engine.commands.yaml_text import at
from service.engine.units import GIB, MIB

MEMORY, CPUS, CPU_SET = "MemoryMax", "CPUQuota", "AllowedCPUs"
VARIABLES, PASSED = "EnvironmentFile", "PassEnvironment"
OF_UNITS = (MEMORY, CPUS, CPU_SET, VARIABLES, PASSED)
OF_DOCKER = {"-m": MEMORY, "--memory": MEMORY, "--cpus": CPUS, "--cpuset-cpus": CPU_SET, "--env-file": VARIABLES}
_OF_COMPOSE = {"mem_limit": MEMORY, "memory": MEMORY, "cpus": CPUS, "cpuset": CPU_SET, "env_file": VARIABLES}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([kmgt]?)i?b?", re.I)
_BINDERS = ("taskset", "numactl")
_BINDS = re.compile(r"(?:-a?c|-C|--cpu-list|--physcpubind)=?(\d.*)?")
_SHARE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)([m%]?)")
_LISTED_CPUS = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:[,\s]+\d{1,4}(?:-\d{1,4})?){0,255}")
_UNITS = {"": 1, "k": 1024, "m": MIB, "g": GIB, "t": 1024 * GIB}


def of_service(service: Mapping[str, Any]) -> Iterator[str]:
    """Yield the limits of a service of compose."""
    found = at(service, "deploy", "resources", "limits")
    for key, name in _OF_COMPOSE.items():
        for part in (service, found if isinstance(found, dict) else {}):
            if value := part.get(key):
                listed = value if isinstance(value, list) else [value]
                paths = [one.get("path") if isinstance(one, dict) else one for one in listed]
                yield f"{name}={','.join(map(str, paths))}"


def of_pod(limits: object) -> Iterator[str]:
    """Yield the limits of a container of Kubernetes: `resources.limits`."""
    for key, name in (("memory", MEMORY), ("cpu", CPUS)):
        if isinstance(limits, dict) and limits.get(key):
            yield f"{name}={limits[key]}"


def cpus_given(env: Mapping[str, str], launcher: Sequence[str], cores: int) -> float | None:
    """Return how many of so many cores the command may use, None where nothing that is read here limits them.

    `launcher`: what stands before the program, such as `taskset -c 0-7` or `numactl -C 0-7`. A share is a number of
    CPUs (`8.0`), thousandths (`1000m`, Kubernetes) or hundredths (`800%`, systemd). A CPU whose number is not below
    `cores` is the second thread of a core that counts already, as Linux numbers those of AMD's and of servers.
    """
    share = _SHARE.fullmatch(env.get(CPUS, ""))
    counts = [float(share[1]) / {"m": 1000, "%": 100}.get(share[2], 1)] if share else []
    for one in (env.get(CPU_SET, ""), *_bound(launcher)):
        if _LISTED_CPUS.fullmatch(one):
            spans = (span.partition("-") for span in re.split(r"[,\s]+", one))
            numbers = {n for first, _, last in spans for n in range(int(first), int(last or first) + 1)}
            counts.append(len({n % cores for n in numbers}))
    return min(counts, default=0) or None


def _bound(launcher: Sequence[str]) -> Iterator[str]:
    """Yield the lists of CPUs of `taskset -c` and `numactl -C`."""
    starts = next((i for i, word in enumerate(launcher) if word.rpartition("/")[2] in _BINDERS), len(launcher))
    for word, following in pairwise((*launcher[starts:], "")):  # `ionice -c 2` may stand before
        if joined := _BINDS.fullmatch(word):
            yield joined[1] or following


def memory_limit(env: Mapping[str, str]) -> int | None:
    """Return the bytes of RAM that the command may take, None where no number limits them."""
    size = _SIZE.fullmatch(env.get(MEMORY, ""))
    return int(float(size[1]) * _UNITS[size[2].lower()]) or None if size else None  # 0: no limit
