"""Measurements: what a benchmark program printed, as rows of raw times or the cause of failure, and what they tell."""
