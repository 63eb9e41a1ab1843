"""Draw the figures of docs/performance.md from the files in results/speed.

    python benchmarks/draw.py [--out DIR]

A figure whose file is missing is left out and named.
"""

import argparse
import csv
import re
from pathlib import Path

from turns import RESULTS

from emi.report.style import (
    BLUE,
    GREY,
    INK,
    SMALL,
    VERMILION,
    WIDTH,
    in_our_style,
    new_figure,
    save_figure,
    set_heading,
)

Row = dict[str, str]
BOUND = re.compile(r"^\| SparseHalfCheetah \| 10 \| 2 \| [\d,]+ \| ([\d,]+) \|", re.M)


def read(name: str) -> list[Row]:
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def caption(rows: list[Row]) -> str:
    return f"commit {rows[0]['commit']}; {rows[0]['machine'].split(', load')[0]}"


def best_of_contenders(rows: list[Row]) -> dict[str, float]:
    """Best steps per second by contender; a peer counts with its best setting."""
    best: dict[str, float] = {}
    for row in rows:
        best[row["contender"]] = max(best.get(row["contender"], 0.0), float(row["best"]))
    return best


@in_our_style
def draw_speed(out: Path) -> Path:
    """Steps per second of ours and of the peer, and the simulator alone as a line."""
    rows = read("trpo_speed")
    best = best_of_contenders(rows)
    figure = new_figure(WIDTH, 0.9 + 0.28 * len(best))
    panel = figure.add_subplot()
    names = list(reversed(best))
    colours = [BLUE if name.startswith("emi") else VERMILION for name in names]
    panel.barh(names, [best[name] / 1e3 for name in names], color=colours, height=0.62)
    for place, name in enumerate(names):
        panel.annotate(
            f"{best[name]:,.0f}",
            (best[name] / 1e3, place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
        )
    bound = BOUND.search((RESULTS / "env_speed_half_cheetah.txt").read_text(encoding="utf-8"))
    if bound is not None:
        simulator = float(bound[1].replace(",", ""))
        panel.axvline(simulator / 1e3, color=GREY, linestyle="--", linewidth=1)
        panel.annotate(
            f"MuJoCo alone {simulator:,.0f}",
            (simulator / 1e3, len(names) - 0.6),
            xytext=(-3, 0),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=SMALL,
            color=INK,
        )
    panel.grid(axis="y", visible=False)
    panel.set_xlabel("1,000 environment steps per second")
    set_heading(panel, "SparseHalfCheetah, best round, peers at their best", caption(rows))
    return save_figure(figure, out / "trpo_speed")


@in_our_style
def draw_growth(out: Path) -> Path:
    """Cost per step over run length, batch size and number of environments."""
    rows = read("growth")
    figure = new_figure(WIDTH, 2.6)
    run, batch, environments = figure.subplots(1, 3)
    late = [row for row in rows if row["over"] == "iterations"]
    names = [row["method"] for row in reversed(late)]
    run.barh(names, [float(row["ratio"]) for row in reversed(late)], color=BLUE, height=0.62)
    run.axvline(1, color=GREY, linestyle="--", linewidth=1)
    run.grid(axis="y", visible=False)
    ends = f"{late[0]['to']} : {late[0]['from']}" if late else ""
    set_heading(run, "Over a run", f"cost per step, iterations {ends}")
    for panel, over, title in (
        (batch, "batch", "Over the batch"),
        (environments, "environments", "Over environments"),
    ):
        points = [(int(row["to"]), float(row["cost_to"])) for row in rows if row["over"] == over]
        if points:
            panel.plot(*zip(*points, strict=True), color=BLUE, marker="o", markersize=3)
            panel.set_ylim(0, 1.15 * max(cost for _, cost in points))
        panel.set_xlabel(over if over == "environments" else "steps per batch")
        set_heading(panel, title, "EMI, µs per step")
    return save_figure(figure, out / "growth")


@in_our_style
def draw_busy(out: Path) -> Path:
    """Speed relative to the idle machine over the number of foreign processes."""
    rows = read("busy")
    envs = list(dict.fromkeys(row["env"] for row in rows))
    figure = new_figure(WIDTH, 2.4)
    looks = {"the command's": (BLUE, "-"), "the default": (VERMILION, "--")}
    for panel, env in zip(figure.subplots(1, len(envs), squeeze=False)[0], envs, strict=True):
        for policy, (colour, dashes) in looks.items():
            points = [
                (int(row["busy"]), float(row["ratio"]))
                for row in rows
                if (row["env"], row["waiting"]) == (env, policy)
            ]
            if points:
                label = f"{policy} wait policy"
                panel.plot(
                    *zip(*points, strict=True),
                    color=colour,
                    linestyle=dashes,
                    marker="o",
                    markersize=3,
                    label=label,
                )
        panel.axhline(1 / 3, color=GREY, linestyle=":", linewidth=1)
        panel.set_ylim(0, 1.05)
        panel.set_xticks([0, 1, 2])
        panel.set_xlabel("busy processes")
        set_heading(panel, env, "steps per second, relative to the idle machine")
    panel.legend(loc="lower left")
    return save_figure(figure, out / "busy")


FIGURES = {"trpo_speed": draw_speed, "growth": draw_growth, "busy": draw_busy}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figures of docs/performance.md.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        if (RESULTS / f"{name}.csv").is_file():
            print(draw(options.out))
        else:
            print(f"{name}.csv is missing: run benchmarks/{name}.py")


if __name__ == "__main__":
    main()
