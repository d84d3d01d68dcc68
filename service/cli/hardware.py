"""`advisor hardware`: prints this machine's hardware, or how a text about another is understood."""

from __future__ import annotations

import argparse
import sys

from service.cli.inputs import text_argument
from service.cli.output import print_json
from service.engine.errors import InvalidInput
from service.engine.hardware import Hardware


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="shorthand or pasted output to read instead of this machine; @FILE or - reads it from there",
    )
    parser.add_argument("--json", action="store_true", help="print only the JSON")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="also measure how fast its RAM and the links to its GPUs are; takes half a minute",
    )


def run(arguments: argparse.Namespace) -> int:
    from service.detect import detect
    from service.engine.hardware_text import parse_hardware
    from service.measure import measure
    from service.wire.advice.hardware import render_hardware

    if arguments.measure and arguments.text:
        raise InvalidInput("--measure is for this machine: leave out the text", field="measure")
    hardware: Hardware = parse_hardware(text_argument(arguments.text)) if arguments.text else detect()
    if arguments.measure:
        hardware = measure(hardware, lambda step: print(f"{step} …", file=sys.stderr))
    if not arguments.json:
        print(f"{render_hardware(hardware)}\n")
    print_json(hardware)
    return 0
