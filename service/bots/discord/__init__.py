"""Discord: interactions arrive over HTTP, answers go to the interaction's webhook. No gateway, no message content."""
