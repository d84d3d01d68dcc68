"""A release: `python -m scripts.release VERSION [--dry-run]`. Nothing is pushed; the last lines say what to push.

Version, changelog and the API's document are written, the commit and its annotated tag made, wheel and sdist built into
dist/, and the image where a container engine can pull what it starts from. `--dry-run` does all of it in a clone that
is thrown away.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class Impossible(Exception):
    """Why a release is not possible."""


def main() -> int:
    """Make a release, or show what it would be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="in a clone of the last commit")
    arguments = parser.parse_args()
    try:
        if not arguments.dry_run:
            release(ROOT, arguments.version, datetime.now(UTC).date())
            print(f"now: git push origin HEAD v{arguments.version}; uv publish; push the image if there is one")
            return 0
        for role in ("AUTHOR", "COMMITTER"):  # a machine of CI has no name
            os.environ |= {f"GIT_{role}_NAME": "dry run", f"GIT_{role}_EMAIL": "dry@run.invalid"}
        with tempfile.TemporaryDirectory() as folder:
            clone = Path(folder) / "clone"
            _run(ROOT, "git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
            release(clone, arguments.version, datetime.now(UTC).date())
        print("dry run: nothing was changed")
    except Impossible as impossible:
        print(f"no release: {impossible}", file=sys.stderr)
        return 1
    return 0


def release(root: Path, version: str, today: date) -> None:
    """Make the release of the checkout at `root`. Raises Impossible before anything is changed."""
    text, init = root / "CHANGELOG.md", root / "service" / "__init__.py"
    before = re.search(r'__version__ = "(.*)"', init.read_text())
    changed = dated(text.read_text(), version, today)
    if before is None or not _newer(version, before[1]):
        raise Impossible(f"{version} does not come after {before[1] if before else 'any version'}")
    if _run(root, "git", "status", "--porcelain"):
        raise Impossible("commit what is changed first")
    if _run(root, "git", "tag", "--list", f"v{version}"):
        raise Impossible(f"there is a tag v{version}")
    text.write_text(changed)
    init.write_text(init.read_text().replace(before[0], f'__version__ = "{version}"'))
    _run(root, sys.executable, "scripts/openapi.py")
    _run(root, "git", "commit", "--quiet", "--all", "--message", f"Release {version}")
    _run(root, "git", "tag", "--annotate", f"v{version}", "--message", f"Offload Advisor {version}")
    print(_run(root, "git", "show", "--stat", "--format=commit: %s", "HEAD").strip())
    _build(root, version)
    engine = next((name for name in ("docker", "podman") if shutil.which(name) and _succeeds(root, name, "info")), None)
    if not engine:
        print("image: not built, for there is no container engine here")
    elif missing := [image for image in _base_images(root) if not _succeeds(root, engine, "pull", image)]:
        print(f"image: not built, for {engine} cannot pull {', '.join(missing)}")
    else:
        _run(root, engine, "build", "--tag", f"offload-advisor:{version}", ".")
        print(f"image: offload-advisor:{version}")


def _base_images(root: Path) -> list[str]:
    return sorted(set(re.findall(r"^FROM (\S+)", (root / "Dockerfile").read_text(), re.M)))


def _succeeds(root: Path, *words: str) -> bool:
    return not subprocess.run(words, cwd=root, capture_output=True, check=False).returncode


def dated(changelog: str, version: str, today: date) -> str:
    """Return the changelog with its unreleased changes under a version and a date. Raises Impossible if there are
    none."""
    parts = re.split(r"^## (Unreleased)\n", changelog, maxsplit=1, flags=re.M)
    if len(parts) != 3 or not re.split(r"^## ", parts[2], maxsplit=1, flags=re.M)[0].strip():
        raise Impossible("CHANGELOG.md has nothing under Unreleased")
    return f"{parts[0]}## Unreleased\n\n## {version} ({today})\n{parts[2]}"


def _newer(version: str, before: str) -> bool:
    new, old = _VERSION.fullmatch(version), _VERSION.fullmatch(before)
    return bool(new and old) and [int(n) for n in new.groups()] > [int(n) for n in old.groups()]  # type: ignore[union-attr]


def _build(root: Path, version: str) -> None:
    """Build wheel and sdist, and verify that the wheel has this version and contains only the program."""
    shutil.rmtree(root / "dist", ignore_errors=True)
    _run(root, str(Path(sys.executable).parent / "uv"), "build", "--quiet", "--out-dir", "dist", ".")
    (wheel,) = (root / "dist").glob("*.whl")
    if f"-{version}-" not in wheel.name:
        raise Impossible(f"the wheel is {wheel.name}")
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    if tops != {"service", "workers", f"offload_advisor-{version}.dist-info"}:
        raise Impossible(f"the wheel has {', '.join(sorted(tops))}")
    for path in sorted((root / "dist").glob("offload*")):
        print(f"built: {path.name}, {path.stat().st_size / 1e6:.1f} MB")


def _run(root: Path, *words: str) -> str:
    """Return the output of a command run in `root`, with its packages importable. Raises Impossible if it fails."""
    done = subprocess.run(
        words, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Impossible(f"{' '.join(words[:3])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
