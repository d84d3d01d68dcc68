"""Wheel and sdist in empty environments: the command line, the server and the agent run from them alone."""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.stack import free_port
from tests.local_hub import LocalHub
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
REPO, HARDWARE = "Qwen/Qwen3-0.6B-GGUF", "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


class Installed:
    """A built file with some extras in an environment of its own. `seconds`, `n_bytes`: what installing took."""

    def __init__(self, folder: Path, built: Path, extra: str) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        run(UV, "venv", "--quiet", "--python", sys.executable, folder / "env")
        began = time.monotonic()
        what = f"{built}[{extra}]" if extra else str(built)
        run(UV, "pip", "install", "--quiet", "--python", folder / "env" / "bin" / "python", what)
        self.seconds = time.monotonic() - began
        du = run("du", "-s", "-B1", folder / "env")
        print(f"{built.suffix} [{extra}]: {int(du.split()[0]) / 1e6:.0f} MB, installed in {self.seconds:.1f} s")

    def advisor(self, *words: str, code: int = 0, **environment: str) -> str:
        """Return what the installed command prints, started far from the checkout."""
        began = time.monotonic()
        said = run(self.program, *words, code=code, cwd=self.home, env=self.environment | environment)
        print(f"advisor {' '.join(words[:2])}: {time.monotonic() - began:.1f} s")
        return said

    @property
    def program(self) -> Path:
        return self.folder / "env" / "bin" / "advisor"

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def run(*words: object, code: int = 0, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--out-dir", folder, ROOT)
    found = {path.suffix: path for path in folder.iterdir() if path.suffix in (".whl", ".gz")}
    print({path.name: f"{path.stat().st_size / 1e6:.1f} MB" for path in found.values()})
    return found


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


def test_the_wheel_has_the_program_only(built: dict[str, Path]) -> None:
    names = zipfile.ZipFile(built[".whl"]).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"service", "workers", "offload_advisor"}
    assert any(name.endswith("dist-info/licenses/NOTICE") for name in names)
    assert built[".whl"].stat().st_size < 5 * 10**6


@pytest.mark.parametrize("suffix", [".whl", ".gz"])
def test_the_command_line_advises_and_checks(
    built: dict[str, Path], suffix: str, hub: LocalHub, tmp_path: Path
) -> None:
    installed = Installed(tmp_path, built[suffix], "")
    said = installed.advisor("advise", REPO, "-H", HARDWARE, HF_ENDPOINT=hub.endpoint)
    assert said.startswith("Yes: ")
    command = "llama-server -m Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 99"
    assert "Fits" in installed.advisor("check", command, "--model", REPO, "-H", HARDWARE, HF_ENDPOINT=hub.endpoint)
    assert "[server]" in installed.advisor("serve", code=1)


def test_the_server_answers(built: dict[str, Path], hub: LocalHub, tmp_path: Path) -> None:
    installed = Installed(tmp_path, built[".whl"], "server")
    with serving(installed, hub) as address:
        asked = {"repo": REPO, "hardware": HARDWARE}
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            reply = client.post("/v1/advice?wait=30&detail=card", json=asked)
            assert reply.json()["state"] == "ready"
            assert client.get("/leaderboard").status_code == 200


def test_the_agent_is_there_and_waits_to_be_enrolled(built: dict[str, Path], tmp_path: Path) -> None:
    installed = Installed(tmp_path, built[".whl"], "agent")
    assert "enrol" in installed.advisor("host", "run", code=78)
    assert "litestar" not in run(UV, "pip", "list", "--python", tmp_path / "env" / "bin" / "python")


@contextmanager
def serving(installed: Installed, hub: LocalHub) -> Iterator[str]:
    address = f"http://127.0.0.1:{(port := free_port())}"
    stated = {
        "ADVISOR_PORT": str(port),
        "ADVISOR_STATE_DIR": str(installed.home / "state"),
        "HF_ENDPOINT": hub.endpoint,
    }
    began = time.monotonic()
    with (installed.home / "log").open("w") as log, subprocess.Popen(
        [installed.program, "serve"], cwd=installed.home, env=installed.environment | stated, stdout=log, stderr=log
    ) as process:  # fmt: skip
        try:
            wait_for(lambda: is_ready(address, process), lambda: (installed.home / "log").read_text())
            print(f"advisor serve: ready after {time.monotonic() - began:.1f} s")
            yield address
        finally:
            process.terminate()
            process.wait(60)


def is_ready(address: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    try:
        return httpx.get(f"{address}/ready", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
