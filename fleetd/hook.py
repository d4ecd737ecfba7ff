"""``fleetd hook``: hands one event of an agent program to the daemon.

An agent runs this for each event of a turn, and waits for it. So it is one file that imports nothing but the standard
library and is started without ``site``; it prints nothing to standard output, where programs look for decisions, and
ends with 0 whatever happens: a daemon that is away must not stop anybody's turn. The screen decides then.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

#: Bytes read from standard input.
EVENT_BYTES = 8 * 1024 * 1024
#: Bytes of one text in an event that are passed on: the daemon takes messages of 1 MiB.
TEXT_BYTES = 256 * 1024
#: Bytes of a whole message.
MESSAGE_BYTES = 1024 * 1024
#: How long the daemon may take, in seconds.
ANSWER_S = 3.0


def cut(value: Any) -> Any:
    """The event with each text bounded."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore")
    if isinstance(value, list):
        return [cut(each) for each in value]
    if isinstance(value, dict):
        return {key: cut(each) for key, each in value.items()}
    return value


def message(event: dict[str, Any]) -> bytes:
    """One line of the daemon's protocol. An event that is still too long loses its largest parts."""
    event = cut(event)
    while True:
        request = {"jsonrpc": "2.0", "id": 1, "method": "fleetd/hook", "params": {"event": event}}
        line = json.dumps(request).encode() + b"\n"
        if len(line) <= MESSAGE_BYTES:
            return line
        event.pop(max(event, key=lambda key: len(json.dumps(event[key]))))


def main(argv: list[str]) -> int:
    """Read an event from standard input and hand it over. Returns the exit code, which is 0."""
    try:
        event = dict(json.loads(sys.stdin.buffer.read(EVENT_BYTES)))
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(ANSWER_S)
            door.connect(argv[0])
            door.sendall(message(event))
            door.recv(4096)
    except (OSError, ValueError, TypeError) as exc:
        print(f"fleetd hook: the event was not handed over: {exc}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # nothing to tear down, and the agent waits
