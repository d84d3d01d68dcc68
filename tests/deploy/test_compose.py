"""compose.yaml and deploy/haproxy.cfg name only what there is: settings, commands, services, networks, addresses."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import pin_images
from service.cli import command_line
from service.settings import Settings, load_settings
from tests.deploy.replicas import CONFIGURATION, checked, proxy_configuration

ROOT = CONFIGURATION.parents[1]
OF_THE_OPERATOR = {
    "POSTGRES_PASSWORD": "secret", "ADVISOR_PUBLIC_URL": "https://advisor.example",
    "ADVISOR_SLACK_SIGNING_SECRET": "s",
}  # fmt: skip
REPLICAS = ("api-1", "api-2", "gateway")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def ours(compose: dict[str, Any]) -> dict[str, Any]:
    """The services that run our image."""
    return {name: one for name, one in compose["services"].items() if one["image"] == "offload-advisor"}


def settings_of(service: dict[str, Any]) -> Settings:
    """The settings of a service, with what the operator sets."""

    def stated(found: re.Match[str]) -> str:
        return OF_THE_OPERATOR.get(found[1], "")

    environment = service["environment"].items()
    return load_settings({name: re.sub(r"\$\{(\w+)(?::[?-][^}]*)?\}", stated, value) for name, value in environment})


def test_each_part_has_settings_that_are_understood(ours: dict[str, Any]) -> None:
    for service in ours.values():
        settings = settings_of(service)
        assert settings.database == "postgresql://advisor:secret@postgres/advisor"
        assert settings.has_bots
        assert settings.public_url == "https://advisor.example"


def test_each_part_is_a_command_of_the_image(ours: dict[str, Any]) -> None:
    assert set(ours) == {*REPLICAS, "worker", "bots", "migrate", "admin"}
    for service in ours.values():
        program, *words = service["command"]
        if program == "advisor":
            command_line().parse_args(words)
        else:
            assert (program, words[0]) == ("python", "-m")
            assert find_spec(words[1])


def test_no_secret_is_in_a_command_or_in_the_file(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert not re.search("PASSWORD|TOKEN|SECRET", " ".join(service.get("command", [])))
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|SECRET", name):
                assert value.startswith("${"), name


def test_what_is_named_exists(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        assert set(service.get("networks", [])) <= set(compose["networks"])
        assert set(service.get("depends_on", [])) <= set(services)
        named = {text.partition(":")[0] for text in service.get("volumes", [])}
        assert {name for name in named if not name.startswith("./")} <= set(compose["volumes"])
        assert all((ROOT / name).exists() for name in named if name.startswith("./"))


def test_only_the_proxy_is_reached_from_outside_and_it_reaches_no_database(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {name for name, one in services.items() if "ports" in one} == {"proxy"}
    assert set(services["proxy"]["networks"]) == {"front"}
    assert services["postgres"]["networks"] == services["valkey"]["networks"] == ["back"]
    assert compose["networks"]["back"] == {"internal": True}


def test_the_proxy_and_nobody_else_is_believed(compose: dict[str, Any]) -> None:
    address = ip_address(compose["services"]["proxy"]["networks"]["front"]["ipv4_address"])
    assert address in ip_network(compose["networks"]["front"]["ipam"]["config"][0]["subnet"])
    for name in REPLICAS:
        assert settings_of(compose["services"][name]).trusted_proxies == (f"{address}/32",)


def test_the_proxy_hears_of_an_end_before_the_listener_closes(compose: dict[str, Any]) -> None:
    configuration = CONFIGURATION.read_text()
    inter, check = (float(re.search(rf"{what} (\d+)s", configuration)[1]) for what in ("inter", "timeout check"))  # type: ignore[index]
    for name in REPLICAS:
        service = compose["services"][name]
        drain = settings_of(service).drain_seconds
        assert drain > inter + check
        assert float(service["stop_grace_period"].removesuffix("s")) > drain + 10


def test_the_proxy_knows_the_replicas_and_no_others() -> None:
    servers = set(re.findall(r"^ +server (\S+) (\S+)", CONFIGURATION.read_text(), re.MULTILINE))
    assert servers == {(name, f"{name}:8000") for name in REPLICAS}


@pytest.mark.full
def test_the_file_is_of_the_compose_specification() -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_the_proxy_takes_its_configuration(tmp_path: Path) -> None:
    written = tmp_path / "haproxy.cfg"
    addresses = dict.fromkeys(REPLICAS, "127.0.0.1:9")
    written.write_text(proxy_configuration("http://127.0.0.1:8080", addresses))
    assert checked(written).returncode == 0, checked(written).stderr


def test_backups_are_made_by_the_tools_of_the_server_s_own_version(compose: dict[str, Any]) -> None:
    major = re.match(r"postgres:(\d+)", compose["services"]["postgres"]["image"])
    assert major
    assert f"postgresql-client-{major[1]} " in (ROOT / "Dockerfile").read_text()
    admin = compose["services"]["admin"]
    assert "backups:/var/backups/advisor" in admin["volumes"]
    assert settings_of(admin).database == settings_of(compose["services"]["api-1"]).database


def test_images_are_pinned_by_the_digests_that_the_registry_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in pin_images.FILES:
        (tmp_path / name).write_text((ROOT / name).read_text())
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho sha256:$(printf %s "$4" | sha256sum | cut -c1-64)\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for _ in range(2):  # the second time digests are there already
        assert pin_images.main(tmp_path) == 0
    pinned = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    for name, service in yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].items():
        image = service["image"]
        digest = hashlib.sha256(image.encode()).hexdigest()
        assert pinned[name]["image"] == (image if image == "offload-advisor" else f"{image}@sha256:{digest}")
    bases = re.findall(r"^FROM (.*)$", (tmp_path / "Dockerfile").read_text(), re.MULTILINE)
    assert all(re.match(r"python:3\.11-slim-trixie@sha256:[0-9a-f]{64}\b", base) for base in bases)
    docker.write_text("#!/bin/sh\necho no such tag >&2; exit 1\n")
    with pytest.raises(SystemExit, match="no such tag"):
        pin_images.main(tmp_path)
