"""HTTP: API, pages, problems, security, limits."""
