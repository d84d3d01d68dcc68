"""Where the command line keeps what it has read: the user's cache folder, never the folder it stands in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

_NAME = "offload-advisor"


def cache_folder(environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the user's cache folder: XDG_CACHE_HOME, or what the system has in its place."""
    if stated := environment.get("XDG_CACHE_HOME"):
        return Path(stated) / _NAME
    if platform == "win32" and (local := environment.get("LOCALAPPDATA")):
        return Path(local) / _NAME / "cache"
    home = Path.home()
    return (home / "Library" / "Caches" if platform == "darwin" else home / ".cache") / _NAME
