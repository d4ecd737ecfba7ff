"""Carries an agent's MCP messages to the daemon and back, across the daemon's restarts.

An agent starts its MCP servers once and keeps them for as long as it lives; the daemon comes and goes. The relay hides
what can be hidden and is honest about the rest:

* What was sent to a daemon that then went away is never sent again: nobody knows whether it was done. Its sender is
  told exactly that.
* What comes while there is no daemon waits for one, a bounded time, and is then refused.
* A daemon that is found again is told the handshake that the agent made with the one before, under an identifier of
  the relay's own, and the agent hears nothing of it.

Lines are passed on byte for byte. They are decoded only to know who waits for what.

A *link* is one connection to the daemon. Two loops share the state: one reads the agent, one keeps the link. Whoever
writes into the link has the *turn*, so what waited goes first and nothing overtakes it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from fleetd import jsonrpc
from fleetd.frames import BadFrame, LineReader, decode, encode
from fleetd.jsonrpc import Envelope, RequestId

log = logging.getLogger("fleetd.bridge")

#: Between attempts to reach the daemon, in seconds: at first and while a request waits, and at most.
REDIAL_FIRST_S: Final = 0.1
REDIAL_MOST_S: Final = 2.0
#: The same after the daemon has refused this client, unless a request comes.
REDIAL_REFUSED_S: Final = 30.0
#: How long a request waits for a daemon, in seconds; also the least time between two attempts to start one.
PATIENCE_S: Final = 5.0
#: Requests that may wait for a daemon.
MAX_WAITING: Final = 256

#: No daemon. Outside of what MCP reserves, and not -32000 or -32001, which clients use for failures of their own.
AWAY: Final = -32010
#: The daemon went away with the request.
OUTCOME_UNKNOWN: Final = -32011

REPLAY_ID: Final = "fleetd-bridge-handshake"


class Started(Protocol):
    """A daemon that was started, as :class:`subprocess.Popen` is."""

    def poll(self) -> int | None:
        """Its exit status; ``None`` while it runs."""
        ...


class _TurnedAway(Exception):
    """The daemon does not want this client. Carries the error that it sent."""

    def __init__(self, error: Envelope) -> None:
        super().__init__()
        self.error = error


class Relay:
    """One agent's messages.

    Args:
        source: what the agent writes.
        sink: what the agent reads.
        dial: connects to the daemon; raises :class:`OSError` when there is none.
        start: starts a daemon and returns at once.
    """

    def __init__(
        self,
        source: trio.abc.ReceiveStream,
        sink: trio.abc.SendStream,
        dial: Callable[[], Awaitable[trio.abc.Stream]],
        start: Callable[[], Started],
    ) -> None:
        self._source = LineReader(source)
        self._sink = sink
        self._sink_free = trio.Lock()
        self._dial = dial
        self._start = start
        self._nursery: trio.Nursery
        #: The link, while it takes requests.
        self._link: trio.abc.Stream | None = None
        self._heard = False  # the daemon, on this link
        self._turn = trio.Lock()
        #: Requests that were sent over the link and not answered: their methods.
        self._sent: dict[RequestId, str] = {}
        #: Requests that were not sent yet, in the order they came.
        self._waiting: dict[RequestId, tuple[str, bytes]] = {}
        self._wanted = trio.Event()
        #: The agent's last ``initialize``, and the last one that a daemon accepted.
        self._offered: Envelope | None = None
        self._accepted: Envelope | None = None
        self._initialized: bytes | None = None
        self._may_start = True
        self._started_at = float("-inf")
        self._daemon: Started | None = None
        #: Why there is no link, and what became of the daemon that was started.
        self._why = "it did not answer"
        self._fate = ""

    def __repr__(self) -> str:
        return f"<Relay {'linked' if self._link else 'away'}, {len(self._sent)} sent, {len(self._waiting)} waiting>"

    async def run(self) -> None:
        """Carry lines until the agent's output ends, or it does not read any more."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._keep_linked)
            await self._read_agent()
            self._nursery.cancel_scope.cancel()

    # -- the agent's side ----------------------------------------------------------------------------------------

    async def _read_agent(self) -> None:
        while True:
            try:
                line = await self._source.receive()
                if line is None:
                    return
                message = decode(line)
            except BadFrame as bad:
                await self._tell(encode(bad.answer()))
                continue
            async with self._turn:
                await self._forward(message, line)

    async def _forward(self, message: Envelope, line: bytes) -> None:
        method = message.get("method", "an answer")
        id = jsonrpc.id_of(message) if "method" in message else None
        if method == "initialize":
            self._offered = message
        elif method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled" and self._forget_cancelled(message):
            return
        if self._link is not None:
            if id is not None:
                self._sent[id] = method
            await self._write(self._link, line)
        elif id is not None:
            await self._hold(id, method, line)
        elif method != "notifications/initialized":
            log.warning("dropped %s: fleetd is away", method)

    def _forget_cancelled(self, message: Envelope) -> bool:
        """Nobody waits for that request any more, whatever becomes of it. True when it was never sent."""
        named = (message.get("params") or {}).get("requestId")
        if not isinstance(named, str | int):
            return False
        self._sent.pop(named, None)
        return self._waiting.pop(named, None) is not None

    async def _hold(self, id: RequestId, method: str, line: bytes) -> None:
        if len(self._waiting) >= MAX_WAITING:
            await self._fail(id, AWAY, f"fleetd is away, and {MAX_WAITING} requests wait for it: no more may")
            return
        held = self._waiting[id] = (method, line)
        self._wanted.set()
        self._nursery.start_soon(self._expire, id, held)

    async def _expire(self, id: RequestId, held: tuple[str, bytes]) -> None:
        await trio.sleep(PATIENCE_S)
        if self._waiting.get(id) is not held:
            return
        del self._waiting[id]
        why = f"fleetd is not there and did not come up within {PATIENCE_S:g} s ({self._why}{self._fate})"
        await self._fail(id, AWAY, f"{why}: run `fleetd up` in a terminal to see the reason, then call again")

    async def _fail(self, id: RequestId, code: int, message: str) -> None:
        await self._tell(encode(jsonrpc.failure(id, code, message)))

    async def _tell(self, line: bytes) -> None:
        """Write a line to the agent. When it does not read any more, everything ends here."""
        async with self._sink_free:
            try:
                await self._sink.send_all(line)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                log.warning("nobody reads what the bridge says: ending")
                self._nursery.cancel_scope.cancel()

    # -- the daemon's side ---------------------------------------------------------------------------------------

    async def _keep_linked(self) -> None:
        delay = REDIAL_FIRST_S
        while True:
            try:
                link = await self._dial()
            except OSError as exc:
                self._why = exc.strerror or str(exc)
                if self._daemon is not None and (status := self._daemon.poll()):
                    self._fate = f"; it was started and ended with status {status}"
                self._start_if_wanted()
            else:
                self._may_start = False
                async with link:
                    delay = await self._use(link) or delay
            with trio.move_on_after(REDIAL_FIRST_S if self._waiting else delay) as pause:
                await self._wanted.wait()
            self._wanted = trio.Event()
            delay = min(delay * 2, REDIAL_MOST_S) if pause.cancelled_caught else REDIAL_FIRST_S

    def _start_if_wanted(self) -> None:
        """Start a daemon: at first at once, later only for a request, so that one that was ended stays so."""
        now = trio.current_time()
        if not (self._may_start or self._waiting) or now - self._started_at < PATIENCE_S:
            return
        self._may_start, self._started_at, self._daemon, self._fate = False, now, None, ""
        try:
            self._daemon = self._start()
        except OSError as exc:
            self._fate = f"; it cannot be started: {exc}"
            log.warning("fleetd not started: %s", exc)

    async def _use(self, link: trio.abc.Stream) -> float | None:
        """Carry lines over one link until it breaks; return the pause after it, in seconds, if it was of any use."""
        lines = LineReader(link)
        self._heard = False
        refusal: Envelope | None = None
        try:
            if self._accepted is None or await self._replay(link, lines, self._accepted):
                async with self._turn:
                    await self._send_waiting(link)
                    self._link = link
                await self._read_link(lines)
        except BadFrame as bad:
            log.warning("the daemon sent what is no message: %s", bad)
        except _TurnedAway as no:
            refusal = no.error
            self._why = f"it refused this client: {refusal.get('message')}"
            log.warning("fleetd refused this client: %s", refusal.get("message"))
        self._link = None
        await self._settle(refusal)
        return REDIAL_REFUSED_S if refusal else REDIAL_FIRST_S if self._heard else None

    async def _replay(self, link: trio.abc.Stream, lines: LineReader, initialize: Envelope) -> bool:
        """Tell a new daemon the handshake that was made with the last one; say whether the link has held."""
        with trio.move_on_after(PATIENCE_S):
            await self._write(link, encode(initialize | {"id": REPLAY_ID}).rstrip(b"\n"))
            while (line := await lines.receive()) is not None:
                message = decode(line)
                if "method" in message:
                    await self._tell(line + b"\n")
                elif "error" in message:
                    raise _TurnedAway(message["error"])
                else:
                    self._heard = True
                    if self._initialized is not None:
                        await self._write(link, self._initialized)
                    return True
        self._why = "it did not answer the handshake"
        return False

    async def _send_waiting(self, link: trio.abc.Stream) -> None:
        while self._waiting:
            id = next(iter(self._waiting))
            method, line = self._waiting.pop(id)
            self._sent[id] = method
            await self._write(link, line)

    async def _read_link(self, lines: LineReader) -> None:
        """Pass on what the daemon says, until it has gone."""
        while (line := await lines.receive()) is not None:
            message = decode(line)
            if "method" not in message and message["id"] is None:
                if not self._heard:
                    # Said before it has read anything: nothing that was sent has been done.
                    raise _TurnedAway(message["error"])
                log.warning("the daemon could not read a line: %s", message["error"])
                continue
            self._heard = True
            if "method" not in message:
                method = self._sent.pop(message["id"], None)
                if method == "initialize" and "result" in message:
                    self._accepted = self._offered
            await self._tell(line + b"\n")

    async def _settle(self, refusal: Envelope | None) -> None:
        """Answer what was sent and will never be answered by the daemon; a refusal answers what still waits, too."""
        error = refusal or {
            "code": OUTCOME_UNKNOWN,
            "message": "outcome unknown: the daemon went away after it got this request; look before you repeat it",
        }
        owed = [*self._sent, *(self._waiting if refusal else ())]
        self._sent, self._waiting = {}, {} if refusal else self._waiting
        for id in owed:
            await self._tell(encode({"jsonrpc": "2.0", "id": id, "error": error}))

    async def _write(self, link: trio.abc.Stream, line: bytes) -> None:
        """Write into the link. That it has broken is for its reader to find, who then answers what was sent."""
        try:
            await link.send_all(line + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as gone:
            log.debug("link broke while a line was sent", extra={"fleet_reason": str(gone)})
