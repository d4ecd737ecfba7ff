"""The actors of one daemon, built and connected.

The circle of who tells whom is closed here and nowhere else. What touches the world comes in from outside (pane hosts,
the launching of programs, the webhook), so the same fleet runs in the daemon, and on a fake clock in a test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

from actors.actor import Actor, ActorDead, Address, Ask
from actors.health import Health, Sample, SetHealth
from actors.host import PaneHost
from actors.journal import Journal, Store
from actors.launcher import Configure, Launcher
from actors.leads import Leads, SetPushAll
from actors.mail import Mail
from actors.outage import OutagePolicy, Retune
from actors.panes import Panes
from actors.quarantine import Quarantine, SetCooldown
from actors.questions import Questions
from actors.roster import Find, Members, Roster, UnknownMember
from actors.spawning import Launching
from actors.watching import follow, watch
from fleetd.config import Config

T = TypeVar("T")

#: Delivers one event to a webhook: its URL and a JSON object.
Post = Callable[[str, Mapping[str, object]], Awaitable[None]]


class Fleet:
    """Everything that owns state.

    Args:
        config: checked configuration.
        hosts: pane hosts by name; the members' own and the one for leads' panes.
        launching: starts a member's program.
        post: delivers health events.
        store: where the journal writes.
    """

    def __init__(
        self, config: Config, hosts: Mapping[str, PaneHost], launching: Launching, post: Post, store: Store
    ) -> None:
        self.journal = Journal(store)
        roster, leads, launcher = Address(), Address(), Address()
        self._hosts = hosts
        self.panes = Panes(hosts)
        self.mail = Mail(roster=roster, leads=leads, journal=self.journal)
        self.questions = Questions(leads=leads, journal=self.journal)
        self.leads = Leads(config.push, panes=self.panes, mail=self.mail, journal=self.journal)
        self.outage = OutagePolicy(config.outage, leads=self.leads, mail=self.mail)
        self.quarantine = Quarantine(config.quarantine_ns, policy=self.outage, mail=self.mail)
        self.roster = Roster(
            policy=self.outage,
            quarantine=self.quarantine,
            leads=self.leads,
            mail=self.mail,
            questions=self.questions,
            launcher=launcher,
            panes=self.panes,
            journal=self.journal,
        )
        self.launcher = Launcher(
            launching,
            gate=self.quarantine,
            roster=self.roster,
            leads=self.leads,
            panes=self.panes,
            journal=self.journal,
        )
        self.health = Health(config.health, sample=self._sample, post=post)
        roster.bind(self.roster)
        leads.bind(self.leads)
        launcher.bind(self.launcher)
        self.configure(config)

    @property
    def actors(self) -> tuple[Actor, ...]:
        return (
            self.journal,
            self.panes,
            self.mail,
            self.questions,
            self.leads,
            self.outage,
            self.quarantine,
            self.roster,
            self.launcher,
            self.health,
        )

    def configure(self, config: Config) -> None:
        """Put settings in force. What runs on the old ones (deadlines, members, patterns) stays as it is."""
        self.launcher.tell(Configure(config.rooms(), config.placement))
        self.leads.tell(SetPushAll(config.push))
        self.outage.tell(Retune(config.outage))
        self.quarantine.tell(SetCooldown(config.quarantine_ns))
        self.health.tell(SetHealth(config.health))

    async def ask_member(self, target: str, message: Ask[T]) -> T:
        """Ask a member's resolver, by its target or name.

        Raises:
            UnknownMember: there is none, or it has ended meanwhile.
            Refused: the resolver's "no".
        """
        member = await self.roster.ask(Find(target))
        try:
            return await member.resolver.ask(message)
        except ActorDead:
            raise UnknownMember(f"member {target} has just ended: see fleet_list") from None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run every actor until cancelled. A crash of any of them ends all; see :mod:`actors.supervise`."""
        async with trio.open_nursery() as nursery:
            for actor in self.actors:
                nursery.start_soon(actor.run, name=actor.name)
            nursery.start_soon(watch, self.panes, self._hosts, name="watch")
            for host in self._hosts.values():
                nursery.start_soon(follow, self.panes, host, name=f"follow:{host.name}")
            task_status.started()

    async def _sample(self) -> tuple[Sample, ...]:
        members = await self.roster.ask(Members())
        return tuple(Sample(member.identity.target, member.state, member.since_ns) for member in members)
