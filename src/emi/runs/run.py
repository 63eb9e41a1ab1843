"""One run and everything it writes: metrics, events and checkpoints around `Trainer.iterate`."""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from emi.envs import time_limit
from emi.errors import FAILED, UserError
from emi.program import install
from emi.runs import checkpoint, run_directory, tensorboard_events
from emi.runs.embedding_sample import embedding_sample
from emi.runs.metrics_file import MetricsFile, Position, Row, keep_until, last_row
from emi.runs.progress import Progress, tell
from emi.runs.run_directory import RunDirectory
from emi.runs.stop_signals import StopRequest, stop_signals
from emi.runs.tensorboard_events import TensorBoardEvents
from emi.runs.visited_states import visited_states
from emi.training.config import TrainConfig
from emi.training.trainer import Trainer

CHECKPOINT_SECONDS = 60.0


@dataclass(frozen=True)
class RunResult:
    """How far a run got; `stopped_by` is the signal that stopped it, if one did.

    `began` is the iteration that it started from.
    """

    directory: RunDirectory
    iteration: int
    iterations: int
    began: int
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
) -> RunResult:
    """Train `config` in the directory `out` until it is complete or a signal is received.

    A new run needs a directory that is empty or does not exist. With `resume`, `out` holds a run of
    the same config, which continues from its newest checkpoint; a complete run is only read.
    Checkpoints are written before the first iteration, every `checkpoint_seconds`, at the end, and
    after a signal, once the current iteration is finished. `command` is stored in provenance.json.
    """
    directory = RunDirectory(Path(out), config.modules)
    progress = progress or Progress()
    check = run_directory.require_same if resume else run_directory.require_free
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signals(progress.stopping))
        check(directory, config)
        done = checkpoint.latest_iteration(directory.checkpoints) if resume else None
        if done is not None and done >= config.iterations:
            return RunResult(directory, done, config.iterations, began=done)
        # The trainer is built before anything is written: a config that it rejects leaves no file.
        trainer = Trainer(config)
        stack.callback(trainer.close)
        with _writing(directory, begun=False):
            directory.path.mkdir(parents=True, exist_ok=True)
            in_place = stack.enter_context(run_directory.locked(directory))
        check(directory, config)  # again, now that no other process can write
        if resume:
            # A run killed before its first checkpoint has no rows either, and starts again.
            if checkpoint.exists(directory.checkpoints) or last_row(directory.metrics) is not None:
                restore_newest(trainer, directory, progress.warn)
            if trainer.iteration >= config.iterations:
                done = trainer.iteration
                return RunResult(directory, done, config.iterations, began=done)
        else:
            with _writing(directory, begun=False):
                run_directory.write_config(directory, config)
        with _writing(directory):
            end = keep_until(directory.metrics, trainer.iteration)
            run_directory.add_start(directory, config, command, trainer.iteration)
            record = _Record(directory, in_place, end.steps, progress)
        stack.callback(record.close)
        record.save(trainer)
        _note_cut_episodes(config, progress)
        _note_left_out(trainer, progress)
        stack.callback(progress.end)
        title = f"{config.env} {config.method} seed {config.seed}"
        progress.begin(title, trainer.iteration, config.iterations)
        _loop(trainer, record, end, stop, progress, checkpoint_seconds)
        return RunResult(
            directory, trainer.iteration, config.iterations, end.iteration, stop.signal
        )


def restore_newest(trainer: Trainer, directory: RunDirectory, warn: Callable[[str], None]) -> None:
    """Load the newest sound checkpoint into `trainer`; `warn` is called for each damaged one."""
    loaded = checkpoint.load_latest(directory.checkpoints)
    for warning in loaded.warnings:
        warn(warning)
    try:
        trainer.load_state_dict(loaded.state)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{loaded.path} does not fit this version of emi or of the method: {reason}", FAILED
        ) from None


@contextlib.contextmanager
def restored(
    path: Path, num_envs: int | None = None, trusted: Collection[str] = ()
) -> Iterator[Trainer]:
    """Build the trainer of the run in `path` on one CPU thread, with its newest checkpoint.

    Neither a video nor a diagnosis needs the device or the threads of the training.
    """
    directory = RunDirectory(path)
    config = run_directory.read_config(directory.config, trusted)
    num_envs = num_envs or config.num_envs
    trainer = Trainer(dataclasses.replace(config, device="cpu", threads=1, num_envs=num_envs))
    with contextlib.closing(trainer):
        restore_newest(trainer, directory, lambda warning: tell(f"warning: {warning}"))
        yield trainer


class _Record:
    """What a run writes, in an order in which a crash at any moment loses nothing."""

    def __init__(
        self,
        directory: RunDirectory,
        in_place: Callable[[], None],
        steps: int,
        progress: Progress,
    ) -> None:
        self._directory = directory
        self._in_place = in_place
        self._metrics = MetricsFile(directory.metrics)
        self._events: TensorBoardEvents | None = None
        if tensorboard_events.is_installed():
            self._events = TensorBoardEvents(directory.tensorboard, steps)
        else:
            progress.note(f"no TensorBoard events are written: {install('train')} for them")

    def append(self, row: Row) -> None:
        with _writing(self._directory):
            self._in_place()
            self._metrics.append(row)
            if self._events is not None:
                self._events.append(row)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint; before it the visited states, and at the end the embedding sample.

        In this order, a run that is complete always has both.
        """
        with _writing(self._directory):
            self._in_place()
            self._metrics.sync()  # a checkpoint is never ahead of metrics.csv
            if trainer.iteration >= trainer.total_iterations:
                run_directory.write_embedding(self._directory, embedding_sample(trainer))
            run_directory.write_visits(self._directory, visited_states(trainer))
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
    """Iterate until the run is complete or asked to stop; `end` is where metrics.csv ends."""
    began = saved = time.monotonic()
    steps = end.steps
    while trainer.iteration < trainer.total_iterations and not stop:
        before = time.monotonic()
        if before - saved >= checkpoint_seconds:
            record.save(trainer)
            saved = before = time.monotonic()
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
        if report.iteration == end.iteration + 1:
            _warn_of_state_outside(trainer, progress)
    record.save(trainer)


def _note_cut_episodes(config: TrainConfig, progress: Progress) -> None:
    """Note that the longest episodes never finish, and so are missing from the reported return."""
    longest = time_limit(config.env, config.env_args)
    steps = math.ceil(config.steps_per_iteration / config.num_envs)
    if longest is not None and steps < longest:
        progress.note(
            f"each environment takes {steps} steps in an iteration, but an episode can have "
            f"{longest}: episodes that are cut off do not count in the return; to include them, "
            "raise steps_per_iteration or lower num_envs (--set)"
        )


def _note_left_out(trainer: Trainer, progress: Progress) -> None:
    """Note the entries of the observations that no network reads."""
    if trainer.left_out:
        listed = ", ".join(trainer.left_out)
        progress.note(f"left out of the observations, because networks read no text: {listed}")


def _warn_of_state_outside(trainer: Trainer, progress: Progress) -> None:
    """Warn once, after an iteration, if a user's method has state that no checkpoint holds."""
    sentence = None if trainer.outside is None else trainer.outside.sentence()
    if sentence is not None:
        progress.warn(f"{sentence}; a resumed run would differ")


@contextlib.contextmanager
def _writing(directory: RunDirectory, *, begun: bool = True) -> Iterator[None]:
    """Turn an OSError into one sentence; `begun`: the directory holds this run already."""
    try:
        yield
    except OSError as error:
        problem = f"cannot write in {directory.path}: {error.strerror or error}"
        if begun:
            advice = f"when that is fixed, resume with: {directory.resume_command}"
            raise UserError(f"{problem}: {advice}", FAILED) from None
        raise UserError(f"{problem}: make it writable or choose another --out") from None
