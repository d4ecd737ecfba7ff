"""Show a line and end: ``leave.py exit STATUS`` or ``leave.py kill SIGNAL``."""

import os
import sys

how, number = sys.argv[1], int(sys.argv[2])
sys.stdout.write("last words\n")
sys.stdout.flush()
if how == "kill":
    os.kill(os.getpid(), number)
sys.exit(number)
