"""From nothing to a bot that answers, as docs/self-hosting.md has it for one server: `python -m bench.one_server`.

Each step is that page's own command where it needs no root: the environment, the service, a TLS proxy, a token, a bot
that answers, a backup that is read back, an update. systemd, Discord and the Hub are stand-ins (a process, a platform
that takes messages, the tests' Hub); the certificate is one that signs itself. Prints the seconds that each step took.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import httpx

from bench.stamp import stamp
from tests.bots import discord_payloads
from tests.bots.platforms import APPLICATION, BOT_TOKEN
from tests.end_to_end.stack import free_port
from tests.local_hub import LocalHub

ROOT = Path(__file__).resolve().parents[1]
REPO = "Qwen/Qwen3-0.6B-GGUF"
PATIENCE = 300


class Discord(BaseHTTPRequestHandler):
    """Takes what the bot sends, and keeps it."""

    taken: ClassVar[list[tuple[str, Any]]] = []

    def _take(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.taken.append((f"{self.command} {self.path}", json.loads(content or b"null")))
        said = json.dumps([] if self.command == "PUT" else {"id": APPLICATION}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_PUT = do_PATCH = do_POST = do_DELETE = do_GET = _take

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Walk:
    """One server in a folder: its programs, settings and what runs."""

    def __init__(self, folder: Path, hub: str, discord: str) -> None:
        self.folder, self.port, self.tls = folder, free_port(), free_port()
        self.bin = folder / "venv" / "bin"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))},
            "HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
            "ADVISOR_STATE_DIR": str(folder / "state"), "ADVISOR_PORT": str(self.port), "HF_ENDPOINT": hub,
            "ADVISOR_PUBLIC_URL": f"https://127.0.0.1:{self.tls}", "ADVISOR_TRUSTED_PROXIES": "127.0.0.1/32",
            "ADVISOR_DISCORD_APPLICATION_ID": APPLICATION, "ADVISOR_DISCORD_BOT_TOKEN": BOT_TOKEN,
            "ADVISOR_DISCORD_PUBLIC_KEY": discord_payloads.PUBLIC_KEY, "ADVISOR_DISCORD_API": discord,
        }  # fmt: skip

    def run(self, *words: object, cwd: Path | None = None) -> str:
        """Return what a command prints. Raises SystemExit where it fails."""
        done = subprocess.run(
            list(map(str, words)), cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def install(self) -> None:
        """The page's four lines, as its user."""
        self.run(sys.executable, "-m", "venv", self.folder / "venv")
        self.update()

    def update(self) -> None:
        """Install what the checkout holds."""
        self.run(self.bin / "pip", "install", "--quiet", "-r", ROOT / "requirements.txt")
        self.run(self.bin / "pip", "install", "--quiet", "--no-deps", ROOT)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run what the unit runs, until the block ends."""
        with self._program(self.bin / "advisor", "serve"):
            yield

    @contextmanager
    def proxy(self) -> Iterator[httpx.Client]:
        """Run HAProxy with TLS before the service; the value is a client that trusts its certificate."""
        site, config = self.folder / "site.pem", self.folder / "haproxy.cfg"
        key, certificate = self.folder / "key.pem", self.folder / "cert.pem"
        self.run(
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate,
        )  # fmt: skip
        site.write_text(certificate.read_text() + key.read_text())
        page = (ROOT / "docs" / "self-hosting.md").read_text()
        text = page.partition("```text\ndefaults")[2].partition("```")[0]
        for there, here in (
            ("/etc/haproxy/site.pem", str(site)), ("*:443", f"127.0.0.1:{self.tls}"), ("    bind *:80\n", ""),
            ("127.0.0.1:8000", f"127.0.0.1:{self.port}"),
        ):  # fmt: skip
            text = text.replace(there, here)
        config.write_text(f"defaults{text}")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with self._program("haproxy", "-db", "-f", config), httpx.Client(
            base_url=f"https://127.0.0.1:{self.tls}", verify=trusted, trust_env=False, timeout=60
        ) as client:  # fmt: skip
            yield client

    @contextmanager
    def _program(self, *words: object) -> Iterator[None]:
        with (self.folder / "log").open("a") as log, subprocess.Popen(
            list(map(str, words)), cwd=self.folder, env=self.environment, stdout=log, stderr=log
        ) as process:  # fmt: skip
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)

    def until_ready(self, client: httpx.Client) -> None:
        """Return when the service answers through its proxy."""

        def ready() -> bool:
            try:
                return client.get("/ready").status_code == 200
            except httpx.TransportError:
                return False

        until(ready, self.folder / "log")


def until(what: Any, log: Path) -> None:
    """Return when `what` holds. Raises SystemExit with the log when it does not for long."""
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            raise SystemExit(log.read_text()[-3000:])
        time.sleep(0.1)


def answered(client: httpx.Client, log: Path) -> None:
    """Ask the bot as Discord does, and return when its answer has come."""
    asked = discord_payloads.command("advise", {"repo": REPO, "hardware": "RTX 3090, Ryzen 9 7950X, 128GB"})
    client.post("/bots/discord", **discord_payloads.signed(asked)).raise_for_status()
    until(lambda: any("llama-server" in json.dumps(body) for _, body in Discord.taken), log)


@contextmanager
def step(name: str, took: dict[str, float]) -> Iterator[None]:
    """Time a step."""
    began = time.monotonic()
    yield
    took[name] = time.monotonic() - began
    print(f"{name:<48}{took[name]:>7.1f} s", flush=True)


def walk(folder: Path, hub: str, discord: str) -> Mapping[str, float]:
    """Do every step once; returns what each took, in seconds."""
    took: dict[str, float] = {}
    server = Walk(folder, hub, discord)
    with step("install", took):
        server.install()
    with server.serving(), server.proxy() as client:
        with step("start, until ready through TLS", took):
            server.until_ready(client)
        with step("doctor", took):
            server.run(server.bin / "advisor", "doctor")
        with step("a token", took):
            server.run(server.bin / "advisor", "token", "create", "alice", "--scope", "submit,validate,host")
        with step("tell Discord the commands", took):
            server.run(server.bin / "advisor", "bots", "discord", "register")
        with step("a first question, until the bot has answered", took):
            answered(client, folder / "log")
        with step("backup", took):
            server.run(server.bin / "advisor", "admin", "backup", folder / "a.backup")
    with step("update", took):
        server.update()
    with step("the backup restored into the new version", took):
        server.run("rm", "-r", server.folder / "state")
        server.run(server.bin / "advisor", "admin", "restore", folder / "a.backup")
    with server.serving(), server.proxy() as client, step("start again, until ready", took):
        server.until_ready(client)
    return took


def main() -> int:
    """Print what each step took."""
    platform = ThreadingHTTPServer(("127.0.0.1", 0), Discord)
    Thread(target=platform.serve_forever, daemon=True).start()
    print(stamp())
    with tempfile.TemporaryDirectory(prefix="advisor-one-") as folder, LocalHub() as hub:
        took = walk(Path(folder), hub.endpoint, f"http://127.0.0.1:{platform.server_address[1]}")
    platform.shutdown()
    print(f"{'all':<48}{sum(took.values()):>7.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
