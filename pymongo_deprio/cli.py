"""The command ``pymongo-deprio``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Callable, NoReturn, Sequence

import pymongo_deprio
from pymongo_deprio._options import cooldown_from

# What the commands need is imported by each of them: to launch an application takes no PyMongo.

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction["_Parser"]  # noqa: SLF001 - argparse gives it no other name


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say it in one line, without the usage, and without a password in a misplaced URI."""
        shown = re.sub("://.*", "://…", " ".join(message.split()))
        self.exit(2, f"{self.prog}: {shown}. See {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    :param arguments: what stands behind the command's name; by default, what it was called with.
    """
    options = _parser().parse_args(arguments)
    try:
        code = int(options.run(options))
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        return _complain(f"this needs {error.name}, which cannot be imported: {error}")
    except UnicodeEncodeError as error:
        return _complain(f"the output could not be written: {error}")
    except OSError as error:
        # Who reads the output may have gone: then the interpreter's last flush would fail as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _complain(f"the output could not be written: {error}")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pymongo-deprio", description="Makes PyMongo retry on a different mongos."
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {pymongo_deprio.__version__}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for add in _add_demo, _add_run, _add_doctor, _add_cluster:
        add(commands)
    return parser


def _add_demo(commands: _Commands) -> None:
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


def _add_run(commands: _Commands) -> None:
    run = commands.add_parser(
        "run",
        usage="%(prog)s [--cooldown [VALUE]] [--strict] -- COMMAND ...",
        help="run a command with the patch on",
        description="Runs a command with the patch on in every Python process that it starts. "
        "PYMONGO_DEPRIO_ENABLED=0 in the environment leaves it off. Exit code: the command's; 127 "
        "if it is not found, 126 if it cannot be run.",
    )
    run.add_argument(
        "--cooldown",
        nargs="?",
        const="true",
        type=_cooldown,
        metavar="VALUE",
        help="leave a mongos that failed out for a while: true, or such as base=1,maximum=30 "
        "(seconds)",
    )
    run.add_argument(
        "--strict",
        action="store_true",
        help="let importing PyMongo fail where it cannot be patched, instead of running without",
    )
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="what to run")
    run.set_defaults(run=_run, error=run.error)


def _add_doctor(commands: _Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="look whether retries can move, here and on a cluster",
        description="Looks at the PyMongo of this environment and, with a URI, at the cluster. It "
        "only listens to what servers say of themselves: it reads and writes nothing, and shows no "
        "password. Exit code: 0 fine, 1 something to mend, 2 cannot tell.",
    )
    doctor.add_argument("uri", nargs="?", metavar="URI", help="mongodb://... of the application")
    doctor.add_argument("--json", action="store_true", help="print what it finds as JSON")
    doctor.set_defaults(run=_doctor)


def _add_cluster(commands: _Commands) -> None:
    cluster = commands.add_parser(
        "cluster",
        help="keep a sharded cluster up to try things on",
        description="Starts a sharded cluster on this machine, prints its URI and how to make a "
        "mongos sick, and takes it down on Ctrl-C.",
    )
    cluster.add_argument(
        "--mongos",
        type=_whole_number(1),
        default=2,
        metavar="N",
        help="how many mongoses (default: %(default)s)",
    )
    cluster.add_argument(
        "--docker",
        action="store_true",
        help="a real one in Docker, instead of a mongod with emulated mongoses",
    )
    cluster.set_defaults(run=_cluster)


def _whole_number(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return convert


def _cooldown(text: str) -> str:
    try:
        cooldown_from(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}. The command to run stands behind --") from None
    return text


def _run(options: argparse.Namespace) -> int:
    from pymongo_deprio import _launcher  # noqa: PLC0415

    command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not command:
        options.error("a command to run is missing, behind --")
    try:
        return _launcher.run(command, cooldown=options.cooldown, strict=options.strict)
    except (OSError, ValueError) as error:
        _complain(f"{command[0]!r} cannot be run: {getattr(error, 'strerror', error)}")
        return 126 if isinstance(error, PermissionError) else 127


def _doctor(options: argparse.Namespace) -> int:
    from pymongo_deprio import _doctor as doctor  # noqa: PLC0415
    from pymongo_deprio._survey import SurveyError  # noqa: PLC0415

    try:
        report = doctor.examine(options.uri)
    except SurveyError as error:
        return _complain(str(error))
    print(json.dumps(report.document(), indent=2) if options.json else report)
    return report.exit_code


def _cluster(options: argparse.Namespace) -> int:
    from pymongo_deprio import _host  # noqa: PLC0415
    from pymongo_deprio.cluster import ClusterError  # noqa: PLC0415

    try:
        _host.keep_up(options.mongos, docker=options.docker)
    except ClusterError as error:
        return _complain(str(error))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from pymongo_deprio.cluster import ClusterError  # noqa: PLC0415

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
    print("pymongo-deprio:", *message.split(), file=sys.stderr)  # in one line
    return 2
