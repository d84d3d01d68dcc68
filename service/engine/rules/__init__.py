"""The engines' rules: what is wrong with a command, what it costs, and what fixes it. One small function a rule.

A rule takes a Case (a command on a machine, its memory computed) and yields what it found. Figures that a rule states
come from the memory and speed models with the fixed flags or placement, never from the rule itself.
"""
