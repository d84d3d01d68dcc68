"""What the Hub, or what lies on it, makes impossible. service/wire/problems.json says when, by its `problem`."""

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
