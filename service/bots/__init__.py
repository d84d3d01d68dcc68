"""The Discord and Slack bots: one set of verbs, which call flows; each platform only translates."""
