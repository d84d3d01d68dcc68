"""The public API, one file a resource."""

from service.web.api import advice, agent, check, hardware, health, hosts, repos

API = [
    advice.router,
    check.router,
    repos.router,
    hardware.router,
    hosts.router,
    agent.router,
]  # counted for each client
ROUTERS = [*API, health.router]
