"""Discord and Slack: one set of verbs, which call flows; each platform only translates."""
