"""Slack: slash commands, message shortcuts and buttons arrive over HTTP; answers go to the `response_url`."""
