"""Who may die alone.

=====================  ==========================================================================================
a crash in             touches
=====================  ==========================================================================================
a resolver             its member: the roster marks it failed, its sends end ``lost``, its questions are closed
a member's record      that reading: the member's screen decides from then on
a client's connection  that client
anything else          the daemon, which ends loudly and with the actor's name: state that a failed step may have
                       left half changed is worth nothing, and a start is a recovery
=====================  ==========================================================================================

Nothing is restarted in place. A resolver's open waiter is gone with it, so a new one would look alive and be wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from actors.actor import Actor, ActorDead, MailboxFull

log = logging.getLogger("fleetd.supervise")


def leaf(exc: BaseException) -> BaseException:
    """The one exception inside nested groups of one; the group itself where there are several."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


async def isolate(
    actor: Actor,
    on_down: Callable[[str], None],
    beside: Callable[[Actor], Awaitable[None]] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """Run an actor whose crash is a fact to report and not a reason to stop.

    Args:
        on_down: called with the reason, once, if it crashes.
        beside: runs as long as the actor does; a crash of it is logged and leaves the actor alone.
        after: called once the actor has ended by itself, but not when all is cancelled.

    Raises:
        MailboxFull, ActorDead: somebody else is stalled or dead, and this actor is only the messenger.
    """
    try:
        async with trio.open_nursery() as nursery:
            if beside is not None:
                nursery.start_soon(_beside, actor, beside, name=f"beside {actor.name}")
            await actor.run()
            nursery.cancel_scope.cancel()
    except Exception as exc:
        cause = leaf(exc)
        if isinstance(cause, MailboxFull | ActorDead):
            raise
        log.exception("actor %s crashed", actor.name, extra={"fleet_actor": actor.name})
        on_down(f"{type(cause).__name__}: {cause}")
    if after is not None:
        after()


async def _beside(actor: Actor, work: Callable[[Actor], Awaitable[None]]) -> None:
    try:
        await work(actor)
    except Exception:
        log.exception("what runs beside %s crashed", actor.name, extra={"fleet_actor": actor.name})
