"""The public API, one file a resource."""

from service.web.api import advice, agent, check, hardware, health, hosts, repos, validations

API = [
    advice.router,
    check.router,
    repos.router,
    hardware.router,
    hosts.router,
    validations.router,
    agent.router,
]  # counted for each client
ROUTERS = [*API, health.router]
