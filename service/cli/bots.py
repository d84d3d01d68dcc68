"""`advisor bots`: registers the commands with Discord, and prints the manifest for a Slack app."""

from __future__ import annotations

import argparse

from service.cli.inputs import load_settings
from service.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    platforms = parser.add_subparsers(title="platforms", required=True, metavar="PLATFORM", dest="platform")
    discord = platforms.add_parser("discord", help="the Discord application").add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="action"
    )
    register = discord.add_parser("register", help="register the commands with Discord")
    register.add_argument(
        "--guild", metavar="ID", help="only in this server, with immediate effect (default: everywhere)"
    )
    register.add_argument("--json", action="store_true", help="the names of the commands as JSON")
    slack = platforms.add_parser("slack", help="the Slack app").add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="action"
    )
    manifest = slack.add_parser("manifest", help="print the manifest to create the Slack app from")
    manifest.add_argument(
        "--no-bot", action="store_true", help="without the right to write messages, which late answers need"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0. Raises InvalidSetting, InvalidInput, ServiceUnavailable."""
    from service.bots.discord.commands import register
    from service.bots.sending import new_client
    from service.bots.slack.manifest import manifest
    from service.errors import InvalidSetting

    settings = load_settings()
    if arguments.platform == "discord":
        with new_client(settings) as client:
            names = register(client, settings, arguments.guild)
        if arguments.json:
            print_json(names)
            return 0
        where = f"server {arguments.guild}" if arguments.guild else "every server that has the application"
        print(f"Registered in {where}: {', '.join(names)}")
        return 0
    if settings.public_url is None:
        raise InvalidSetting("set the address at which Slack reaches this service", field="ADVISOR_PUBLIC_URL")
    print_json(manifest(settings.public_url.rstrip("/"), settings.bot_verbs_off, with_bot=not arguments.no_bot))
    return 0
