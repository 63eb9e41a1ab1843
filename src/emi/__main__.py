"""`python -m emi` is `emi`."""

import sys

from emi.cli import main

if __name__ == "__main__":
    sys.exit(main())
