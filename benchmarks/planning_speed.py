"""The time of a decision: EMI's planners compared with CEM on the same model.

benchmarks/README.md describes the columns.
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
import torch
from turns import machine

from emi.planning.landmarks import LandmarkGraph
from emi.planning.planner import Planner
from emi.reproduction.arenas import Agent
from emi.reproduction.planning import TITLES, decision_seconds
from emi.reproduction.planning_baselines import CEM
from emi.reproduction.planning_choices import STUDIES, Choice, Study, trained, untrained_data

STEPS = 20_000  # of the data: how well a model plans does not change the time it takes
SINGLE, TOGETHER = 100, 3  # decisions of one environment and of all environments in a round


def agents(study: Study) -> dict[str, Agent]:
    """The planners of one model."""
    data = untrained_data(study.task, 0, STEPS)
    emi = trained(study, Choice("", passes=1), data, 0)
    straight = Planner(emi, use_error=study.task.use_error)
    graph = LandmarkGraph(straight, data, **study.task.graph)
    greedy = Planner(emi, "greedy", use_error=study.task.use_error)
    return {"straight": straight, "greedy": greedy, "graph": graph, "cem": CEM(emi, 0)}


def best(study: Study, rounds: int) -> dict[str, np.ndarray]:
    """The least seconds of planning, without φ(s), for one environment and for one of all; [2]."""
    task = study.task
    arena, found = task.arena(task.pairs, 0), {}
    makers = agents(study)
    for _ in range(rounds):  # they take turns, so that other load affects all
        for name, agent in makers.items():
            one = decision_seconds(agent, arena, 1, SINGLE)
            every = decision_seconds(agent, arena, task.pairs, TOGETHER)
            seconds = np.array([one[0] - one[1], every[0] - every[1]])
            found[name] = np.minimum(found.get(name, np.inf), seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    root = Path(__file__).parents[1]
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=root, text=True).strip()
    print(machine())
    print(f"commit {commit}; one thread; the best of {options.rounds} rounds.\n")
    print("| environment | planner | one, µs | CEM / this | all at once, µs each | CEM / this |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, study in STUDIES.items():
        found = best(study, options.rounds)
        for planner, seconds in found.items():
            ratio = found["cem"] / seconds
            columns = [
                f"{1e6 * seconds[0]:,.0f}",
                f"{ratio[0]:,.0f}",
                f"{1e6 * seconds[1]:,.1f}",
                f"{ratio[1]:,.0f}",
            ]
            print(f"| {name} | {TITLES[planner]} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
