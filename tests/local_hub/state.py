"""What both origins of the local Hub know: repos, signed addresses, faults, and the requests so far."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple

from tests.local_hub.blobs import Blob
from tests.local_hub.distance import Distance
from tests.local_hub.faults import Fault, Place, Request
from tests.local_hub.repos import Files, Repo, commit_of

TOKEN = "hf_local_reader"
MEMBER_TOKEN = "hf_local_member"  # accepted the gated repo's terms, and sees the private one


class Link(NamedTuple):
    """What a signed address stands for."""

    repo: str
    path: str
    blob: Blob


class State:
    """Shared by the threads of both origins."""

    def __init__(self, repos: Mapping[str, Repo], distance: Distance) -> None:
        self.repos, self.distance = repos, distance
        self.tokens = {TOKEN, MEMBER_TOKEN}
        self.branches: dict[str, dict[str, str]] = {name: {"main": commit_of(name)} for name in repos}
        self.cdn_url = ""
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.round = 0
        self._links: dict[str, Link] = {}
        self._files: dict[str, Files] = {}
        self._lock = Lock()

    def files(self, repo: str) -> Files:
        """The repo's files, made when first asked for."""
        with self._lock:
            if repo not in self._files:
                self._files[repo] = self.repos[repo].files()
            return self._files[repo]

    def commit(self, repo: str, revision: str) -> str | None:
        """The commit that a branch is at, or the commit itself."""
        branches = self.branches[repo]
        return branches.get(revision) or (revision if revision in branches.values() else None)

    def may_see(self, repo: str, token: str) -> bool:
        """Whether the repo exists for the bearer of `token`."""
        return repo in self.repos and (not self.repos[repo].private or token == MEMBER_TOKEN)

    def may_read(self, repo: str, token: str) -> bool:
        """Whether the bearer of `token` may read the repo's files."""
        return not self.repos[repo].gated or token == MEMBER_TOKEN

    def sign(self, repo: str, path: str, blob: Blob) -> str:
        """Return an address on the other origin that serves the file until `expire_links`."""
        signature = secrets.token_hex(32)
        with self._lock:
            self._links[signature] = Link(repo, path, blob)
        return f"{self.cdn_url}/xet-bridge/{blob.oid}?X-Amz-Expires=3600&X-Amz-Signature={signature}"

    def link(self, signature: str) -> Link | None:
        """What a signature stands for, or None when it was never given or has expired."""
        return self._links.get(signature)

    def expire_links(self) -> None:
        """Let every signed address so far answer 403."""
        self._links.clear()

    def take_fault(self, at: Place, repo: str, path: str) -> Fault | None:
        """Return the first fault that concerns a request, and use it up once."""
        with self._lock:
            found = next((f for f in self.faults if f.concerns(at, repo, path)), None)
            if found is not None and found.times is not None:
                found.times -= 1
            return found

    def record(self, request: Request, round_number: int) -> None:
        """Remember a request, unless it came in before the last `reset`.

        It is noted before it is answered, so that a caller who has the answer finds it here.
        """
        with self._lock:
            if round_number == self.round:
                self.requests.append(request)

    def reset(self) -> None:
        """Forget faults and requests, those that are still being answered too."""
        with self._lock:
            self.round += 1
            self.faults.clear()
            self.requests.clear()

    def description(self, name: str, commit: str, *, with_sizes: bool) -> dict[str, object]:
        """What `/api/models/{name}` says, in the Hub's names."""
        repo = self.repos[name]
        siblings: list[dict[str, object]] = []
        for path, blob in sorted(self.files(name).items()):
            sibling: dict[str, object] = {"rfilename": path}
            if with_sizes:
                sibling |= {"size": blob.n_bytes, "blobId": blob.oid[:40]}
                if blob.is_lfs:
                    sibling["lfs"] = {"sha256": blob.oid, "size": blob.n_bytes, "pointerSize": 135}
            siblings.append(sibling)
        return self._summary(name) | {
            "sha": commit,
            "private": repo.private,
            "gated": repo.gated,
            "disabled": False,
            "cardData": {"base_model": repo.base_model} if repo.base_model else {},
            "siblings": siblings,
        }

    def search(self, query: Mapping[str, list[str]]) -> list[dict[str, object]]:
        """What `/api/models?filter=…` says: public repos with all the tags, most downloaded first."""
        wanted = set(query.get("filter", []))
        limit = int(query.get("limit", ["1000"])[0])
        found = [name for name, repo in self.repos.items() if wanted <= set(_tags(repo)) and not repo.private]
        words = " ".join(query.get("search", [])).lower().split()
        found = [name for name in found if all(word in name.lower() for word in words)]
        found.sort(key=lambda name: -self.repos[name].downloads)
        return [self._summary(name) for name in found[:limit]]

    def _summary(self, name: str) -> dict[str, object]:
        repo = self.repos[name]
        summary: dict[str, object] = {"id": name, "modelId": name, "author": name.split("/")[0], "tags": _tags(repo)}
        return summary | {"downloads": repo.downloads, "likes": 1, "library_name": "gguf" if repo.gguf else None}


def _tags(repo: Repo) -> list[str]:
    tags = ["gguf", "conversational"] if repo.gguf else ["safetensors"]
    if repo.base_model:
        tags += [f"base_model:{repo.base_model}", f"base_model:quantized:{repo.base_model}"]
    return tags
