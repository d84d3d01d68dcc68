"""The agent on a GPU host: it asks for runs, measures them under its owner's policy, and reports."""
