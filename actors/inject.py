"""Typing a prompt so that it arrives.

Exit code 0 proves nothing here. Programs draw their input box seconds before it takes input, lose an Enter that comes
too soon after a paste, and take whatever is typed into a permission dialog as the permission. So each step waits for
what the screen shows:

1. the input line is open, at rest and empty: no dialog, no running turn, no half-written draft of a person;
2. paste, and see the text arrive in the input line;
3. a breath, then Enter, and see the turn begin; press Enter again if it did not. The text is never typed twice.

What is typed is cleaned first: control characters could end the paste's bracket early and submit the rest as keys.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
import trio

from actors.clock import now_ns
from actors.host import PaneDead, PaneGone, PaneHost, PaneInMode, PaneRef
from actors.prompt import TELLING, dense, flattened, guarded, has_more, is_part, sanitise
from actors.screen import Frame, Grammar, Reading, Sent, State, Stillness

#: Between looks at the screen while a step is under way, in seconds.
LOOK_S: Final = 0.05
#: Between looks at a pane that is not free yet, in seconds.
WAIT_S: Final = 0.25
#: From the paste to the Enter, in seconds: programs swallow an Enter that follows a fast burst (Codex 120 ms).
BREATH_S: Final = 0.2
#: How long the pasted text may take to show in the input line.
ECHO_S: Final = 2.0
#: How long a paste may take to show anything at all, in seconds.
LOST_S: Final = 8.0
#: How long a turn may take to begin after Enter, before Enter is pressed again.
BEGIN_S: Final = 3.0
ENTERS: Final = 3
#: How long a person may scroll in a member's pane before copy mode is ended for them.
MODE_S: Final = 10.0
#: How long a person may scroll while a prompt waits for its Enter, in seconds.
SCROLLED_S: Final = 60.0
#: A screen of a program without idle pattern that stands this long counts as idle, in nanoseconds.
STILL_NS: Final = 3_000_000_000

#: Typed as keys before a long prompt; see :attr:`Typing.plain_lines`.
HEAD: Final = "Please carry out the task below."
#: How often a prompt of ours is cleared from an input line.
CLEARS: Final = 8


class NotTyped(Exception):
    """Nothing was submitted; the message says what stands in the way.

    Args:
        retry: waiting can help.
        left: what stands unsubmitted in the input line now, and is ours.
    """

    def __init__(self, why: str, *, retry: bool, left: str = "") -> None:
        super().__init__(why)
        self.retry = retry
        self.left = left


class _Ended(NotTyped):
    """There is nothing to type into any more."""

    def __init__(self, why: str) -> None:
        super().__init__(why, retry=False)


class Typed(msgspec.Struct, frozen=True):
    """The prompt was submitted and its turn has begun."""

    sent: Sent
    #: When Enter was pressed, in nanoseconds.
    at_ns: int


class Typing(msgspec.Struct, frozen=True):
    """How one program wants to be typed to."""

    #: It takes a paste of several lines as one. Where it does not, newlines become spaces, unless the pane's frame
    #: says that the program asked for bracketed paste.
    multiline: bool = True
    #: What the input line shows instead of a long paste, as literal beginnings.
    placeholders: tuple[str, ...] = ()
    #: How long the input line must have been at rest before anything is typed, in seconds.
    settle_s: float = 0.0
    #: From the paste to the Enter, in seconds.
    breath_s: float = BREATH_S
    #: A prompt of more lines or characters than this is taken for pasted material that its user need not have
    #: written: a line that asks for it is typed first. ``None``: the program makes no such difference.
    plain_lines: int | None = None
    plain_chars: int | None = None
    #: Keys that empty the input line, pressed where a prompt of ours was left in it; none where nothing safe does.
    clear_keys: tuple[str, ...] = ()


def injectable(reading: Reading, still_ns: int) -> str | None:
    """Why a prompt cannot be typed now; ``None`` when it can."""
    if reading.state is State.BUSY:
        return "a turn is running"
    if reading.state is State.UNKNOWN and still_ns < STILL_NS:
        return "its screen still changes"
    if not reading.input_open:
        return "it shows a dialog, and nothing is typed into a dialog"
    if reading.draft:
        return "somebody has typed a draft into it"
    return None


def _is_ours(draft: str, prompt: str) -> bool:
    """Whether a draft is an earlier prompt, or a good part of it.

    One that begins with our own head is, whatever the program shows instead of what was pasted behind it.
    """
    return dense(draft).startswith(dense(HEAD)) or is_part(draft, prompt)


class Injection:
    """One prompt on its way into one pane.

    Args:
        own: the pane is a member's, and copy mode may be ended in it. A lead's pane is its person's.
    """

    def __init__(self, host: PaneHost, pane: PaneRef, grammar: Grammar, typing: Typing, *, own: bool) -> None:
        self._host, self._pane, self._grammar, self._typing = host, pane, grammar, typing
        self._own = own
        self._still = Stillness()

    async def look(self) -> tuple[Frame, Reading]:
        """The pane now. Raises :class:`NotTyped` when it cannot be looked at."""
        frame = (await self._host.capture([self._pane], styled=True)).get(self._pane)
        if frame is None:
            raise _Ended("its pane is gone")
        if frame.dead:
            raise _Ended("its process has ended")
        return frame, self._grammar.read(frame)

    async def wait_open(
        self, patience_s: float, withdrawn: Callable[[], bool], leftover: str = "", resume: str = ""
    ) -> tuple[Frame, bool]:
        """Wait until a prompt can be typed; return the screen as it was then, and whether ``resume`` stands there."""
        deadline = trio.current_time() + patience_s
        leftover = guarded(sanitise(leftover))
        clears = CLEARS if self._typing.clear_keys and leftover else 0
        mode_since: float | None = None
        rest_since: float | None = None
        while True:
            if withdrawn():
                raise NotTyped("it was withdrawn before it was typed", retry=False)
            frame, reading = await self.look()
            standing = bool(resume) and dense(reading.draft) == dense(resume)
            if standing:
                reading = msgspec.structs.replace(reading, draft="")
            why = injectable(reading, self._still.note(frame))
            if frame.in_mode:
                rest_since, why = None, "a person scrolls in its pane"
                mode_since = trio.current_time() if mode_since is None else mode_since
                if self._own and trio.current_time() - mode_since >= MODE_S:
                    await self._host.leave_mode(self._pane)
            elif why is not None:
                mode_since = rest_since = None
                if clears and reading.input_open and _is_ours(reading.draft, leftover):
                    clears -= 1
                    await self._press(*self._typing.clear_keys)
            else:
                mode_since = None
                rest_since = trio.current_time() if rest_since is None else rest_since
                if trio.current_time() - rest_since >= self._typing.settle_s:
                    return frame, standing
            # A line that is free now gets its rest, however little patience there is: a nudge has none.
            if trio.current_time() >= deadline + (0.0 if why else self._typing.settle_s):
                raise NotTyped(why or "its input line does not come to rest", retry=True, left=resume)
            await trio.sleep(WAIT_S if why else LOOK_S)

    async def type(
        self,
        text: str | Callable[[], str],
        *,
        patience_s: float,
        withdrawn: Callable[[], bool],
        confirmed: Callable[[], bool] = lambda: False,
        leftover: str = "",
        resume: str = "",
        commit: Callable[[Sent], Awaitable[None]] | None = None,
        entering: Callable[[], None] = lambda: None,
    ) -> Typed:
        """Type the text, submit it, and see its turn begin.

        Args:
            text: what to type, or what composes it once the input line is open.
            patience_s: how long to wait for an open input line, in seconds.
            withdrawn: asked while waiting; true means that the prompt is not wanted any more.
            confirmed: asked after Enter; true means that the program itself has said that it took the prompt.
            leftover: an earlier prompt of ours, which is cleared where it still stands in the input line.
            resume: a text of ours that an earlier attempt left in the input line (:attr:`NotTyped.left`). Where it
                stands there alone it is submitted, instead of a second one that is typed behind it.
            commit: called right before the first character is typed: from then on the prompt may have arrived. What
                it raises stops the typing.
            entering: called right before each Enter: what the program reports before that is of no turn of ours.

        Raises:
            NotTyped: it was not submitted.
            HostError: the terminal failed; whether it was submitted is unknown.
        """
        before, standing = await self.wait_open(patience_s, withdrawn, leftover, resume)
        prompt = resume if standing else guarded(sanitise(text() if callable(text) else text))
        if not prompt:
            raise NotTyped("the prompt is empty once its control characters are removed", retry=False)
        if before.bracketed is False or not (self._typing.multiline or before.bracketed):
            prompt = flattened(prompt)
        sent = Sent(prompt, before)
        if commit is not None:
            await commit(sent)
        if not standing:
            await self._paste_all(sent)
        return await self._submit(sent, confirmed, entering)

    async def _paste_all(self, sent: Sent) -> None:
        """Paste the prompt and see that it arrived."""
        if self._is_long(sent.prompt):
            await self._paste(HEAD + " ")
            await trio.sleep(self._typing.breath_s)
        await self._paste(sent.prompt)
        # It may show as something that nobody foresaw; but where nothing shows at all, nothing arrived.
        if not await self._see(ECHO_S, partial(self._arrived, sent)) and not await self._see(
            LOST_S, lambda frame, _: frame.lines != sent.before.lines
        ):
            raise NotTyped("what was pasted does not show: its input line was not live", retry=False)
        await trio.sleep(self._typing.breath_s)

    async def _submit(self, sent: Sent, confirmed: Callable[[], bool], entering: Callable[[], None]) -> Typed:
        """Press Enter until the turn has begun."""
        pressed = False
        for _ in range(ENTERS):
            try:
                at_enter = await self._enter(sent, entering)
                pressed, at_ns = True, now_ns()
                if await self._see(BEGIN_S, partial(self._begun, confirmed, sent, at_enter)):
                    return Typed(sent, at_ns)
            except _Ended as ended:
                if pressed:
                    raise PaneGone(f"{ended} after Enter had been pressed") from None
                raise
        raise NotTyped(
            f"the prompt stands in its input line and {ENTERS} Enters did not submit it", retry=False, left=sent.prompt
        )

    def _is_long(self, prompt: str) -> bool:
        lines, chars = self._typing.plain_lines, self._typing.plain_chars
        return (lines is not None and prompt.count("\n") >= lines) or (chars is not None and len(prompt) > chars)

    async def _paste(self, text: str) -> None:
        try:
            await self._host.paste(self._pane, text)
        except PaneInMode:
            raise NotTyped("a person scrolls in its pane", retry=True) from None
        except (PaneGone, PaneDead) as gone:
            raise _Ended(str(gone)) from None

    async def _press(self, *keys: str) -> None:
        try:
            await self._host.press(self._pane, *keys)
        except PaneInMode:
            raise NotTyped("a person scrolls in its pane", retry=True) from None
        except (PaneGone, PaneDead) as gone:
            raise _Ended(str(gone)) from None

    async def _enter(self, sent: Sent, entering: Callable[[], None]) -> tuple[Frame, Reading]:
        """Press Enter. Returns the screen before.

        Not into a dialog that has come up, where it would choose something, and not on the words that a person has
        typed beside ours.
        """
        deadline = trio.current_time() + SCROLLED_S
        while True:
            frame, reading = await self.look()
            if not reading.input_open and reading.state is State.BLOCKED:
                raise NotTyped(
                    "a dialog came up while the prompt was typed; its text may be lost", retry=False, left=sent.prompt
                )
            if has_more(reading.draft, sent.prompt):
                raise NotTyped(
                    "a person typed into its input line beside the prompt, which stands there unsubmitted",
                    retry=False,
                    left=sent.prompt,
                )
            entering()
            try:
                await self._host.press(self._pane, "Enter")
                return frame, reading
            except PaneInMode:
                if trio.current_time() >= deadline:
                    raise NotTyped(
                        "the prompt stands in its input line, and a person scrolls in its pane",
                        retry=False,
                        left=sent.prompt,
                    ) from None
                await trio.sleep(MODE_S)
                if self._own:
                    await self._host.leave_mode(self._pane)
            except (PaneGone, PaneDead) as gone:
                raise _Ended(str(gone)) from None

    async def _see(self, within_s: float, seen: Callable[[Frame, Reading], bool]) -> bool:
        with trio.move_on_after(within_s):
            while True:
                frame, reading = await self.look()
                if seen(frame, reading):
                    return True
                await trio.sleep(LOOK_S)
        return False

    def _arrived(self, sent: Sent, frame: Frame, _: Reading) -> bool:
        """The end of the prompt, or the program's placeholder for it, is on the screen."""
        if frame.lines == sent.before.lines:
            return False
        text = "".join(frame.screen)
        if any(mark in text for mark in self._typing.placeholders):
            return True
        return dense(sent.prompt)[-TELLING:] in dense(text)

    def _begun(
        self,
        confirmed: Callable[[], bool],
        sent: Sent,
        at_enter: tuple[Frame, Reading],
        frame: Frame,
        reading: Reading,
    ) -> bool:
        """The turn runs or asks something, or has come and gone: the prompt has left its line and the screen moved.

        Only a change counts: to a program that is known by its idle line alone, a draft looks busy already. And what a
        lead's program does by itself at this moment is not our turn while our text still stands in its input line.
        """
        before, read_before = at_enter
        if confirmed():
            return True
        draft = reading.draft
        shortened = any(mark in draft for mark in self._typing.placeholders)
        if draft and (shortened or draft == read_before.draft or _is_ours(draft, sent.prompt)):
            return False
        if reading.state is State.BUSY and read_before.state is not State.BUSY:
            return True
        if not reading.input_open and read_before.input_open:
            return self._own or self._arrived(sent, frame, reading)
        # A line program shows the same text before its first output; only the cursor has gone to the next line.
        return (frame.lines, frame.cursor) != (before.lines, before.cursor)
