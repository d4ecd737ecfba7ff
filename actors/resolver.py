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
from collections import Counter
from typing import Final

import msgspec

from actors.actor import Actor, Message, Tells
from actors.classify import Kind, hopeless
from actors.clock import NS_PER_S
from actors.delivery import Delivery
from actors.ending import outcome_of_report
from actors.gate import GateRead, exhausted_text
from actors.host import PaneRef
from actors.journal import Forgetful, Journaling
from actors.member import Delivered, MemberEvent, ProcessGone, Ready, TurnDone
from actors.openturn import OpenTurn, Resumed
from actors.panes import (
    Bind,
    Confirm,
    Observed,
    PaneDied,
    PressKeys,
    PromptNotTyped,
    PromptTyped,
    Unwatch,
    Watch,
    Withdraw,
)
from actors.reports import Reports
from actors.screen import Frame, Retrying, Sent, State
from actors.sendqueue import SendQueue
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
from actors.sight import Seen, Sight
from actors.signal import Signal, What
from actors.standstill import Standstill
from actors.turn import LateReply, Outcome, Phase, Progress, Source, Status, TurnEnded, bounded, clean

#: Between two Escapes, in nanoseconds.
ESCAPE_GAP_NS: Final = 400_000_000


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
        self._panes = panes or Inert()
        self._queue = SendQueue(target, self._outlet, self)
        self._turn: OpenTurn | None = None
        self._ready = False
        self._sight = Sight(setup)
        self._standstill = Standstill(target, self._outlet)
        self._reports = Reports()
        self._delivery = Delivery(
            target,
            self._pane,
            credential,
            setup,
            self,
            gate=gate or Inert(),
            panes=self._panes,
            journal=journal or Forgetful(),
        )
        #: What says that the member is at rest for the first time that this daemon knows of.
        self._first_rest: MemberEvent = Ready(target)
        if resumed is not None:
            self._resume(resumed)
        self._lost_races: Counter[str] = Counter()

    def __repr__(self) -> str:
        turn = "no turn" if self._turn is None else f"{self._turn.ticket} {self._turn.phase or 'gate'}"
        settled = " settled" if self._turn is not None and self._turn.settled else ""
        closed = f", closed: {self._queue.closed}" if self._queue.closed else ""
        return f"<Resolver {self.target}: {turn}{settled}, {len(self._queue)} waiting{closed}>"

    def _resume(self, left: Resumed) -> None:
        self._queue.closed = left.closed or None
        self._ready = left.ready and not left.draining
        if left.draining:
            self._first_rest = TurnDone(self.target)
        if left.turn is not None:
            self._turn = OpenTurn.resumes(left.turn)
            self._ready, self._delivery.last_prompt = True, left.turn.prompt

    async def run(self) -> None:
        if self._turn is not None and self._turn.began_ns is not None:
            left_ns = self._turn.began_ns + self._turn.deliver.timeout_ns - self.now()
            self.tell(StartTimer(self._turn.ticket, left_ns))
        self._panes.tell(Bind(self._pane, self))
        if self._queue.closed is None:
            self._panes.tell(Watch(self._pane, self))
        await super().run()

    def handle(self, message: Message) -> object:
        match message:
            case Deliver():
                self._queue.put(message)
                self._advance()
            case GateRead():
                self._gate_read(message)
            case HoldOver(ticket=ticket):
                if (turn := self._turn) is not None and turn.ticket == ticket and turn.phase is Phase.HELD:
                    self._delivery.ask_gate(turn)
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

    def _advance(self) -> None:
        """Take the next send to the gate if the member is free."""
        if self._ready and self._turn is None and self._queue:
            self._turn = OpenTurn(self._queue.take())
            self._delivery.ask_gate(self._turn)

    def _gate_read(self, read: GateRead) -> None:
        turn = self._turn
        if turn is None or turn.ticket != read.id or turn.phase is not None:
            return self._lost("gate")
        if until := read.exhausted_until.get(self._credential):
            self._turn = None
            self._queue.refuse(turn.deliver, exhausted_text(self._credential, until, read.at_ns))
            self._advance()
        elif (until := read.cooling_until.get(self._credential)) and read.hold_sends:
            turn.phase = Phase.HELD
            self._outlet.tell(Progress(turn.ticket, Phase.HELD, until))
            self.after(until - read.at_ns, HoldOver(turn.ticket))
        else:
            turn.phase = Phase.TYPING
            self._outlet.tell(Progress(turn.ticket, Phase.TYPING))
            self._delivery.type(turn)
        return None

    def _typed(self, job: str, sent: Sent, at_ns: int) -> None:
        turn = self._turn
        if turn is None or turn.ticket != job:
            return self._lost("typed")
        self._delivery.typed(turn, sent, at_ns)
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
        seen = self._sight.see(frame, turn)
        if self._queue.closed is not None:
            return
        if not self._ready:
            self._starting(seen)
        elif turn is not None and turn.tracker is not None:
            self._standstill.see(seen.reading.state)
            self._standstill.note_retry(turn, seen.reading.retrying, frame.at_ns)
            if (outcome := self._sight.ended(turn, turn.tracker, seen)) is not None:
                self._scraped(turn, outcome)

    def _starting(self, seen: Seen) -> None:
        """Wait for the first open input line. A dialog at start is shown, and nothing is typed into it."""
        if seen.open_at_rest:
            self._ready = True
            self._outlet.tell(self._first_rest)
            self._rest()
        elif seen.reading.state is State.BLOCKED:
            self._standstill.show(True)

    def _scraped(self, turn: OpenTurn, outcome: Outcome) -> None:
        """Say what the turn came to by its screen, unless somebody has said it already."""
        if turn.settled:
            self._lost("scrape")
        else:
            self._settle(turn, outcome)
        self._turn_over()

    def _turn_over(self) -> None:
        if self._queue.closed is None:
            self._outlet.tell(TurnDone(self.target))
            self._rest()

    # -- what the program itself says ----------------------------------------------------------------------------

    def _signal(self, signal: Signal) -> None:
        turn = self._turn
        if turn is None or not self._reports.concern(turn, signal):
            return self._stray(signal)
        match signal.what:
            case What.BEGAN:
                if turn.phase is Phase.TYPING:
                    self._panes.tell(Confirm(self._pane, turn.ticket))
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

    def _stray(self, signal: Signal) -> None:
        """A report about a turn that is not the open one: logged, and evidence of nothing."""
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
            return self._queue.end_all(Status.INTERRUPTED, "its lead took it back before it was typed")
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
        if self._queue.closed is not None and self._turn is None:
            return self._lost("death")
        turn, self._turn = self._turn, None
        in_turn = turn is not None and turn.phase in (Phase.TYPING, Phase.RUNNING)
        if turn is not None and in_turn:
            status = Status.FAILED if known else Status.LOST
            self._settle(turn, Outcome(status, reason=f"{how}, in mid-turn", turn_ns=self._elapsed(turn)))
        elif turn is not None:
            self._queue.refuse(turn.deliver, f"member {self.target} is gone: {how}")
        self._panes.tell(Unwatch(self._pane))
        self._outlet.tell(ProcessGone(self.target, how))
        self._queue.close(how)
        return None

    def _release(self) -> None:
        turn, self._turn = self._turn, None
        self._queue.closed = "it was released"
        if turn is not None:
            self._settle(
                turn, Outcome(Status.INTERRUPTED, reason="the member was released", turn_ns=self._elapsed(turn))
            )
        self._queue.end_all(Status.INTERRUPTED, "the member was released before it was typed")
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
            self._queue.close(f"its turn ended {outcome.status}; release it and spawn another")

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
        reading = self._sight.read(frame, turn)
        return Examination(
            self.target,
            None if turn is None else turn.ticket,
            None if turn is None else turn.phase,
            reading,
            hopeless(reading.retrying) or self.setup.classify(frame, reading, None, fast=False),
            dict(self._lost_races),
        )
