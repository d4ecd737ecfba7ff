"""The grammar of the command line: every verb, with what may stand behind it."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Final

from fleetd import __version__
from fleetd.toolverbs import TOOL_VERBS

DESCRIPTION: Final = (
    "Runs coding agents in terminals, hands them work, and never takes a failed turn for a finished one."
)


def build_parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    parser = argparse.ArgumentParser(prog="fleetd", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"fleetd {__version__}")
    parser.add_argument("--runtime-dir", help="where the socket is (default: $FLEETD_RUNTIME_DIR, then XDG)")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, help: str, *, json_output: bool = True) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help, description=help)
        if json_output:
            added.add_argument("--json", action="store_true", help="print one JSON object")
        return added

    up = verb("up", "start the daemon")
    up.add_argument("--config", type=Path, help="the configuration file")
    up.add_argument("--foreground", action="store_true", help="stay in this terminal (for a service manager)")
    down = verb("down", "stop the daemon")
    down.add_argument("--kill-members", action="store_true", help="end the members too")
    verb("status", "is there a daemon, and which")
    verb("reload", "read the configuration again")
    attach = verb("attach", "see and drive a member's terminal", json_output=False)
    attach.add_argument("target")
    record = verb("record", "save what a member's pane shows, without its secrets, for a bug report", json_output=False)
    record.add_argument("target")
    record.add_argument("--output", type=Path, help="the file to write (default: standard output)")
    replay = verb("replay", "classify saved panes through the code that production runs")
    replay.add_argument("files", nargs="+", type=Path, metavar="FILE")
    replay.add_argument("--agent", help="read them as this agent's screens, with its shipped patterns")
    replay.add_argument("--profile", help="read them as this profile's screens, with its patterns")
    replay.add_argument("--config", type=Path, help="where the profile stands")
    replay.add_argument("--now", type=_moment, metavar="TIME", help="when they were saved, in ISO 8601 (default: now)")
    replay.add_argument("--baseline", type=Path, help="what the pane showed before the prompt")
    demo = verb("demo", "watch the outage story on real panes", json_output=False)
    demo.add_argument("--host", choices=("tmux", "pty"), help="which terminal (default: tmux where there is one)")
    demo.add_argument("--fast", action="store_true", help="a shorter cool-off")
    verb("mcp", "serve MCP on standard input and output", json_output=False)
    verb("hook", "hand an event of an agent program (a JSON object on standard input) to the daemon", json_output=False)
    doctor = verb("doctor", "look whether fleetd can work here, and say what is missing")
    doctor.add_argument("--config", type=Path, help="the configuration file")
    init = verb("init", "write a first fleetd.yaml for the agents that are installed here", json_output=False)
    init.add_argument("file", nargs="?", type=Path, default=Path("fleetd.yaml"), help="default: ./fleetd.yaml")
    unit = verb("unit", "print a unit for systemd's user manager", json_output=False)
    unit.add_argument("--config", type=Path, help="the configuration file")
    verb("prompt", "print the block for a lead's own CLAUDE.md or AGENTS.md", json_output=False)

    for name, tool in TOOL_VERBS.items():
        added = verb(name, tool.help)
        tool.add_to(added)
    return parser


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone()
