"""Which turn the program's own reports are about: the open one, a person's in the same pane, or an older one."""

from __future__ import annotations

from actors.openturn import OpenTurn
from actors.signal import Signal, What
from actors.turn import Phase


class Reports:
    """Follows what one member's program calls its turns."""

    def __init__(self) -> None:
        #: A turn that the program has announced and that is not ours.
        self._foreign: str | None = None

    def concern(self, turn: OpenTurn | None, signal: Signal) -> bool:
        """Whether a report is about this turn. The one that announces it gives it the program's name for it."""
        ours = (
            turn is not None
            and turn.phase in (Phase.TYPING, Phase.RUNNING)
            and signal.turn != self._foreign
            and (_announces(turn, signal) if signal.what is What.BEGAN else _may_be_of(turn, signal))
        )
        if not ours and signal.what is What.BEGAN:
            self._foreign = signal.turn or None
        return ours


def _announces(turn: OpenTurn, signal: Signal) -> bool:
    """The program has taken a prompt: ours, or a person's who types in the same pane."""
    ours = signal.turn == turn.program_turn if turn.announced else turn.is_prompt(signal.text)
    if ours:
        turn.announced, turn.program_turn = True, signal.turn
    return ours


def _may_be_of(turn: OpenTurn, signal: Signal) -> bool:
    another = bool(signal.turn and turn.program_turn) and signal.turn != turn.program_turn
    # While a prompt is being typed that nobody has announced, it is of something before it.
    return not another and (turn.phase is Phase.RUNNING or turn.announced)
