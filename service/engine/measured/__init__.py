"""What an engine's benchmark program printed, as data: rows of raw times, or why there are none."""
