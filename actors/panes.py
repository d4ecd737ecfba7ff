"""The pane actor: the order of keystrokes in each pane, and who looks at which.

Whatever types into a pane goes through one queue per pane, so two prompts, or a prompt and an Escape, can never be
mixed. Each job is an effect; the next one starts when it has ended. Panes are independent of each other.

Looking is pull, not push: :func:`actors.watching.watch` captures the panes of members that have something to see, in
one go for all of them, and hands each frame over by asking. A slow reader therefore slows its own observations and
queues none.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import outcome
import trio

from actors.actor import LATER, Actor, Ask, Message, Refused, Tells, tell_if_alive
from actors.host import HostError, PaneEnded, PaneHost, PaneRef
from actors.inject import Injection, NotTyped, Typed, Typing
from actors.journal import NotKept
from actors.screen import Frame, Grammar, Sent

log = logging.getLogger("fleetd.panes")

#: Endings kept for panes that nobody has bound yet: a program can die before its member is known.
UNCLAIMED: Final = 256


class PaneMissing(Refused):
    """No pane of that address can be looked at."""

    error = "pane_gone"


# -- what the pane actor takes --------------------------------------------------------------------------------------


class Bind(Message, frozen=True):
    """``owner`` is told :class:`PaneDied` when the pane's process ends."""

    pane: PaneRef
    owner: Tells


class Unbind(Message, frozen=True):
    pane: PaneRef


class Watch(Message, frozen=True):
    """Capture this pane again and again and ask ``observer`` with :class:`Observed`, until :class:`Unwatch`."""

    pane: PaneRef
    observer: Actor


class Unwatch(Message, frozen=True):
    pane: PaneRef


class Watched(Ask[Mapping[PaneRef, Actor]], frozen=True):
    """Which panes to capture now."""


class TypePrompt(Message, frozen=True):
    """Type a prompt and submit it; ``back`` is told :class:`PromptTyped` or :class:`PromptNotTyped`."""

    pane: PaneRef
    job: str
    #: What to type, or what composes it at that moment.
    text: str | Callable[[], str]
    grammar: Grammar
    typing: Typing
    back: Tells
    #: The pane is a member's; see :class:`actors.inject.Injection`.
    own: bool = True
    #: How long to wait for an open input line, in seconds.
    patience_s: float = 60.0
    #: What was typed before: where it still stands in the input line, it is ours and no person's draft.
    leftover: str = ""
    #: What an earlier attempt left in the input line; see :meth:`actors.inject.Injection.type`.
    resume: str = ""
    #: Called right before the first character is typed; what it raises stops the typing.
    commit: Callable[[Sent], Awaitable[None]] | None = None
    #: Called right before each Enter.
    entering: Callable[[], None] = lambda: None


class Confirm(Message, frozen=True):
    """The program itself says that it has taken this prompt: do not press Enter again."""

    pane: PaneRef
    job: str


class Withdraw(Message, frozen=True):
    """Do not type this prompt after all, if nothing of it has been typed yet."""

    pane: PaneRef
    job: str


class PressKeys(Message, frozen=True):
    """Press keys: the interrupt of a running turn. ``keys`` are tmux names."""

    pane: PaneRef
    keys: tuple[str, ...]


class ClosePane(Message, frozen=True):
    """End the pane and its processes; ``back`` is told :class:`PaneClosed`. What was queued for it is not typed."""

    pane: PaneRef
    back: Tells


class Look(Ask[Frame], frozen=True):
    """The pane now. Raises :class:`PaneMissing`."""

    pane: PaneRef
    styled: bool = False


class Quiet(Ask[None], frozen=True):
    """Type nothing more, and answer once nothing is half typed. What has not been begun stays undone: for the end."""


class HostSaw(Message, frozen=True):
    """The host says that a pane's process has ended."""

    ended: PaneEnded


class _JobDone(Message, frozen=True):
    pane: PaneRef
    result: outcome.Outcome[None]


class _Looked(Message, frozen=True):
    ask: Look
    result: outcome.Outcome[Mapping[PaneRef, Frame]]


# -- what it tells back ---------------------------------------------------------------------------------------------


class Observed(Ask[None], frozen=True):
    """A frame of a watched pane."""

    frame: Frame


class PromptTyped(Message, frozen=True):
    job: str
    typed: Typed


class PromptNotTyped(Message, frozen=True):
    job: str
    why: str
    #: Waiting and trying again can help.
    retry: bool = False
    #: The terminal failed half-way: whether the prompt was submitted is not known.
    unknown: bool = False
    #: What stands unsubmitted in the input line, and is ours.
    left: str = ""


class PaneDied(Message, frozen=True):
    ended: PaneEnded


class PaneClosed(Message, frozen=True):
    pane: PaneRef


class _Job:
    """Something that types into one pane, and the means to stop it."""

    def __init__(self, work: Callable[[], Awaitable[None]], prompt: TypePrompt | None = None) -> None:
        self._work = work
        self._scope = trio.CancelScope()
        self.prompt = prompt
        self.withdrawn = False
        self.confirmed = False
        #: Its first character may have been typed.
        self.begun = False

    async def run(self) -> None:
        with self._scope:
            await self._work()

    def cancel(self) -> None:
        self._scope.cancel()


class Panes(Actor):
    """Owns, per pane: the queue of jobs, the owner, the observer."""

    def __init__(self, hosts: Mapping[str, PaneHost]) -> None:
        super().__init__("panes")
        self._hosts = hosts
        self._jobs: dict[PaneRef, deque[_Job]] = {}
        self._owners: dict[PaneRef, Tells] = {}
        self._watched: dict[PaneRef, Actor] = {}
        self._unclaimed: dict[PaneRef, PaneEnded] = {}
        self._quiet: list[Quiet] = []

    def __repr__(self) -> str:
        busy = sum(1 for jobs in self._jobs.values() if jobs)
        return f"<Panes {len(self._owners)} bound, {len(self._watched)} watched, {busy} busy>"

    def handle(self, message: Message) -> object:
        match message:
            case Bind(pane=pane, owner=owner):
                self._owners[pane] = owner
                if ended := self._unclaimed.pop(pane, None):
                    owner.tell(PaneDied(ended))
            case Unbind(pane=pane):
                self._owners.pop(pane, None)
                self._watched.pop(pane, None)
            case Watch(pane=pane, observer=observer):
                self._watched[pane] = observer
            case Unwatch(pane=pane):
                self._watched.pop(pane, None)
            case Watched():
                return dict(self._watched)
            case TypePrompt(pane=pane):
                job = _Job(lambda: self._type(message, job), message)
                self._queue(pane, job)
            case Withdraw(pane=pane, job=name):
                for job in self._jobs.get(pane, ()):
                    job.withdrawn = job.withdrawn or (job.prompt is not None and job.prompt.job == name)
            case Confirm(pane=pane, job=name):
                for job in self._jobs.get(pane, ()):
                    job.confirmed = job.confirmed or (job.prompt is not None and job.prompt.job == name)
            case PressKeys(pane=pane):
                self._queue(pane, _Job(lambda: self._press(message)))
            case ClosePane(pane=pane):
                self._watched.pop(pane, None)
                if jobs := self._jobs.get(pane):
                    jobs[0].cancel()
                    self._jobs[pane] = deque([jobs[0]])
                self._queue(pane, _Job(lambda: self._close_pane(message)))
            case Look(pane=pane, styled=styled):
                host = self._host(pane)
                self.start(lambda: host.capture([pane], styled=styled), lambda result: _Looked(message, result), "look")
                return LATER
            case _Looked(ask=ask, result=result):
                self._answer_look(ask, result)
            case HostSaw(ended=ended):
                self._ended(ended)
            case Quiet():
                self._quiet.append(message)
                self._answer_quiet()
                return LATER
            case _JobDone(pane=pane, result=result):
                if isinstance(result, outcome.Error):
                    self.log.error("a job in pane %s crashed", pane.id, exc_info=result.error)
                self._next(pane)
                self._answer_quiet()
            case _:
                raise self.unknown(message)
        return None

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _host(self, pane: PaneRef) -> PaneHost:
        host = self._hosts.get(pane.host)
        if host is None:
            raise PaneMissing(f"no terminal host is called {pane.host}: pane {pane.id} cannot be reached")
        return host

    def _queue(self, pane: PaneRef, job: _Job) -> None:
        jobs = self._jobs.setdefault(pane, deque())
        jobs.append(job)
        if len(jobs) == 1:
            self.start(job.run, lambda result: _JobDone(pane, result), "job")

    def _next(self, pane: PaneRef) -> None:
        jobs = self._jobs[pane]
        jobs.popleft()
        if jobs:
            self.start(jobs[0].run, lambda result: _JobDone(pane, result), "job")
        else:
            del self._jobs[pane]

    def _answer_quiet(self) -> None:
        if self._quiet and not any(jobs[0].begun for jobs in self._jobs.values() if jobs):
            for ask in self._quiet:
                ask.reply.answer(None)

    async def _begin(self, ask: TypePrompt, job: _Job, sent: Sent) -> None:
        if self._quiet:
            await trio.sleep_forever()
        job.begun = True
        if ask.commit is not None:
            await ask.commit(sent)

    async def _type(self, ask: TypePrompt, job: _Job) -> None:
        answer: Message
        try:
            injection = Injection(self._host(ask.pane), ask.pane, ask.grammar, ask.typing, own=ask.own)
            typed = await injection.type(
                ask.text,
                patience_s=ask.patience_s,
                leftover=ask.leftover,
                resume=ask.resume,
                commit=partial(self._begin, ask, job),
                withdrawn=lambda: job.withdrawn,
                confirmed=lambda: job.confirmed,
                entering=ask.entering,
            )
            answer = PromptTyped(ask.job, typed)
        except NotTyped as no:
            answer = PromptNotTyped(ask.job, str(no), retry=no.retry, left=no.left)
        except NotKept as no:
            answer = PromptNotTyped(ask.job, str(no))
        except (HostError, PaneMissing) as broken:
            answer = PromptNotTyped(ask.job, f"the terminal failed: {broken}", unknown=True)
        except Exception as bug:
            # A mistake of ours in one pane's screen touches that pane's prompt and nothing else.
            log.exception("typing crashed", extra={"fleet_pane": ask.pane.id})
            answer = PromptNotTyped(ask.job, f"internal error: {bug!r}", unknown=True)
        tell_if_alive(ask.back, answer)

    async def _press(self, ask: PressKeys) -> None:
        try:
            await self._host(ask.pane).press(ask.pane, *ask.keys)
        except (HostError, PaneMissing) as broken:
            log.warning("keys not pressed", extra={"fleet_pane": ask.pane.id, "fleet_reason": str(broken)})

    async def _close_pane(self, ask: ClosePane) -> None:
        try:
            await self._host(ask.pane).close(ask.pane)
        except (HostError, PaneMissing) as broken:
            log.error("pane not closed", extra={"fleet_pane": ask.pane.id, "fleet_reason": str(broken)})
        tell_if_alive(ask.back, PaneClosed(ask.pane))

    def _answer_look(self, ask: Look, result: outcome.Outcome[Mapping[PaneRef, Frame]]) -> None:
        match result:
            case outcome.Value(value=frames) if ask.pane in frames:
                ask.reply.answer(frames[ask.pane])
            case outcome.Value():
                ask.reply.refuse(PaneMissing(f"pane {ask.pane.id} is gone"))
            case outcome.Error(error=error):
                ask.reply.refuse(PaneMissing(f"pane {ask.pane.id} cannot be captured: {error}"))

    def _ended(self, ended: PaneEnded) -> None:
        owner = self._owners.get(ended.pane)
        if owner is not None:
            tell_if_alive(owner, PaneDied(ended))
            return
        self._unclaimed[ended.pane] = ended
        while len(self._unclaimed) > UNCLAIMED:
            self._unclaimed.pop(next(iter(self._unclaimed)))
