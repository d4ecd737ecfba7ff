"""A member's program that tries to be taken for somebody else: it wanders off as it is told, and then asks who it is.

``wanderer.py HOW OUTPUT RUNTIME_DIR``. Each letter of HOW is one step: ``c`` a child, ``f`` a child whose parent goes
away, ``s`` a session of its own, ``e`` an environment with nothing of fleetd in it, ``l`` one that says that it is a
lead, ``t`` into a tmux server of its own. What the daemon answers goes to OUTPUT; the first process stays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

how, output, runtime_dir = sys.argv[1:4]
root = os.getpid()
env = dict(os.environ)


def rest() -> None:
    """The pane's program has nothing to do but to be there."""
    print("> ", flush=True)
    while True:
        time.sleep(60)


if os.fork():
    rest()
for number, step in enumerate(how):
    if step == "c" and os.fork():
        os.wait()
        sys.exit(0)
    if step == "f" and os.fork():
        os._exit(0)
    if step == "s":
        os.setsid()
    if step == "e":
        env = {"PATH": env["PATH"], "LC_ALL": "C.UTF-8"}
    if step == "l":
        env |= {"FLEETD_MEMBER": "", "FLEETD_LEAD": "lead-1", "FLEETD_ROLE": "lead"}
    if step == "t":
        again = [sys.executable, __file__, how[number + 1 :], output, runtime_dir]
        subprocess.run(
            ["tmux", "-S", f"{output}.sock", "-f", "/dev/null", "new-session", "-d", *again], env=env, check=True
        )
        sys.exit(0)

cli = [sys.executable, "-m", "fleetd", "--runtime-dir", runtime_dir]
asked = subprocess.run([*cli, "whoami", "--json"], env=env, capture_output=True, text=True, check=False)
spawn = subprocess.run([*cli, "spawn", "quiet"], env=env, capture_output=True, text=True, check=False)
draft = Path(f"{output}.new")
draft.write_text(f"{asked.stdout}\0{spawn.returncode}\0{spawn.stderr}")
draft.rename(output)
