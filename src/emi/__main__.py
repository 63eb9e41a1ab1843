"""`python -m emi` is `emi`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    # Python puts the current directory first, where a file can hide a module of ours or of a
    # library. `main` appends it for the modules of the user.
    del sys.path[0]

from emi.cli import main

if __name__ == "__main__":
    sys.exit(main())
