"""Programs that work in the background."""
