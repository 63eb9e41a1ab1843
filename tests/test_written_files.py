"""Every file that emi writes goes through `durable_file`: it is old or new, never half."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "emi"
MODULES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}

# Functions that write a file, whatever they are called on.
WRITERS = {
    *("write_text", "write_bytes", "touch", "savefig", "imsave", "save_file", "tofile", "to_csv"),
    *("savez", "savez_compressed", "copyfile", "copy2", "copytree", "move", "NamedTemporaryFile"),
    *("TemporaryFile", "mkstemp", "FileIO", "get_writer", "FileHandler", "SummaryWriter"),
    *("open_own", "write_and_sync", "symlink_to", "hardlink_to"),
}
OF_MODULES = {("os", name) for name in ("open", "replace", "rename", "link", "symlink")}
OF_MODULES |= {("np", "save"), ("torch", "save"), ("shutil", "copy")}

# What else writes, and why.
ALLOWED = {
    "durable_file.py": {"FileIO", "open", "open_own", "write_and_sync", "link", "replace"},
    "untrusted_file.py": {"open"},  # os.open for reading
    "cli.py": {"open"},  # os.open of /dev/null, when the reader of a pipe has gone
    "start.py": {"open"},  # the same in the place of a closed stream
    # Files of a checkpoint, whose directory is renamed when it is complete.
    "runs/checkpoint.py": {"write_and_sync", "replace"},
    "runs/metrics_file.py": {"open_own"},  # rows are appended; a half one is dropped on resuming
    "runs/tensorboard_events.py": {"open_own"},  # events are appended
    "runs/run_directory.py": {"open_own"},  # .lock, which is empty
    "sweeps/sweep.py": {"open_own"},  # the log of a process
    "sweeps/run_process.py": {"open"},  # the same log, without the package
    "runs/doctor.py": {"NamedTemporaryFile"},  # is the directory writable?
    # Into memory, from where they are written durably.
    "report/style.py": {"savefig"},
    "runs/watch.py": {"get_writer"},
}


def writing_calls(tree: ast.AST) -> Iterator[str]:
    """The names of the functions in `tree` that can write a file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in OF_MODULES:
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in WRITERS:
                yield name
            case ast.Name(id="open") | ast.Attribute(attr="open"):
                words = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
                modes = [w.value for w in words if isinstance(w, ast.Constant)]
                if any(isinstance(m, str) and set(m) & set("wax+") for m in modes):
                    yield "open"


@pytest.mark.parametrize("name", MODULES)
def test_files_are_written_durably(name: str) -> None:
    found = set(writing_calls(ast.parse(MODULES[name].read_text())))
    assert found == ALLOWED.get(name, set())


def test_the_exceptions_are_files() -> None:
    assert set(ALLOWED) <= set(MODULES)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ('path.open("w")', "open"),
        ('open(path, mode="ab")', "open"),
        ('gzip.open(path, "xb")', "open"),
        ("os.open(path, os.O_WRONLY)", "open"),
        ('path.write_text("x")', "write_text"),
        ("figure.savefig(path)", "savefig"),
        ("save_file({}, path)", "save_file"),
        ("np.save(path, x)", "save"),
        ("os.replace(a, b)", "replace"),
        ("shutil.copyfile(a, b)", "copyfile"),
    ],
)
def test_a_write_is_recognised(code: str, name: str) -> None:
    assert list(writing_calls(ast.parse(code))) == [name]


def test_reading_is_no_write() -> None:
    code = 'open(path); path.open("rb"); gzip.open(path, "rt"); text.replace("a", "w")'
    assert list(writing_calls(ast.parse(code))) == []
