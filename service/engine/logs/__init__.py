"""Logs that people paste, of servers and benchmark tools of both engines: buffer sizes and speeds."""

from service.engine.logs.read import LogBuffers, LogReading, read_log
from service.engine.logs.requests import MeasuredSpeed

__all__ = ["LogBuffers", "LogReading", "MeasuredSpeed", "read_log"]
