"""`advisor completion`: prints a shell's script for completing commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"  # then as for bash
SHELLS = ("bash", "zsh", "fish", "powershell")
_INSTALL = """\
to use it:
  bash         eval "$(advisor completion bash)"          # in ~/.bashrc
  zsh          eval "$(advisor completion zsh)"           # in ~/.zshrc
  fish         advisor completion fish | source           # in ~/.config/fish/config.fish
  PowerShell   advisor completion powershell | Out-String | Invoke-Expression   # in $PROFILE
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")
    parser.epilog, parser.formatter_class = _INSTALL, argparse.RawDescriptionHelpFormatter


def run(arguments: argparse.Namespace) -> int:
    print(script(arguments.shell), end="")
    return 0


def script(shell: str) -> str:
    known = words_of_verbs()
    if shell == "fish":
        lines = [f"complete -c advisor -n __fish_use_subcommand -a '{' '.join(known)}'"]
        for verb, words in known.items():
            on = f"-n '__fish_seen_subcommand_from {verb}'"
            lines += [f"complete -c advisor {on} {_fish(word)}" for word in words]
        return "\n".join(lines) + "\n"
    if shell == "powershell":
        quoted = {verb: ", ".join(f"'{word}'" for word in words) for verb, words in known.items()}
        return _template("ps1").replace("{cases}", "\n".join(f"    '{verb}' = @({w})" for verb, w in quoted.items()))
    cases = "\n".join(f'      {verb}) words="{" ".join(words)}" ;;' for verb, words in known.items())
    told = _template("bash").replace("{verbs}", " ".join(known)).replace("{cases}", cases)
    return told if shell == "bash" else _ZSH + told


def _template(kind: str) -> str:
    return Path(__file__).with_suffix(f".{kind}").read_text("utf-8")


def _fish(word: str) -> str:
    return f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"


def words_of_verbs() -> Mapping[str, list[str]]:
    """Return each command's long options and sub-commands."""
    from service.cli import COMMANDS, command_line
    from service.cli.lazy import LazyParser

    (verbs,) = (a for a in command_line()._actions if isinstance(a, argparse._SubParsersAction))
    found: dict[str, list[str]] = {}
    for command in COMMANDS:
        parser = verbs.choices[command.verb]
        if isinstance(parser, LazyParser):
            parser.load()
        words = []
        for action in parser._actions:
            below = action.choices if isinstance(action, argparse._SubParsersAction) else {}
            words += [*below, *(name for name in action.option_strings if name.startswith("--"))]
        found[command.verb] = words
    return found
