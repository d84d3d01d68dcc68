"""What threads share is whole before there are any."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from service.store.measuring.runs import StoredRun
from service.structs import learn_structs

# Threads that convert one Struct for the first time at once: without `learn_structs` it ends in a crash of the process.
RACE = """
import sys, threading, types
import msgspec
from service.structs import learn_structs
sys.setswitchinterval(1e-6)
names = [f"f{n}" for n in range(60)]
kinds = [msgspec.defstruct(f"S{i}", [(name, int) for name in names]) for i in range(300)]
learn_structs()
one = types.SimpleNamespace(**dict.fromkeys(names, 1))
for kind in kinds:
    barrier = threading.Barrier(4)
    def use():
        barrier.wait()
        msgspec.convert(one, kind, from_attributes=True)
    threads = [threading.Thread(target=use) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_structs_that_are_known_are_used_by_threads_at_once() -> None:
    assert subprocess.run([sys.executable, "-c", RACE], timeout=60).returncode == 0


def test_all_structs_of_what_is_loaded_are_learned() -> None:
    before = learn_structs()
    msgspec.defstruct("New", [("run", StoredRun)])
    assert learn_structs() >= before > 50
