"""Data that the service ships: published results (`published.jsonl`, written by `scripts/seed.py`)."""
