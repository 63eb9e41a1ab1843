"""The command line: one thin function per sub-command.

Exit codes: 0 success; 1 the work failed; 2 wrong input, nothing was written; 128 + n stopped by
signal n after a checkpoint. Heavy modules are imported inside the functions: `emi --help` must not
wait for PyTorch.
"""

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from emi import __version__
from emi.errors import BAD_INPUT, FAILED, UserError, did_you_mean

if TYPE_CHECKING:
    from emi.training.config import TrainConfig

# What the user can fix about a path or a disk. A missing file is not among them: commands check
# the paths they are given, and a missing file of ours is a bug.
_PATH_ERRORS = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: see '{self.prog} --help'")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ✓ shows ? instead
    if "" not in sys.path:
        # Modules of the user in the current directory; last, so that they hide no installed one.
        sys.path.append("")
    code = 0
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has closed the pipe (`emi envs | head`); Python would report it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("EMI_TRACEBACK"):
            raise
        return _complain(*_explain(error))


def _explain(error: Exception) -> tuple[str, int]:
    """One sentence about an error, and the exit code."""
    match error:
        case UserError():
            return str(error), error.exit_code
        case OSError(errno=code, filename=path) if code in _PATH_ERRORS and path is not None:
            reason = os.strerror(code).lower()
            return f"{path}: {reason}: fix that or choose another path", BAD_INPUT
        case OSError(errno=code) if code in _DISK_ERRORS:
            return f"cannot write: {os.strerror(code).lower()}: fix that and run this again", FAILED
    return (
        f"this is a bug in emi, or in your own method or environment: {type(error).__name__}: "
        f"{error} (set EMI_TRACEBACK=1 to see where)"
    ), FAILED


def _complain(sentence: str, code: int) -> int:
    print(f"emi: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _run(words: list[str]) -> int:
    parser, commands = _parsers()
    if not words:
        parser.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in commands:
        hint = did_you_mean(words[0], commands, ": see 'emi --help'")
        raise UserError(f"unknown command {words[0]!r}{hint}")
    try:
        args, unknown = parser.parse_known_args(words)
    except SystemExit as done:  # --help or --version, which has been printed
        return int(done.code or 0)
    if unknown:
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            raise UserError(f"unexpected argument {unknown[0]!r}: see 'emi {words[0]} --help'")
        actions = (commands[args.command] if args.command else parser)._actions
        known = [flag for action in actions for flag in action.option_strings]
        hint = did_you_mean(option.partition("=")[0], known, ": see 'emi --help'")
        raise UserError(f"unknown option {option!r}{hint}")
    if args.command is None:
        raise UserError("name a command: see 'emi --help'")
    args.typed = ["emi", *words]
    handler: Callable[[argparse.Namespace], int] = args.handler
    return handler(args)


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = _Parser(
        prog="emi",
        description="Exploration with mutual information: train agents and compare methods.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"emi {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands: dict[str, argparse.ArgumentParser] = {}

    def command(
        name: str, help: str, handler: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        made = subparsers.add_parser(name, help=help, description=help, allow_abbrev=False)
        made.set_defaults(handler=handler)
        commands[name] = made
        return made

    train = command("train", "train an agent; the paper's settings are the defaults", _train)
    train.add_argument(
        "env",
        metavar="ENV",
        nargs="?",
        help="one of 'emi envs', or your own as gym:package.module:MyEnv-v0",
    )
    train.add_argument(
        "--method",
        metavar="NAME",
        help="one of 'emi methods', or your own as package.module:Class (default: emi)",
    )
    train.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings in JSON, all or some, as --print-config prints them; options override them",
    )
    train.add_argument("--seed", type=_whole, metavar="N", help="default: 0")
    train.add_argument("--out", type=Path, metavar="DIR", help="default: runs/ENV-METHOD-seedN")
    train.add_argument("--threads", type=_whole, metavar="N", help="default: all cores")
    train.add_argument("--device", help="cpu or cuda (default: cpu)")
    _add_settings(train)
    train.add_argument("--resume", action="store_true", help="resume the run if it has begun")
    train.add_argument("--print-config", action="store_true", help="print the config and exit")

    resume = command("resume", "resume a run that was stopped", _resume)
    resume.add_argument("dir", type=Path, metavar="DIR", help="directory of the run")

    watch = command("watch", "make a video of one episode of a trained agent", _watch)
    watch.add_argument("dir", type=Path, metavar="DIR", help="directory of the run")
    watch.add_argument(
        "--out", type=Path, metavar="FILE", help=".mp4 or .gif (default: DIR/watch.mp4)"
    )
    watch.add_argument(
        "--seed", type=_whole, default=0, metavar="N", help="seed of the episode (default: 0)"
    )
    watch.add_argument(
        "--deterministic", action="store_true", help="take the most likely action in every step"
    )

    sweep = command("sweep", "train environments x methods x seeds; complete runs are kept", _sweep)
    sweep.add_argument("envs", metavar="ENV", nargs="+", help="environments, as in 'emi train'")
    sweep.add_argument(
        "--methods", default="emi", metavar="A,B", help="methods, as in 'emi train' (default: emi)"
    )
    sweep.add_argument("--seeds", default="0-4", metavar="0-4,7", help="default: 0-4")
    sweep.add_argument("--jobs", type=_whole, metavar="N", help="runs at a time (default: cores)")
    sweep.add_argument(
        "--threads", type=_whole, default=1, metavar="N", help="per run (default: 1)"
    )
    sweep.add_argument(
        "--out", type=Path, default=Path("runs/sweep"), metavar="DIR", help="default: runs/sweep"
    )
    sweep.add_argument(
        "--engine", default="local", help="local: this machine (default); ray: a Ray cluster"
    )
    sweep.add_argument(
        "--address", metavar="HOST:PORT", help="of the Ray cluster (default: Ray on this machine)"
    )
    sweep.add_argument("--dry-run", action="store_true", help="print the commands and exit")
    sweep.add_argument(
        "--slurm", type=Path, metavar="FILE", help="write a Slurm job-array script and exit"
    )
    _add_settings(sweep)

    report = command("report", "one HTML page of runs: curves, tests, embeddings", _report)
    report.add_argument("dirs", type=Path, metavar="DIR", nargs="+", help="runs or folders of runs")
    report.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="report.html"
    )
    report.add_argument(
        "--figures", type=Path, metavar="DIR", help="write PNG figures and a table instead"
    )

    doctor = command("doctor", "check the installation and say what is missing", _doctor)
    doctor.add_argument(
        "--bonus", type=Path, metavar="DIR", help="check the bonus of the run in DIR instead"
    )
    paper = command("paper", "the tables and figures of the paper", _paper)
    _add_paper_commands(paper)
    command("envs", "list the environments", _envs)
    command("methods", "list the exploration methods", _methods)
    return parser, commands


def _add_paper_commands(paper: argparse.ArgumentParser) -> None:
    commands = paper.add_subparsers(dest="action", metavar="ACTION")
    paper.set_defaults(action="list", results=Path("results"))  # `emi paper` alone

    def action(name: str, help: str, names: str | None = None) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        if names is not None:
            made.add_argument("names", metavar="NAME", nargs=names, help="of 'emi paper list'")
        made.add_argument(
            "--results", type=Path, default=Path("results"), metavar="DIR", help="default: results"
        )
        return made

    action("list", "list tables and figures, their questions, and how many runs are available")
    run = action("run", "train the runs of a table or figure", "+")
    run.add_argument("--out", type=Path, metavar="DIR", help="default: runs/paper[_SCALE]")
    run.add_argument("--scale", type=float, default=1.0, metavar="X", help="share of the steps")
    run.add_argument("--seeds", metavar="0-4,7", help="seeds (default: all of the grid)")
    run.add_argument("--missing", action="store_true", help="only runs that are not in --results")
    run.add_argument("--jobs", type=_whole, metavar="N", help="runs at a time (default: cores)")
    run.add_argument("--threads", type=_whole, default=1, metavar="N", help="per run (default: 1)")
    run.add_argument("--engine", default="local", help="local or ray (default: local)")
    run.add_argument("--address", help="of a Ray cluster")
    collect = action("collect", "copy finished runs into results", "*")
    collect.add_argument(
        "--runs", type=Path, default=Path("runs/paper"), metavar="DIR", help="default: runs/paper"
    )
    draw = action("draw", "draw what is available and list what is missing (default: all)", "*")
    draw.add_argument("--out", type=Path, metavar="DIR", help="default: RESULTS/figures")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=_whole, metavar="N", help="total environment steps")
    parser.add_argument(
        "--set",
        dest="settings",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change settings; 'emi train ENV --print-config' prints the keys",
    )


def _whole(text: str) -> int:
    """A whole number as people write it: 5000000, 5_000_000, 5e6."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")


def _train(args: argparse.Namespace) -> int:
    from emi.runs.run_directory import RunDirectory, config_bytes, default_path
    from emi.training.config import read_settings
    from emi.training.presets import resolve

    settings = {} if args.config is None else read_settings(args.config)
    env = args.env or settings.get("env")
    method = args.method or settings.get("method") or "emi"
    if env is None:
        raise UserError("name an environment: see 'emi envs'")
    for key in ("steps", "seed", "threads", "device"):
        if getattr(args, key) is not None:
            settings[key] = getattr(args, key)
    config = resolve(env, method, settings, args.settings)
    if args.print_config:
        print(config_bytes(config).decode(), end="")
        return 0
    out = args.out or default_path(config)
    return _train_in(out, config, args.typed, args.resume and RunDirectory(out).config.exists())


def _resume(args: argparse.Namespace) -> int:
    from emi.runs.run_directory import RunDirectory, read_config

    return _train_in(args.dir, read_config(RunDirectory(args.dir)), args.typed, resume=True)


def _train_in(out: Path, config: "TrainConfig", typed: list[str], resume: bool) -> int:
    from emi.runs.progress import choose_progress
    from emi.runs.run import run

    result = run(config, out, resume=resume, progress=choose_progress(), command=typed)
    if result.complete:
        print(f"complete: {result.iterations} iterations in {result.directory.path}")
        return 0
    assert result.stopped_by is not None, "a run ends complete or by a signal"
    return _complain(
        f"stopped at iteration {result.iteration} of {result.iterations}:"
        f" resume with: {result.directory.resume_command}",
        128 + result.stopped_by,
    )


def _watch(args: argparse.Namespace) -> int:
    from emi.runs.watch import watch

    out = args.out or args.dir / "watch.mp4"
    episode = watch(args.dir, out, seed=args.seed, deterministic=args.deterministic)
    print(f"return {episode.total_reward:g} in {episode.steps} steps: {out}")
    return 0


def _sweep(args: argparse.Namespace) -> int:
    from emi.sweeps.sweep import (
        check_engine,
        dry_run,
        parse_seeds,
        plan,
        sweep,
        write_job_array,
    )

    check_engine(args.engine, args.address)  # --dry-run and --slurm start no engine
    cells = plan(
        args.out,
        args.envs,
        [name for name in args.methods.split(",") if name],
        parse_seeds(args.seeds),
        {"threads": args.threads} | ({} if args.steps is None else {"steps": args.steps}),
        args.settings,
    )
    if args.dry_run:
        return dry_run(cells)
    if args.slurm is not None:
        return write_job_array(cells, args.slurm, jobs=args.jobs)
    return sweep(cells, jobs=args.jobs, engine=args.engine, address=args.address)


def _report(args: argparse.Namespace) -> int:
    try:
        from emi.report.figures import write_figures
        from emi.report.page.html import write_page
        from emi.reproduction.paper_values import PAPER
    except ModuleNotFoundError as error:
        raise UserError(
            f"emi report needs {error.name}: install it with pip install 'emi-rl[report]'"
        ) from None
    if args.figures is not None:
        for path in write_figures(args.dirs, args.figures, PAPER):
            print(path)
        return 0
    out = write_page(args.dirs, args.out, PAPER)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB, open it in a browser")
    return 0


def _doctor(args: argparse.Namespace) -> int:
    if args.bonus is not None:
        from emi.runs.bonus_check import check_bonus

        return check_bonus(args.bonus)
    from emi.runs.doctor import examine, report

    return report(examine())


def _paper(args: argparse.Namespace) -> int:
    from emi.sweeps.sweep import parse_seeds

    try:
        from emi.reproduction import commands
        from emi.reproduction.experiment import Budget
    except ModuleNotFoundError as error:
        raise UserError(
            f"emi paper needs {error.name}: install it with pip install 'emi-rl[all]'"
        ) from None
    if args.action == "list":
        return commands.list_experiments(args.results)
    if args.action == "collect":
        return commands.collect_results(args.names, args.runs, args.results)
    if args.action == "draw":
        out = args.out or args.results / "figures"
        return commands.draw_experiments(args.names, args.results, out)
    budget = Budget(
        jobs=args.jobs,
        threads=args.threads,
        engine=args.engine,
        address=args.address,
        scale=args.scale,
        seeds=None if args.seeds is None else tuple(parse_seeds(args.seeds)),
    )
    out = args.out or commands.default_runs(args.scale)
    return commands.run_experiments(
        args.names, out, budget, args.results, command=args.typed, missing=args.missing
    )


def _envs(args: argparse.Namespace) -> int:
    from emi.envs.table import ENVIRONMENTS, FAMILIES

    return _list({name: entry.about for name, entry in ENVIRONMENTS.items()} | FAMILIES)


def _methods(args: argparse.Namespace) -> int:
    from emi.intrinsic.table import METHODS

    return _list({name: f"{entry.title}: {entry.about}" for name, entry in METHODS.items()})


def _list(entries: dict[str, str]) -> int:
    width = max(map(len, entries))
    for name, about in entries.items():
        print(f"{name:<{width}}  {about}")
    return 0
