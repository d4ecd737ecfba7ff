"""A send between its place in the queue and its end, and what the journal keeps of it."""

from __future__ import annotations

import msgspec
import trio

from actors.journal import Entry
from actors.prompt import dense, sanitise
from actors.screen import Frame, Reading, Retrying, Sent, State
from actors.sends import Deliver
from actors.tracker import TurnTracker
from actors.turn import Phase


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


class OpenTurn:
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

    @classmethod
    def resumes(cls, kept: TypedTurn) -> OpenTurn:
        """The turn that an earlier daemon typed, as far as it wrote it down."""
        turn = cls(Deliver(kept.ticket, kept.prompt, kept.timeout_ns))
        turn.phase, turn.resumed, turn.kept = Phase.RUNNING, True, kept
        turn.began_ns = kept.at_ns if kept.began_ns is None else kept.began_ns
        turn.tracker = TurnTracker(Sent(kept.prompt, Frame(kept.before, at_ns=kept.at_ns, width=kept.width)))
        turn.entered = True
        return turn

    def is_prompt(self, text: str) -> bool:
        """Whether the program's account of a prompt can be this one's: it may be wrapped, or shown in part."""
        ours, theirs = dense(sanitise(self.deliver.prompt))[:64], dense(text)
        return not theirs or ours in theirs


def doubt(turn: OpenTurn, frame: Frame, reading: Reading) -> str:
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
