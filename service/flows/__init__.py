"""Use cases: the only place where database, Hub, queue and engine meet.

Every flow is an ordinary function that may block: workers and the CLI call it as it is, the web in a thread
(`anyio.to_thread`). Only listening for progress is asynchronous.
"""
