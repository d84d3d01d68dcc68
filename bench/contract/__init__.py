"""Whether the API keeps what its OpenAPI document promises, and what strangers' payloads do to it."""
