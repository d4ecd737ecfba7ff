"""What both tmux hosts say to tmux, and how they read its answers.

The commands are the same; how they travel is not: a member's go over one control client, a lead's by one process per
call, so as not to attach to a person's server. Both ways are a :class:`Runner`.

Three ordinary commands kill a whole server of tmux 3.3a: so nothing here pastes into a dead pane (the guard and the
paste are one command), respawns a pane, or uses ``refresh-client -A``.
"""

from __future__ import annotations

import re
import secrets
import socket as sockets
import struct
from collections.abc import Mapping, Sequence
from os import environ, geteuid
from pathlib import Path
from time import time
from typing import Final, Protocol

import trio

from actors.clock import now_ns
from actors.host import HostError, PaneDead, PaneGone, PaneInMode, PaneRef
from actors.screen import Frame, blank_rows, clean_lines
from fleetd.hosts.launch import runs, write_private
from fleetd.hosts.tmux_blocks import Block
from fleetd.hosts.tmux_styles import plain, unstyle

#: How long tmux may take to answer, in seconds.
ANSWER_S: Final = 10.0
#: Lines of scrollback in a frame, above the visible screen.
SCROLLBACK: Final = 2000
#: The longest paste, in bytes of UTF-8.
PASTE_BYTES: Final = 1024 * 1024
#: Older ones have no ``if-shell -F`` with a target and no flags for control clients.
FLOOR: Final = (3, 2)

#: A pane in numbers, its title last because that may hold blanks. ``x`` because older ones do not know the flag.
LOOK: Final = (
    "#{pane_pid} #{pane_dead} #{pane_in_mode} #{pane_width} #{pane_height} #{cursor_x} #{cursor_y} "
    "x#{bracket_paste_flag} #{pane_title}"
)
#: What typing into a pane depends on.
GUARD: Final = "#{pane_pid} #{pane_dead} #{pane_in_mode} #{pane_input_off} #{pane_synchronized}"
#: ... and what it is, after the pid, where nothing is in the way.
FREE: Final = "0 0 0 0"
DONE: Final = "typed"
REFUSED: Final = "refused"

_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"} | {char: f"\\{char}" for char in '\\"$~'}
#: pid, uid and gid, as the kernel hands them over.
_CREDENTIALS: Final = struct.Struct("3i")


class NoServer(HostError):
    """No tmux server listens on the socket: whatever was in it is gone for certain."""


class Runner(Protocol):
    """A way to a tmux server."""

    async def batch(self, commands: Sequence[str]) -> list[Block]:
        """Run commands in order and go on after errors. One block each, but more for a conditional one.

        Raises:
            NoServer: there is no server.
            HostError: no answer, for whatever reason.
        """
        ...


# -- words ----------------------------------------------------------------------------------------------------------


def quote(text: str) -> str:
    """One argument for tmux's command parser. Raises :class:`HostError` for a NUL, which it cannot take."""
    if "\0" in text:
        raise HostError("a NUL cannot be given to tmux: remove it from the text")
    kept = (_ESCAPES.get(char) or (char if char >= " " and char != "\x7f" else f"\\{ord(char):03o}") for char in text)
    return f'"{"".join(kept)}"'


def command(*words: str) -> str:
    """A command line of these words."""
    return " ".join(quote(word) for word in words)


def literal(text: str) -> str:
    """Text that stays itself where tmux expands formats."""
    return text.replace("#", "##")


def environment() -> dict[str, str]:
    """What a tmux process of ours sees: nothing of the daemon's own secrets, and always UTF-8."""
    kept = {name: environ[name] for name in ("PATH", "HOME", "USER", "SHELL") if name in environ}
    return kept | {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


# -- servers --------------------------------------------------------------------------------------------------------


def server_pid(socket: str) -> int:
    """The process that listens on a socket; 0 when none does.

    The kernel answers, not tmux: a client of another version than its server calls the server dead while it lives.

    Raises:
        HostError: it cannot be told, or the process is somebody else's.
    """
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(socket)
            credentials = probe.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _CREDENTIALS.size)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return 0
        except OSError as exc:
            raise HostError(f"the tmux socket {socket} cannot be reached: {exc.strerror or exc}") from exc
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    if uid != geteuid():
        raise HostError(f"the tmux server on {socket} is run by user {uid}, not by fleetd's: it is not spoken to")
    return int(pid)


async def check_version(tmux: str) -> None:
    """See that the tmux program can be used. A development build of any number passes.

    Raises:
        HostError: there is none, or it is older than :data:`FLOOR`.
    """
    try:
        with trio.fail_after(ANSWER_S):
            run = await trio.run_process([tmux, "-V"], capture_stdout=True, check=False, env=environment())
    except OSError:
        raise HostError(f"{tmux} was not found: install tmux 3.2 or newer, or choose the pty host") from None
    except trio.TooSlowError:
        raise HostError(f"{tmux} -V did not answer within {ANSWER_S:g} s: look at the machine's load") from None
    said = run.stdout.decode(errors="replace").strip()
    found = re.fullmatch(r"tmux (?:next-)?(\d+)\.(\d+)\w*", said)
    if found is not None and (int(found[1]), int(found[2])) < FLOOR:
        raise HostError(f"{said} is too old: install tmux 3.2 or newer, or choose the pty host")


# -- looking --------------------------------------------------------------------------------------------------------


async def capture(tmux: Runner, panes: Mapping[PaneRef, str], *, styled: bool) -> dict[PaneRef, Frame]:
    """The panes as they are now, all in one go. ``panes`` gives each one's ``%id``."""
    options = ["-p", "-J", "-S", f"-{SCROLLBACK}", *(["-e"] if styled else [])]
    commands: list[str] = []
    for pane_id in panes.values():
        commands += [
            command("display-message", "-p", "-t", pane_id, LOOK),
            command("capture-pane", *options, "-t", pane_id),
        ]
    blocks = await tmux.batch(commands)
    if len(blocks) != len(commands):
        raise HostError(f"tmux gave {len(blocks)} answers to {len(commands)} commands: the capture is not usable")
    at_ns = now_ns()
    frames: dict[PaneRef, Frame] = {}
    for pane, look, shown in zip(panes, blocks[::2], blocks[1::2], strict=True):
        frame = None if look.failed or shown.failed else _frame(pane, look.text, shown.text, at_ns, styled=styled)
        if frame is not None:
            frames[pane] = frame
    return frames


def _frame(pane: PaneRef, look: str, shown: str, at_ns: int, *, styled: bool) -> Frame | None:
    fields = look.split(" ", 8)
    # The ids of a server that has died are given away again by the next one; the process tells them apart.
    if len(fields) != 9 or fields[0] != str(pane.pid):
        return None
    _, dead, in_mode, width, height, column, row, bracketed, title = fields
    lines, with_styles = unstyle(shown) if styled else (clean_lines(shown), ())
    return Frame(
        lines=lines,
        at_ns=at_ns,
        # tmux gives a new pane the host's name for a title, which says nothing about the program.
        title="" if title == sockets.gethostname() else title,
        width=int(width),
        height=int(height),
        blank=blank_rows(plain(shown) if styled else shown),
        cursor=(int(column), int(row)),
        dead=dead == "1" or not runs(pane.pid, pane.started),
        in_mode=in_mode != "0",
        bracketed=None if bracketed == "x" else bracketed == "x1",
        styled=with_styles,
    )


# -- typing ---------------------------------------------------------------------------------------------------------


async def paste(tmux: Runner, pane: PaneRef, pane_id: str, text: str, directory: Path) -> None:
    """Paste text by way of a buffer and a file in ``directory``, both of which are gone afterwards.

    Raises:
        PaneGone, PaneDead, PaneInMode: nothing was pasted.
        HostError: tmux failed, or the text is longer than :data:`PASTE_BYTES`.
    """
    data = text.encode("utf-8", "replace")
    if len(data) > PASTE_BYTES:
        raise HostError(f"{len(data)} bytes are too long a paste: the bound is {PASTE_BYTES}; put the text into a file")
    name = f"fleetd-{secrets.token_hex(8)}"
    path = directory / name
    await trio.lowlevel.checkpoint_if_cancelled()
    # Once begun it ends: a half-done paste would leave the prompt in a buffer, and nobody could say what was typed.
    with trio.CancelScope(shield=True):
        try:
            write_private(path, data)
            blocks = await tmux.batch(
                [
                    command("load-buffer", "-b", name, literal(str(path))),
                    _guarded(pane, pane_id, command("paste-buffer", "-p", "-d", "-b", name, "-t", pane_id)),
                    command("delete-buffer", "-b", name),
                ]
            )
        except OSError as exc:
            raise HostError(f"the paste could not be written to {path}: {exc.strerror or exc}") from exc
        finally:
            path.unlink(missing_ok=True)
    _check(pane, blocks)


async def press(tmux: Runner, pane: PaneRef, pane_id: str, keys: Sequence[str]) -> None:
    """Press keys. Raises as :func:`paste`."""
    _check(pane, await tmux.batch([_guarded(pane, pane_id, command("send-keys", "-t", pane_id, "--", *keys))]))


def _guarded(pane: PaneRef, pane_id: str, action: str) -> str:
    """The action, if the pane is still this one, lives, shows its program and takes input; else what is in the way.

    One command, because a pane that dies between a look and a paste would take tmux 3.3a with it. And it expires: a
    server that was stalled carries out what it finds in its pipes, also of a client that was given up long ago.
    """
    refusal = command("display-message", "-p", "-t", pane_id, f"{REFUSED} {GUARD}")
    if not runs(pane.pid, pane.started):
        return refusal
    free = f"#{{==:{GUARD},{pane.pid} {FREE}}}"
    timely = f"#{{e|<:#{{T:#{{l:%s}}}},{int(time() + ANSWER_S) + 1}}}"
    done = f"{action} ; {command('display-message', '-p', DONE)}"
    return command("if-shell", "-F", "-t", pane_id, f"#{{&&:{free},{timely}}}", done, refusal)


def _check(pane: PaneRef, blocks: Sequence[Block]) -> None:
    lines = [line for block in blocks for line in block.text.split("\n")]
    if DONE in lines:
        return
    for line in lines:
        match line.split(" "):
            case [word, pid, _, _, _, _] if word == REFUSED and pid != str(pane.pid):
                raise PaneGone(f"pane {pane.id} is gone: nothing was typed")
            case [word, _, dead, mode, off, copied] if word == REFUSED:
                if dead == "1" or not runs(pane.pid, pane.started):
                    raise PaneDead(f"the process in pane {pane.id} has ended: nothing was typed")
                if mode != "0":
                    raise PaneInMode(f"a person scrolls in pane {pane.id}: nothing was typed")
                if off != "0":
                    raise HostError(
                        f"nothing was typed into pane {pane.id}: its input is off; select-pane -e allows it"
                    )
                if copied != "0":
                    raise HostError(f"nothing was typed into pane {pane.id}: its keys go to other panes too")
                raise HostError(f"nothing was typed into pane {pane.id}: tmux came to it too late")
    said = "; ".join(block.text for block in blocks if block.failed) or "it gave no reason"
    raise HostError(f"tmux did not type into pane {pane.id}: {said}")
