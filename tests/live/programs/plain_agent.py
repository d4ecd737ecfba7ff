"""Any program with an MCP client in a terminal: it starts the server in its arguments and echoes what is typed to it.

Nothing of fleetd is imported: it is what a stranger would write.
"""

import json
import subprocess
import sys


def main() -> None:
    bridge = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a-stranger", "version": "1"}}

    def say(message: dict[str, object]) -> None:
        assert bridge.stdin is not None
        bridge.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        bridge.stdin.flush()

    say({"id": 1, "method": "initialize", "params": hello})
    bridge.stdout.readline()
    say({"method": "notifications/initialized"})
    say({"id": 2, "method": "tools/call", "params": {"name": "fleet_whoami", "arguments": {}}})
    print("I am", json.loads(bridge.stdout.readline())["result"]["structuredContent"]["id"], flush=True)
    print("ready", flush=True)
    for line in sys.stdin:
        print("heard:", line.strip(), flush=True)
        if line.startswith("leave"):
            break


main()
