"""Kills and pauses, at random and repeatable, of every part of a service in the middle of a stream of requests.

    python -m bench.chaos [--minutes 40] [--seed 1] [--faults 369] [--together]

The parts are processes as in production (`parts`), what is done to them is drawn from the seed (`faults`), clients ask
all the while and write down what was accepted (`clients`, `ledger`); at the end that is held against the database
(`truth`). `--together`: one `advisor serve` with its own workers, Valkey and SQLite.
"""
