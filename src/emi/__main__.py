"""`python -m emi` is `emi`."""

import sys

from emi.cli import main

sys.exit(main())
