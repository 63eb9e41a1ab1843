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
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from emi import __version__
from emi.errors import BAD_INPUT, FAILED, ForeignError, UserError, did_you_mean
from emi.program import command, install
from emi.settings import whole_number
from emi.start import interruptible

if TYPE_CHECKING:
    from emi.training.config import TrainConfig

# What the user can fix about a path or a disk. A missing file is not among them: commands check
# the paths they are given, and a missing file of ours is a bug.
_PATH_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def _whole(text: str) -> int:
    try:
        return whole_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _path(text: str) -> Path:
    try:
        text.encode()
    except UnicodeEncodeError:  # safetensors could write a run there, but not read it
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8: choose another name") from None
    return Path(text)


# By what stands for the value in the help; everything else is text.
_TYPES: dict[str, Callable[[str], Any]] = {"N": _whole, "X": float, "DIR": _path, "FILE": _path}


class _Format(argparse.HelpFormatter):
    """Wraps text, except for examples, which have a line each."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one sentence."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Format, **settings)

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

    def examples(self, *commands: str) -> None:
        """Show commands at the end of the help."""
        lines = (f"  {command(*shlex.split(example))}" for example in commands)
        self.epilog = "\n".join(["examples:", *lines])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    if "" not in sys.path:
        # Modules of the user in the current directory; last, so that they hide no installed one.
        sys.path.append("")
    code = 0
    try:
        interruptible()
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe (`emi envs | head`)
        _discard_output()
        return code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("EMI_TRACEBACK"):
            raise
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        return _complain(*_explain(_own_or_foreign(error)))


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started the process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ✓ shows ? instead


def _discard_output() -> None:
    """Write no more to stdout; otherwise Python would report the same error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        f"this is a bug in emi: {type(error).__name__}: {error} (set EMI_TRACEBACK=1 to see where)"
    ), FAILED


def _own_or_foreign(error: Exception) -> Exception:
    """The error to explain, after showing where the code of others raised it, if it did.

    The frames of emi above that code are left out.
    """
    from emi.envs.foreign import failure, in_own_method, own_frames

    if isinstance(error, ForeignError):
        cause = error.__cause__
        found = None if cause is None else (cause, own_frames(cause))
    elif isinstance(error, UserError) or (own := in_own_method(error)) is None:
        return error
    else:
        name, trace = own
        found, error = (error, trace), failure(f"the method {name!r} raised", error)
    if found is not None:
        with contextlib.suppress(OSError):
            traceback.print_exception(type(found[0]), *found)
    return error


def _complain(sentence: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"emi: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _run(words: list[str]) -> int:
    parser, commands = _parsers()
    help = f": see '{command('--help')}'"
    if not words:
        parser.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in commands:
        hint = did_you_mean(words[0], commands, help)
        raise UserError(f"unknown command {words[0]!r}{hint}")
    try:
        args, unknown = parser.parse_known_args(_one_setting_each(words))
    except SystemExit as done:  # --help or --version, which has been printed
        return int(done.code or 0)
    if unknown:
        option = next((word for word in unknown if word.startswith("-")), None)
        if option is None:
            own_help = command(words[0], "--help")
            raise UserError(f"unexpected argument {unknown[0]!r}: see '{own_help}'")
        actions = (commands[args.command] if args.command else parser)._actions
        known = [flag for action in actions for flag in action.option_strings]
        hint = did_you_mean(option.partition("=")[0], known, help)
        raise UserError(f"unknown option {option!r}{hint}")
    if args.command is None:
        raise UserError(f"name a command{help}")
    args.typed = ["emi", *words]
    handler: Callable[[argparse.Namespace], int] = args.handler
    return handler(args)


def _one_setting_each(words: Sequence[str]) -> list[str]:
    """Change `--set a=1 b=2 ENV` to `--set a=1 --set b=2 ENV`: a further setting has a `=`."""
    split: list[str] = []
    option = ""  # that the next word may belong to
    for word in words:
        further = option and "=" in word and not word.startswith("-")
        if further and split[-1] != option:
            split.append(option)
        split.append(word)
        if not further:
            option = word if word in ("--set", "--env-arg") else ""
    return split


def _parsers() -> tuple[_Parser, Mapping[str, _Parser]]:
    """Return the parser of `emi` and those of its commands."""
    parser = _Parser(
        prog=command(),
        description="Exploration with mutual information: train agents with intrinsic rewards, "
        "watch them, compare methods, and reproduce the paper.",
    )
    parser.add_argument(
        "--version", action="version", version=f"emi {__version__}", help="print the version"
    )
    parser.epilog = f"'{command('COMMAND', '--help')}' describes a command and its options."
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")

    def add(
        name: str, help: str, handler: Callable[[argparse.Namespace], int], about: str
    ) -> _Parser:
        made = commands.add_parser(name, help=help, description=about)
        made.set_defaults(handler=handler)
        return made

    train = add(
        "train",
        "train an agent; the paper's settings are the defaults",
        _train,
        "Train an agent with TRPO and the bonus of an exploration method. The paper's settings are "
        "the defaults. Ctrl-C writes a checkpoint and stops; the run can be resumed.",
    )
    train.value(
        "env",
        "ENV",
        f"one of '{command('envs')}' in any case, or your own as gym:package.module:MyEnv-v0",
        nargs="?",
    )
    train.value(
        "--method",
        "NAME",
        f"one of '{command('methods')}' in any case, or your own as package.module:Class "
        "(default: emi)",
    )
    _add_preset(train)
    train.value(
        "--config",
        "FILE",
        "settings in JSON, all or some, as --print-config prints them; options override them "
        "(default: none)",
    )
    train.value("--seed", "N", "decides everything random in the run (default: 0)")
    train.value("--out", "DIR", "directory of the run (default: runs/ENV-METHOD-seedN)")
    train.value("--threads", "N", "CPU threads (default: all usable cores)")
    rewards = "environment, or none: learn from the bonus alone (default: environment)"
    train.value("--reward", "REWARD", rewards)
    train.value("--device", "DEVICE", "where the networks are, cpu or cuda (default: cpu)")
    _add_environment(train)
    _add_settings(train)
    _add_trust(train)
    train.flag("--resume", "resume the run if it has begun (default: do not write into a run)")
    train.flag("--print-config", "print the config as JSON and exit")
    train.examples(
        "train SparseHalfCheetah",
        "train SparseHalfCheetah --method rnd --seed 3 --steps 500k",
        "train SparseHalfCheetah --preset robust",
        "train gym:CartPole-v1 --set eta=0.01 num_envs=5 --out runs/first",
        "train gym:my_env:MyEnv-v0 --env-arg size=8",
        "train BoxImage --reward none",
    )

    resume = add(
        "resume",
        "resume a run that was stopped",
        _resume,
        "Resume a run from its newest checkpoint. The result is the same as that of a run that "
        "was never stopped, bit for bit.",
    )
    resume.value("dir", "DIR", "directory of the run")
    _add_trust(resume)

    watch = add(
        "watch",
        "make a video of one episode of a trained agent",
        _watch,
        "Make a video of one episode of the agent in the newest checkpoint of a run.",
    )
    watch.value("dir", "DIR", "directory of the run")
    watch.value("--out", "FILE", ".mp4 or .gif (default: DIR/watch.mp4)")
    watch.value("--seed", "N", "seed of the episode (default: 0)", 0)
    watch.flag(
        "--deterministic", "take the most likely action in every step (default: draw actions)"
    )
    _add_trust(watch)
    watch.examples(
        "watch runs/SparseHalfCheetah-emi-seed0",
        "watch runs/SparseHalfCheetah-emi-seed0 --seed 3 --out cheetah.gif",
    )

    plan = add(
        "plan",
        "go to a goal with the embedding of a trained run",
        _plan,
        "Plan a path to a goal in the embedding of a run of emi, follow it, and make a video. A "
        "figure next to the video shows the plan and the path. The run is not changed.",
    )
    plan.value("dir", "DIR", "directory of the run")
    goal = "a .npy file with an observation, the index of a visited state, or random"
    plan.value("--goal", "GOAL", f"{goal} (default: random)", "random")
    plan.value(
        "--planner",
        "NAME",
        "straight, greedy or graph, see docs/planning.md (default: straight)",
        "straight",
    )
    plan.value("--out", "FILE", ".mp4 or .gif (default: DIR/plan.mp4)")
    plan.value("--seed", "N", "seed of the start and of a random goal (default: 0)", 0)
    plan.value("--data", "N", "transitions to train the embedding on first (default: 30k)", 30_000)
    plan.value("--max-steps", "N", "longest path (default: 500)", 500)
    _add_trust(plan)
    plan.examples(
        "train BoxImageWall --reward none",
        "plan runs/BoxImageWall-emi-seed0 --planner graph",
    )

    sweep = add(
        "sweep",
        "train environments x methods x seeds; complete runs are kept",
        _sweep,
        "Train every environment with every method and seed, several runs at a time. The same "
        "command continues a sweep that was stopped: complete runs are kept, others resumed.",
    )
    sweep.value("envs", "ENV", f"environments, as in '{command('train')}'", nargs="+")
    sweep.value("--methods", "A,B", f"methods, as in '{command('train')}' (default: emi)", "emi")
    _add_preset(sweep)
    sweep.value("--seeds", "0-4,7", "seeds and ranges of seeds (default: 0-4)", "0-4")
    _add_engine(sweep)
    out = "the runs are in DIR/ENV/METHOD/seedN (default: runs/sweep)"
    sweep.value("--out", "DIR", out, Path("runs/sweep"))
    sweep.flag("--dry-run", "print the command of every run and exit")
    sweep.value("--slurm", "FILE", "write a Slurm job-array script and exit (default: train here)")
    _add_environment(sweep)
    _add_settings(sweep)
    sweep.examples(
        "sweep SparseHalfCheetah --methods emi,rnd,trpo --seeds 0-4",
        "sweep Freeway Frostbite --steps 1M --jobs 2 --out runs/atari",
    )

    report = add(
        "report",
        "one HTML page of runs: curves, tests, embeddings",
        _report,
        "Write one HTML page that compares runs: learning curves, statistics and embeddings. It "
        "needs no network and no other file.",
    )
    report.value("dirs", "DIR", "runs or folders of runs", nargs="+")
    report.value("--out", "FILE", "the page (default: report.html)", Path("report.html"))
    report.value("--figures", "DIR", "write PNG figures and a table there instead (default: none)")
    report.examples("report runs/sweep", "report runs/first runs/second --out compared.html")

    coverage = add(
        "coverage",
        "what runs visited: a table and a figure of maps",
        _coverage,
        f"Show what runs visited that were trained with '{command('train', '--coverage')}': print "
        "the cells, entropies and distinct frames of each method, and draw maps of the visits and "
        "of the bonus, and the cells covered over training.",
    )
    coverage.value("dirs", "DIR", "runs or folders of runs", nargs="+")
    coverage.value(
        "--axes", "A,B", "columns of the observation to show (default: those that were recorded)"
    )
    figure = "the figure; with several environments, one for each (default: coverage.png)"
    coverage.value("--out", "FILE", figure, Path("coverage.png"))
    coverage.examples("coverage runs/sweep", "coverage runs/first --axes 0,3 --out maps.png")

    doctor = add(
        "doctor",
        "check the installation and say what is missing",
        _doctor,
        "Check what training needs, and say how to install what is missing.",
    )
    bonus = "check the bonus of the run in DIR instead (default: check the installation)"
    doctor.value("--bonus", "DIR", bonus)
    _add_trust(doctor)
    _add_paper_commands(
        add(
            "paper",
            "reproduce the tables and figures of the paper",
            _paper,
            "Reproduce the tables and figures of the paper: train their runs, collect these into a "
            "folder of results, draw. Without ACTION, list them.",
        )
    )
    add("envs", "list the environments", _envs, "List the environments.")
    add("methods", "list the exploration methods", _methods, "List the exploration methods.")
    return parser, commands.choices


def _add_paper_commands(paper: _Parser) -> None:
    commands = paper.add_subparsers(title="actions", dest="action", metavar="ACTION")
    paper.set_defaults(action="list", results=Path("results"))  # `emi paper` alone
    which = f"a table or figure of '{command('paper', 'list')}'"

    def action(name: str, help: str, about: str) -> _Parser:
        made = commands.add_parser(name, help=help, description=about)
        made.value("--results", "DIR", "folder of the results (default: results)", Path("results"))
        return made

    action(
        "list",
        "list tables and figures, and how many of their runs are there",
        "List tables and figures: name, question, and how many of their runs are in the results.",
    )
    run = action(
        "run",
        "train the runs of a table or figure",
        "Train the runs of tables and figures in one sweep.",
    )
    run.value("names", "NAME", which, nargs="+")
    run.value("--out", "DIR", "directory of the runs (default: runs/paper[_SCALE])")
    run.value("--scale", "X", "share of the steps, in (0, 1] (default: 1)", 1.0)
    run.value("--seeds", "0-4,7", "only these seeds (default: all of the table or figure)")
    run.value("--methods", "A,B", "only runs of these methods (default: all)")
    run.flag("--missing", "only runs that are not in the results (default: all runs)")
    _add_engine(run)
    collect = action(
        "collect",
        "copy finished runs into the results",
        "Pack finished runs into the folder of the results, and list unfinished ones.",
    )
    collect.value("names", "NAME", f"{which} (default: all)", nargs="*")
    collect.value(
        "--runs", "DIR", "directory of the runs (default: runs/paper)", Path("runs/paper")
    )
    draw = action(
        "draw",
        "draw tables and figures from the results",
        "Draw tables and figures from the runs in the results, and list missing runs.",
    )
    draw.value("names", "NAME", f"{which} (default: all)", nargs="*")
    draw.value("--out", "DIR", "folder of the figures (default: RESULTS/figures)")


def _add_engine(parser: _Parser) -> None:
    parser.value("--jobs", "N", "runs at a time (default: cores / threads)")
    parser.value("--threads", "N", "CPU threads of a run (default: 1)", 1)
    engines = "local: this machine; ray: a Ray cluster (default: local)"
    parser.value("--engine", "ENGINE", engines, "local")
    parser.value(
        "--address", "HOST:PORT", "address of the Ray cluster (default: Ray on this machine)"
    )


def _add_preset(parser: _Parser) -> None:
    text = "paper: the paper's settings; robust: ours, which keep a rare reward (default: paper)"
    parser.value("--preset", "NAME", text)


def _add_environment(parser: _Parser) -> None:
    """Options that belong to the environment."""

    def repeated(name: str, dest: str, metavar: str, help: str) -> None:
        parser.add_argument(
            name, dest=dest, action="append", default=[], metavar=metavar, help=help
        )

    repeated(
        "--env-arg",
        "env_args",
        "KEY=VALUE",
        "argument of the environment's constructor, or max_episode_steps, in JSON or as text; more "
        "KEY=VALUE may follow, and --env-arg may be repeated (default: none)",
    )
    repeated(
        "--wrapper",
        "wrappers",
        "A:CLASS",
        "wrapper of a gym: environment, as package.module:Class or "
        "'package.module:Class{\"key\": 1}'; may be repeated, the first is the innermost "
        "(default: none)",
    )
    text = "entry of Dict observations to read (default: all, flattened to one vector)"
    parser.value("--observation", "KEY", text)


def _environment_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Those settings of the environment that were given as options."""
    from emi.training.config import parse_argument

    settings: dict[str, Any] = {}
    if args.env_args:
        settings["env_args"] = dict(map(parse_argument, args.env_args))
    if args.wrappers:
        settings["wrappers"] = args.wrappers
    if args.observation is not None:
        settings["observation"] = args.observation
    return settings


def _add_settings(parser: _Parser) -> None:
    parser.flag(
        "--coverage",
        f"record the visited states for '{command('coverage')}' and the report page (default: no)",
    )
    steps = "total environment steps, as in 5000000, 5e6, 500k, 2.5M"
    parser.value("--steps", "N", f"{steps} (default: the paper's number for ENV, else 1M)")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting; more KEY=VALUE may follow, and --set may be repeated; "
        f"'{command('train', 'ENV', '--print-config')}' prints the keys and their defaults",
    )


def _add_trust(parser: _Parser) -> None:
    text = (
        "modules that a stored config may import: those of its gym:A:Env-v0, methods and wrappers "
        "(default: none)"
    )
    parser.value("--trust", "A,B", text, "")


def _train(args: argparse.Namespace) -> int:
    from emi.runs.run_directory import RunDirectory, config_bytes, default_path
    from emi.training.config import modules_of, read_settings, require_trusted
    from emi.training.presets import resolve

    settings = {} if args.config is None else read_settings(args.config)
    env = args.env or settings.get("env")
    method = args.method or settings.get("method") or "emi"
    if env is None:
        raise UserError(f"name an environment: see '{command('envs')}'")
    if args.config is not None:
        typed = modules_of(args.env or "", args.method or "emi", args.wrappers)
        wrappers = args.wrappers or settings.get("wrappers", ())
        trusted = (*typed, *args.trust.split(","))
        require_trusted(env, method, wrappers, trusted, str(args.config))
    for key in ("steps", "seed", "threads", "device", "reward"):
        if getattr(args, key) is not None:
            settings[key] = getattr(args, key)
    given = _environment_settings(args)
    stored = settings.get("env_args")
    if "env_args" in given and isinstance(stored, Mapping):  # else the config says what is wrong
        given["env_args"] = {**stored, **given["env_args"]}
    settings |= given | ({"coverage": True} if args.coverage else {})
    config = resolve(env, method, settings, args.settings, args.preset)
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
    from emi.runs.ending import describe_ending
    from emi.runs.progress import Lines, choose_progress
    from emi.runs.run import run

    result = run(config, out, resume=resume, progress=choose_progress(), command=typed)
    lines = Lines(sys.stdout)
    for line in describe_ending(result):
        lines.write(line)
    if result.complete:
        return 0
    assert result.stopped_by is not None, "a run ends complete or by a signal"
    return _complain(
        f"stopped at iteration {result.iteration} of {result.iterations}:"
        f" resume with: {result.directory.resume_command}",
        128 + result.stopped_by,
    )


def _watch(args: argparse.Namespace) -> int:
    from emi.runs.progress import working
    from emi.runs.watch import watch

    out = args.out or args.dir / "watch.mp4"
    options = {"seed": args.seed, "deterministic": args.deterministic}
    with working(f"recording an episode of {args.dir}") as show:
        episode = watch(args.dir, out, **options, trusted=args.trust.split(","), show=show)
    print(f"return {episode.total_reward:g} in {episode.steps} steps: {out}")
    return 0


def _plan(args: argparse.Namespace) -> int:
    try:
        from emi.report.plan_file import read_plan_file
        from emi.report.planned_path import draw_plan
        from emi.runs.plan import plan, write_plan
        from emi.runs.progress import working
    except ModuleNotFoundError as error:
        raise UserError(f"emi plan needs {error.name}: install it with {install('all')}") from None
    out = args.out or args.dir / "plan.mp4"
    options = {"planner": args.planner, "seed": args.seed, "data": args.data}
    options |= {"max_steps": args.max_steps, "trusted": args.trust.split(",")}
    with working(f"planning with {args.dir}") as show:
        path = plan(args.dir, out, args.goal, **options, show=show)
    stored = out.with_suffix(".safetensors")
    goal = Path(args.goal).name  # of a file, or an index
    write_plan(path, stored, f"{args.planner}, goal {goal}, seed {args.seed}")
    figure = draw_plan(read_plan_file(stored), out.with_suffix(""))
    end = "goal reached" if path.arrived else f"{path.distance[-1]:.1f} steps from the goal"
    print(f"{end} after {path.steps} steps: {out}, {figure}")
    return 0


def _sweep(args: argparse.Namespace) -> int:
    from emi.sweeps.sweep import check_engine, dry_run, parse_seeds, plan, sweep, write_job_array

    check_engine(args.engine, args.address)  # also with --dry-run and --slurm, which start none
    cells = plan(
        args.out,
        args.envs,
        [name for name in args.methods.split(",") if name],
        parse_seeds(args.seeds),
        {"threads": args.threads}
        | ({} if args.steps is None else {"steps": args.steps})
        | ({"coverage": True} if args.coverage else {})
        | _environment_settings(args),
        args.settings,
        args.preset,
    )
    if args.dry_run:
        return dry_run(cells)
    if args.slurm is not None:
        return write_job_array(cells, args.slurm, jobs=args.jobs)
    code = sweep(cells, jobs=args.jobs, engine=args.engine, address=args.address)
    if code == 0:
        print(f"report: {command('report', str(args.out))}")
    return code


def _report(args: argparse.Namespace) -> int:
    try:
        from emi.report.figures import write_figures
        from emi.report.page.html import write_page
        from emi.reproduction.paper_values import PAPER
        from emi.runs.progress import working
    except ModuleNotFoundError as error:
        raise UserError(
            f"emi report needs {error.name}: install it with {install('report')}"
        ) from None
    if args.figures is not None:
        with working(f"reading runs and drawing figures in {args.figures}"):
            written = write_figures(args.dirs, args.figures, PAPER)
        for path in written:
            print(path)
        return 0
    with working(f"reading runs and writing {args.out}"):
        out = write_page(args.dirs, args.out, PAPER)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB, open it in a browser")
    return 0


def _coverage(args: argparse.Namespace) -> int:
    try:
        from emi.report.coverage_command import parse_axes, write_coverage
        from emi.runs.progress import working
    except ModuleNotFoundError as error:
        raise UserError(
            f"emi coverage needs {error.name}: install it with {install('report')}"
        ) from None
    axes = None if args.axes is None else parse_axes(args.axes)
    with working(f"reading runs and drawing {args.out}"):
        lines = write_coverage(args.dirs, args.out, axes)
    for line in lines:
        print(line)
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
        raise UserError(f"emi paper needs {error.name}: install it with {install('all')}") from None
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
        methods=None if args.methods is None else tuple(filter(None, args.methods.split(","))),
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
