"""Keeping virtual time virtual: a test on the fake clock must touch no file descriptor.

The fake clock jumps when nothing is runnable, and a byte that is still inside a pipe looks like nothing. So a test that
opens a socket, a process or a terminal beside it is wrong even where it passes. While :func:`no_descriptors` is
entered, opening one raises at the place where it happens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FORBIDDEN = frozenset({"socket.__new__", "subprocess.Popen", "os.posix_spawn", "os.fork", "pty.spawn", "os.openpty"})
#: Files that the interpreter opens by itself: modules that are imported late, and sources for a traceback.
_IMPORTED = (".py", ".pyc", ".so", ".pyi")


class DescriptorOpened(AssertionError):
    """A test on the fake clock has opened a file, a socket, a terminal or a process."""


class _Guard:
    """The interpreter's audit hook: added once, for ever, and asked at each event whether anybody guards."""

    def __init__(self) -> None:
        self.entered = 0
        self._added = False

    def add(self) -> None:
        if not self._added:
            sys.addaudithook(self._audit)
            self._added = True

    def _audit(self, event: str, args: tuple[object, ...]) -> None:
        if not self.entered:
            return
        if event in _FORBIDDEN:
            raise DescriptorOpened(f"{event} while time is virtual: use memory hosts and memory streams")
        if event == "open" and not str(args[0]).endswith(_IMPORTED) and not isinstance(args[0], int):
            raise DescriptorOpened(f"the file {args[0]!r} was opened while time is virtual")


_GUARD = _Guard()


def _open_now() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")} if Path("/proc/self/fd").is_dir() else set()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Refuse to open descriptors inside, and see that none is left over.

    Raises:
        DescriptorOpened: something was opened.
    """
    _GUARD.add()
    before = _open_now()
    _GUARD.entered += 1
    try:
        yield
    finally:
        _GUARD.entered -= 1
    left = _open_now() - before
    if left:
        raise DescriptorOpened(f"descriptors {sorted(left)} were opened while time is virtual and are open still")
