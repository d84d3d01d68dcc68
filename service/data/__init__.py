"""Data that the service ships: published results (`published.jsonl`, written by `scripts/seed.py`), and what is
predicted of them (`predictions.jsonl`, by `bench.published`)."""
