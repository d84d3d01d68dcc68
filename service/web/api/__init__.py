"""The public API, one file a resource."""

from service.web.api import (
    accuracy,
    advice,
    agent,
    check,
    hardware,
    health,
    hosts,
    moderation,
    repos,
    results,
    validations,
)

API = [
    advice.router,
    check.router,
    repos.router,
    hardware.router,
    hosts.router,
    validations.router,
    results.router,
    moderation.router,
    accuracy.router,
    agent.router,
]  # counted for each client
ROUTERS = [*API, health.router]
