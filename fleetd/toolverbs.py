"""The verbs of the command line that are one tool each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final


class ToolVerb:
    """A verb that is one tool: which arguments stand in place, and which are options."""

    def __init__(
        self,
        tool: str,
        *places: tuple[str, str],
        options: Mapping[str, tuple[type, str]] | None = None,
        flags: Mapping[str, str] | None = None,
        help: str,
    ) -> None:
        self.tool = tool
        #: Argument name in the tool, and how argparse counts it: ``""`` one, ``?`` optional, ``+`` several.
        self.places = places
        self.options = options or {}
        self.flags = flags or {}
        self.help = help

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Let the parser take the verb's arguments."""
        for place, count in self.places:
            if count:
                parser.add_argument(place, nargs=count, metavar=place.rstrip("s").upper())
            else:
                parser.add_argument(place, metavar=place.upper())
        for option, (kind, text) in self.options.items():
            parser.add_argument(f"--{_dashed(option)}", dest=option, type=kind, help=text)
        for flag, text in self.flags.items():
            parser.add_argument(f"--{_dashed(flag)}", dest=flag, action="store_true", help=text)

    def params(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The tool's arguments, from those of the command line."""
        names = [*(place for place, _ in self.places), *self.options, *self.flags]
        params = {name: value for name in names if (value := getattr(arguments, name)) not in (None, False)}
        for words in ("prompt", "text"):
            if isinstance(params.get(words), list):
                params[words] = sys.stdin.read() if params[words] == ["-"] else " ".join(params[words])
        if self.tool == "fleet_spawn":
            params["cwd"] = str(Path(params.get("cwd", ".")).absolute())
        return params


def _dashed(name: str) -> str:
    return "".join(f"-{ch.lower()}" if ch.isupper() else ch for ch in name)


TOOL_VERBS: Final[Mapping[str, ToolVerb]] = {
    "list": ToolVerb("fleet_list", help="members, room, sends and questions"),
    "profiles": ToolVerb("fleet_profiles", help="profiles, and which credentials are shut"),
    "spawn": ToolVerb(
        "fleet_spawn",
        ("profile", "?"),
        options={
            "name": (str, "a name for the member"),
            "cwd": (str, "the directory to work in (default: this one)"),
            "prompt": (str, "the first prompt"),
        },
        flags={"worktree": "work in a fresh git worktree"},
        help="start a member",
    ),
    "send": ToolVerb(
        "fleet_send",
        ("target", ""),
        ("prompt", "+"),
        options={
            "waitSeconds": (float, "wait this long for the answer, at most 50"),
            "timeoutSeconds": (int, "then the send ends timed_out"),
        },
        help="give a member a prompt (- reads it from standard input)",
    ),
    "wait": ToolVerb(
        "fleet_wait",
        ("tickets", "+"),
        options={"waitSeconds": (float, "wait at most this long (default: until they end)")},
        flags={"all": "wait for every one instead of the first"},
        help="wait for sends to end",
    ),
    "collect": ToolVerb("fleet_collect", ("ticket", ""), options={"page": (int, "of a long answer")}, help="a result"),
    "peek": ToolVerb(
        "fleet_peek", ("target", ""), options={"lines": (int, "how many of the last lines")}, help="a member's screen"
    ),
    "answer": ToolVerb("fleet_answer", ("question", ""), ("text", "+"), help="answer a member's question"),
    "interrupt": ToolVerb("fleet_interrupt", ("target", ""), help="stop a member's turn"),
    "release": ToolVerb("fleet_release", ("target", ""), help="end a member"),
    "explain": ToolVerb(
        "fleet_explain", ("target", "?"), options={"ticket": (str, "a send instead")}, help="why, or what it shows now"
    ),
    "whoami": ToolVerb("fleet_whoami", help="who the daemon takes you for"),
}
