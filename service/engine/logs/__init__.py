"""Logs that people paste, of servers and benchmark tools of both engines: buffer sizes and speeds."""

from service.engine.logs.read import LogReading, read_log
from service.engine.logs.timings import MeasuredSpeed

__all__ = ["LogReading", "MeasuredSpeed", "read_log"]
