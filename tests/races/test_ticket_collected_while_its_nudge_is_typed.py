"""A ticket that is collected, or waited for, at any moment of the nudge that names it.

The sentences: what is composed after the lead has taken care of a ticket does not name it; before reminders are due,
one nudge names it at most; and a ticket that nobody takes care of is named all the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest
import trio

from actors.clock import NS_PER_S
from actors.mail import OpenTicket
from actors.push import REMIND_NS, Drop, PushLoop
from fleetd.testing import Fleet, settle
from tests.races.stage import Stage, on_stage
from tests.races.twins import twin

#: Calls that type one nudge.
CALLS: Final = 6
#: Behind which call of the nudge and of its first reminder; -1 and 0 are before the tick and at its instant.
MOMENTS: Final = (-1, 0, *range(1, 2 * CALLS + 1))


class Came(NamedTuple):
    #: The nudges that were composed before the ticket was taken care of, and after.
    before: list[str]
    after: list[str]


async def typed(how: str, moment: int, alone: bool, fleet: Fleet, stage: Stage, nursery: trio.Nursery) -> Came:
    """Ticket t-1 ends, and t-2 with it unless ``alone``; t-1 is taken care of at the moment."""
    lead = fleet.lead()
    done = 0

    async def take_care(at_s: float = 0.0) -> None:
        nonlocal done
        await trio.sleep_until(at_s)
        if how == "collected":
            await lead.call("fleet_collect", ticket="t-1")
        else:
            await lead.call("fleet_wait", tickets=["t-1"])
        done = len(stage.keys)

    assert lead.pane is not None
    stage.on(lead.pane.ref, moment, take_care)
    for _ in range(1 if alone else 2):
        # A send to nobody ends at once.
        await fleet.actors.mail.ask(OpenTicket(lead.caller.id, "m-9", "do it", 1))
    await settle()
    if moment == -1:
        await take_care()
    elif moment == 0:
        nursery.start_soon(take_care, 1.0)
    await fleet.advance(REMIND_NS / NS_PER_S + 10)
    texts = [(index, key.what) for index, key in enumerate(stage.keys) if key.what.startswith("[fleetd]")]
    return Came([text for index, text in texts if index < done], [text for index, text in texts if index >= done])


class Remembers(PushLoop):
    """Goes on reminding of what has been taken care of."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        return None if isinstance(message, Drop) else super().handle(message)


@pytest.mark.parametrize("alone", [False, True], ids=["with-another", "alone"])
@pytest.mark.parametrize("how", ["collected", "waited for"])
@pytest.mark.parametrize(("make", "moment"), [*((PushLoop, moment) for moment in MOMENTS), twin(Remembers, CALLS)])
def test_a_ticket_that_is_taken_care_of_is_not_named_any_more(
    make: type[PushLoop], moment: int, how: str, alone: bool
) -> None:
    came = on_stage(lambda *stage: typed(how, moment, alone, *stage), {"actors.leads.PushLoop": make})
    assert [text for text in came.after if "t-1" in text] == []
    assert len([text for text in came.before if "t-1" in text]) <= (2 if moment > CALLS else 1)
    if not alone:
        named = [text for text in came.before + came.after if "t-2" in text]
        assert len(named) == 2  # the nudge and one reminder
