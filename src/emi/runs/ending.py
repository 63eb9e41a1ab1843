"""What a command says at the end of a run: the return it reached, and what to do next."""

import math

from emi import program
from emi.runs.metrics_file import Row, read_rows
from emi.runs.progress import clock
from emi.runs.run import RunResult

LAST_ITERATIONS = 10  # whose mean return is shown


def describe_ending(result: RunResult) -> list[str]:
    """Return lines about a run that has just ended, with commands that can be pasted."""
    path, rows = str(result.directory.path), read_rows(result.directory.metrics)
    lines = {
        "complete" if result.complete else "stopped": _extent(result, rows),
        "return": _returns(rows),
        "run": path,
        "watch": program.command("watch", path, *result.directory.trust),
        "report": program.command("report", path),
    }
    return [f"{f'{title}:':<10}{text}" for title, text in lines.items()]


def _extent(result: RunResult, rows: list[Row]) -> str:
    done = f"{result.iteration:,}" + ("" if result.complete else f" of {result.iterations:,}")
    steps, seconds = (rows[-1]["steps"], rows[-1]["seconds"]) if rows else (0, 0.0)
    plural = "" if done == "1" else "s"
    text = f"{done} iteration{plural}, {steps:,.0f} steps in {clock(seconds)}"
    return f"{text}; it was complete already" if result.began >= result.iterations else text


def _returns(rows: list[Row]) -> str:
    """The mean of the last iterations and the best one; an iteration may end no episode."""
    means = {int(row["iteration"]): row["return_mean"] for row in rows}
    ended = {iteration: value for iteration, value in means.items() if not math.isnan(value)}
    if not ended:
        return "none, because no episode has ended"
    last = list(ended.values())[-LAST_ITERATIONS:]
    best = max(ended, key=lambda iteration: ended[iteration])
    where = f"last {len(last)} iterations" if len(last) > 1 else "one iteration"
    return f"{sum(last) / len(last):.4g} ({where}), best {ended[best]:.4g} (iteration {best:,})"
