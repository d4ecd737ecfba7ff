"""The demo agent, with a witness: it notes its own start and each prompt that was submitted to it.

    python bench/witness.py NOTES

One JSON object a line is appended to the file NOTES, so what a member was really told is known whatever
the daemon says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from typing import Final

from fleetd.demo_agent import Agent
from fleetd.environment import MEMBER


class Witness(Agent):
    """The demo agent; see :mod:`fleetd.demo_agent` for what a prompt can ask of it."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._target: Final = os.environ[MEMBER].partition(" ")[0]
        # A line is appended in one write, so several members can share the file.
        self._notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._note(started=True)

    def _note(self, **what: object) -> None:
        line = json.dumps({"target": self._target, "pid": os.getpid(), **what}, ensure_ascii=False)
        os.write(self._notes, line.encode() + b"\n")

    def _work_on(self, prompt: str) -> Generator[None, None, None]:
        self._note(prompt=prompt)
        return super()._work_on(prompt)


if __name__ == "__main__":
    sys.exit(Witness(sys.argv[1]).run())
