"""What the operator's side of the service does: scheduled jobs, who runs the service, removal requests."""
