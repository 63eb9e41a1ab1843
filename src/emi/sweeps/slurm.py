"""A sweep as a Slurm job array: one shell script, one array index per run."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from emi.durable_file import write_durably
from emi.errors import UserError
from emi.sweeps.plan import Cell
from emi.sweeps.run_process import PROGRAM, THREAD_VARIABLES

_MARK = "# A job array of emi sweep"


def slurm_script(cells: Sequence[Cell], cwd: Path, *, jobs: int | None = None) -> str:
    """Return the script for `cells`, `jobs` at a time; relative paths start at `cwd`."""
    threads = max(cell.config.threads for cell in cells)
    at_a_time = f"%{jobs}" if jobs is not None else ""
    program = shlex.join(PROGRAM)
    gpus = any(cell.config.device == "cuda" for cell in cells)
    gpu = "#SBATCH --gpus-per-task=1\n" if gpus else ""
    exports = " ".join(f"{name}={threads}" for name in THREAD_VARIABLES)
    runs = "\n".join(
        f"  {index}) run {shlex.join([str(cell.path), *cell.arguments])} ;;"
        for index, cell in enumerate(cells)
    )
    return f"""\
#!/bin/sh
#SBATCH --job-name=emi-sweep
#SBATCH --array=0-{len(cells) - 1}{at_a_time}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={threads}
{gpu}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@300
{_MARK}: {len(cells)} runs. Submit it again after a time limit: complete runs end at once,
# stopped ones are resumed. SIGTERM is sent 300 s before the time limit. A run then finishes its
# iteration and writes a checkpoint, so the notice must be longer than an iteration.
cd -- {shlex.quote(str(cwd))} || exit 1
export {exports}

# run DIR ARGUMENT...: emi ARGUMENT... with the output in DIR.log.
# exec, so that the signal reaches emi itself.
run() {{
  directory=$1
  shift
  exec >>"$directory.log" 2>&1
  exec {program} "$@"
}}

case ${{SLURM_ARRAY_TASK_ID:?is set by sbatch}} in
{runs}
  *) echo "there is no run $SLURM_ARRAY_TASK_ID in this script" >&2; exit 2 ;;
esac
"""


def write_slurm_script(file: Path, script: str) -> None:
    """Write `script` to `file`; UserError if that is another file or cannot be written."""
    try:
        if file.exists() and _MARK not in file.read_text(errors="replace"):
            raise UserError(f"{file} is not a script of emi sweep: choose another --slurm")
        write_durably(file.resolve(), script.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
