"""The daemon's log: one line an event, with the fields that code attached to it, in files that rotate."""

from __future__ import annotations

import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from actors.prompt import harmless

#: Bytes of one log file, and how many old ones are kept.
LOG_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 5
_FIELD: Final = "fleet_"


class LineFormatter(logging.Formatter):
    """``TIME LEVEL logger: message key=value ...`` with the ``fleet_`` fields of the record."""

    def __init__(self) -> None:
        self.converter = time.gmtime
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback's below it. Both may quote a member, and a log is read in a terminal."""
        return harmless(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = sorted((name, value) for name, value in vars(record).items() if name.startswith(_FIELD))
        shown = "".join(f" {name.removeprefix(_FIELD)}={value!r}" for name, value in fields)
        return harmless(super().formatMessage(record)).replace("\n", " ") + shown


class LogFile(RotatingFileHandler):
    """A rotating file whose trouble never reaches the daemon: a full disk costs lines, which are counted."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", delay=False)
        self.lost = 0

    def handleError(self, record: logging.LogRecord) -> None:
        self.lost += 1


def log_to(path: Path) -> LogFile:
    """Send everything that fleetd logs at INFO and above to ``path``."""
    path.touch(mode=0o600)
    handler = LogFile(path)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("fleetd").setLevel(logging.INFO)
    return handler
