"""Pin the images of compose.yaml and the Dockerfile by digest, as their registry has them now: `make pin-images`.

A tag may mean another image tomorrow; a digest never does. The registry is asked by `docker buildx imagetools`, so this
needs Docker and a way out. Run it again to move to the newest image of each tag.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = ("compose.yaml", "Dockerfile")
_NAMED = re.compile(r"^(\s*image: |FROM )([a-z0-9./-]+:[\w.-]+)(?:@sha256:[0-9a-f]{64})?", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(image: str) -> str:
    """Return an image tag's `sha256:…`, which covers all its platforms. Raises SystemExit with the reason if it
    fails."""
    words = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit("docker is not here: digests are asked of the registry by `docker buildx imagetools inspect`")
    if done.returncode or not _DIGEST.fullmatch(done.stdout.strip()):
        sys.exit(f"{image}: {' '.join((done.stderr or done.stdout).split())}")
    return done.stdout.strip()


def main(root: Path = ROOT) -> int:
    """Write the digests into the files below `root`, all or none; return 0."""
    texts = {name: (root / name).read_text() for name in FILES}
    images = {found[2] for text in texts.values() for found in _NAMED.finditer(text)}
    digests = {image: digest_of(image) for image in sorted(images)}
    for name, text in texts.items():
        (root / name).write_text(_NAMED.sub(lambda found: f"{found[1]}{found[2]}@{digests[found[2]]}", text))
    for image, digest in digests.items():
        print(f"{image}@{digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
