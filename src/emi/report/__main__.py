"""Commit finished runs; figure and table of any runs; a picture of what a run explored.

python -m emi.report collect RUN… --into results/sparse_half_cheetah
python -m emi.report draw runs/sweep --out DIR
python -m emi.report embedding RUN --out DIR

The figures and tables of results/ are drawn with `emi paper draw`.
"""

import argparse
import sys
from pathlib import Path

from emi.report.curves import draw_learning_curves, method_panel
from emi.report.embedding import draw_embedding, draw_error_model
from emi.report.load import Run, collect, load_runs
from emi.report.paper_values import METHOD_ORDER, in_millions
from emi.report.tables import return_table, summarise_method


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m emi.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, dest="command")
    to_collect = commands.add_parser("collect", help="copy finished runs into results/")
    to_collect.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run directory")
    to_collect.add_argument("--into", required=True, type=Path, metavar="results/EXPERIMENT")
    to_draw = commands.add_parser("draw", help="write learning_curves.png, .svg and table.md")
    to_draw.add_argument("runs", type=Path, metavar="RUNS", help="a folder of runs")
    to_draw.add_argument("--out", required=True, type=Path, metavar="DIR")
    to_embed = commands.add_parser(
        "embedding", help="write embedding.png, error_model.png and their .svg"
    )
    to_embed.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    to_embed.add_argument("--out", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        if options.command == "collect":
            written = collect(options.runs, options.into)
        elif options.command == "embedding":
            written = embedding(options.run, options.out)
        else:
            written = draw(options.runs, options.out)
    except (ValueError, OSError) as error:
        print(f"emi.report: {error}", file=sys.stderr)
        return 2
    for path in written:
        print(path)
    return 0


def draw(root: Path, out: Path) -> list[Path]:
    """Figure and table of all runs below `root`, written into `out`."""
    grid = by_env_and_method(load_runs(root))
    out.mkdir(parents=True, exist_ok=True)
    table = out / "table.md"
    parts = []
    for env, methods in grid.items():
        lengths = sorted({run.steps for runs in methods.values() for run in runs})
        steps = " and ".join(map(in_millions, lengths))
        rows = [summarise_method(runs) for runs in methods.values()]
        parts.append(f"**{env}, {steps} steps**\n\n{return_table(rows)}")
    table.write_text("\n".join(parts), encoding="utf-8")
    panels = {
        env: [method_panel(runs) for runs in methods.values()] for env, methods in grid.items()
    }
    return [*draw_learning_curves(panels, out / "learning_curves"), table]


def embedding(run: Path, out: Path) -> list[Path]:
    """The two pictures of what `run` explored, written into `out`."""
    return [*draw_embedding(run, out / "embedding"), *draw_error_model(run, out / "error_model")]


def by_env_and_method(runs: list[Run]) -> dict[str, dict[str, list[Run]]]:
    """Runs by environment and method, the methods in the paper's order, unknown ones last.

    ValueError unless the runs of a method differ in their seeds only and have begun.
    """
    order = {method: place for place, method in enumerate(METHOD_ORDER)}
    grid: dict[str, dict[str, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: (run.env, order.get(run.method, len(order)))):
        together = grid.setdefault(run.env, {}).setdefault(run.method, [])
        together.append(run)
        if len(run.metrics["iteration"]) == 0:
            raise ValueError(
                f"seed {run.seed} of {run.method} on {run.env} has no iteration yet: "
                "wait for the first, or leave it out"
            )
        _require_alike(together[0], run)
        if len({one.seed for one in together}) < len(together):
            raise ValueError(
                f"seed {run.seed} of {run.method} on {run.env} is there twice, which is no second "
                "seed: give a folder of one sweep, or use 'emi report'"
            )
    return grid


def _require_alike(first: Run, other: Run) -> None:
    """Runs with other settings are no seeds of the same method."""
    a, b = first.settings, other.settings
    for key in sorted(a.keys() | b.keys()):
        if a.get(key) != b.get(key):
            raise ValueError(
                f"runs of {other.method} on {other.env} have {key}={a.get(key)} and {b.get(key)}: "
                "give a folder of one sweep, or use 'emi report', which keeps them apart"
            )


if __name__ == "__main__":
    sys.exit(main())
