"""A command that somebody uses, checked: memory of every device, speed, findings, and measured against expected."""

from service.engine.check.compare import compare_predicted
from service.engine.check.report import CheckedMemory, CheckReport, Compared
from service.engine.check.run import check

__all__ = ["CheckReport", "CheckedMemory", "Compared", "check", "compare_predicted"]
