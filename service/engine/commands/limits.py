"""What a container or unit lets its command take, as words before the command, by systemd's names.

systemd.resource-control(5) and systemd.exec(5), docker-run(1), compose-spec 05-services.md and deploy.md,
kubernetes.io/docs/concepts/configuration/manage-resources-containers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from service.engine.units import GIB, MIB

MEMORY, CPUS, VARIABLES, PASSED = "MemoryMax", "CPUQuota", "EnvironmentFile", "PassEnvironment"
OF_UNITS = (MEMORY, CPUS, VARIABLES, PASSED)
OF_DOCKER = {"-m": MEMORY, "--memory": MEMORY, "--cpus": CPUS, "--cpuset-cpus": CPUS, "--env-file": VARIABLES}
_OF_COMPOSE = {"mem_limit": MEMORY, "memory": MEMORY, "cpus": CPUS, "cpuset": CPUS, "env_file": VARIABLES}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([kmgt]?)i?b?", re.I)
_UNITS = {"": 1, "k": 1024, "m": MIB, "g": GIB, "t": 1024 * GIB}


def of_service(service: Mapping[str, Any]) -> Iterator[str]:
    """Yield the limits of a service of compose."""
    found: Any = service
    for key in ("deploy", "resources", "limits"):
        found = found.get(key) if isinstance(found, dict) else None
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


def memory_limit(env: Mapping[str, str]) -> int | None:
    """Return the bytes of RAM that the command may take, None where no number limits them."""
    size = _SIZE.fullmatch(env.get(MEMORY, ""))
    return int(float(size[1]) * _UNITS[size[2].lower()]) or None if size else None  # 0: no limit
