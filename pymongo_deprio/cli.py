"""The command ``pymongo-deprio``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Callable, Sequence

import pymongo_deprio
from pymongo_deprio.cluster import ClusterError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    :param arguments: what stands behind the command's name; by default, what it was called with.
    """
    options = _parser().parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        # Who reads the output may have gone: then the interpreter's last flush would fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _complain(f"the output could not be written: {error}")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pymongo-deprio", description="Makes PyMongo retry on a different mongos."
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {pymongo_deprio.__version__}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="run a load with one sick mongos, without and with the patch",
        description="Starts a sharded cluster on this machine, makes one mongos fail every find "
        "and insert, and runs the same load three times: without the patch, with it, and with its "
        "cooldown. Exit code: 0 if no operation failed with the patch on, 1 if one did, 2 if the "
        "demo cannot run.",
    )
    demo.add_argument(
        "--ops",
        type=_whole_number(1),
        metavar="N",
        help="operations in each run (default: 2000, or 100 that may hang)",
    )
    demo.add_argument(
        "--mongos",
        type=_whole_number(2),
        default=2,
        metavar="N",
        help="mongoses, one of them sick (default: %(default)s)",
    )
    demo.add_argument(
        "--hang",
        action="store_true",
        help="let the sick mongos answer nothing, until the clients' socketTimeoutMS of 500 is "
        "over, instead of failing at once",
    )
    demo.add_argument("--json", action="store_true", help="print the figures as JSON")
    demo.set_defaults(run=_demo)
    return parser


def _whole_number(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return convert


def _demo(options: argparse.Namespace) -> int:
    try:
        from pymongo_deprio import _demo as demo  # noqa: PLC0415 - rich is an extra
    except ImportError as error:
        return _complain(f"the demo needs {error.name}: pip install 'pymongo_deprio[demo]'")
    try:
        operations = options.ops or (100 if options.hang else 2000)
        runs = demo.run(operations, options.mongos, hang=options.hang)
    except ClusterError as error:
        return _complain(str(error))
    if options.json:
        print(json.dumps(demo.figures(runs, options.mongos, hang=options.hang), indent=2))
    else:
        demo.show(runs, options.mongos, hang=options.hang)
    return 1 if any(run.failed for run in runs[1:]) else 0


def _complain(message: str) -> int:
    print(f"pymongo-deprio: {message}", file=sys.stderr)
    return 2
