"""The tools of a member. A member names no ticket and no target: it is the one that the kernel says it is."""

from __future__ import annotations

from typing import Annotated

import trio
from msgspec import UNSET, Meta

from actors.actor import Refused
from actors.questions import AwaitAnswer, PutQuestion
from actors.roster import Find
from actors.sends import MemberReply
from fleetd import views
from fleetd.callers import Caller, Role
from fleetd.lead_tools import NoArgs, Tooling
from fleetd.toolarg import MAX_WAIT_S, Args, WaitSeconds


class ReplyArgs(Args, frozen=True):
    text: Annotated[str, Meta(min_length=1, description="The whole answer, as your lead should read it.")]


async def fleet_reply(on: Tooling, caller: Caller, args: ReplyArgs) -> views.Replied:
    """Answer the prompt you are working on. Call it once, when the work is done; it ends your turn for your lead."""
    return views.Replied(ticket=await on.fleet.ask_member(caller.id, MemberReply(args.text)))


class AskArgs(Args, frozen=True):
    text: Annotated[str, Meta(min_length=1, max_length=65_536, description="The question.")] | None = None
    question: Annotated[str, Meta(description="Or a question of yours (q-N) to go on waiting for.")] | None = None
    wait_seconds: WaitSeconds = MAX_WAIT_S


class NothingAsked(Refused):
    error = "bad_arguments"


async def fleet_ask(on: Tooling, caller: Caller, args: AskArgs) -> views.AskedView:
    """Ask your lead a question and wait for the answer. If it has not come yet, call again with the question's name."""
    if args.question is not None:
        name = args.question
    elif args.text is not None:
        name = await on.fleet.roster.ask(PutQuestion(caller.id, args.text))
    else:
        raise NothingAsked("fleet_ask needs a text, or the question to go on waiting for")
    with trio.move_on_after(args.wait_seconds):
        answer = await on.fleet.questions.ask(AwaitAnswer(name, caller.id), within_s=args.wait_seconds + 60.0)
        return views.AskedView(question=name, answer=answer)
    return views.AskedView(question=name, still_waiting=True)


async def fleet_whoami(on: Tooling, caller: Caller, _args: NoArgs) -> views.WhoAmI:
    """Who fleetd takes you for."""
    if caller.role is Role.LEAD:
        return views.WhoAmI(role=caller.role, id=caller.id)
    member = await on.fleet.roster.ask(Find(caller.id))
    identity = member.identity
    return views.WhoAmI(
        role=caller.role, id=caller.id, name=identity.name, profile=identity.profile, lead=identity.lead or UNSET
    )
