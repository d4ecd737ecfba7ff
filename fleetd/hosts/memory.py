"""The memory host: scripted screens and recorded keystrokes. No process, no terminal, no file descriptor.

It speaks the same protocol as the others and is a part of the product: whatever drives panes can be run against it in
virtual time, with every fault that a terminal has, one at a time. What a pane shows is either set by the test
(``pane.screen``) or drawn by a :class:`Program` that reacts to what is typed, such as :class:`ScriptedAgent`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec
import trio

from actors.clock import now_ns
from actors.host import HostError, PaneDead, PaneEnded, PaneGone, PaneHost, PaneInMode, PaneRef, PaneSpec
from actors.screen import Frame, clean_lines
from fleetd.demo_screen import LIMIT, OVERLOADED, Story, plain, region, transcript

#: Endings that may wait for their reader.
ENDINGS: Final = 1024
#: How a pane that is closed ends: by SIGHUP.
HANG_UP: Final = 1

Call = Literal["open", "capture", "paste", "press", "leave_mode", "close"]


class Pasted(msgspec.Struct, frozen=True):
    """A paste, among the recorded keys."""

    text: str


class Program(Protocol):
    """What plays in a memory pane. One that has a ``cursor`` says where it is: column and row, from 0."""

    @property
    def title(self) -> str: ...

    def draw(self, width: int, height: int) -> Sequence[str]:
        """Everything that the pane shows, top to bottom; lines may carry SGR sequences."""
        ...

    def on_paste(self, text: str) -> None: ...

    def on_key(self, key: str) -> None: ...


class MemoryPane:
    """One pane. Its attributes are a test's to read and to set."""

    def __init__(self, spec: PaneSpec, ref: PaneRef, tell: Callable[[PaneEnded], None]) -> None:
        self.spec, self.ref = spec, ref
        self._tell = tell
        #: What it shows, and its title, where no program draws it.
        self.screen: Sequence[str] = ()
        self.title = ""
        self.program: Program | None = None
        #: What reached the pane, in order: key names and :class:`Pasted`.
        self.keys: list[str | Pasted] = []
        self.in_mode = False
        self.bracketed: bool | None = True
        self.dead = False
        #: Faults to come: pastes that are taken and do not show, keys that are swallowed.
        self.lost_pastes = 0
        self.swallowed: Counter[str] = Counter()

    def __repr__(self) -> str:
        state = "dead" if self.dead else "in mode" if self.in_mode else "open"
        return f"<MemoryPane {self.spec.target}: {state}, {len(self.keys)} keys>"

    def end(self, status: int | None = None, signal: int | None = None) -> None:
        """The process ends. A second end is none."""
        if not self.dead:
            self.dead = True
            self._tell(PaneEnded(self.ref, status, signal))

    def frame(self, *, styled: bool) -> Frame:
        program, width, height = self.program, self.spec.width, self.spec.height
        drawn = [line.rstrip() for line in (self.screen if program is None else program.draw(width, height))]
        lines = clean_lines("\n".join(map(plain, drawn)))
        while drawn and not plain(drawn[-1]).rstrip():
            drawn.pop()
        return Frame(
            lines,
            at_ns=now_ns(),
            title=self.title if program is None else program.title,
            width=width,
            height=height,
            blank=max(0, height - len(lines)),
            cursor=getattr(program, "cursor", None),
            dead=self.dead,
            in_mode=self.in_mode,
            bracketed=self.bracketed,
            styled=tuple(drawn[len(drawn) - len(lines) :]) if styled else (),
        )

    def paste(self, text: str) -> None:
        self._refuse()
        self.keys.append(Pasted(text))
        if self.lost_pastes:
            self.lost_pastes -= 1
        elif self.program is not None:
            self.program.on_paste(text)

    def press(self, key: str) -> None:
        self._refuse()
        self.keys.append(key)
        if self.swallowed[key]:
            self.swallowed[key] -= 1
        elif self.program is not None:
            self.program.on_key(key)

    def _refuse(self) -> None:
        if self.dead:
            raise PaneDead(f"pane {self.ref.id} is dead: its process has ended")
        if self.in_mode:
            raise PaneInMode(f"a person scrolls in pane {self.ref.id}")


class MemoryHost(PaneHost):
    """Panes in memory.

    Args:
        play: gives the program of a pane that is opened; ``None`` for a pane whose screen the test sets.
    """

    name = "memory"
    #: A test of a restart sets it, and gives the next fleet the same host.
    outlives_daemon = False

    def __init__(self, play: Callable[[MemoryPane], Program | None] = lambda _: None) -> None:
        self._play = play
        self._panes: dict[PaneRef, MemoryPane] = {}
        self._opened = 0
        self._faults: dict[Call, deque[HostError]] = {}
        self._send, self._told = trio.open_memory_channel[PaneEnded](ENDINGS)

    def __getitem__(self, pane: PaneRef) -> MemoryPane:
        """Raises :class:`PaneGone`."""
        found = self._panes.get(pane)
        if found is None:
            raise PaneGone(f"pane {pane.id} is gone")
        return found

    def of(self, target: str) -> MemoryPane:
        """The newest open pane of a target. Raises :class:`PaneGone`."""
        for pane in reversed(self._panes.values()):
            if pane.spec.target == target:
                return pane
        raise PaneGone(f"no pane of {target} is open")

    def fail_next(self, call: Call, error: HostError) -> None:
        """Let the next call of this kind fail, before it has done anything. Several are used up in their order."""
        self._faults.setdefault(call, deque()).append(error)

    # -- the protocol --------------------------------------------------------------------------------------------

    async def open(self, spec: PaneSpec) -> PaneRef:
        await self._call("open")
        self._opened += 1
        ref = PaneRef(self.name, f"memory-{self._opened}")
        pane = self._panes[ref] = MemoryPane(spec, ref, self._tell)
        pane.program = self._play(pane)
        return ref

    async def capture(self, panes: Sequence[PaneRef], *, styled: bool = False) -> Mapping[PaneRef, Frame]:
        await self._call("capture")
        return {pane: self._panes[pane].frame(styled=styled) for pane in panes if pane in self._panes}

    async def paste(self, pane: PaneRef, text: str) -> None:
        await self._call("paste")
        self[pane].paste(text)

    async def press(self, pane: PaneRef, *keys: str) -> None:
        await self._call("press")
        for key in keys:
            self[pane].press(key)

    async def leave_mode(self, pane: PaneRef) -> None:
        await self._call("leave_mode")
        self[pane].in_mode = False

    async def close(self, pane: PaneRef) -> None:
        await self._call("close")
        if found := self._panes.pop(pane, None):
            found.end(signal=HANG_UP)

    def endings(self) -> AsyncIterator[PaneEnded]:
        return self._told

    async def adopt(self, pane: PaneRef, target: str) -> None:
        """The panes are still there where the test keeps the host; see :attr:`outlives_daemon`."""
        found = self._panes.get(pane) if self.outlives_daemon else None
        if found is None or found.spec.target != target:
            raise PaneGone(f"pane {pane.id} ended with the daemon that opened it")

    async def _call(self, call: Call) -> None:
        await trio.lowlevel.checkpoint()
        if faults := self._faults.get(call):
            raise faults.popleft()

    def _tell(self, ended: PaneEnded) -> None:
        try:
            self._send.send_nowait(ended)
        except trio.WouldBlock:
            raise HostError(f"{ENDINGS} endings wait already and nobody reads them") from None


class ScriptedAgent:
    """A program that draws the demo agent's screen, and does what the test says instead of what its prompt says."""

    def __init__(self) -> None:
        self.story = Story()
        #: What was submitted, in order.
        self.prompts: list[str] = []
        #: How its permission dialogs were answered, in order.
        self.choices: list[bool] = []

    # -- for the test --------------------------------------------------------------------------------------------

    def busy(self, doing: str = "working") -> None:
        self.story.begin(doing.capitalize(), trio.current_time())

    def says(self, text: str) -> None:
        """An answer block, and the turn goes on."""
        self.story.say(text)

    def answers(self, text: str) -> None:
        """An answer block, and the turn is over."""
        self.story.say(text)
        self.idle()

    def fails(self, text: str = OVERLOADED) -> None:
        self.story.trouble(text)
        self.idle()

    def exhausts(self, text: str = LIMIT) -> None:
        self.story.trouble(text)
        self.idle()

    def retries(self, wait_s: int, attempt: int = 1) -> None:
        self.busy()
        self.story.retry(wait_s, attempt)

    def asks_permission(self) -> None:
        """A dialog takes the input box's place."""
        self.busy()
        self.story.asking = True

    def idle(self) -> None:
        """The turn, if there is one, is over."""
        if self.story.doing is not None or self.story.asking:
            self.story.rest(trio.current_time() - self.story.since)

    # -- for the pane --------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        return self.story.title

    def draw(self, width: int, height: int) -> Sequence[str]:
        return [*transcript(self.story, width), *region(self.story, width, height, trio.current_time())]

    def on_paste(self, text: str) -> None:
        if not self.story.asking:
            self.story.draft += text

    def on_key(self, key: str) -> None:
        story = self.story
        if story.asking:
            if key in ("1", "y", "Enter", "2", "Escape"):
                self._choose(key in ("1", "y", "Enter"))
        elif key == "Enter" and story.doing is None and story.draft.strip():
            self.prompts.append(story.submit())
            self.busy()
        elif key == "Escape" and story.doing is not None:
            story.interrupt()
        elif key == "C-u":
            story.draft = ""
        elif len(key) == 1:
            story.draft += key

    def _choose(self, allowed: bool) -> None:
        self.choices.append(allowed)
        if allowed:
            self.story.asking = False
        else:
            self.story.interrupt()
