"""What the Hub, or what lies on it, makes impossible, as one tree.

AdvisorError (service/engine/errors.py)
├── RepoNotFound            no repo of that name is visible to this service
├── RevisionNotFound        the repo has no such branch, tag or commit
├── RepoGated               the repo's terms must be accepted first
├── RepoWithoutGguf         the repo has no complete GGUF; `choices` are repos that have
├── RepoTooLarge            more variants, shards or header bytes than are read at once: asks for a variant
├── HubUnavailable          the Hub does not answer, or fails; `retry_after` in seconds
├── HubBusy                 this process reads as many repos as it may; `retry_after` in seconds
├── HubRateLimited          the Hub asks to wait; `retry_after` in seconds
├── HubUnauthorised         the Hub refuses this service's own token
└── HubReplyRefused         a reply that is not followed: another host, another size, another range
"""

from __future__ import annotations

from service.engine.errors import AdvisorError


class RepoNotFound(AdvisorError):
    problem = "repo-not-found"


class RevisionNotFound(AdvisorError):
    problem = "revision-not-found"


class RepoGated(AdvisorError):
    problem = "repo-gated"


class RepoWithoutGguf(AdvisorError):
    problem = "repo-without-gguf"


class RepoTooLarge(AdvisorError):
    problem = "repo-too-large"


class _AskLater(AdvisorError):
    def __init__(self, detail: str, *, retry_after: int) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class HubUnavailable(_AskLater):
    problem = "hub-unavailable"


class HubBusy(_AskLater):
    problem = "service-unavailable"


class HubRateLimited(_AskLater):
    problem = "hub-rate-limited"


class HubUnauthorised(AdvisorError):
    problem = "hub-unauthorised"


class HubReplyRefused(AdvisorError):
    problem = "hub-reply-refused"
