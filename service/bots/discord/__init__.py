"""Discord: interactions over HTTP, answers by the interaction's webhook. No gateway, no message content."""
