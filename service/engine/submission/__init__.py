"""What people paste of their benchmarks: a command and its output, mangled by chats and terminals."""

from service.engine.submission.agreement import disagreement
from service.engine.submission.command import plain_command
from service.engine.submission.reading import Reading, read_paste
from service.engine.submission.tables import Tool

__all__ = ["Reading", "Tool", "disagreement", "plain_command", "read_paste"]
