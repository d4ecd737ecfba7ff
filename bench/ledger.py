"""Every send that was tried, what the daemon said of it, and whether that is the truth."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from stage import Stage


@dataclass
class Send:
    """A prompt that asks for an answer nobody else gives."""

    answer: str
    prompt: str
    target: str
    #: Its ticket, once that was acknowledged.
    ticket: str = ""
    #: The daemon said no: nothing of it may ever be seen.
    refused: bool = False
    #: The prompt asks for a failure of the backend.
    fails: bool = False
    result: dict[str, Any] = field(default_factory=dict)


@dataclass
class Ledger:
    """Every send that was tried, and what is wrong with what came of it."""

    stage: Stage
    sends: list[Send] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def make(self, target: str, work_s: float, *, fails: bool = False) -> Send:
        """A new prompt for a member."""
        answer = f"answer-{len(self.sends) + 1}-{os.urandom(4).hex()}"
        step = f"fail API Error: 529 {answer}" if fails else f"say {answer}"
        send = Send(answer, f"demo: work {work_s:.2f}; {step}", target, fails=fails)
        self.sends.append(send)
        return send

    async def send(self, send: Send, **more: Any) -> dict[str, Any]:
        """Send it; its ticket is known only where the daemon gave one."""
        said = await self.stage.call("fleet_send", target=send.target, prompt=send.prompt, **more)
        if "ticket" in said:
            send.ticket = said["ticket"]
        else:
            send.refused = True
        return said

    @property
    def acknowledged(self) -> list[Send]:
        return [send for send in self.sends if send.ticket]

    @property
    def open(self) -> list[Send]:
        return [send for send in self.acknowledged if not send.result]

    def wrong(self, what: str) -> None:
        self.violations.append(what)
        print(f"VIOLATION: {what}", flush=True)

    def took(self, send: Send, result: dict[str, Any]) -> None:
        """Take a send's result; one that was known already must say the same."""
        if send.result and (send.result["status"], send.result["text"]) != (result.get("status"), result.get("text")):
            self.wrong(f"{send.ticket} ended {send.result} and later {result}")
        send.result = result
        status, text, reason = result["status"], result["text"], result.get("reason", "")
        if status == "completed" and (send.fails or text != send.answer):
            self.wrong(f"{send.ticket} asked for {send.prompt!r} and completed with {text!r}")
        if status != "completed" and not reason:
            self.wrong(f"{send.ticket} ended {status} without a reason")
        if status == "backend_error" and not send.fails:
            self.wrong(f"{send.ticket} asked for {send.prompt!r} and ended {status}: {reason}")

    def judge(self) -> None:
        """Compare what the daemon said of every send with what members saw."""
        seen = Counter(prompt for _, prompt in self.stage.witnessed()[1])
        known = {send.prompt: send for send in self.sends}
        for prompt, times in seen.items():
            if prompt not in known:
                self.wrong(f"a member was told what nobody sent: {prompt!r}")
            elif times > 1:
                self.wrong(f"submitted {times} times: {prompt!r}")
        for send in self.sends:
            if send.refused and seen[send.prompt]:
                self.wrong(f"the daemon took no such send, and a member was told {send.prompt!r}")
        for send in self.acknowledged:
            status = send.result.get("status")
            if status is None:
                self.wrong(f"acknowledged and without an end: {send.ticket} {send.prompt!r}")
            elif status in ("completed", "backend_error") and not seen[send.prompt]:
                self.wrong(f"{send.ticket} ended {status}, and no member was told {send.prompt!r}")
            elif status == "refused" and seen[send.prompt]:
                self.wrong(f"{send.ticket} ended refused, and a member was told {send.prompt!r}")

    def ends(self) -> dict[str, int]:
        """How many sends ended how."""
        return dict(Counter(send.result.get("status", "open") for send in self.acknowledged).most_common())
