"""Both databases for every test of the store."""

from tests.databases import database_url, engine, postgres

__all__ = ["database_url", "engine", "postgres"]
