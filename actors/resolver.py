"""The resolver: one member's turns, one open waiter at a time.

A turn can be settled by five senders who know nothing of each other: the member's own ``fleet_reply``, the scraped
end of its turn, its lead's interrupt or release, a time-out, and the death of its process. Each of them is a message
in this one mailbox. The first that reaches an open waiter settles it and, in the same step, publishes what it led to;
the others find it settled, are counted, and publish nothing. A classification that comes too late is therefore never
evidence, however true it is.

The *waiter* and the *turn* are two things. A member that has answered with ``fleet_reply`` still runs, and so does one
whose time is up: its waiter is settled and its turn drains until the screen is at rest. Only then is the next prompt
typed, because a prompt typed into a running turn is lost, queued by the program, or taken as an answer.

Where the program itself reports its turns (:mod:`actors.signal`), that report is a sixth sender, and it is believed
over the screen: a screen that comes to rest in a turn that the program has announced waits a moment for the program's
own word. A report that names another turn than the open one, or comes while none is open, settles nothing.

A send moves: queued, gate, (held), typing, running, and then it has ended. The order of publication is part of the
design: member state and failure travel to the roster first, and the ticket's result comes behind them on the same
road (see :class:`actors.turn.TurnEnded`).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
import trio

from actors.actor import Actor, Ask, Message, Refused, Tells
from actors.classify import FAILURE, REASONS, STATUS, Kind, Verdict, classify, hopeless, outcome_of
from actors.clock import NS_PER_S, from_seconds
from actors.gate import GateCheck, GateRead, exhausted_text
from actors.host import PaneRef
from actors.inject import STILL_NS, Typing
from actors.journal import Entry, Forgetful, Journaling
from actors.member import Blocked, Delivered, MemberEvent, ProcessGone, Ready, RetryNoted, TurnDone, Unblocked
from actors.panes import (
    Bind,
    Confirm,
    Observed,
    PaneDied,
    PressKeys,
    PromptNotTyped,
    PromptTyped,
    TypePrompt,
    Unwatch,
    Watch,
    Withdraw,
)
from actors.patterns import LEGACY, Patterns
from actors.prompt import dense, sanitise
from actors.resets import local_now
from actors.screen import Frame, Grammar, Reading, Retrying, Sent, State, Stillness
from actors.signal import Events, Signal, What
from actors.tracker import TurnTracker
from actors.turn import LateReply, Outcome, Phase, Progress, Source, Status, TurnEnded, bounded, clean

#: Sends that may wait for one member.
WAITING_SENDS: Final = 8
#: The floor under which an untyped end of a turn is not believed, in seconds.
MIN_TURN_S: Final = 2.0
#: How long a prompt waits for the member's input line to be free (a person's draft, a dialog), in seconds.
PATIENCE_S: Final = 60.0
#: How long a screen at rest waits for the program's own word on a turn that it has announced, in nanoseconds.
GRACE_NS: Final = 1_500_000_000
#: How long a retry banner may be away before its retrying counts as over, in nanoseconds: it goes with each attempt.
RETRY_GONE_NS: Final = 10 * NS_PER_S


class NoOpenTurn(Refused):
    """There is nothing to answer or to stop: no turn of this member is open."""

    error = "no_open_turn"


# -- what a resolver takes ------------------------------------------------------------------------------------------


class Deliver(Message, frozen=True):
    """Type this prompt when the member is free."""

    ticket: str
    prompt: str
    #: From the prompt's arrival, in nanoseconds; then the send ends ``timed_out``.
    timeout_ns: int


class MemberReply(Ask[str], frozen=True):
    """``fleet_reply``: the member's own answer of its open turn. Answers with the ticket."""

    text: str


class Interrupt(Ask[tuple[str, ...]], frozen=True):
    """Stop the open turn, or else take back what waits. Answers with the tickets that ended by it."""


class Release(Message, frozen=True):
    """The roster has released the member and closes its pane: end its sends, and this actor."""


class Examination(msgspec.Struct, frozen=True):
    """A frame as the resolver reads it: what the classifier would say if the turn ended with it."""

    target: str
    ticket: str | None
    phase: Phase | None
    reading: Reading
    verdict: Verdict
    #: Messages that came second in a race, by what they were.
    lost_races: Mapping[str, int]


class Examine(Ask[Examination], frozen=True):
    """Explain this frame of the member's pane."""

    frame: Frame


class HoldOver(Message, frozen=True):
    """The cool-off that held this send should be over: read the gate again."""

    ticket: str


class TimedOut(Message, frozen=True):
    ticket: str


class Entering(Message, frozen=True):
    """Enter is about to be pressed: what the program answers from now on can be the answer of this send."""

    ticket: str


class StartTimer(Message, frozen=True):
    """A resumed send ends ``timed_out`` when so much time has passed; the loop runs only now."""

    ticket: str
    left_ns: int


class Setup(msgspec.Struct, frozen=True):
    """How the member's program is read and typed to; from its profile, fixed at launch."""

    grammar: Grammar
    patterns: Patterns = LEGACY
    typing: Typing = Typing()
    min_turn_ns: int = from_seconds(MIN_TURN_S)
    interrupt_keys: tuple[str, ...] = ("Escape",)
    #: The present by the wall clock, to read printed reset times by; it decides nothing else.
    wall: Callable[[], datetime] = local_now
    #: Understands the events of the program's hooks; ``None`` for a program without hooks of ours.
    events: Events | None = None


class TypedTurn(msgspec.Struct, frozen=True):
    """A send from its first character on, as the journal keeps it until it has ended."""

    ticket: str
    target: str
    prompt: str
    timeout_ns: int
    #: The pane just before: text, and how wide it was.
    before: tuple[str, ...]
    width: int
    #: When it was typed; when Enter was pressed, ``None`` while nobody knows that it was.
    at_ns: int
    began_ns: int | None = None

    def entry(self) -> Entry:
        return Entry("turn", self.ticket, msgspec.json.encode(self))


class Resumed(msgspec.Struct, frozen=True):
    """What an earlier daemon left of a member."""

    #: Its open turn, where one had been typed.
    turn: TypedTurn | None = None
    #: Its first input line has been seen, so it is not starting.
    ready: bool = True
    #: A turn of its runs that has no open send: it was answered, or its time was up.
    draining: bool = False
    #: Why it takes no prompt any more; empty where it does.
    closed: str = ""


class Inert:
    """An explicit nowhere: what is told to it is logged and has no effect."""

    def tell(self, message: Message) -> None:
        logging.getLogger("fleetd.inert").debug("told to nobody", extra={"fleet_message": repr(message)})


class _Turn:
    """One send between its place in the queue and its end."""

    def __init__(self, deliver: Deliver) -> None:
        self.ticket = deliver.ticket
        self.deliver = deliver
        self.phase: Phase | None = None  # None: at the gate
        self.settled = False
        self.interrupted = False
        self.timed_out = False
        self.answered = False
        #: Enter has been pressed, or is about to be.
        self.entered = False
        #: When Enter was pressed.
        self.began_ns: int | None = None
        self.tracker: TurnTracker | None = None
        self.deadline: trio.CancelScope | None = None
        #: The program has announced this turn; and what it calls it, where it has names.
        self.announced = False
        self.program_turn = ""
        #: When its screen first was at rest.
        self.rest_ns: int | None = None
        self.retrying: Retrying | None = None
        #: When its first retry was seen, and its last.
        self.retry_since_ns = self.retry_seen_ns = 0
        #: An earlier daemon typed it, so what happened since then must show on the screen.
        self.resumed = False
        self.kept: TypedTurn | None = None

    def is_prompt(self, text: str) -> bool:
        """Whether the program's account of a prompt can be this one's: it may be wrapped, or shown in part."""
        ours, theirs = dense(sanitise(self.deliver.prompt))[:64], dense(text)
        return not theirs or ours in theirs


def _doubt(turn: _Turn, frame: Frame, reading: Reading) -> str:
    """Why nobody can say how a turn ended that was open when fleetd ended; empty where the screen can still say it."""
    if reading.state not in (State.IDLE, State.UNKNOWN):
        return ""
    shown = dense(reading.draft)
    if shown and shown in dense(turn.deliver.prompt):
        return "fleetd ended while it typed this prompt, which stands in the input line and was not submitted"
    if turn.tracker is not None and frame.lines == turn.tracker.sent.before.lines:
        return "fleetd ended while it typed this prompt, and nothing shows that it arrived"
    if not reading.echoed:
        return "fleetd was away when this turn ended, and its prompt is no longer on the screen"
    return ""


class Resolver(Actor):
    """Settles the turns of one member.

    Args:
        target: the member's address.
        setup: how its program is read and typed to.
        outlet: takes member events, :class:`TurnEnded` and :class:`Progress`, in the order they happen: the roster.
            The default publishes nothing and says so at DEBUG.
        gate: takes :class:`GateCheck`: the quarantine.
        panes: takes what is to be typed: the pane actor.
        journal: keeps a turn from its first character on.
        resumed: what an earlier daemon left; ``None`` for a member that has just been launched.
    """

    def __init__(
        self,
        target: str,
        setup: Setup,
        *,
        pane: PaneRef | None = None,
        credential: str = "",
        outlet: Tells | None = None,
        gate: Tells | None = None,
        panes: Tells | None = None,
        journal: Journaling | None = None,
        resumed: Resumed | None = None,
    ) -> None:
        super().__init__(f"resolver:{target}")
        self.target = target
        self.setup = setup
        self._pane = pane or PaneRef("none", target)
        self._credential = credential
        self._outlet = outlet or Inert()
        self._gate = gate or Inert()
        self._panes = panes or Inert()
        self._queue: deque[Deliver] = deque()
        self._turn: _Turn | None = None
        self._ready = False
        #: Why no delivery is taken any more.
        self._closed: str | None = None
        self._blocked = False
        #: The dialog has been seen, not only announced.
        self._dialog_seen = False
        #: A turn that the program has announced and that is not ours.
        self._foreign_turn: str | None = None
        self._last_prompt = ""
        self._journal = journal or Forgetful()
        #: What says that the member is at rest for the first time that this daemon knows of.
        self._first_rest: MemberEvent = Ready(target)
        if resumed is not None:
            self._resume(resumed)
        self._still = Stillness()
        self._lost_races: Counter[str] = Counter()

    def __repr__(self) -> str:
        turn = "no turn" if self._turn is None else f"{self._turn.ticket} {self._turn.phase or 'gate'}"
        settled = " settled" if self._turn is not None and self._turn.settled else ""
        closed = f", closed: {self._closed}" if self._closed else ""
        return f"<Resolver {self.target}: {turn}{settled}, {len(self._queue)} waiting{closed}>"

    def _resume(self, left: Resumed) -> None:
        self._closed = left.closed or None
        self._ready = left.ready and not left.draining
        if left.draining:
            self._first_rest = TurnDone(self.target)
        if (kept := left.turn) is None:
            return
        turn = self._turn = _Turn(Deliver(kept.ticket, kept.prompt, kept.timeout_ns))
        turn.phase, turn.resumed, turn.kept = Phase.RUNNING, True, kept
        turn.began_ns = kept.at_ns if kept.began_ns is None else kept.began_ns
        turn.tracker = TurnTracker(Sent(kept.prompt, Frame(kept.before, at_ns=kept.at_ns, width=kept.width)))
        turn.entered = True
        self._ready, self._last_prompt = True, kept.prompt

    async def run(self) -> None:
        if self._turn is not None and self._turn.began_ns is not None:
            left_ns = self._turn.began_ns + self._turn.deliver.timeout_ns - self.now()
            self.tell(StartTimer(self._turn.ticket, left_ns))
        self._panes.tell(Bind(self._pane, self))
        self._panes.tell(Watch(self._pane, self))
        await super().run()

    def handle(self, message: Message) -> object:
        match message:
            case Deliver():
                self._deliver(message)
            case GateRead():
                self._gate_read(message)
            case HoldOver(ticket=ticket):
                if (turn := self._turn) is not None and turn.ticket == ticket and turn.phase is Phase.HELD:
                    self._to_gate(turn)
            case Entering(ticket=ticket):
                if (turn := self._turn) is not None and turn.ticket == ticket:
                    turn.entered = True
            case PromptTyped(job=job, typed=typed):
                self._typed(job, typed.sent, typed.at_ns)
            case PromptNotTyped():
                self._not_typed(message)
            case Observed(frame=frame):
                self._observe(frame)
            case Signal():
                self._signal(message)
            case MemberReply(text=text):
                return self._reply(text)
            case Interrupt():
                return self._interrupt()
            case TimedOut(ticket=ticket):
                self._time_out(ticket)
            case StartTimer(ticket=ticket, left_ns=left_ns):
                if (turn := self._turn) is not None and turn.ticket == ticket and not turn.settled:
                    turn.deadline = self.after(left_ns, TimedOut(ticket))
            case PaneDied(ended=ended):
                self._died(ended.how(), known=ended.status is not None or ended.signal is not None)
            case Release():
                self._release()
            case Examine(frame=frame):
                return self._examine(frame)
            case _:
                raise self.unknown(message)
        return None

    # -- a send's way to the pane --------------------------------------------------------------------------------

    def _deliver(self, deliver: Deliver) -> None:
        if self._closed is not None:
            self._refuse(deliver, f"member {self.target} takes no prompt: {self._closed}")
        elif len(self._queue) >= WAITING_SENDS:
            self._refuse(
                deliver,
                f"member {self.target} has {WAITING_SENDS} sends waiting, the most that may: wait for one to end",
            )
        else:
            self._queue.append(deliver)
            self._outlet.tell(Progress(deliver.ticket, Phase.QUEUED))
            self._advance()

    def _advance(self) -> None:
        """Take the next send to the gate if the member is free."""
        if self._ready and self._turn is None and self._queue:
            self._turn = _Turn(self._queue.popleft())
            self._to_gate(self._turn)

    def _to_gate(self, turn: _Turn) -> None:
        turn.phase = None
        self._gate.tell(GateCheck(turn.ticket, (self._credential,), self))

    def _gate_read(self, read: GateRead) -> None:
        turn = self._turn
        if turn is None or turn.ticket != read.id or turn.phase is not None:
            return self._lost("gate")
        if until := read.exhausted_until.get(self._credential):
            self._turn = None
            self._refuse(turn.deliver, exhausted_text(self._credential, until, read.at_ns))
            self._advance()
        elif (until := read.cooling_until.get(self._credential)) and read.hold_sends:
            turn.phase = Phase.HELD
            self._outlet.tell(Progress(turn.ticket, Phase.HELD, until))
            self.after(until - read.at_ns, HoldOver(turn.ticket))
        else:
            turn.phase = Phase.TYPING
            self._outlet.tell(Progress(turn.ticket, Phase.TYPING))
            self._panes.tell(
                TypePrompt(
                    self._pane,
                    turn.ticket,
                    turn.deliver.prompt,
                    self.setup.grammar,
                    self.setup.typing,
                    self,
                    patience_s=PATIENCE_S,
                    leftover=self._last_prompt,
                    commit=partial(self._commit, turn),
                    entering=lambda: self.tell(Entering(turn.ticket)),
                )
            )
            self._last_prompt = turn.deliver.prompt
        return None

    async def _commit(self, turn: _Turn, sent: Sent) -> None:
        """From here on the prompt may have arrived: a daemon that comes after this one must never type it again."""
        kept = TypedTurn(
            turn.ticket,
            self.target,
            sent.prompt,
            turn.deliver.timeout_ns,
            sent.before.lines,
            sent.before.width,
            self.now(),
        )
        turn.kept = kept
        await self._journal.keep(kept.entry())

    def _typed(self, job: str, sent: Sent, at_ns: int) -> None:
        turn = self._turn
        if turn is None or turn.ticket != job:
            return self._lost("typed")
        turn.phase = Phase.RUNNING
        turn.entered = True
        turn.began_ns = at_ns
        turn.tracker = TurnTracker(sent)
        if turn.kept is not None and not turn.settled:
            self._journal.note(msgspec.structs.replace(turn.kept, began_ns=at_ns).entry())
        self._outlet.tell(Delivered(self.target))
        self._panes.tell(Watch(self._pane, self))
        if turn.interrupted:
            self._panes.tell(PressKeys(self._pane, self.setup.interrupt_keys))
        elif not turn.settled:
            self._outlet.tell(Progress(turn.ticket, Phase.RUNNING))
            turn.deadline = self.after(turn.deliver.timeout_ns, TimedOut(turn.ticket))
        return None

    def _not_typed(self, told: PromptNotTyped) -> None:
        turn = self._turn
        if turn is None or turn.ticket != told.job:
            return self._lost("not typed")
        status = Status.LOST if told.unknown else Status.REFUSED
        doubt = "it is not known whether the prompt arrived" if told.unknown else "the prompt was not submitted"
        self._settle(turn, Outcome(status, reason=clean(f"{doubt}: {told.why}")))
        self._turn = None
        self._advance()
        return None

    # -- what settles a turn -------------------------------------------------------------------------------------

    def _observe(self, frame: Frame) -> None:
        turn = self._turn
        tracker = None if turn is None else turn.tracker
        reading = self.setup.grammar.read(frame, None if tracker is None else tracker.sent)
        still_ns = self._still.note(frame)
        if not self._ready:
            return self._starting(reading, still_ns)
        if turn is None or tracker is None or self._closed is not None:
            return None
        self._see_dialog(reading.state)
        self._note_retry(turn, reading.retrying, frame.at_ns)
        if not turn.settled and (lost := hopeless(reading.retrying)) is not None:
            elapsed = frame.at_ns - (turn.began_ns or 0)
            return self._settle(turn, outcome_of(lost, frame, reading, elapsed, self.setup.min_turn_ns))
        ended_ns = tracker.note(frame, reading)
        at_rest = ended_ns is not None or still_ns >= STILL_NS
        if turn.resumed and not turn.settled and at_rest and (doubt := _doubt(turn, frame, reading)):
            self._settle(turn, Outcome(Status.LOST, reason=doubt, turn_ns=self._elapsed(turn)))
            return self._turn_over()
        if ended_ns is None:
            turn.rest_ns = None
            return None
        turn.rest_ns = frame.at_ns if turn.rest_ns is None else turn.rest_ns
        if turn.announced and frame.at_ns - turn.rest_ns < GRACE_NS:
            return None
        self._scraped(turn, tracker, frame, reading, ended_ns)
        return None

    def _see_dialog(self, state: State) -> None:
        """Follow a dialog on the screen. One that the program has announced may not be drawn yet."""
        if state is State.BLOCKED:
            self._dialog_seen = True
            self._show_blocked(True)
        elif self._dialog_seen or state is State.BUSY:
            self._show_blocked(False)

    def _show_blocked(self, blocked: bool) -> None:
        self._dialog_seen = self._dialog_seen and blocked
        if self._blocked != blocked:
            self._blocked = blocked
            self._outlet.tell(Blocked(self.target) if blocked else Unblocked(self.target))

    def _note_retry(self, turn: _Turn, retrying: Retrying | None, at_ns: int) -> None:
        """Tell the roster that the program only retries, and when that is over."""
        before = turn.retrying
        if retrying is not None:
            turn.retry_seen_ns = at_ns
            turn.retry_since_ns = at_ns if before is None else turn.retry_since_ns
        elif before is None or at_ns - turn.retry_seen_ns < RETRY_GONE_NS:
            return
        turn.retrying = retrying
        if (before and before.attempt) != (retrying and retrying.attempt) or (before is None) != (retrying is None):
            self._outlet.tell(RetryNoted(self.target, retrying, turn.retry_since_ns))

    def _starting(self, reading: Reading, still_ns: int) -> None:
        """Wait for the first open input line. A dialog at start is shown, and nothing is typed into it."""
        at_rest = reading.state is State.IDLE or (reading.state is State.UNKNOWN and still_ns >= STILL_NS)
        if at_rest and reading.input_open:
            self._ready, self._blocked = True, False
            self._outlet.tell(self._first_rest)
            self._rest()
        elif reading.state is State.BLOCKED:
            self._show_blocked(True)

    def _scraped(self, turn: _Turn, tracker: TurnTracker, frame: Frame, reading: Reading, ended_ns: int) -> None:
        """The program is at rest: say what the turn came to, unless somebody has said it already."""
        turn_ns = max(0, ended_ns - (turn.began_ns or 0))
        verdict = self._classify(frame, reading, tracker.sent, fast=turn_ns < self.setup.min_turn_ns)
        if verdict.kind is Kind.STALE:
            tracker.unsettle()
            return
        if turn.settled:
            self._lost("scrape")
        else:
            self._settle(turn, outcome_of(verdict, frame, reading, turn_ns, self.setup.min_turn_ns))
        self._turn_over()

    def _turn_over(self) -> None:
        if self._closed is None:
            self._outlet.tell(TurnDone(self.target))
            self._rest()

    def _classify(self, frame: Frame, reading: Reading, sent: Sent | None, *, fast: bool) -> Verdict:
        return classify(
            reading,
            self.setup.patterns,
            width=frame.width,
            sent=sent,
            screen=frame.lines,
            fast=fast,
            wall=self.setup.wall(),
        )

    # -- what the program itself says ----------------------------------------------------------------------------

    def _signal(self, signal: Signal) -> None:
        turn = self._turn
        if turn is None or turn.phase not in (Phase.TYPING, Phase.RUNNING) or signal.turn == self._foreign_turn:
            return self._stray(signal)
        if signal.what is What.BEGAN:
            return self._began(turn, signal)
        if signal.turn and turn.program_turn and signal.turn != turn.program_turn:
            return self._stray(signal)
        if turn.phase is Phase.TYPING and not turn.announced:
            return self._stray(signal)  # the end of something that was before our prompt
        match signal.what:
            case What.ENDED:
                self._typed_end(turn, Kind.COMPLETED if signal.text.strip() else Kind.EMPTY, signal)
            case What.FAILED:
                self._typed_end(turn, signal.kind, signal)
            case What.STOPPED:
                self._typed_end(turn, Kind.INTERRUPTED, signal)
            case What.WAITING:
                self._show_blocked(True)
            case What.WORKING:
                self._show_blocked(False)
            case What.RETRYING:
                retrying = Retrying(signal.attempt, clean(signal.text), signal.wait_s)
                self._note_retry(turn, retrying, self.now())
                if (lost := hopeless(retrying)) is not None:
                    self._typed_end(turn, lost.kind, msgspec.structs.replace(signal, resets_in_ns=lost.resets_in_ns))
        return None

    def _began(self, turn: _Turn, signal: Signal) -> None:
        """The program has taken a prompt: ours, or a person's who types in the same pane."""
        known = turn.announced and signal.turn == turn.program_turn
        if not known and (turn.announced or not turn.is_prompt(signal.text)):
            self._stray(signal)
            return
        turn.announced, turn.program_turn = True, signal.turn
        if turn.phase is Phase.TYPING:
            self._panes.tell(Confirm(self._pane, turn.ticket))

    def _stray(self, signal: Signal) -> None:
        """A report about a turn that is not the open one: logged, and evidence of nothing."""
        if signal.what is What.BEGAN:
            self._foreign_turn = signal.turn or None
        level = logging.WARNING if signal.what is What.FAILED else logging.DEBUG
        self._lost_races["signal"] += 1
        self.log.log(
            level,
            "program reported %s outside of a turn of ours",
            signal.what,
            extra={"fleet_member": self.target, "fleet_signal": signal.pattern, "fleet_reason": clean(signal.text)},
        )

    def _typed_end(self, turn: _Turn, kind: Kind, signal: Signal) -> None:
        text, truncated = bounded(signal.text) if kind is Kind.COMPLETED else ("", False)
        if turn.timed_out and not turn.answered and text:
            turn.answered = True
            self._outlet.tell(LateReply(self.target, turn.ticket, text))
        elif turn.settled:
            self._lost("signal")
        else:
            self._settle(
                turn,
                Outcome(
                    STATUS.get(kind, Status.FAILED),
                    text=text,
                    truncated=truncated,
                    reason=REASONS.get(kind, clean(signal.text) or f"the program reported {signal.pattern or kind}"),
                    source=signal.source,
                    turn_ns=self._elapsed(turn),
                    pattern=signal.pattern,
                    failure=FAILURE.get(kind),
                    resets_in_ns=signal.resets_in_ns,
                ),
            )
        self._turn_over()

    def _reply(self, text: str) -> str:
        turn = self._turn
        answer, truncated = bounded(text)
        if turn is not None and turn.timed_out and not turn.answered:
            turn.answered = True
            self._outlet.tell(LateReply(self.target, turn.ticket, answer))
            return turn.ticket
        if turn is None or turn.settled or not turn.entered:
            self._lost("reply")
            raise NoOpenTurn(
                f"member {self.target} has no open turn to answer: it has ended already, or nothing was sent"
            )
        self._settle(
            turn,
            Outcome(
                Status.COMPLETED, text=answer, truncated=truncated, source=Source.REPLY, turn_ns=self._elapsed(turn)
            ),
        )
        return turn.ticket

    def _time_out(self, ticket: str) -> None:
        turn = self._turn
        if turn is None or turn.ticket != ticket or turn.settled:
            return self._lost("time-out")
        turn.timed_out = True
        seconds = turn.deliver.timeout_ns // NS_PER_S
        self._settle(
            turn,
            Outcome(
                Status.TIMED_OUT,
                reason=f"no end of the turn within {seconds} s; the member may still be working",
                turn_ns=turn.deliver.timeout_ns,
            ),
        )
        return None

    def _interrupt(self) -> tuple[str, ...]:
        turn = self._turn
        if turn is None and self._queue:
            ended = tuple(deliver.ticket for deliver in self._queue)
            while self._queue:
                self._end(self._queue.popleft(), Status.INTERRUPTED, "its lead took it back before it was typed")
            return ended
        if turn is None:
            raise NoOpenTurn(f"member {self.target} has no open turn to stop and no send waiting")
        running = turn.phase is Phase.RUNNING
        tickets = () if turn.settled else (turn.ticket,)
        self._settle(turn, Outcome(Status.INTERRUPTED, reason="its lead stopped the turn", turn_ns=self._elapsed(turn)))
        turn.interrupted = True
        if running:
            self._panes.tell(PressKeys(self._pane, self.setup.interrupt_keys))
        elif turn.phase is Phase.TYPING:
            self._panes.tell(Withdraw(self._pane, turn.ticket))
        else:
            self._turn = None
            self._advance()
        return tickets

    def _died(self, how: str, *, known: bool) -> None:
        if self._closed is not None and self._turn is None:
            return self._lost("death")
        turn, self._turn = self._turn, None
        self._ready = False
        in_turn = turn is not None and turn.phase in (Phase.TYPING, Phase.RUNNING)
        if turn is not None and in_turn:
            status = Status.FAILED if known else Status.LOST
            self._settle(turn, Outcome(status, reason=f"{how}, in mid-turn", turn_ns=self._elapsed(turn)))
        elif turn is not None:
            self._refuse(turn.deliver, f"member {self.target} is gone: {how}")
        self._panes.tell(Unwatch(self._pane))
        self._outlet.tell(ProcessGone(self.target, how))
        self._close(how)
        return None

    def _release(self) -> None:
        turn, self._turn = self._turn, None
        self._closed = "it was released"
        if turn is not None:
            self._settle(
                turn, Outcome(Status.INTERRUPTED, reason="the member was released", turn_ns=self._elapsed(turn))
            )
        while self._queue:
            self._end(self._queue.popleft(), Status.INTERRUPTED, "the member was released before it was typed")
        self._panes.tell(Unwatch(self._pane))
        self.stop()

    # -- settling ------------------------------------------------------------------------------------------------

    def _settle(self, turn: _Turn, outcome: Outcome) -> None:
        """Settle the waiter and publish, in one step. A second call finds it settled and does nothing."""
        if turn.settled:
            return
        turn.settled = True
        if turn.deadline is not None:
            turn.deadline.cancel()
        self._outlet.tell(TurnEnded(self.target, turn.ticket, outcome, self.now()))
        if outcome.status in (Status.FAILED, Status.BACKEND_ERROR, Status.EXHAUSTED):
            self._turn = None
            self._panes.tell(Unwatch(self._pane))
            self._close(f"its turn ended {outcome.status}; release it and spawn another")

    def _close(self, why: str) -> None:
        """Take no more prompts, and refuse those that wait."""
        self._closed = self._closed or why
        while self._queue:
            self._refuse(self._queue.popleft(), f"member {self.target} takes no prompt: {self._closed}")

    def _refuse(self, deliver: Deliver, why: str) -> None:
        self._end(deliver, Status.REFUSED, why)

    def _end(self, deliver: Deliver, status: Status, why: str) -> None:
        """End a send that was never typed."""
        self._outlet.tell(TurnEnded(self.target, deliver.ticket, Outcome(status, reason=why), self.now()))

    def _rest(self) -> None:
        """The member is free: go on with the next send, or stop looking."""
        self._turn, self._blocked, self._dialog_seen = None, False, False
        self._panes.tell(Unwatch(self._pane))
        self._advance()

    def _elapsed(self, turn: _Turn) -> int:
        return 0 if turn.began_ns is None else self.now() - turn.began_ns

    def _lost(self, who: str) -> None:
        """A message that came second in a race: visible, and without effect."""
        self._lost_races[who] += 1
        self.log.debug("lost a race", extra={"fleet_member": self.target, "fleet_race": who})

    def _examine(self, frame: Frame) -> Examination:
        turn = self._turn
        sent = None if turn is None or turn.tracker is None else turn.tracker.sent
        reading = self.setup.grammar.read(frame, sent)
        return Examination(
            self.target,
            None if turn is None else turn.ticket,
            None if turn is None else turn.phase,
            reading,
            hopeless(reading.retrying) or self._classify(frame, reading, None, fast=False),
            dict(self._lost_races),
        )
