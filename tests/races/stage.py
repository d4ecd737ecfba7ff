"""A pane on which something happens exactly between two keystrokes.

A nudge or a prompt is typed by a handful of calls to the pane's host: look, paste, look, look, press, look. A
:class:`Stage` counts them for one pane and lets a test's event happen behind the one of its choice. A test that goes
through all of them has gone through every way in which somebody else can come in between.

No terminal can look and type in one go, so what comes up behind the last look can meet a key, and nobody could have
known. What reaches the pane is therefore noted with what the *last look* had shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
import trio

from actors.host import PaneRef
from actors.screen import Frame
from fleetd.hosts.memory import MemoryHost, ScriptedAgent
from fleetd.testing import Fleet, no_descriptors
from fleetd.testing.schedule import run_scheduled
from tests.races.drawn import CONFIG


class Key(NamedTuple):
    """A paste or a key that reached the pane, and what the last look before it had shown."""

    #: The call that brought it, from 1.
    call: int
    what: str
    draft: str
    asking: bool


class Stage(MemoryHost):
    """A memory host; see the module."""

    def __init__(self, play: Any) -> None:
        super().__init__(play)
        self._pane: PaneRef | None = None
        self._at = 0
        self._happens: Callable[[], Awaitable[None]] | None = None
        self._calls = 0
        self._seen = ("", False)
        #: What reached the pane, in order.
        self.keys: list[Key] = []

    def on(self, pane: PaneRef, at: int, happens: Callable[[], Awaitable[None]]) -> None:
        """Let something happen behind the ``at``-th call for this pane from now on."""
        self._pane, self._at, self._happens, self._calls = pane, at, happens, 0

    async def capture(self, panes: Sequence[PaneRef], *, styled: bool = False) -> Mapping[PaneRef, Frame]:
        frames = await super().capture(panes, styled=styled)
        if self._pane is not None and self._pane in frames:
            program = self[self._pane].program
            if isinstance(program, ScriptedAgent):
                self._seen = (program.story.draft, program.story.asking)
            await self._called()
        return frames

    async def paste(self, pane: PaneRef, text: str) -> None:
        await super().paste(pane, text)
        if pane == self._pane:
            self.keys.append(Key(self._calls + 1, text, *self._seen))
            await self._called()

    async def press(self, pane: PaneRef, *keys: str) -> None:
        await super().press(pane, *keys)
        if pane == self._pane:
            self.keys += [Key(self._calls + 1, key, *self._seen) for key in keys]
            await self._called()

    async def _called(self) -> None:
        self._calls += 1
        if self._calls == self._at and self._happens is not None:
            await self._happens()


async def nobody_to_watch(*_: object) -> None:
    """Stands in for :func:`actors.watching.watch` where a story has leads only."""
    await trio.sleep_forever()


def on_stage(
    story: Callable[[Fleet, Stage, trio.Nursery], Awaitable[Any]],
    swap: Mapping[str, Any] | None = None,
    *,
    members: bool = False,
) -> Any:
    """Run a story of a fleet whose panes stand on a stage; what it returns.

    Args:
        swap: as for :func:`tests.races.drawn.drawn_fleet`.
        members: the story has members, whose panes are watched.
    """

    async def play(nursery: trio.Nursery) -> Any:
        clock: Any = trio.lowlevel.current_clock()
        fleet = Fleet(CONFIG, clock=clock)
        fleet.host = stage = Stage(fleet._play)
        with no_descriptors():
            async with fleet.running():
                result = await story(fleet, stage, nursery)
        nursery.cancel_scope.cancel()
        return result

    with pytest.MonkeyPatch.context() as patch:
        if not members:
            patch.setattr("fleetd.fleet.watch", nobody_to_watch)
        for name, other in (swap or {}).items():
            patch.setattr(name, other)
        return run_scheduled([], play)
