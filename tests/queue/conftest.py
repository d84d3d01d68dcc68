"""A real Valkey for every test of the queue."""

from tests.valkeys import redis, valkey

__all__ = ["redis", "valkey"]
