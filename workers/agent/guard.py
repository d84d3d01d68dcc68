"""Starts one engine under limits, and kills everything it leaves behind. Run as `python -I -S guard.py IN OUT`.

It sits between the agent and the engine because limits must be set after the fork but before exec, which a program with
threads cannot do safely, and because somebody must clean up if the agent is killed. IN and OUT are descriptors: a JSON
object that says what to start, and JSON lines that say what became of it. Standard library only.

On Linux the network is cut off by a namespace, else by a seccomp filter; files by Landlock; no new privileges; the
kernel ends the engine with this program, and this program with the agent. What is in force is reported, never assumed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)

# include/uapi/linux/prctl.h, sched.h, sockios.h
_SET_PDEATHSIG, _SET_SECCOMP, _DROP_CAPABILITY, _SET_SUBREAPER, _SET_NO_NEW_PRIVS = 1, 22, 24, 36, 38
_CAPABILITIES = 64  # more than any kernel has
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_GET_IF_FLAGS, _SET_IF_FLAGS, _IF_UP = 0x8913, 0x8914, 1

# include/uapi/linux/landlock.h; the three system calls have the same number on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = 1 | 4 | 8  # execute, read a file, list a folder
_ALL = (1 << 13) - 1  # every right of the first version
_OF_FILES = 1 | 2 | 4 | 1 << 14
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_THREADS = 4096  # a run can ask for at most two pools of 1,024
_SCOPED = 3  # abstract sockets and signals, since version 6

# include/uapi/linux/audit.h, asm/unistd.h: (architecture, number of socket(), first call of the x32 interface)
_MACHINES = {"x86_64": (0xC000003E, 41, 0x40000000), "aarch64": (0xC00000B7, 198, None)}
_IO_URING_SETUP = 425
_ALLOW, _ERRNO, _FILTER = 0x7FFF0000, 0x00050000, 2


class _Asked(Exception):
    """The agent asked this program to end, or died."""


def main() -> None:
    """Start what the object says, wait for it, kill what it leaves, and report how it ended."""
    spec = _read(int(sys.argv[1]))
    out = int(sys.argv[2])
    os.set_inheritable(out, False)
    signal.signal(signal.SIGTERM, _ask)
    pid = 0
    try:
        _prctl(_SET_SUBREAPER, 1)
        _prctl(_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != spec["parent"]:
            return
        guard = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(spec, guard, out)
        _say(out, started=pid)
        _, status = os.waitpid(pid, 0)
        pid = 0
        _say(out, status=status)
    except _Asked:
        _say(out, asked=True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(pid, spec["grace"], out)


def _read(descriptor: int) -> dict[str, Any]:
    with os.fdopen(descriptor, "rb") as file:
        spec: dict[str, Any] = json.loads(file.read())
    return spec


def _say(out: int, **what: object) -> None:
    """Report to the agent. It may be gone, and then nobody reads this."""
    with contextlib.suppress(OSError):
        os.write(out, json.dumps(what).encode() + b"\n")


def _ask(_number: int, _frame: object) -> None:
    raise _Asked


def _end(pid: int, grace: float, out: int) -> None:
    """Ask the engine's process group to end, then kill all that is left: orphans have become our children."""
    if pid:
        _kill_group(pid, signal.SIGTERM)
        _say_status(pid, grace, out)
    while True:
        for child in _children():
            _kill_group(child, signal.SIGKILL)
            _kill(child)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(0.005)


def _say_status(pid: int, grace: float, out: int) -> None:
    """Give the engine `grace` seconds to end by itself, then kill it, and report how it ended."""
    until = time.monotonic() + grace
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if done:
            return _say(out, status=status)
        if time.monotonic() > until:
            _kill_group(pid, signal.SIGKILL)
            _kill(pid)
        time.sleep(0.02)


def _kill_group(pid: int, number: int) -> None:
    """Signal every member of a process group at once, so that none can fork in between."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Return all our children, which include every process the engine left: orphans go to the nearest subreaper."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return [pid for pid in _numbers() if _parent(pid) == os.getpid()]


def _numbers() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _become(spec: dict[str, Any], guard: int, out: int) -> None:
    """In the child: apply every limit and become the engine. Never returns."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(spec["folder"])
        os.umask(0o077)
        _set_limits(spec)
        confined = _confine(spec)
        _say(out, confined=confined)
        if spec["confined"] and None in confined.values():
            return
        # Last, because entering a namespace resets it.
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:
            os.execve(spec["words"][0], spec["words"], spec["environment"])  # noqa: S606 - the point of this program
    except OSError as error:
        _say(out, error=error.strerror or "unknown error")
    finally:
        os._exit(127)


def _set_limits(spec: dict[str, Any]) -> None:
    """Set resource limits, and make the engine the first process to be killed when memory runs out."""
    for name, value in spec["limits"].items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            _, hard = resource.getrlimit(number)
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (most, most))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _confine(spec: dict[str, Any]) -> dict[str, str | None]:
    """Confine this process, and return by what means: None for what this system does not offer."""
    network = None
    if "namespace" in spec["network"] and _own_network():
        network = "namespace"
        # Within the namespace only the engine counts; outside, the owner's own programs would count too.
        resource.setrlimit(resource.RLIMIT_NPROC, (_THREADS, _THREADS))
    _prctl(_SET_NO_NEW_PRIVS, 1)
    for number in range(_CAPABILITIES):  # even root outside a namespace keeps no privileges
        _prctl(_DROP_CAPABILITY, number)
    files = _restrict_files(spec["readable"], [*spec["writable"], spec["folder"]])
    if network is None and "seccomp" in spec["network"] and _filter_sockets():
        network = "seccomp"
    return {"network": network, "files": files}


def _own_network() -> bool:
    """Enter a network namespace with nothing but a loopback, over which NCCL talks to itself."""
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_USER | _NEW_NET) == 0:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{group} {group} 1")
        _write("/proc/self/uid_map", f"{user} {user} 1")
    elif _LIBC.unshare(_NEW_NET) != 0:
        return False
    # If the loopback cannot be brought up, the network is cut off all the same.
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _GET_IF_FLAGS, request))[1]
        fcntl.ioctl(any_socket, _SET_IF_FLAGS, struct.pack("16sh14x", b"lo", flags | _IF_UP))
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _restrict_files(readable: Sequence[str], writable: Sequence[str]) -> str | None:
    """Apply Landlock: `readable` may be read and executed, `writable` also written; nothing else can be opened."""
    version = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return None
    handled = _ALL | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    words = [handled, 0, _SCOPED] if version >= 6 else [handled]
    attributes = struct.pack(f"={len(words)}Q", *words)
    ruleset = _LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return None
    for path in readable:
        _allow(ruleset, path, _READ)
    for path in writable:
        _allow(ruleset, path, handled)
    _allow_thread_names(ruleset, handled)
    done = _LIBC.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return "landlock" if done else None


def _allow_thread_names(ruleset: int, handled: int) -> None:
    """Let the engine write below its own /proc/self/task: it keeps this process's number.

    CUDA's driver (570 and newer) names its threads there, at /proc/self/task/ID/comm, and does not start where that is
    refused: error 304, "OS call failed" (github.com/NVIDIA/OpenShell/pull/710). All of /proc would let root's engine
    write /proc/sys. The descriptor stays open over exec, since the rule is lost with the folder's inode.
    """
    with contextlib.suppress(OSError):
        own = os.open("/proc/self/task", os.O_PATH)
        os.set_inheritable(own, True)
        rights = handled & (_WRITE_FILE | _TRUNCATE)
        _LIBC.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, own), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= _OF_FILES
    _LIBC.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)
    os.close(descriptor)


def _filter_sockets() -> bool:
    """Install a seccomp filter that allows only local sockets (AF_UNIX, AF_NETLINK), and no way around it."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    program = _program(*machine)
    data = ctypes.create_string_buffer(b"".join(program), 8 * len(program))
    # struct sock_fprog: a count, padding, a pointer
    filter_of = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(data)))
    return bool(_LIBC.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(filter_of), 0, 0) == 0)


def _program(architecture: int, socket_call: int, x32: int | None) -> list[bytes]:
    """Return classic BPF over struct seccomp_data: call number at 0, architecture at 4, arguments from 16."""
    load, equal, above, give = 0x20, 0x15, 0x35, 0x06
    denied, no_family = _ERRNO | errno.EPERM, _ERRNO | errno.EAFNOSUPPORT

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    return [
        step(load, 4),
        step(equal, architecture, 0, 7),
        step(load, 0),
        step(above, x32 or 0xFFFFFFFF, 5, 0),
        step(equal, _IO_URING_SETUP, 4, 0),
        step(equal, socket_call, 0, 5),
        step(load, 16),
        step(equal, socket.AF_UNIX, 3, 0),
        step(equal, socket.AF_NETLINK, 2, 1),
        step(give, denied),
        step(give, no_family),
        step(give, _ALLOW),
    ]


def _prctl(what: int, value: int) -> None:
    _LIBC.prctl(what, value, 0, 0, 0)


if __name__ == "__main__":
    main()
