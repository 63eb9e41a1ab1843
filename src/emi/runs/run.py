"""One run and its effects: rows, events, checkpoints and signals around `Trainer.iterate`."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from emi.envs import time_limit
from emi.runs import checkpoint, run_directory, tensorboard_events
from emi.errors import FAILED, UserError
from emi.training.config import TrainConfig, differences
from emi.runs.metrics_file import MetricsFile, Position, Row, keep_until, last_row
from emi.runs.progress import Progress, Silent
from emi.runs.run_directory import RunDirectory
from emi.runs.stop_signals import StopRequest, stop_signals
from emi.runs.tensorboard_events import TensorBoardEvents
from emi.runs.embedding_sample import embedding_sample
from emi.training.trainer import Trainer

CHECKPOINT_SECONDS = 60.0

@dataclass(frozen=True)
class Outcome:
    """How far a run came; `stopped_by` is the signal that ended it early, if one did."""

    directory: RunDirectory
    iteration: int
    iterations: int
    stopped_by: signal.Signals | None = None

    @property
    def complete(self) -> bool:
        return self.iteration >= self.iterations


def run(
    config: TrainConfig,
    out: str | Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    command: Sequence[str] = (),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Outcome:
    """Train `config` in the directory `out` until it is complete or a signal comes.

    A new run needs a directory that is empty or not there; with `resume`, `out` holds a run of the
    same config, which goes on from its newest checkpoint. Checkpoints are written before the
    first iteration, at most every `checkpoint_seconds`, at the end, and when a signal comes: then
    the iteration under way is finished first. A complete run is left as it is. `command` is
    kept in provenance.json.
    """
    directory = RunDirectory(Path(out))
    progress = progress or Silent()
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signals(progress.stopping))
        if resume:
            _require_same(directory, config)
        else:
            run_directory.require_free(directory, config)
        # The trainer comes before the first byte, so that what it refuses leaves no trace.
        trainer = Trainer(config)
        stack.callback(trainer.close)
        with _first_write(directory):
            directory.path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(run_directory.locked(directory))
        if resume:
            # Killed before its first checkpoint, a run has no rows either, and starts over.
            if checkpoint.exists(directory.checkpoints) or last_row(directory.metrics) is not None:
                restore_newest(trainer, directory, progress.warn)
            if trainer.iteration >= config.iterations:
                return Outcome(directory, trainer.iteration, config.iterations)
        else:
            run_directory.require_free(directory, config)  # again, now that nobody else can write
            with _first_write(directory):
                run_directory.write_config(directory, config)
        with _writing(directory):
            end = keep_until(directory.metrics, trainer.iteration)
            run_directory.add_start(directory, config, command, trainer.iteration)
            record = _open_record(directory, end.steps, progress)
        stack.callback(record.close)
        record.save(trainer)
        _note_cut_episodes(config, progress)
        stack.callback(progress.end)
        progress.begin(_title(config), trainer.iteration, config.iterations)
        _loop(trainer, record, end, stop, progress, checkpoint_seconds)
        return Outcome(directory, trainer.iteration, config.iterations, stop.signal)


def restore_newest(trainer: Trainer, directory: RunDirectory, warn: Callable[[str], None]) -> None:
    """Put the newest whole checkpoint into `trainer`; `warn` is told of damaged ones.

    UserError if it is not this trainer's.
    """
    loaded = checkpoint.load_latest(directory.checkpoints)
    for warning in loaded.warnings:
        warn(warning)
    try:
        trainer.load_state_dict(loaded.state)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"{loaded.path} was written by another version of emi: {_one_line(error)}", FAILED
        ) from None


class _Record:
    """What a run leaves on disk, in an order that makes a crash at any moment harmless."""

    def __init__(self, directory: RunDirectory, events: TensorBoardEvents | None) -> None:
        self._directory = directory
        self._metrics = MetricsFile(directory.metrics)
        self._events = events

    def append(self, row: Row) -> None:
        with _writing(self._directory):
            self._metrics.append(row)
            if self._events is not None:
                self._events.append(row)

    def save(self, trainer: Trainer) -> None:
        """Checkpoint; a complete run gets its embedding sample first, so that it always has one."""
        with _writing(self._directory):
            self._metrics.sync()  # a checkpoint is never ahead of metrics.csv
            if trainer.iteration >= trainer.total_iterations:
                run_directory.write_embedding(self._directory, embedding_sample(trainer))
            checkpoint.save(self._directory.checkpoints, trainer.iteration, trainer.state_dict())

    def close(self) -> None:
        self._metrics.close()
        if self._events is not None:
            self._events.close()


def _loop(
    trainer: Trainer,
    record: _Record,
    end: Position,
    stop: StopRequest,
    progress: Progress,
    checkpoint_seconds: float,
) -> None:
    """Iterate until complete or told to stop; `end` is where metrics.csv ends before it."""
    began = saved = time.monotonic()
    steps = end.steps
    while trainer.iteration < trainer.total_iterations and not stop:
        before = time.monotonic()
        report = trainer.iterate()
        now = time.monotonic()
        times = {
            "seconds": end.seconds + now - began,
            "steps_per_second": (report.steps - steps) / (now - before),
        }
        row = {"iteration": report.iteration, "steps": report.steps} | times | report.metrics
        steps = report.steps
        record.append(row)
        progress.update(row)
        if now - saved >= checkpoint_seconds:
            record.save(trainer)
            saved = time.monotonic()
    record.save(trainer)


def _open_record(directory: RunDirectory, steps: int, progress: Progress) -> _Record:
    if tensorboard_events.is_installed():
        return _Record(directory, TensorBoardEvents(directory.tensorboard, steps))
    progress.note("no TensorBoard events are written: pip install 'emi-rl[train]' for them")
    return _Record(directory, None)


def _note_cut_episodes(config: TrainConfig, progress: Progress) -> None:
    """A return that only the short episodes make up looks like any other."""
    longest = time_limit(config.env)
    steps = math.ceil(config.steps_per_iteration / config.num_envs)
    if longest is not None and steps < longest:
        progress.note(
            f"each environment takes {steps} steps in an iteration and an episode up to {longest}: "
            "one that is cut off counts in no return; for whole ones raise steps_per_iteration or "
            "lower num_envs (--set)"
        )


def _require_same(directory: RunDirectory, config: TrainConfig) -> None:
    different = differences(config, run_directory.read_config(directory))
    if different:
        raise UserError(
            f"{directory.path} holds another run ({different[0]} differs): choose another --out"
        )


@contextlib.contextmanager
def _first_write(directory: RunDirectory) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write in {directory.path}: {error.strerror}: make it writable or go elsewhere"
        ) from None


@contextlib.contextmanager
def _writing(directory: RunDirectory) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write in {directory.path}: {error.strerror or error}:"
            f" when that is fixed, resume with: {directory.resume_command}",
            FAILED,
        ) from None


def _title(config: TrainConfig) -> str:
    return f"{config.env} {config.method} seed {config.seed}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
