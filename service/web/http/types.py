"""The framework's request and connection types, without type parameters, which nothing here uses."""

from __future__ import annotations

from typing import Any, TypeAlias

from litestar import Request
from litestar.connection import ASGIConnection

HttpRequest: TypeAlias = Request[Any, Any, Any]
Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]
