"""The root process of a member's pane: starts the program, waits for it, writes down how it ended.

It runs as a file (``python -I -S shim.py SPEC``) and imports next to nothing, because it stays in memory as long as the
program runs. The specification is a JSON file of mode 0600 that the shim removes as soon as it has read it, so neither
the environment's secrets nor the program's arguments pass through the terminal server or a command line of ours.

It adopts what the program's children leave behind when they end (a double fork), so that everything that comes of the
program stays below the pane's root process: it is known as the member's when it calls, and it ends with the member.
When the program itself has ended, what is left of it is ended too.

The terminal cannot be asked how the program ended: tmux before 3.6 loses 12 to 29 % of exit codes, a pty knows none.

``SPEC`` holds ``argv`` (list), ``env`` (the whole environment, but for what the terminal says about
itself), ``cwd`` and ``status`` (a path). The shim writes one line into ``status``, replaced atomically:

* ``started PID`` once the program runs,
* ``failed REASON`` if it could not be started,
* ``exited CODE`` or ``killed SIGNAL`` when it has ended.
"""

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from json import loads

#: What the terminal says about itself, passed on to the program.
TERMINAL = ("TERM", "COLORTERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION")

#: ``prctl``: become the parent of descendants whose own parent ends. Linux only.
PR_SET_CHILD_SUBREAPER = 36

#: What is left behind when the program has ended gets SIGTERM, and SIGKILL after so many seconds.
LEFT_S = 1.0
LOOK_S = 0.02


def write(path: str, line: str) -> None:
    """Replace the status file in one step: a reader sees the old line or the new one."""
    draft = f"{path}.new"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(line + "\n")
    os.replace(draft, path)


def note_end(path: str, line: str) -> None:
    """Write down how the program ended; on a disk that takes nothing, this process's own exit code has to say it."""
    with suppress(OSError):
        write(path, line)


def adopt() -> None:
    """Become the parent of every descendant that loses its own."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("the kernel lets no process adopt orphans")


def wait_for(pid: int) -> int:
    """The wait status of this child; adopted ones that end before it are collected."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def children() -> list[int]:
    path = f"/proc/self/task/{os.getpid()}/children"
    try:
        with open(path, encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without this file
        return []


def end_what_is_left() -> None:
    """End the adopted children; with each that goes, its own children come here."""
    until = time.monotonic() + LEFT_S
    told: set[int] = set()
    with suppress(ChildProcessError):
        while left := children():
            late = time.monotonic() >= until
            for pid in left:
                if late or pid not in told:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                    told.add(pid)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(LOOK_S)


def main(spec_path: str) -> int:
    with open(spec_path, encoding="utf-8") as file:
        spec = loads(file.read())
    os.unlink(spec_path)
    status = spec["status"]
    env = {name: os.environ[name] for name in TERMINAL if name in os.environ} | spec["env"]
    try:
        adopt()
        os.chdir(spec["cwd"])
        # ^C and ^Z go to everybody in the terminal's foreground: they are the program's, not this process's.
        keys = [signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP]
        for number in keys:
            signal.signal(number, signal.SIG_IGN)
        restored = [*keys, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE]
        pid = os.posix_spawnp(spec["argv"][0], spec["argv"], env, setsigdef=restored)
    except OSError as exc:
        write(status, f"failed {exc.strerror}: {exc.filename or spec['argv'][0]}")
        return 127

    def forward(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):  # it has just ended: what is left to do is to say how
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGHUP, forward)
    write(status, f"started {pid}")
    ended = wait_for(pid)
    if os.WIFSIGNALED(ended):
        killer = os.WTERMSIG(ended)
        note_end(status, f"killed {killer}")
        code = 128 + killer
    else:
        code = os.WEXITSTATUS(ended)
        note_end(status, f"exited {code}")
    end_what_is_left()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
