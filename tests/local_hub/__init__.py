"""A Hub of two origins on the loopback interface, for tests and for the demo.

It answers as the Hub does where we look: one listing call, redirects to signed addresses on another origin, byte
ranges. Its models have headers of the real shapes and real-size tokenizers, and no weights: zeros of the true size.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from service.engine.gguf.header import Header, merge_shards
from service.engine.gguf.parser import parse_header
from service.hub.listing import RepoFile
from service.hub.variants import find_variants
from tests.local_hub.blobs import Blob, WholeFile
from tests.local_hub.distance import Distance
from tests.local_hub.faults import Fault, Request
from tests.local_hub.repos import REPOS, Repo, commit_of
from tests.local_hub.server import ApiHandler, CdnHandler, Origin
from tests.local_hub.state import MEMBER_TOKEN, TOKEN, State

__all__ = [
    "MEMBER_TOKEN", "REPOS", "TOKEN", "Blob", "Distance", "Fault", "LocalHub", "Repo", "Request", "WholeFile",
    "commit_of",
]  # fmt: skip


class LocalHub:
    """Runs while the context is open. `repos` are served besides the usual ones, as from a `distance`."""

    def __init__(
        self, repos: Mapping[str, Repo] | None = None, port: int = 0, distance: Distance | None = None
    ) -> None:
        self.state = State({**REPOS, **(repos or {})}, distance or Distance())
        self._api, self._cdn = Origin(self.state, ApiHandler, port), Origin(self.state, CdnHandler)
        self.state.cdn_url = self._cdn.url

    def __enter__(self) -> LocalHub:
        self._api.start()
        self._cdn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._api.stop()
        self._cdn.stop()

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT is set to."""
        return self._api.url

    @property
    def cdn(self) -> str:
        """The origin that files are served from."""
        return self._cdn.url

    @property
    def requests(self) -> list[Request]:
        """Requests so far, in the order of their answers."""
        return list(self.state.requests)

    @property
    def n_bytes(self) -> int:
        """Bytes of all bodies sent so far."""
        return sum(request.n_bytes for request in self.state.requests)

    def fail(self, fault: Fault) -> None:
        """Do something wrong from now on."""
        self.state.faults.append(fault)

    def reset(self) -> None:
        """Forget faults and requests."""
        self.state.reset()

    def expire_links(self) -> None:
        """Let every signed address given so far answer 403."""
        self.state.expire_links()

    def header(self, repo: str, variant: str) -> Header:
        """Return the merged header of a variant, parsed from what is served."""
        files = self.state.files(repo)
        listed = (RepoFile(path, blob.n_bytes, blob.oid) for path, blob in files.items())
        found, _ = find_variants(listed, repo.partition("/")[2])
        chosen = next(v for v in found if v.name == variant)
        blobs = [files[file.path] for file in chosen.files]
        return merge_shards([parse_header(blob.front, blob.n_bytes) for blob in blobs])
