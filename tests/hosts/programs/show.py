"""Set the title, show lines, and wait: ``show.py TITLE LINE...``."""

import signal
import sys

title, *lines = sys.argv[1:]
if title:
    sys.stdout.write(f"\033]2;{title}\033\\")
sys.stdout.write("".join(f"{line}\n" for line in lines))
sys.stdout.flush()
signal.pause()
