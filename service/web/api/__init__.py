"""The public API, one file a resource."""

from service.web.api import advice, check, hardware, health, repos

API = [advice.router, check.router, repos.router, hardware.router]  # counted for each client
ROUTERS = [*API, health.router]
