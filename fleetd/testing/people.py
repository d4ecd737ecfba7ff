"""Who a story is about: leads with their tools, members with their screens, and the programs in their panes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from actors.panes import Look
from actors.roster import Find
from fleetd.callers import Caller
from fleetd.events import take
from fleetd.hosts.memory import MemoryPane, ScriptedAgent
from fleetd.toolbox import ToolResult

if TYPE_CHECKING:
    from fleetd.testing.fleet import Fleet


class LeadAgent(ScriptedAgent):
    """A lead's program: it takes note of what is typed to it and is at rest again."""

    def on_key(self, key: str) -> None:
        known = len(self.prompts)
        super().on_key(key)
        if len(self.prompts) > known:
            self.answers("Noted.")


class Typewriter:
    """A program that shows what it is told to, and behind its last line what is typed.

    Enter takes what was typed as a prompt; it stays where a terminal's echo leaves it, until the test shows something
    else.
    """

    title = ""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.draft = ""
        #: What was submitted, in order.
        self.prompts: list[str] = []

    def _typed(self) -> list[str]:
        """The lines with the draft behind the last of them."""
        last = self.lines[-1] if self.lines else ""
        return [*self.lines[:-1], *f"{last}{self.draft}".split("\n")]

    @property
    def cursor(self) -> tuple[int, int]:
        """Behind what is typed; at the beginning of the next line once it was submitted."""
        typed = self._typed()
        return (len(typed[-1]), len(typed) - 1) if self.draft else (0, len(self.lines))

    def draw(self, width: int, height: int) -> Sequence[str]:
        return self._typed()

    def on_paste(self, text: str) -> None:
        self.draft += text

    def on_key(self, key: str) -> None:
        if key == "Enter" and self.draft:
            self.prompts.append(self.draft)
            self.lines, self.draft = self._typed(), ""
        elif key == "C-u":
            self.draft = ""


class Ticket:
    """A send, from the lead's side."""

    def __init__(self, lead: Lead, id: str) -> None:
        self._lead = lead
        self.id = id

    def __repr__(self) -> str:
        return f"<Ticket {self.id}>"

    async def result(self) -> dict[str, Any]:
        """What ``fleet_collect`` says of it now."""
        return await self._lead.call("fleet_collect", ticket=self.id)

    async def status(self) -> str:
        """``completed``, ``backend_error`` ...; or where it is while it has not ended: ``running``, ``held`` ..."""
        result = await self.result()
        return str(result.get("status", result["state"]))


class Lead:
    """A lead: the tools, and the pane that nudges go to."""

    def __init__(self, fleet: Fleet, caller: Caller, pane: MemoryPane | None) -> None:
        self._fleet = fleet
        self.caller = caller
        self.pane = pane

    async def result(self, tool: str, **arguments: Any) -> ToolResult:
        """Call a tool; its whole result."""
        return await self._fleet.tools.call(self.caller, tool, arguments)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; its data, refused or not."""
        return dict((await self.result(tool, **arguments)).structured)

    async def send(self, name: str, prompt: str = "do it", **more: Any) -> Ticket:
        """Send a prompt and let a second pass, in which it arrives if the member is free."""
        sent = await self.call("fleet_send", target=name, prompt=prompt, **more)
        assert "ticket" in sent, sent
        await self._fleet.advance(seconds=1)
        return Ticket(self, str(sent["ticket"]))

    @property
    def agent(self) -> LeadAgent:
        """The program in its pane."""
        assert self.pane is not None, "this lead has no pane"
        assert isinstance(self.pane.program, LeadAgent)
        return self.pane.program

    @property
    def screen(self) -> tuple[str, ...]:
        """What its pane shows."""
        assert self.pane is not None, "this lead has no pane"
        return self.pane.frame(styled=False).lines

    @property
    def nudges(self) -> list[str]:
        """What fleetd has typed into its pane and submitted, in order."""
        return [prompt for prompt in self.agent.prompts if prompt.startswith("[fleetd]")]


class Member:
    """A member and its pane."""

    def __init__(self, fleet: Fleet, name: str, target: str, pane: MemoryPane) -> None:
        self._fleet = fleet
        self.name, self.target, self.pane = name, target, pane

    def __repr__(self) -> str:
        return f"<Member {self.name} {self.target}>"

    def shows(self, *lines: str, title: str | None = None) -> None:
        """Let its pane show these lines, in their raw columns, from now on; and a title, where one is given."""
        program = self.pane.program
        assert isinstance(program, Typewriter), "a demo agent draws its own screen: use .agent"
        program.lines = [row for line in lines for row in line.split("\n")]
        if title is not None:
            program.title = title

    @property
    def agent(self) -> ScriptedAgent:
        """The scripted demo agent in its pane, for profiles with ``agent: demo``."""
        assert isinstance(self.pane.program, ScriptedAgent), f"profile of {self.name} is no demo agent: use .shows"
        return self.pane.program

    @property
    def prompts(self) -> list[str]:
        """What was typed into it and submitted, in order."""
        program = self.pane.program
        assert isinstance(program, Typewriter | ScriptedAgent)
        return list(program.prompts)

    @property
    def screen(self) -> tuple[str, ...]:
        return self.pane.frame(styled=False).lines

    async def reports(self, event: Mapping[str, Any]) -> None:
        """Its program's hook hands an event to fleetd; the agent's adapter says what it means."""
        member = await self._fleet.actors.roster.ask(Find(self.target))
        await take(member.resolver, event)

    def dies(self, status: int | None = None, *, signal: int | None = None) -> None:
        """Its process ends; with neither, nobody can say how."""
        self.pane.end(status, signal)

    async def state(self) -> str:
        """``idle``, ``busy``, ``backend_error`` ..."""
        return (await self._fleet.state_of(self.target))[0]

    async def reason(self) -> str:
        """Why it failed; empty where it did not."""
        return (await self._fleet.state_of(self.target))[1]

    async def look(self) -> tuple[str, ...]:
        """Its screen as fleetd captures it."""
        return (await self._fleet.actors.panes.ask(Look(await self._fleet.pane_of(self.target)))).lines

    async def fails(self, text: str | None = None, *, after: float = 3.0, lead: str = "lead") -> Ticket:
        """A turn of a demo agent whose backend fails, from the prompt to the end."""
        ticket = await self._fleet.lead(lead).send(self.name)
        await self._fleet.advance(seconds=after)
        self.agent.fails(*([] if text is None else [text]))
        await self._fleet.advance(seconds=1)
        return ticket

    async def answers(self, text: str = "done", *, after: float = 3.0, lead: str = "lead") -> Ticket:
        """A turn of a demo agent that ends well, from the prompt to the end."""
        ticket = await self._fleet.lead(lead).send(self.name)
        await self._fleet.advance(seconds=after)
        self.agent.answers(text)
        await self._fleet.advance(seconds=1)
        return ticket
