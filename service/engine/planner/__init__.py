"""The planner: what is worth trying, what fits, what is fastest, and why."""
