"""Codex against the fake OpenAI API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.leads import Join
from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.config import load
from fleetd.daemon import Daemon
from fleetd.hosts.tmux import TmuxHost
from tests.live.agents import backend
from tests.live.agents.programs import CODEX
from tests.live.agents.rig import Rig
from tests.live.agents.suite import LONG, AgentSuite
from tests.live.running import Running, private_run, serving

pytestmark = pytest.mark.live


class CodexRig(Rig):
    """A model provider of the user's own, with a key, and the work's folder trusted."""

    agent = "codex"
    package = CODEX
    start_backend = staticmethod(backend.openai_gemini)
    names_reset = True

    def prepare(self) -> None:
        # A home below the folder for temporary files is warned about.
        (self.home / "tmp").mkdir()
        self._configure()

    def _configure(self, more: str = "") -> None:
        (self.home / ".codex").mkdir(exist_ok=True)
        (self.home / ".codex/config.toml").write_text(
            'model = "gpt-5"\nmodel_provider = "fake"\ncheck_for_update_on_startup = false\n'
            '[model_providers.fake]\nname = "Fake"\nenv_key = "FAKE_KEY"\nwire_api = "responses"\n'
            f'base_url = "{self.backend.url}/v1"\n[projects."{self.work}"]\ntrust_level = "trusted"\n{more}'
        )

    def env(self) -> Mapping[str, str]:
        return {"FAKE_KEY": "sk-dummy-not-a-key", "TMPDIR": str(self.home / "tmp")}

    def lead_argv(self, bridge: list[str]) -> list[str]:
        """As its user has it: the server in the user's own settings."""
        command, *args = (json.dumps(word) for word in bridge)
        self._configure(
            f"[mcp_servers.fleetd]\ncommand = {command}\nargs = [{', '.join(args)}]\ntool_timeout_sec = 300\n"
            'default_tools_approval_mode = "approve"\n'
        )
        return [str(self.program), "--no-daemon", "--no-alt-screen"]

    async def answers(self, text: str) -> None:
        await self.behave("ok", text=text)

    async def fails(self) -> None:
        await self.behave("503")

    async def exhausts(self) -> None:
        await self.behave("429usage")

    async def wants_permission(self) -> None:
        await self.behave("tool", text="It ran.", tool_cmd="touch it")

    async def calls(self, tools: list[tuple[str, dict[str, object]]], then: str) -> None:
        script = [{"mode": "tool", "tool_name": name, "tool_args": json.dumps(given)} for name, given in tools]
        await self.behave("ok", text=then, script=script, tool_ns="mcp__fleetd")

    async def prompts(self) -> list[str]:
        return [
            part["text"] for item in await self._items("message") if item["role"] == "user" for part in item["content"]
        ]

    async def tool_results(self) -> str:
        return json.dumps([item["output"] for item in await self._items("function_call_output")], ensure_ascii=False)

    async def behave(self, mode: str, **more: object) -> None:
        """What the backend does from now on, by its own words."""
        await self.backend.post("/ctl", {"mode": mode, "script": [], "tool_name": None, "tool_args": None, **more})

    async def has_tools(self) -> bool:
        """Whether the newest request offers fleetd's tools: a turn does not wait for a server that still starts."""
        newest = (await self.backend.get("/last")).get("main", {})
        return "fleet_whoami" in json.dumps(newest.get("tools", []))

    async def requests(self) -> list[dict[str, Any]]:
        """The turns' requests so far, helper requests left out."""
        return [request for request in await self.backend.get("/log") if request.get("side") is False]

    async def _items(self, kind: str) -> list[dict[str, Any]]:
        newest = (await self.backend.get("/last")).get("main", {})
        return [item for item in newest.get("input", []) if item["type"] == kind]


class TestCodex(AgentSuite):
    rig_type = CodexRig

    @pytest.fixture
    def codex(self, rig: Rig) -> CodexRig:
        assert isinstance(rig, CodexRig)
        return rig

    async def test_the_rollout_says_how_each_turn_ended(self, codex: CodexRig, running: Running) -> None:
        """The screen agrees, but it is not asked."""
        ends = [
            ("ok", "completed", None),
            ("401", "failed", "auth"),
            ("403", "failed", "auth"),
            ("400", "failed", "request"),
            ("400ctx", "failed", "request"),
            ("404", "failed", "request"),
            ("empty", "failed", None),
            ("drop", "backend_error", None),
        ]
        for mode, status, failure in ends:
            target = await self.member(codex, running)
            await codex.behave(mode, text="It is done.")
            result = await self.turn(codex, running, target)
            found = (result["status"], result.get("failureKind"), result.get("source"))
            assert found == (status, failure, "transcript"), f"{mode} {result}"
            await running.call("fleet_release", target=target)

    async def test_an_answer_that_looks_like_a_failure_is_the_answer(self, codex: CodexRig, running: Running) -> None:
        """Nothing on the screen tells them apart but the column."""
        target = await self.member(codex, running)
        await codex.answers("■ unexpected status 503 Service Unavailable: the engine is overloaded")
        result = await self.turn(codex, running, target)
        assert (result["status"], result["source"]) == ("completed", "transcript")
        assert result["text"] == "■ unexpected status 503 Service Unavailable: the engine is overloaded"

    async def test_escape_in_the_pane_interrupts_the_turn(self, codex: CodexRig, running: Running) -> None:
        target = await self.member(codex, running)
        await codex.behave("ok-slow", text="A long answer. " * 40)
        ticket = await running.send(target, "Please take your time.")
        pane = await running.pane(target)

        async def streams() -> bool:
            return any("A long answer." in line for line in (await running.screen(pane)).lines)

        await running.until(streams, "its answer streams", within_s=codex.turn_s)
        await running.press(target, "Escape")
        result = await running.result(ticket, within_s=codex.turn_s)
        assert (result["status"], result["source"]) == ("interrupted", "transcript"), result
        await codex.answers("Here I am.")
        assert (await self.turn(codex, running, target))["text"] == "Here I am."

    async def test_its_lead_stops_a_turn_and_gives_it_another(self, codex: CodexRig, running: Running) -> None:
        target = await self.member(codex, running)
        await codex.behave("ok-slow", text="A long answer. " * 40)
        ticket = await running.send(target, "Please take your time.")
        await running.until_state(target, "busy", within_s=codex.turn_s)
        await running.call("fleet_interrupt", target=target)
        assert (await running.result(ticket, within_s=codex.turn_s))["status"] == "interrupted"
        await codex.answers("The next.")
        assert (await self.turn(codex, running, target, "Please do this."))["text"] == "The next."
        assert (await codex.prompts())[-1] == "Please do this."

    async def test_a_refused_connection_is_retried_until_the_time_is_up(
        self, codex: CodexRig, running: Running
    ) -> None:
        """The program waits for the network for ever, and nothing that it prints is an end."""
        target = await self.member(codex, running)
        await codex.behave("refuse")
        ticket = await running.send(target, "Please look into it.", timeoutSeconds=20)

        async def retries() -> bool:
            return any("retrying" in row for row in (await running.call("fleet_list"))["members"])

        await running.until(retries, "the member retries", within_s=codex.turn_s)
        assert (await running.result(ticket, within_s=codex.turn_s))["status"] == "timed_out"
        await codex.answers("There it is.")

        async def answered() -> bool:
            return (await running.call("fleet_collect", ticket=ticket)).get("lateReply") == "There it is."

        await running.until(answered, "the answer comes late", within_s=codex.turn_s)

    async def test_a_member_answers_with_fleet_reply(self, codex: CodexRig, running: Running) -> None:
        target = await self.member(codex, running)
        await codex.answers("Here.")
        with trio.fail_after(codex.turn_s):
            while not await codex.has_tools():
                await self.turn(codex, running, target)
        await codex.calls([("fleet_reply", {"text": "By tool."})], then="I have replied.")
        result = await self.turn(codex, running, target)
        assert (result["status"], result["source"], result["text"]) == ("completed", "reply", "By tool."), result
        await running.until_state(target, "done", within_s=codex.turn_s)
        assert "By tool." not in await codex.tool_results()

    async def test_its_retries_are_shown_while_the_turn_runs(self, codex: CodexRig, running: Running) -> None:
        target = await self.member(codex, running)
        await codex.fails()
        ticket = await running.send(target, "Please look into it.")

        async def retries() -> bool:
            return any("retrying" in row for row in (await running.call("fleet_list"))["members"])

        await running.until(retries, "the member retries", within_s=codex.turn_s)
        assert (await running.result(ticket, within_s=codex.turn_s))["status"] == "backend_error"

    async def test_a_persons_own_turns_are_not_ours(self, codex: CodexRig, running: Running) -> None:
        target = await self.member(codex, running)
        pane = await running.pane(target)
        await codex.fails()
        await self.types(codex, running, target, "What a person asks, and what fails.")

        async def failed() -> bool:
            return any(line.startswith("■ ") for line in (await running.screen(pane)).lines)

        await running.until(failed, "the person's turn has failed", within_s=codex.turn_s)
        assert await running.state(target) == "idle"
        await codex.behave("ok-slow", text="What only the person asked for, a long text. " * 3)
        await self.types(codex, running, target, "What a person asks, and what takes long.")
        ticket = await running.send(target, "What the lead asks.")
        await codex.answers("What the lead asked for.")
        result = await running.result(ticket, within_s=codex.turn_s)
        assert (result["status"], result["text"]) == ("completed", "What the lead asked for."), result
        assert (await codex.prompts())[-1] == "What the lead asks."

    async def test_prompts_arrive_whole_and_once_and_right_after_the_start(
        self, codex: CodexRig, running: Running
    ) -> None:
        target = await running.spawn("one", cwd=str(codex.work))
        await codex.answers("Read.")
        ten = "\n".join(f"{n}\tline of ten, naïve 漢字 🙂  with two blanks" for n in range(10))
        for prompt in ("One line.", ten, LONG):
            assert (await self.turn(codex, running, target, prompt))["status"] == "completed"
            assert [text for text in await codex.prompts() if text == prompt] == [prompt]
        await self.turn(codex, running, target, "/quit is no command here")
        assert (await codex.prompts())[-1] == "Task: /quit is no command here"

    async def test_a_turn_across_a_restart_of_the_daemon_is_settled_by_its_rollout(
        self, codex: CodexRig, tmp_path: Path
    ) -> None:
        run = private_run(tmp_path)
        path = tmp_path / "fleetd.yaml"
        path.write_text(codex.profiles())
        host = TmuxHost(run)
        daemon = Daemon(run, load(path.read_text(), shipped=ADAPTERS), path, host)
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run)
            try:
                running = await led(Running(daemon), codex)
                target = await self.member(codex, running)
                await codex.behave("ok-slow", text="A long answer, of two daemons. " * 8)
                ticket = await running.send(target, "Please take your time.")
                await running.until_state(target, "busy", within_s=codex.turn_s)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await host.kill_server()
                raise
            daemon.end()
        async with serving(tmp_path, codex.profiles(), TmuxHost(run)) as after:
            await led(after, codex)
            result = await after.result(ticket, within_s=codex.turn_s)
            assert (result["status"], result["source"]) == ("completed", "transcript"), result
            assert result["text"] == "A long answer, of two daemons. " * 8
            await codex.fails()
            assert (await self.turn(codex, after, target))["status"] == "backend_error"

    async def test_a_folder_that_nobody_trusts_blocks_until_a_person_does(
        self, codex: CodexRig, running: Running
    ) -> None:
        other = codex.directory / "other"
        await trio.run_process(["git", "init", "-q", str(other)])
        target = await running.spawn("one", cwd=str(other))
        await codex.answers("Trusted.")
        await running.until_state(target, "blocked", within_s=codex.turn_s)
        ticket = await running.send(target, "This must not answer the dialog.")
        await running.press(target, "Enter")
        assert (await running.result(ticket, within_s=codex.turn_s))["text"] == "Trusted."

    async def types(self, codex: CodexRig, running: Running, target: str, text: str) -> None:
        """What a person does who has attached: type a prompt, submit it, and see its turn begin."""
        pane = await running.pane(target)
        seen = len(await codex.requests())

        async def begun() -> bool:
            return len(await codex.requests()) > seen

        await running.daemon.host.paste(pane, text)
        await trio.sleep(1)  # it swallows an Enter that comes at once
        await running.press(target, "Enter")
        await running.until(begun, "the person's turn has begun", within_s=codex.turn_s)


async def led(running: Running, codex: CodexRig) -> Running:
    """A daemon's hands as those of a lead that it knows."""
    running.lead = Caller(Role.LEAD, await running.daemon.fleet.leads.ask(Join("suite")), str(codex.work))
    return running
