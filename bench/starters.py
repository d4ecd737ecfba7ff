"""Many daemons started at once on one runtime directory: one becomes it, each time.

    python bench/starters.py                          200 starters, 150 rounds
    python bench/starters.py --starters 20 --rounds 5
    python bench/starters.py --without-lock           a broken twin, which must be caught

Starting Python and importing fleetd takes a second, in which two hundred starters would spread out and never meet. So
they are forked from one process that has imported everything, wait behind one pipe, and begin together at what
``fleetd up --foreground`` begins with: :func:`fleetd.daemon.main`, with the runtime directory, the lock, the log and
the socket as they are in the product. Only the fleet behind the socket is left out.

All rounds use one directory. The owner of each is ended in a way of its own, by turns: in good order, by SIGKILL (lock,
socket and log stay as they are), and by SIGKILL with more left lying about: a socket that nobody listens on, the draft
of one, a lock with the note of a process that has ended, a file or a FIFO in the socket's place.

Each round must show: one owner; everybody else is refused, names the owner or says that it has not said yet who it is;
the socket answers, with the owner's pid; and one who comes late is told that pid.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import trio

from fleetd import daemon
from fleetd.config import Config
from fleetd.rundir import LOCK_NAME, bind_socket, make_runtime_dir, socket_path

#: How long a round's starters may take, in seconds.
PATIENCE_S: Final = 120.0
#: Bytes of one report: a pipe takes so many in one piece.
REPORT_BYTES: Final = 512
_PID: Final = re.compile(r"\(pid (\d+), since ")
_UNSAID: Final = "it has not said yet who it is"


class Wrong(AssertionError):
    """A round did not show what it must."""


class Report(NamedTuple):
    """What became of a starter."""

    pid: int
    word: str
    said: str


def start(directory: Path, gate: int, report: int) -> NoReturn:
    """Be one starter: wait at the gate, then be the daemon or say why not. Never returns."""
    pid = os.getpid()
    heard, words = os.pipe()
    os.dup2(words, 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)

    async def serve(directory: Path, _config: Config, _path: Path | None) -> None:
        async with bind_socket(directory) as listener:
            os.write(report, f"{pid} owner\n".encode())
            with trio.open_signal_receiver(signal.SIGTERM) as ending:
                async with trio.open_nursery() as nursery:

                    async def accept() -> None:
                        while True:
                            async with await listener.accept() as stream:
                                await stream.send_all(str(pid).encode())

                    nursery.start_soon(accept)
                    async for _ in ending:
                        break
                    nursery.cancel_scope.cancel()
            socket_path(directory).unlink(missing_ok=True)

    daemon._serve = serve
    os.read(gate, 1)
    try:
        code = daemon.main(str(directory), None)
        if code != 0:
            said = os.read(heard, REPORT_BYTES).decode(errors="replace").strip()
            os.write(report, f"{pid} refused {said}\n".encode()[:REPORT_BYTES])
        os._exit(code)
    except BaseException as exc:  # a forked child must not run on into its parent's code
        os.write(report, f"{pid} crashed {exc!r}\n".encode()[:REPORT_BYTES])
        os._exit(70)


def fork(directory: Path, gate: tuple[int, int], report: int) -> int:
    """A starter behind the gate; its pid."""
    pid = os.fork()
    if pid == 0:
        os.close(gate[1])
        start(directory, gate[0], report)
    return pid


class Starters:
    """Rounds of starters on one directory."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory, self.count = directory, count
        #: What the refused were told of their owner, over all rounds.
        self.told: Counter[str] = Counter()

    def round(self, number: int) -> None:
        """Let them race once. Raises :class:`Wrong`."""
        reports, report = os.pipe()
        gate = os.pipe()
        pids = [fork(self.directory, gate, report) for _ in range(self.count)]
        try:
            os.close(gate[0])
            os.close(gate[1])  # all begin
            found = self._reports(reports, pids)
            owner = self._check(found)
            self._check_late(owner)
            self._end(owner, number)
        finally:
            os.close(reports)
            os.close(report)
            for pid in pids:
                _kill(pid)

    def _reports(self, pipe: int, pids: Sequence[int]) -> list[Report]:
        deadline = time.monotonic() + PATIENCE_S
        data = b""
        os.set_blocking(pipe, False)
        while data.count(b"\n") < len(pids):
            try:
                data += os.read(pipe, 65536)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Wrong(f"{data.count(10)} of {len(pids)} have reported in {PATIENCE_S:g} s") from None
                time.sleep(0.002)
        rows = [line.split(" ", 2) for line in data.decode().splitlines()]
        return [Report(int(row[0]), row[1], row[2] if len(row) > 2 else "") for row in rows]

    def _check(self, found: Sequence[Report]) -> int:
        owners = [one.pid for one in found if one.word == "owner"]
        if len(owners) != 1:
            raise Wrong(f"{len(owners)} owners: {owners}; {[one for one in found if one.word == 'crashed'][:3]}")
        for one in found:
            if one.word == "owner":
                continue
            named = _PID.search(one.said)
            if one.word != "refused" or not (_UNSAID in one.said or (named and int(named[1]) == owners[0])):
                raise Wrong(f"owner {owners[0]}, and another one: {one}")
            self.told["the owner's pid" if named else "that it has not said yet"] += 1
        if answer(self.directory) != owners[0]:
            raise Wrong(f"the socket is not that of owner {owners[0]}")
        return owners[0]

    def _check_late(self, owner: int) -> None:
        """One who comes when the owner stands is told who that is."""
        reports, report = os.pipe()
        gate = os.pipe()
        late = fork(self.directory, gate, report)
        os.close(gate[0])
        os.close(gate[1])
        try:
            (one,) = self._reports(reports, [late])
        finally:
            os.close(reports)
            os.close(report)
            _kill(late)
        if f"(pid {owner}, since " not in one.said:
            raise Wrong(f"owner {owner}, and who came late was told: {one}")

    def _end(self, owner: int, number: int) -> None:
        mess = (None, *MESSES)[number % (len(MESSES) + 1)]
        if mess is None:
            os.kill(owner, signal.SIGTERM)
            os.waitpid(owner, 0)
        else:
            _kill(owner)
            mess(self.directory)


def _kill(pid: int) -> None:
    """End a child of ours, if it has not ended, and collect it."""
    try:
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except ChildProcessError:
        return


def answer(directory: Path) -> int:
    """The pid that the socket answers with."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(os.fspath(socket_path(directory)))
        return int(client.recv(32))


# -- what a dead daemon leaves --------------------------------------------------------------------------------------


def _as_it_is(directory: Path) -> None:
    assert socket_path(directory).exists()


def _stale_draft(directory: Path) -> None:
    draft = directory / f".{os.getpid()}"
    draft.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(draft))


def _stale_note(directory: Path) -> None:
    """A lock whose note names a process that lives and is another one by now."""
    note = b'{"pid":%d,"started":1,"since":"2020-01-01T00:00:00+00:00","version":"0"}\n' % os.getppid()
    (directory / LOCK_NAME).write_bytes(note)


def _half_note(directory: Path) -> None:
    (directory / LOCK_NAME).write_bytes(b'{"pid":12')


def _file(directory: Path) -> None:
    socket_path(directory).unlink()
    socket_path(directory).write_bytes(b"no socket")


def _fifo(directory: Path) -> None:
    socket_path(directory).unlink()
    os.mkfifo(socket_path(directory))


MESSES: Final[tuple[Callable[[Path], None], ...]] = (
    _as_it_is,
    _stale_draft,
    _stale_note,
    _half_note,
    _file,
    _fifo,
)


def run(directory: Path, count: int, rounds: int, progress: Callable[[str], None] = lambda _: None) -> Starters:
    """All rounds. Raises :class:`Wrong` at the first that does not show what it must."""
    make_runtime_dir(directory)
    os.environ.pop("FLEETD_CONFIG", None)
    os.environ["XDG_CONFIG_HOME"] = os.environ["HOME"] = str(directory.parent)
    gc.collect()
    gc.freeze()  # what a fork shares stays shared
    starters = Starters(directory, count)
    begun = time.monotonic()
    for number in range(rounds):
        starters.round(number)
        if (number + 1) % 10 == 0:
            progress(f"{number + 1} rounds, {time.monotonic() - begun:.0f} s")
    return starters


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starters", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--without-lock", action="store_true", help="nobody takes the lock: this must be caught")
    arguments = parser.parse_args()
    if arguments.without_lock:
        daemon.DaemonLock = lambda *_: nullcontext()
    with tempfile.TemporaryDirectory(prefix="fleetd-starters-") as temporary:
        os.chdir(temporary)
        begun = time.monotonic()
        try:
            done = run(Path(temporary, "run"), arguments.starters, arguments.rounds, print)
        except Wrong as wrong:
            print(f"wrong: {wrong}", file=sys.stderr)
            return 1
        finally:
            os.chdir("/")
    told = ", ".join(f"{count} {what}" for what, count in sorted(done.told.items()))
    print(
        f"{arguments.rounds} rounds of {arguments.starters} starters: one owner each time, "
        f"{time.monotonic() - begun:.0f} s; the refused were told {told}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
