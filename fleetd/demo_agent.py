"""The demo agent: a terminal program that behaves like a CLI coding agent, without a model and without an account.

``python -m fleetd.demo_agent``. It works for 2.5 s on any prompt and answers ``You said: ...``, unless the prompt holds
a line ``demo: STEP; STEP; ...``:

===================  ==============================================================================================
``work N``           work for N seconds; a script without ``work`` or ``fast`` works for 2.5 s first
``fast``             do not work: answer within 0.3 s, without a busy line
``say TEXT``         an answer block
``lines N``          an answer of N lines
``quote``            a valid report that quotes error lines in prose, in a list and in a code block
``fail [TEXT]``      the backend's error line, and no answer block; TEXT instead of ``API Error: 529 ...``: one that
                     begins with ``Not logged in`` or ``Bad request`` is no fault of the backend
``exhaust [TEXT]``   the used-up quota's line
``retry N``          a retry banner that counts N seconds down, then on with the work
``permission``       a dialog in place of the input box: 1, y or Enter goes on, 2 or Escape stops the turn
``hang``             busy for ever
``die [CODE]``       exit in mid-turn, with status 1 or CODE
``reply TEXT``       answer by the MCP tool ``fleet_reply``
``ask TEXT``         ask the lead by ``fleet_ask``, wait, and say what it answered
``call TOOL JSON``   call any MCP tool and show its structured result as an answer
===================  ==============================================================================================

Escape stops a running turn. What is typed while it runs stays in the input box. Ctrl-C twice or ``/exit`` ends it.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Generator, Iterator
from typing import Any, Final

from fleetd.demo_mcp import PROTOCOL, Bridge, BridgeGone
from fleetd.demo_screen import LIMIT, OVERLOADED, Painter, Story

WORK_S: Final = 2.5
FAST_S: Final = 0.2
#: Between two redraws of a running turn, and between two looks at the terminal's size at rest, in seconds.
TICK_S, REST_S = 0.1, 0.5
#: How soon a sequence follows its ESC byte; later it was the Escape key. In seconds.
ESCAPE_S: Final = 0.05
#: Between the two Ctrl-C that end the program, in seconds.
ARMED_S: Final = 2.0
#: Characters of a draft; what is typed beyond rings the bell.
DRAFT_CHARS: Final = 512 * 1024

STEPS: Final = "work|fast|say|lines|quote|fail|exhaust|retry|permission|hang|die|reply|ask|call"
SCRIPT: Final = re.compile(r"(?:^|\s)demo:\s*(\S.*)$", re.MULTILINE)
#: A semicolon ends a step only where another step follows, so that texts and JSON may hold some.
BETWEEN: Final = re.compile(rf";\s*(?=(?:{STEPS})\b|$)")
REPORT: Final = f"""The report is ready. The log says "API Error: 529 Overloaded" twice, and once:

- ✗ {OVERLOADED}
- ✗ {LIMIT}

```
✗ {OVERLOADED}
* Working… (3s · esc to interrupt)
✗ {LIMIT}
```

All of these come from the log. Nothing of the kind happened here."""

PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)")
#: The beginning of a sequence whose rest may still come.
UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
NAMES: Final = {"\r": "Enter", "\x03": "C-c", "\x15": "C-u", "\x7f": "BSpace", "\x08": "BSpace", "\x1b": "Escape"}

#: A turn, resumed on each tick.
Turn = Generator[None, None, None]
Result = dict[str, Any]


class Keyboard:
    """Bytes in, keys out: ``(name, "")`` for a key with a name, ``("text", ...)`` for characters and pastes."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    @property
    def unfinished(self) -> bool:
        """An ESC has come, and its meaning depends on what follows."""
        return bool(self._rest) and not self._rest.startswith(PASTE_START)

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        text, self._rest = self._rest + self._decode(data), ""
        while text:
            if text.startswith(PASTE_START):
                pasted, end, after = text.removeprefix(PASTE_START).partition(PASTE_END)
                if not end:
                    self._rest = text
                    return
                text = after
                yield "text", pasted.replace("\r\n", "\n").replace("\r", "\n")
            elif found := SEQUENCE.match(text):
                text = text[found.end() :]  # arrows and other keys that it has no use for
            elif UNFINISHED.fullmatch(text):
                self._rest = text
                return
            else:
                ch, text = text[0], text[1:]
                yield NAMES.get(ch, "text"), "" if ch in NAMES else ch

    def flush(self) -> Iterator[tuple[str, str]]:
        """Nothing followed: the ESC was the Escape key."""
        rest, self._rest = self._rest[1:], ""
        yield "Escape", ""
        yield from self.feed(rest.encode())


class Agent:
    """The program: keys change the story, a tick resumes the turn, and the painter shows what came of it."""

    def __init__(self) -> None:
        self.story = Story()
        self._keyboard = Keyboard()
        self._painter = Painter()
        self._turn: Turn | None = None
        self._bridge: Bridge | None = None
        self._armed_until = 0.0
        #: What the last dialog was answered.
        self._allowed = True
        self._retries = 0

    def run(self) -> int:
        before = termios.tcgetattr(0)
        tty.setraw(0)
        self._write(PASTE_ON)
        try:
            while True:
                width, height = os.get_terminal_size(1)
                self._write(self._painter.paint(self.story, width, height, time.monotonic()))
                if not self._take_keys():
                    return 0
                self._tick()
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            self._write(PASTE_OFF + "\r\n")
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            self._hang_up()

    def _write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(1, data) :]

    def _take_keys(self) -> bool:
        """Wait a moment for keys; false when the terminal has gone."""
        moving = self._turn is not None or self.story.armed
        patience = ESCAPE_S if self._keyboard.unfinished else TICK_S if moving else REST_S
        keys: Iterator[tuple[str, str]] = iter(())
        if select.select([0], [], [], patience)[0]:
            data = os.read(0, 65536)
            if not data:
                return False
            keys = self._keyboard.feed(data)
        elif self._keyboard.unfinished:
            keys = self._keyboard.flush()
        for name, text in keys:
            self._key(name, text)
        return True

    def _key(self, name: str, text: str) -> None:
        story = self.story
        if story.asking:
            if name in ("Escape", "C-c") or text == "2":
                self._allowed = story.asking = False
            elif name == "Enter" or text in ("1", "y"):
                self._allowed, story.asking = True, False
        elif name == "text":
            if len(story.draft) + len(text) > DRAFT_CHARS:
                self._write("\a")
            else:
                story.draft += "".join(ch for ch in text if ch in "\n\t" or ch.isprintable())
        elif name == "BSpace":
            story.draft = story.draft[:-1]
        elif name == "C-u":
            story.draft = ""
        elif name == "C-c":
            if story.armed:
                raise SystemExit(0)
            story.draft, story.armed = "", True
            self._armed_until = time.monotonic() + ARMED_S
        elif name == "Escape" and self._turn is not None:
            self._turn = None
            self._hang_up()
            story.interrupt()
        elif name == "Enter" and self._turn is None and story.draft.strip():
            if story.draft.strip() == "/exit":
                raise SystemExit(0)
            self._turn = self._work_on(story.submit())

    def _tick(self) -> None:
        if self.story.armed and time.monotonic() >= self._armed_until:
            self.story.armed = False
        if self._turn is not None:
            try:
                next(self._turn)
            except StopIteration:
                self._turn = None

    def _hang_up(self) -> None:
        """End the bridge, and with it a call that nobody waits for any more."""
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None

    # -- turns ---------------------------------------------------------------------------------------------------

    def _work_on(self, prompt: str) -> Turn:
        began, self._retries = time.monotonic(), 0
        found = SCRIPT.search(prompt)
        script = [step.partition(" ") for step in BETWEEN.split(found[1].rstrip("; "))] if found else []
        verbs = {verb for verb, _, _ in script}
        if "fast" not in verbs:
            self.story.begin("Working", began)
        yield from self._sleep(FAST_S if "fast" in verbs else 0.0 if "work" in verbs else WORK_S)
        try:
            for verb, _, text in script:
                yield from self._step(verb, text.strip())
                if not self._allowed:
                    self._allowed = True
                    return self.story.interrupt()
            if verbs <= {"fast", "work"}:
                self.story.say(f"You said: {prompt.strip().splitlines()[0]}")
        except BridgeGone as gone:
            self._hang_up()
            self.story.trouble(f"No tools: {gone}")
        except ValueError as bad:
            self.story.trouble(f"Bad script: {bad}")
        self.story.rest(time.monotonic() - began)

    def _step(self, verb: str, text: str) -> Turn:
        story = self.story
        match verb:
            case "work":
                yield from self._sleep(float(text or WORK_S))
            case "say":
                story.say(text)
            case "lines":
                story.say("\n".join(f"line {number} of a long answer" for number in range(1, int(text or 100) + 1)))
            case "quote":
                story.say(REPORT)
            case "fail":
                story.trouble(text or OVERLOADED)
            case "exhaust":
                story.trouble(text or LIMIT)
            case "retry":
                self._retries += 1
                story.begin("Working", time.monotonic())
                for left in range(int(text or 3), 0, -1):
                    story.retry(left, self._retries)
                    yield from self._sleep(1.0)
                story.retrying = ""
            case "permission":
                story.asking = True
                while story.asking:
                    yield
            case "hang":
                story.begin("Working", time.monotonic())
                while True:
                    yield
            case "die":
                raise SystemExit(int(text or 1))
            case "reply":
                result = yield from self._tool("fleet_reply", {"text": text})
                story.say(f"Refused: {_text_of(result)}" if result.get("isError") else "Answered with fleet_reply.")
            case "ask":
                yield from self._ask(text)
            case "call":
                tool, _, arguments = text.partition(" ")
                result = yield from self._tool(tool, json.loads(arguments or "{}"))
                story.say(json.dumps(result.get("structuredContent", _text_of(result)), ensure_ascii=False))
            case "fast":
                yield
            case _:
                raise ValueError(f"there is no step {verb}; the steps are {STEPS.replace('|', ' ')}")
        yield

    def _ask(self, text: str) -> Turn:
        result = yield from self._tool("fleet_ask", {"text": text})
        while (data := result.get("structuredContent", {})).get("stillWaiting"):
            result = yield from self._tool("fleet_ask", {"question": data["question"]})
        self.story.say(f"The lead says: {data['answer']}" if "answer" in data else f"Refused: {_text_of(result)}")

    def _sleep(self, seconds: float) -> Turn:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            yield

    def _tool(self, name: str, arguments: Result) -> Generator[None, None, Result]:
        self.story.begin("Working", time.monotonic())
        if self._bridge is None:
            self._bridge = Bridge()
            client = {"name": "fleetd-demo", "version": "1"}
            hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
            yield from self._response(self._bridge, "initialize", hello)
            self._bridge.notify("notifications/initialized")
        return (yield from self._response(self._bridge, "tools/call", {"name": name, "arguments": arguments}))

    def _response(self, bridge: Bridge, method: str, params: Result) -> Generator[None, None, Result]:
        number = bridge.request(method, params)
        while (response := bridge.response(number)) is None:
            yield
        if "error" in response:
            return {"isError": True, "content": [{"type": "text", "text": response["error"]["message"]}]}
        result: Result = response["result"]
        return result


def _text_of(result: Result) -> str:
    return " ".join(part.get("text", "") for part in result.get("content", ()))


if __name__ == "__main__":
    sys.exit(Agent().run())
