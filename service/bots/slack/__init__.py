"""Slack: slash commands, message shortcuts and buttons over HTTP, answers by `response_url`."""
