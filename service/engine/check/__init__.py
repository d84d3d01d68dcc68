"""A command that somebody uses, checked: memory of every device, speed, findings, and measured against expected."""
