"""`advisor token`: manages API tokens and their accounts, on the machine that has the service's database."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from service.cli.inputs import load_settings
from service.cli.output import print_json

if TYPE_CHECKING:
    from service.flows.accounts import ListedToken

_COLUMNS = "{:<16}  {:<24}  {:<28}  {:<10}  {:<10}  {}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="action")
    create = verbs.add_parser("create", help="create a token and print it once")
    create.add_argument("name", metavar="NAME", help="the account, created if needed: letters, digits and . _ : @ -")
    create.add_argument(
        "--scope", action="append", required=True, metavar="SCOPE",
        help="submit, validate, host or operator; several with commas, or repeated",
    )  # fmt: skip
    shown = verbs.add_parser("list", help="list all tokens: account, scopes, last use; never the tokens themselves")
    revoke = verbs.add_parser("revoke", help="revoke a token at once")
    revoke.add_argument("id", metavar="ID", help="as `advisor token list` shows it")
    forget = verbs.add_parser("forget", help="delete an account with its tokens, hosts and validations; results stay")
    forget.add_argument("name", metavar="NAME", help="the account, as `advisor token list` shows it")
    for verb in (create, shown, revoke, forget):
        verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    from service.flows import accounts
    from service.flows.context import utc_now
    from service.store.migrations import migrated

    with migrated(load_settings().database) as engine:
        if arguments.action == "create":
            made = accounts.create_token(engine, arguments.name, ",".join(arguments.scope).split(","), utc_now())
            if arguments.json:
                print_json(made)
                return 0
            print(made.token)
            print(f"shown only once; `advisor token revoke {made.id}` ends it", file=sys.stderr)
        elif arguments.action == "revoke":
            accounts.revoke_token(engine, arguments.id, utc_now())
            if arguments.json:
                print_json({"revoked": arguments.id})
        elif arguments.action == "forget":
            accounts.forget_account(engine, arguments.name, utc_now())
            if arguments.json:
                print_json({"forgotten": arguments.name})
        elif arguments.json:
            print_json(accounts.list_tokens(engine))
        else:
            _print_table(accounts.list_tokens(engine))
    return 0


def _print_table(tokens: list[ListedToken]) -> None:
    print(_COLUMNS.format("ID", "ACCOUNT", "SCOPES", "CREATED", "USED", "STATE"))
    for token in tokens:
        used = (token.used_at or "never")[:10]
        state = "revoked" if token.revoked_at else "account banned" if token.banned else "good"
        print(_COLUMNS.format(token.id, token.name, ",".join(token.scopes), token.created_at[:10], used, state))
