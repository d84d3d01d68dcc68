"""The public API, one file a resource."""

from service.web.api import (
    accuracy,
    advice,
    agent,
    check,
    hardware,
    health,
    hosts,
    metrics,
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
PARTS = [health.router, metrics.router]  # asked by monitors, which are not counted
ROUTERS = [*API, *PARTS]
