"""What an answer says about its configs: commands, reasons, comparisons, what else was tried, what would help."""
