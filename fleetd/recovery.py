"""A start is a recovery: what an earlier daemon kept is taken over before anybody can ask for anything."""

from __future__ import annotations

from collections.abc import Iterable

from actors.adoption import Adopted, adopt
from actors.journal import Entry, by_kind
from actors.leads import RestoreLeads
from actors.mail import Restore
from actors.questions import RestoreQuestions
from actors.spawning import Launching
from fleetd.fleet import Fleet


async def recover(
    fleet: Fleet, entries: Iterable[Entry], launching: Launching, strangers: Iterable[str] = ()
) -> Adopted:
    """Bring a fleet that has just begun to run to where the journal leaves off.

    Leads first, so that whoever is to be told of something has somebody to tell; members next; then the sends, which
    are typed, followed or given up by what their members are now.
    """
    records = by_kind(entries)
    await fleet.leads.ask(RestoreLeads(records))
    adopted = await adopt(records, launching, fleet.launcher, fleet.journal, strangers)
    await fleet.questions.ask(RestoreQuestions(records))
    await fleet.mail.ask(Restore(records, adopted.resumed, adopted.lost))
    return adopted
