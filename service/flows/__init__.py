"""Use cases: the only place where database, Hub, queue and engine meet.

Flows are ordinary blocking functions: workers and the CLI call them directly, the web layer in a thread
(`anyio.to_thread`). Only listening for progress is asynchronous.
"""
