"""Shows the results of the benchmarks, as JSON, tables and a plot."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator

import matplotlib as mpl
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

Results = Dict[str, Any]
UNITS = {"us": "(µs)", "ms": "(ms)", "kib": "(KiB)", "q1": "1st quartile", "q3": "3rd quartile"}
WIDTH = 150
RUNS = ("alone", "enabled", "enabled with cooldown")


def write(results: Results, folder: Path) -> None:
    """Write results.json, results.md and results.svg."""
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    (folder / "results.json").write_text(text, encoding="utf-8")
    (folder / "results.md").write_text("\n".join(markdown(results)), encoding="utf-8")
    plot(results, folder / "results.svg")


def show(results: Results) -> None:
    """Print the tables."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    for name, lines in tables(results):
        table = Table(title=name, title_justify="left")
        for index, column in enumerate(lines[0]):
            table.add_column(column, justify="right" if _is_number(lines[1][index]) else "left")
        for line in lines[1:]:
            table.add_row(*line)
        console.print(table)


def markdown(results: Results) -> Iterator[str]:
    """Return the lines of the tables in Markdown."""
    machine = results["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    yield f"{where}; {results['date']}.\n"
    for run in results["runs"]:
        versions = run["versions"]
        extension = "with" if versions["c_extension"] else "without"
        yield (
            f"PyMongo {versions['pymongo']} {extension} its C extension, Python "
            f"{versions['python']}, wrapt {versions['wrapt']}, mongod {versions['mongod']}."
        )
    for name, lines in tables(results):
        numbers = ["---:" if _is_number(cell) else "---" for cell in lines[1]]
        yield f"\n## {name}\n"
        yield from (f"| {' | '.join(line)} |" for line in (lines[0], numbers, *lines[1:]))
    yield ""


def tables(results: Results) -> Iterator[tuple[str, list[list[str]]]]:
    """Return each benchmark's table as text: the names of the columns, then the rows."""
    runs = results["runs"]
    for name in runs[0]["benchmarks"]:
        lines = [
            [run["versions"]["pymongo"], *map(_text, row.values())]
            for run in runs
            for row in run["benchmarks"][name]
        ]
        columns = map(_title, runs[0]["benchmarks"][name][0])
        yield name.capitalize(), [["PyMongo", *columns], *lines]


def _title(key: str) -> str:
    return " ".join(UNITS.get(word, word) for word in key.split("_"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"-?[\d,]+(\.\d+)?", cell) is not None


def plot(results: Results, path: Path) -> None:
    """Draw the figures that matter most; the same results give the same file."""
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "pymongo_deprio", "svg.fonttype": "none"})
    figure, places = plt.subplots(2, 3, figsize=(15, 9), layout="constrained")
    for draw, axes in zip(PANELS, places.flat):
        draw(axes, results["runs"])
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def _bars(axes: Axes, runs: list[Any], name: str, key: str, series: dict[str, Any]) -> None:
    """Draw a group of bars for each version; a series names the values of its rows' columns."""
    width = 0.8 / len(series)
    for index, (label, columns) in enumerate(series.items()):
        chosen = [
            (place, row[key])
            for place, run in enumerate(runs)
            for row in run["benchmarks"].get(name, ())
            if columns.items() <= row.items()
        ]
        places = [place + (index - (len(series) - 1) / 2) * width for place, _ in chosen]
        axes.bar(places, [value for _, value in chosen], width, label=label)
    named = ["{pymongo}\nPython {python}".format(**run["versions"]) for run in runs]
    axes.set_xticks(range(len(runs)), named, fontsize="small")
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Put it below, where it covers nothing."""
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


def _cost(axes: Axes, runs: list[Any]) -> None:
    cases = ("retry loop", "retry loop, nothing cooling", "async, retry loop")
    _bars(axes, runs, "cost", "added_us", {case: {"case": case} for case in cases})
    axes.set_title("What is added to an operation (µs)")


def _threads(axes: Axes, runs: list[Any]) -> None:
    for run in runs:
        rows = [row for row in run["benchmarks"].get("scaling", ()) if row["kind"] == "threads"]
        axes.errorbar(
            [row["number"] for row in rows],
            [row["throughput"] for row in rows],
            [row["uncertainty"] for row in rows],
            label=run["versions"]["pymongo"],
            marker="o",
            capsize=3,
        )
    axes.set_xscale("log", base=2)
    axes.axhline(1, color="grey", linewidth=0.8)
    _legend(axes)
    axes.set_title("Throughput of threads, enabled / alone")


def _selection(axes: Axes, runs: list[Any]) -> None:
    cases = ("select_server, one deprioritized", "retry", "1 cooling", "99 cooling")
    series = {case: {"case": case, "mongoses": 100} for case in cases}
    _bars(axes, runs, "selection", "ratio", series)
    axes.axhline(1.5, color="grey", linewidth=0.8)
    axes.set_title("Selection among 100 mongoses / a plain one")


def _benefit(key: str, fault: str, title: str) -> Callable[[Axes, list[Any]], None]:
    def draw(axes: Axes, runs: list[Any]) -> None:
        series = {patch: {"patch": patch, "one_of_them": fault, "mongoses": 2} for patch in RUNS}
        _bars(axes, runs, "benefit", key, series)
        axes.set_title(f"{title}, as one of two mongoses {fault}")

    return draw


PANELS = (
    _cost,
    _threads,
    _selection,
    _benefit("failed", "fails", "Failed operations"),
    _benefit("wasted_attempts", "fails", "Attempts sent to it"),
    _benefit("200_ms_or_more", "hangs", "Operations that waited"),
)
