"""Ignore hang-up and termination, have a child and a grandchild that do so too: ``stubborn.py DIRECTORY [DEPTH]``.

The grandchild has a session of its own. Each writes a file named after its pid.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

directory, depth = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if depth:
    command = [sys.executable, "-I", __file__, directory, str(depth - 1)]
    subprocess.Popen(command, start_new_session=depth == 1)
(Path(directory) / str(os.getpid())).touch()
while True:
    signal.pause()
