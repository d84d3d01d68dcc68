"""The routes of the API, one module per resource, and those for monitors."""

from __future__ import annotations

from service.web.advice import advice_api, check_api, hardware_api, repos_api
from service.web.measuring import agent_api, hosts_api, validations_api
from service.web.operations import health_api
from service.web.results import moderation_api, results_api

API = [
    advice_api.router,
    check_api.router,
    repos_api.router,
    hardware_api.router,
    hosts_api.router,
    validations_api.router,
    results_api.router,
    moderation_api.router,
    agent_api.router,
]  # rate-limited per client
PARTS = [health_api.router]  # asked by monitors, which are not rate-limited
ROUTERS = [*API, *PARTS]  # in the OpenAPI document
