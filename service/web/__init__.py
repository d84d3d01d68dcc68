"""The HTTP face: API, pages, problems, security, limits."""
