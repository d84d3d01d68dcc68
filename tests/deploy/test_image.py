"""The Dockerfile makes a small image without a root user, whose commands run. No container engine was at hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.settings import VARIABLES
from tests.deploy.image import IMITATED, ROOT, Image, lines, sent
from tests.end_to_end.stack import free_port
from tests.waiting import wait_for

MOST_BYTES = 220 * 10**6
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_last_stage_has_no_root_user_a_healthcheck_and_known_settings() -> None:
    named = {line.name: line.text for line in lines(DOCKERFILE)}  # of what is said twice, the last
    assert named["USER"] == "advisor"
    assert named["CMD"] == '["advisor", "serve"]'
    assert "/health" in named["HEALTHCHECK"]
    stated = {word.partition("=")[0] for word in named["ENV"].split()} - {"PATH"}
    assert stated <= set(VARIABLES)


def test_only_what_is_copied_is_sent_to_a_build() -> None:
    copied = [line.text.split()[:-1] for line in lines(DOCKERFILE) if line.name == "COPY" and "--from" not in line.text]
    assert {source for sources in copied for source in sources} == set(sent())
    assert all((ROOT / name).exists() for name in sent())


def test_only_what_needs_root_is_imitated() -> None:
    commands = [command for line in lines(DOCKERFILE) if line.name == "RUN" for command in line.text.split(" && ")]
    assert set(IMITATED) <= set(commands)
    assert DOCKERFILE.count("apt-get") == 2
    assert not re.search(r"curl|sudo", DOCKERFILE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    made = Image(tmp_path_factory.mktemp("image"))
    made.build(DOCKERFILE)
    return made


@pytest.fixture
def port() -> str:
    return str(free_port())


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_server_is_small_and_brings_no_installer(image: Image) -> None:
    n_bytes = image.n_bytes("/opt/advisor")
    print(f"installed server: {n_bytes / 1e6:.0f} MB")
    assert n_bytes < MOST_BYTES
    installed = {path.name for path in (image.root / "opt/advisor").rglob("site-packages/*")}
    assert {"service", "workers"} <= installed
    assert not {"pip", "setuptools", "tests", "pytest"} & installed
    assert not [path for path in (image.root / "opt/advisor/bin").iterdir() if re.match("pip|gcc|cc", path.name)]


@pytest.mark.full
def test_the_default_command_answers_the_healthcheck_and_ends_in_order(image: Image, port: str) -> None:
    before = set(_files(image))
    assert image.run(image.health, ADVISOR_PORT=port).returncode != 0
    service = image.start(image.command, ADVISOR_PORT=port)
    try:
        wait_for(lambda: image.run(image.health, ADVISOR_PORT=port).returncode == 0, "it does not answer")
        service.terminate()
        assert service.wait(60) == 0
    finally:
        service.kill()
        service.wait()
    written = {path for path in set(_files(image)) - before if not path.startswith(("var/lib/advisor/", "var/cache/"))}
    assert written == set()


def _files(image: Image) -> Iterator[str]:
    root = image.root.resolve()
    return (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.full
def test_each_other_command_of_the_image_runs(image: Image, tmp_path: Path) -> None:
    migrated = image.run(["advisor", "admin", "migrate"], ADVISOR_STATE_DIR=str(tmp_path))
    assert migrated.stdout.startswith("tables of "), migrated.stderr
    for module, says in (("workers.run", "a worker needs REDIS_URL"), ("workers.bots", "bots: ")):
        refused = image.run(["python", "-m", module])
        assert (refused.returncode, says in refused.stderr) == (1, True), refused.stderr
