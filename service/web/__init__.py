"""The HTTP layer: API, pages, problems, security, limits."""
