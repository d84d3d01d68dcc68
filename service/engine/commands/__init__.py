"""Commands of both engines: written for today's builds, read in any spelling seen in the wild."""

from service.engine.commands.changes import alternatives, changed
from service.engine.commands.companions import Projector, draft_command, draft_of, file_name, option_value, projector_of
from service.engine.commands.download import download, model_path
from service.engine.commands.expert_rules import dense_override, expert_override
from service.engine.commands.parse import ParsedCommand, parse, parse_words
from service.engine.commands.reader import BenchTests
from service.engine.commands.render import render
from service.engine.commands.shell import fold, quote

__all__ = [
    "BenchTests",
    "ParsedCommand",
    "Projector",
    "alternatives",
    "changed",
    "dense_override",
    "download",
    "draft_command",
    "draft_of",
    "expert_override",
    "file_name",
    "fold",
    "model_path",
    "option_value",
    "parse",
    "parse_words",
    "projector_of",
    "quote",
    "render",
]
