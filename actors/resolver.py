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
from functools import partial
from typing import Final

import msgspec

from actors.actor import Actor, Message, Tells
from actors.classify import Kind, Verdict, classify, hopeless
from actors.clock import NS_PER_S
from actors.ending import outcome_of, outcome_of_report
from actors.gate import GateCheck, GateRead, exhausted_text
from actors.host import PaneRef
from actors.inject import STILL_NS
from actors.journal import Forgetful, Journaling
from actors.member import Delivered, MemberEvent, ProcessGone, Ready, TurnDone
from actors.openturn import OpenTurn, Resumed, TypedTurn, doubt
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
from actors.screen import Frame, Reading, Retrying, Sent, State, Stillness
from actors.sends import (
    Deliver,
    Entering,
    Examination,
    Examine,
    HoldOver,
    Interrupt,
    MemberReply,
    NoOpenTurn,
    Release,
    StartTimer,
    TimedOut,
)
from actors.setup import Setup
from actors.signal import Signal, What
from actors.standstill import Standstill
from actors.tracker import TurnTracker
from actors.turn import LateReply, Outcome, Phase, Progress, Source, Status, TurnEnded, bounded, clean

#: Sends that may wait for one member.
WAITING_SENDS: Final = 8
#: How long a prompt waits for the member's input line to be free (a person's draft, a dialog), in seconds.
PATIENCE_S: Final = 60.0
#: How long a screen at rest waits for the program's own word on a turn that it has announced, in nanoseconds.
GRACE_NS: Final = 1_500_000_000
#: Between two Escapes, in nanoseconds.
ESCAPE_GAP_NS: Final = 400_000_000


# -- what a resolver takes ------------------------------------------------------------------------------------------


class Inert:
    """An explicit nowhere: what is told to it is logged and has no effect."""

    def tell(self, message: Message) -> None:
        logging.getLogger("fleetd.inert").debug("told to nobody", extra={"fleet_message": repr(message)})


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
        self._turn: OpenTurn | None = None
        self._ready = False
        #: Why no delivery is taken any more.
        self._closed: str | None = None
        self._standstill = Standstill(target, self._outlet)
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
        turn = self._turn = OpenTurn(Deliver(kept.ticket, kept.prompt, kept.timeout_ns))
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
        if self._closed is None:
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
            case PressKeys():
                self._panes.tell(message)
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
            self._turn = OpenTurn(self._queue.popleft())
            self._to_gate(self._turn)

    def _to_gate(self, turn: OpenTurn) -> None:
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

    async def _commit(self, turn: OpenTurn, sent: Sent) -> None:
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
            self._press_interrupt()
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
        if not self._ready and self._closed is None:
            return self._starting(reading, still_ns)
        if turn is None or tracker is None or self._closed is not None:
            return None
        self._standstill.see(reading.state)
        self._standstill.note_retry(turn, reading.retrying, frame.at_ns)
        if not turn.settled and (lost := hopeless(reading.retrying)) is not None:
            elapsed = frame.at_ns - (turn.began_ns or 0)
            return self._settle(turn, outcome_of(lost, frame, reading, elapsed, self.setup.min_turn_ns))
        ended_ns = tracker.note(frame, reading)
        at_rest = ended_ns is not None or still_ns >= STILL_NS
        if turn.resumed and not turn.settled and at_rest and (why := doubt(turn, frame, reading)):
            self._settle(turn, Outcome(Status.LOST, reason=why, turn_ns=self._elapsed(turn)))
            return self._turn_over()
        if ended_ns is None:
            turn.rest_ns = None
            return None
        turn.rest_ns = frame.at_ns if turn.rest_ns is None else turn.rest_ns
        if turn.announced and frame.at_ns - turn.rest_ns < GRACE_NS:
            return None
        self._scraped(turn, tracker, frame, reading, ended_ns)
        return None

    def _starting(self, reading: Reading, still_ns: int) -> None:
        """Wait for the first open input line. A dialog at start is shown, and nothing is typed into it."""
        at_rest = reading.state is State.IDLE or (reading.state is State.UNKNOWN and still_ns >= STILL_NS)
        if at_rest and reading.input_open:
            self._ready = True
            self._standstill.forget()
            self._outlet.tell(self._first_rest)
            self._rest()
        elif reading.state is State.BLOCKED:
            self._standstill.show(True)

    def _scraped(self, turn: OpenTurn, tracker: TurnTracker, frame: Frame, reading: Reading, ended_ns: int) -> None:
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
                self._standstill.show(True)
            case What.WORKING:
                self._standstill.show(False)
            case What.RETRYING:
                retrying = Retrying(signal.attempt, clean(signal.text), signal.wait_s)
                self._standstill.note_retry(turn, retrying, self.now())
                if (lost := hopeless(retrying)) is not None:
                    self._typed_end(turn, lost.kind, msgspec.structs.replace(signal, resets_in_ns=lost.resets_in_ns))
        return None

    def _began(self, turn: OpenTurn, signal: Signal) -> None:
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

    def _typed_end(self, turn: OpenTurn, kind: Kind, signal: Signal) -> None:
        outcome = outcome_of_report(kind, signal, self._elapsed(turn))
        if turn.timed_out and not turn.answered and outcome.text:
            turn.answered = True
            self._outlet.tell(LateReply(self.target, turn.ticket, outcome.text))
        elif turn.settled:
            self._lost("signal")
        else:
            self._settle(turn, outcome)
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
            self._press_interrupt()
        elif turn.phase is Phase.TYPING:
            self._panes.tell(Withdraw(self._pane, turn.ticket))
        else:
            self._turn = None
            self._advance()
        return tickets

    def _press_interrupt(self) -> None:
        """Press what stops a turn. A second Escape comes a moment later: right behind one it is another key."""
        keys = self.setup.interrupt_keys
        at = next((n for n in range(1, len(keys)) if keys[n - 1] == keys[n] == "Escape"), len(keys))
        self._panes.tell(PressKeys(self._pane, keys[:at]))
        if at < len(keys):
            self.after(ESCAPE_GAP_NS, PressKeys(self._pane, keys[at:]))

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

    def _settle(self, turn: OpenTurn, outcome: Outcome) -> None:
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
        self._turn = None
        self._standstill.forget()
        self._panes.tell(Unwatch(self._pane))
        self._advance()

    def _elapsed(self, turn: OpenTurn) -> int:
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
