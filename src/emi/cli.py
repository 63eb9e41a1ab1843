"""The command line: one thin function per sub-command.

Exit codes: 0 success; 1 the work failed; 2 wrong input, nothing was written; 128 + n stopped by
signal n after a checkpoint. Heavy modules are imported inside the functions: `emi --help` must not
wait for PyTorch.
"""

import argparse
import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from emi import __version__
from emi.errors import BAD_INPUT, FAILED, UserError, did_you_mean

if TYPE_CHECKING:
    from emi.training.config import TrainConfig

# What the user can fix about a path or a disk. A missing file is not among them: commands check
# the paths they are given, and a missing file of ours is a bug.
_PATH_ERRORS = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def _whole(text: str) -> int:
    """A whole number as people write it: 5000000, 5_000_000, 5e6."""
    for read in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            if read(text) == int(read(text)):
                return int(read(text))
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")


# By what stands for the value in the help; everything else is text.
_TYPES: dict[str, Callable[[str], Any]] = {"N": _whole, "X": float, "DIR": Path, "FILE": Path}


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: see '{self.prog} --help'")

    def value(
        self, name: str, metavar: str, help: str, default: Any = None, nargs: str | None = None
    ) -> None:
        """Add an argument or an option with a value, of the type that `metavar` stands for."""
        kind = _TYPES.get(metavar, str)
        self.add_argument(name, metavar=metavar, help=help, default=default, nargs=nargs, type=kind)

    def flag(self, name: str, help: str) -> None:
        self.add_argument(name, action="store_true", help=help)


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


def _parsers() -> tuple[_Parser, Mapping[str, _Parser]]:
    """Return the parser of `emi` and those of its commands."""
    parser = _Parser(
        prog="emi",
        description="Exploration with mutual information: train agents and compare methods.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"emi {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, help: str, handler: Callable[[argparse.Namespace], int]) -> _Parser:
        made = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        made.set_defaults(handler=handler)
        return made

    train = command("train", "train an agent; the paper's settings are the defaults", _train)
    train.value(
        "env", "ENV", "one of 'emi envs', or your own as gym:package.module:MyEnv-v0", nargs="?"
    )
    own = "one of 'emi methods', or your own as package.module:Class (default: emi)"
    train.value("--method", "NAME", own)
    given = "settings in JSON, all or some, as --print-config prints them; options override them"
    train.value("--config", "FILE", given)
    train.value("--seed", "N", "default: 0")
    train.value("--out", "DIR", "default: runs/ENV-METHOD-seedN")
    train.value("--threads", "N", "default: all cores")
    train.value("--device", "DEVICE", "cpu or cuda (default: cpu)")
    _add_settings(train)
    _add_trust(train)
    train.flag("--resume", "resume the run if it has begun")
    train.flag("--print-config", "print the config and exit")

    resume = command("resume", "resume a run that was stopped", _resume)
    resume.value("dir", "DIR", "directory of the run")
    _add_trust(resume)

    watch = command("watch", "make a video of one episode of a trained agent", _watch)
    watch.value("dir", "DIR", "directory of the run")
    watch.value("--out", "FILE", ".mp4 or .gif (default: DIR/watch.mp4)")
    watch.value("--seed", "N", "seed of the episode (default: 0)", 0)
    watch.flag("--deterministic", "take the most likely action in every step")
    _add_trust(watch)

    sweep = command("sweep", "train environments x methods x seeds; complete runs are kept", _sweep)
    sweep.value("envs", "ENV", "environments, as in 'emi train'", nargs="+")
    sweep.value("--methods", "A,B", "methods, as in 'emi train' (default: emi)", "emi")
    sweep.value("--seeds", "0-4,7", "default: 0-4", "0-4")
    _add_engine(sweep)
    sweep.value("--out", "DIR", "default: runs/sweep", Path("runs/sweep"))
    sweep.flag("--dry-run", "print the commands and exit")
    sweep.value("--slurm", "FILE", "write a Slurm job-array script and exit")
    _add_settings(sweep)

    report = command("report", "one HTML page of runs: curves, tests, embeddings", _report)
    report.value("dirs", "DIR", "runs or folders of runs", nargs="+")
    report.value("--out", "FILE", "default: report.html", Path("report.html"))
    report.value("--figures", "DIR", "write PNG figures and a table instead")

    doctor = command("doctor", "check the installation and say what is missing", _doctor)
    doctor.value("--bonus", "DIR", "check the bonus of the run in DIR instead")
    _add_trust(doctor)
    _add_paper_commands(command("paper", "reproduce the tables and figures of the paper", _paper))
    command("envs", "list the environments", _envs)
    command("methods", "list the exploration methods", _methods)
    return parser, commands.choices


def _add_paper_commands(paper: _Parser) -> None:
    commands = paper.add_subparsers(dest="action", metavar="ACTION")
    paper.set_defaults(action="list", results=Path("results"))  # `emi paper` alone

    def action(name: str, help: str, names: str | None = None) -> _Parser:
        made = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        if names is not None:
            made.value("names", "NAME", "a table or figure, see 'emi paper list'", nargs=names)
        made.value("--results", "DIR", "default: results", Path("results"))
        return made

    action("list", "list tables and figures, their questions, and how many runs are available")
    run = action("run", "train the runs of a table or figure", "+")
    run.value("--out", "DIR", "default: runs/paper[_SCALE]")
    run.value("--scale", "X", "share of the steps", 1.0)
    run.value("--seeds", "0-4,7", "only these seeds (default: all that the table or figure needs)")
    run.flag("--missing", "only runs that are not in --results")
    _add_engine(run)
    collect = action("collect", "copy finished runs into results", "*")
    collect.value("--runs", "DIR", "default: runs/paper", Path("runs/paper"))
    draw = action(
        "draw",
        "draw tables and figures from the runs in results, and list missing runs (default: all)",
        "*",
    )
    draw.value("--out", "DIR", "default: RESULTS/figures")


def _add_engine(parser: _Parser) -> None:
    parser.value("--jobs", "N", "runs at a time (default: cores)")
    parser.value("--threads", "N", "per run (default: 1)", 1)
    engines = "local: this machine (default); ray: a Ray cluster"
    parser.value("--engine", "ENGINE", engines, "local")
    parser.value("--address", "HOST:PORT", "of the Ray cluster (default: Ray on this machine)")


def _add_settings(parser: _Parser) -> None:
    parser.value("--steps", "N", "total environment steps")
    parser.add_argument(
        "--set",
        dest="settings",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="change settings; 'emi train ENV --print-config' prints the keys",
    )


def _add_trust(parser: _Parser) -> None:
    text = "modules that a stored config may import: those of its gym:A:Env-v0 and B:Class"
    parser.value("--trust", "A,B", text, "")


def _train(args: argparse.Namespace) -> int:
    from emi.runs.run_directory import RunDirectory, config_bytes, default_path
    from emi.training.config import modules_of, read_settings, require_trusted
    from emi.training.presets import resolve

    settings = {} if args.config is None else read_settings(args.config)
    env = args.env or settings.get("env")
    method = args.method or settings.get("method") or "emi"
    if env is None:
        raise UserError("name an environment: see 'emi envs'")
    if args.config is not None:
        typed = modules_of(args.env or "", args.method or "emi")
        require_trusted(env, method, (*typed, *args.trust.split(",")), str(args.config))
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

    config = read_config(RunDirectory(args.dir).config, args.trust.split(","))
    return _train_in(args.dir, config, args.typed, resume=True)


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
    options = {"seed": args.seed, "deterministic": args.deterministic}
    episode = watch(args.dir, out, **options, trusted=args.trust.split(","))
    print(f"return {episode.total_reward:g} in {episode.steps} steps: {out}")
    return 0


def _sweep(args: argparse.Namespace) -> int:
    from emi.sweeps.sweep import check_engine, dry_run, parse_seeds, plan, sweep, write_job_array

    check_engine(args.engine, args.address)  # also with --dry-run and --slurm, which start none
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

        return check_bonus(args.bonus, args.trust.split(","))
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
