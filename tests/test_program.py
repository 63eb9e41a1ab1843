"""The command as messages name it, how to install an extra, and the first moments of a command."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import emi
from emi import program

SOURCE = Path(emi.__file__).parents[1]
SCRIPT = f"""#!{sys.executable}
import sys
from emi.cli import main
sys.exit(main())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script that pip installs, and the current directory."""
    file = tmp_path / "bin dir" / "emi"
    file.parent.mkdir()
    file.write_text(SCRIPT)
    file.chmod(0o755)
    return file


def run(*words: str, cwd: Path, **variables: str | None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | variables
    kept = {name: value for name, value in environment.items() if value is not None}
    return subprocess.run(
        words, cwd=cwd, env=kept, capture_output=True, text=True, check=False, timeout=60
    )


class TestCommand:
    def test_a_library_says_emi(self) -> None:
        assert program.command() == "emi"
        assert program.command("resume", "my run") == "emi resume 'my run'"

    def test_the_launcher_of_a_clone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EMI_COMMAND", "./emi")
        assert program.command("envs") == "./emi envs"
        monkeypatch.setenv("EMI_COMMAND", "/my clone/emi")
        assert program.command("envs") == "'/my clone/emi' envs"
        launcher = Path(__file__).parents[1] / "emi"
        assert "EMI_COMMAND=$0" in launcher.read_text()

    def test_the_installed_script(self, script: Path) -> None:
        found = os.pathsep.join([str(script.parent), os.environ["PATH"]])
        cases = {
            "emi": run("emi", "xyz", cwd=script.parent, PATH=found),
            "./emi": run("./emi", "xyz", cwd=script.parent),
            f"'{script}'": run(str(script), "xyz", cwd=Path("/")),
        }
        for name, done in cases.items():
            assert done.stderr == f"emi: unknown command 'xyz': see '{name} --help'\n"

    def test_python_m(self, tmp_path: Path) -> None:
        python = Path(sys.executable)
        cases = {python.name: str(python.parent), shlex.quote(sys.executable): str(tmp_path)}
        for name, path in cases.items():
            done = run(sys.executable, "-m", "emi", "xyz", cwd=tmp_path, PATH=path)
            assert done.stderr == f"emi: unknown command 'xyz': see '{name} -m emi --help'\n"
        words = ("-m", "emi", "train", "--help")
        usage = run(sys.executable, *words, cwd=tmp_path, PATH=str(python.parent)).stdout
        assert usage.startswith(f"usage: {python.name} -m emi train ")
        assert f"\n  {python.name} -m emi train SparseHalfCheetah\n" in usage


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "pip install 'emi-rl[train]'"),
        (
            {"url": "file:///my%20clone", "dir_info": {"editable": True}},
            "pip install -e '/my clone[train]'",
        ),
        ({"url": "file:///clone", "dir_info": {}}, "pip install 'emi-rl[train] @ file:///clone'"),
        (
            {"url": "https://x.org/emi", "vcs_info": {"vcs": "git", "commit_id": "3f"}},
            "pip install 'emi-rl[train] @ git+https://x.org/emi@3f'",
        ),
    ],
)
def test_an_extra_comes_from_where_emi_came_from(
    origin: object, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "emi_rl-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: emi-rl\nVersion: 1\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    found = metadata.PathDistribution(folder)
    bare = SimpleNamespace(read_text=lambda name: None)  # as src/emi_rl.egg-info in a clone
    monkeypatch.setattr(metadata, "distributions", lambda name: [bare, found])
    assert program.install("train") == expected


def test_an_extra_of_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "distributions", lambda name: [])
    assert program.install("sb3") == "pip install 'emi-rl[sb3]'"


class TestStart:
    def test_ctrl_c_during_the_imports(self, tmp_path: Path, script: Path) -> None:
        """The interrupt is sent when NumPy, which the package imports, is being imported."""
        (tmp_path / "numpy.py").write_text(
            "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
        )
        path = os.pathsep.join([str(tmp_path), str(SOURCE)])
        for words in ([str(script)], [sys.executable, "-m", "emi"]):
            began = time.monotonic()
            done = run(*words, "envs", cwd=Path("/"), PYTHONPATH=path)
            assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
            assert time.monotonic() - began < 30

    def test_waiting_threads_sleep_unless_the_user_says_otherwise(self, script: Path) -> None:
        names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
        code = (
            "import os, sys; sys.argv = sys.argv[1:]; import emi;"
            f"print([os.environ.get(name) for name in {names}])"
        )

        def seen(program: str, **settings: str) -> str:
            variables = dict.fromkeys(names) | settings
            return run(sys.executable, "-c", code, program, cwd=Path("/"), **variables).stdout

        assert seen(str(script)) == "['PASSIVE', '1000']\n"
        assert seen(str(script), OMP_WAIT_POLICY="ACTIVE") == "['ACTIVE', None]\n"
        assert seen(str(script), GOMP_SPINCOUNT="7") == "[None, '7']\n"
        assert seen("library.py") == "[None, None]\n"

    def test_ctrl_c_is_left_alone_in_a_library(self) -> None:
        code = "import emi, signal; assert signal.getsignal(2) is signal.default_int_handler"
        assert run(sys.executable, "-c", code, cwd=Path("/")).returncode == 0

    def test_an_ignored_ctrl_c_stays_ignored(self, script: Path) -> None:
        code = (
            "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
            "sys.argv = [sys.argv[1]]; import emi; print(signal.getsignal(signal.SIGINT).name)"
        )
        done = run(sys.executable, "-c", code, str(script), cwd=Path("/"))
        assert done.stdout == f"{signal.SIG_IGN.name}\n"

    def test_the_current_directory_comes_last(self, tmp_path: Path, script: Path) -> None:
        """A file with the name of an installed package does not hide the package."""
        (tmp_path / "gymnasium.py").write_text("raise RuntimeError('it hides the package')")
        (tmp_path / "own.py").write_text("raise RuntimeError('found')")
        words = ["train", "BoxImage", "--method", "own:Method"]
        for start in ([str(script)], [sys.executable, "-m", "emi"]):
            done = run(*start, *words, cwd=tmp_path)
            assert done.stderr == "emi: cannot import own:Method: RuntimeError: found\n"

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    def test_closed_streams(self, closed: str, tmp_path: Path) -> None:
        shell = f'"{sys.executable}" -m emi "$@" {closed}'
        done = run("sh", "-c", shell, "sh", "envs", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert ("SparseHalfCheetah" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
        done = run("sh", "-c", shell, "sh", "xyz", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == ("2>&-" not in closed)

    def test_no_file_gets_the_number_of_a_closed_stream(self, tmp_path: Path) -> None:
        """Otherwise a message would be written into it."""
        (tmp_path / "own.py").write_text(
            "import os\nnull = os.stat(os.devnull).st_rdev\n"
            "same = [os.fstat(number).st_rdev == null for number in range(3)]\n"
            "open('found', 'w').write(str(same))\n"
        )
        shell = f'"{sys.executable}" -m emi train BoxImage --method own:X <&- >&- 2>&-'
        assert run("sh", "-c", shell, cwd=tmp_path).returncode == 2
        assert (tmp_path / "found").read_text() == "[True, True, True]"

    def test_a_full_disk(self, tmp_path: Path) -> None:
        shell = f'"{sys.executable}" -m emi envs'
        done = run("sh", "-c", f"{shell} >/dev/full", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("emi: cannot write: no space left on device: ")
        assert done.stderr.count("\n") == 1
