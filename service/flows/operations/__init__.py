"""The operator's side of the service: scheduled jobs, health, diagnosis, retention, removal requests."""
