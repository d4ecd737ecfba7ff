"""One real program against its fake backend: what the shared suite needs to know of it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, Final

from tests.live.agents.backend import Backend
from tests.live.agents.programs import Package

#: A report that quotes what failures look like, and is a good answer.
REPORT: Final = """The build is fine. While reading the log I found these lines, all of them old:

- API Error: 529 Overloaded. This is a server-side issue, usually temporary.
- You've hit your usage limit. Try again at 7:01 PM.

```
API Error: 503 Service Unavailable
[API Error: You have exhausted your daily quota on this model.]
Rate limit reached
```

Nothing of the kind happened in this run."""


class Rig(ABC):
    """A program, set up unattended in a home of its own.

    Args:
        directory: private to the test; the home goes below it.
        program: the installed program.
    """

    #: ``agent:`` in the profile.
    agent: ClassVar[str]
    package: ClassVar[Package]
    #: Starts the fake API that the program talks to: :func:`backend.anthropic` or :func:`backend.openai_gemini`.
    start_backend: ClassVar[Callable[[Path], AbstractAsyncContextManager[Backend]]]
    #: What a person presses to allow what a permission dialog asks for.
    approve_keys: ClassVar[tuple[str, ...]] = ("Enter",)
    #: How long a turn of this program may take, with start-up, on a noisy machine, in seconds.
    turn_s: ClassVar[float] = 90.0
    #: Whether an exhausted quota of the fake backend names the time of its return.
    names_reset: ClassVar[bool] = False

    def __init__(self, directory: Path, program: Path, backend: Backend) -> None:
        self.directory, self.program, self.backend = directory, program, backend
        self.home = directory / "home"
        self.work = directory / "work"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Write the user's settings into :attr:`home`, as a user of the program has them."""

    @abstractmethod
    def env(self) -> Mapping[str, str]:
        """The program's environment beside HOME and PATH: dummy key, loopback URL."""

    def argv(self, *, asks: bool = False) -> list[str]:
        """The command; with ``asks``, one that asks before it runs anything."""
        return [str(self.program)]

    def whole_env(self) -> dict[str, str]:
        """HOME and the XDG folders below it, so that nothing of the user's own is touched."""
        return {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            **self.env(),
        }

    def lead_env(self) -> dict[str, str]:
        """The environment of a lead's program: nothing of this machine's own but where its programs are."""
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color", **self.whole_env()}

    @abstractmethod
    def lead_argv(self, bridge: list[str]) -> list[str]:
        """The command of a lead with ``fleetd mcp`` as its MCP server; may write settings first.

        Its MCP client must be started with the program, so that fleetd knows the pane before any tool is called.
        """

    # -- what the backend does from now on -----------------------------------------------------------------------

    @abstractmethod
    async def answers(self, text: str) -> None: ...

    @abstractmethod
    async def fails(self) -> None:
        """Every request: 529 or 503."""

    @abstractmethod
    async def exhausts(self) -> None:
        """Every request: the quota is used up."""

    @abstractmethod
    async def wants_permission(self) -> None:
        """The next request: a tool call that needs a person's permission; then a plain answer."""

    @abstractmethod
    async def calls(self, tools: list[tuple[str, dict[str, object]]], then: str) -> None:
        """The next requests: these calls of fleetd's tools, one a request, then the answer ``then``."""

    @abstractmethod
    async def prompts(self) -> list[str]:
        """The texts of the user's messages in the newest main request, oldest first, whole."""

    @abstractmethod
    async def tool_results(self) -> str:
        """The results of tool calls in the newest request, as one text."""

    def profiles(self) -> str:
        """``fleetd.yaml``: ``one`` and ``two`` on one credential, and ``asks``, which asks for permission."""
        env = "".join(f"      {name}: {_quoted(value)}\n" for name, value in self.whole_env().items())
        text = "outage: {coolOffSeconds: 6}\nhost: tmux\nprofiles:\n"
        for name, asks in (("one", False), ("two", False), ("asks", True)):
            words = ", ".join(_quoted(word) for word in self.argv(asks=asks))
            text += (
                f"  {name}:\n    agent: {self.agent}\n    command: [{words}]\n    credentialId: shared\n"
                f'    capacity: 4\n    errorPattern: "@{self.agent}"\n    exhaustedPattern: "@{self.agent}"\n'
                f"    env:\n{env}"
            )
        return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
