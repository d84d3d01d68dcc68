"""The program on a GPU host: it asks for runs, measures them under the owner's policy, and reports."""
