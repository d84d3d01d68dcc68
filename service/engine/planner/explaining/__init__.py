"""What the answer says of its configs: commands, reasons, comparisons, what else was tried, what would help."""
