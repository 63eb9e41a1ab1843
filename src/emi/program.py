"""What messages say about the program: its name as the user types it, how to install an extra."""

import json
import os
import shlex
import shutil
import sys
from importlib import metadata
from urllib.parse import unquote, urlsplit

from emi.start import MAIN_MODULE, is_console_script, zeroth_argument


def command(*words: str) -> str:
    """Return `emi WORD…` as the user can paste it.

    `emi` is `./emi` in a clone, whose launcher sets EMI_COMMAND to its own path, and
    `python -m emi` if it was started so.
    """
    launcher = os.environ.get("EMI_COMMAND")
    name = ["emi"]
    if launcher:
        name = [launcher]
    elif zeroth_argument() == MAIN_MODULE:
        name = [_on_path(sys.orig_argv[0]), "-m", "emi"]
    elif is_console_script():
        name = [_on_path(zeroth_argument())]
    return shlex.join([*name, *words])


def install(extra: str) -> str:
    """Return the command that installs an extra from where emi itself was installed.

    That is a clone, a repository or an archive, which pip records (PEP 610), or else an index.
    """
    name = f"emi-rl[{extra}]"
    # Of an editable clone, the folder that the build leaves in src/ may be found first, without it.
    found = (each.read_text("direct_url.json") for each in metadata.distributions(name="emi-rl"))
    record = next(filter(None, found), None)
    if record is None:
        return f"pip install {shlex.quote(name)}"
    origin = json.loads(record)
    url = origin["url"]
    if origin.get("dir_info", {}).get("editable"):
        clone = unquote(urlsplit(url).path)
        return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return f"pip install {shlex.quote(f'{name} @ {url}')}"


def _on_path(program: str) -> str:
    """Return the name of a program if the shell finds this file by it, otherwise its path."""
    name = os.path.basename(program)
    found = shutil.which(name)
    return name if found is not None and os.path.abspath(found) == program else program
