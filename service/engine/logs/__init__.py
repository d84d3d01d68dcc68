"""Logs that people paste, of servers and benchmark tools of both engines: buffer sizes and speeds."""
