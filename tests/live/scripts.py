"""Scripts of ``bench/`` in small, for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

BENCH: Final = Path(__file__).parents[2] / "bench"
#: A whole run on a busy machine, in seconds.
RUN_S: Final = 600


def script(name: str, *arguments: str, code: int = 0) -> str:
    """Run a script, which must end like this; what it said, on both streams."""
    argv = [sys.executable, str(BENCH / name), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
