"""A program for test_ray.py: a sweep on a Ray cluster of two nodes, one of which is killed.

Usage: ray_node_loss.py OUT ARGUMENT…, the arguments of a sweep with `--out OUT`. It prints what the
sweep prints and ends with its exit code.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 300
NODE = {"num_cpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False}


def ancestors(pid: int) -> list[int]:
    """Return the parent of a process, its parent, and so on."""
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def runs_below(process: int, out: str) -> list[Path]:
    """Return the run directories under `out` whose `emi` descends from `process`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text().split("\0")
            if "emi" in command and process in ancestors(int(entry.name)):
                found.append(Path(command[command.index("--out") + 1]))
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
    return found


def rows(run: Path) -> int:
    metrics = run / "metrics.csv"
    return len(metrics.read_text().splitlines()) - 1 if metrics.exists() else 0


def main(out: str, arguments: list[str]) -> int:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        node = cluster.add_node(**NODE)
        (raylet,) = (process.process.pid for process in node.all_processes["raylet"])
        command = [sys.executable, "-m", "emi", *arguments, "--address", cluster.address]
        sweep = subprocess.Popen(command)
        limit = time.monotonic() + SECONDS
        while not any(rows(run) >= 3 for run in runs_below(raylet, out)):
            if sweep.poll() is not None or time.monotonic() > limit:
                sys.exit("no run came to its third iteration on the second node")
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        return sweep.wait()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # the machine may be busy
    sys.exit(main(sys.argv[1], sys.argv[2:]))
