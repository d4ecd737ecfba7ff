"""``python -m fleetd``."""

import sys

from fleetd.cli import main

if __name__ == "__main__":
    sys.exit(main())
