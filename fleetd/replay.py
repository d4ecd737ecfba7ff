"""``fleetd replay``: saved panes through the code that production runs."""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from actors.classify import Kind, Verdict, classify
from actors.patterns import LEGACY, Pattern, Patterns
from actors.resolver import Setup
from actors.screen import Frame, Reading, Sent, State, clean_lines, columns
from actors.turn import spoken
from fleetd.agents import ADAPTERS
from fleetd.agents.adapter import Adapter
from fleetd.agents.generic import GenericGrammar
from fleetd.client import Refusal
from fleetd.config import ConfigError, find, read
from fleetd.launching import setup_of

#: A capture file larger than this is no pane, in bytes.
FILE_BYTES: Final = 4 * 1024 * 1024
_SGR: Final = re.compile("\x1b\\[[0-9;:]*m")


class Row(msgspec.Struct, frozen=True, rename="camel"):
    """One file's line of output."""

    file: str
    #: ``completed backend_error exhausted auth request failed interrupted blocked working idle``.
    verdict: str
    reason: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    line: str | UnsetType = UNSET
    resets_at: str | UnsetType = UNSET


_VERDICTS: Final = {
    Kind.EXHAUSTED: "exhausted",
    Kind.BACKEND_ERROR: "backend_error",
    Kind.INTERRUPTED: "interrupted",
    Kind.COMPLETED: "completed",
}


def shipped_setup(adapter: Adapter) -> Setup:
    """An agent's screens with its shipped patterns."""
    patterns = Patterns(
        exhausted=(Pattern(adapter.exhausted_pattern, f"@{adapter.name}"),),
        error=(Pattern(adapter.error_pattern, f"@{adapter.name}"),),
    )
    return Setup(adapter.grammar, patterns, adapter.typing)


def frame_of(text: str) -> Frame:
    """A saved pane as a frame; SGR sequences in it are kept beside the plain lines."""
    styled = clean_lines(text)
    lines = tuple(_SGR.sub("", line).rstrip() for line in styled)
    width = max((columns(line) for line in lines), default=0)
    return Frame(lines, width=max(width, 40), height=max(len(lines), 1), styled=styled if "\x1b[" in text else ())


def judge(name: str, frame: Frame, setup: Setup, baseline: Frame | None = None) -> Row:
    """Classify one pane as production would if it came to rest like this."""
    sent = None if baseline is None else Sent("", baseline)
    reading = setup.grammar.read(frame, sent)
    if reading.state is State.BUSY:
        return Row(name, "working")
    if reading.state is State.BLOCKED:
        return Row(name, "blocked")
    verdict = classify(reading, setup.patterns, width=frame.width, sent=sent, screen=frame.lines, fast=False)
    return _row(name, reading, verdict)


def _row(name: str, reading: Reading, verdict: Verdict) -> Row:
    if verdict.kind is Kind.STALE or (verdict.kind is Kind.EMPTY and not reading.echoed):
        return Row(name, "idle")
    if verdict.kind is Kind.EMPTY:
        return Row(name, "failed", "the turn ended without an answer", verdict.source)
    return Row(
        name,
        _VERDICTS.get(verdict.kind, "failed"),
        spoken(verdict.line) or UNSET,
        verdict.source,
        verdict.pattern or UNSET,
        verdict.line.rstrip() or UNSET,
    )


def replay(arguments: Namespace) -> int:
    """Print a line a file. The exit code says whether every file could be read, not what was found in it."""
    setup = _setup(arguments)
    baseline = None if arguments.baseline is None else _read(arguments.baseline)
    code = 0
    for path in arguments.files:
        try:
            frame = _read(path)
        except Refusal as refusal:
            print(f"fleetd: {refusal}", file=sys.stderr)
            code = 1
            continue
        row = judge(str(path), frame, setup, baseline)
        print(json.dumps(msgspec.to_builtins(row), ensure_ascii=False) if arguments.json else _text(row))
    return code


def _setup(arguments: Namespace) -> Setup:
    if arguments.agent is not None and arguments.profile is not None:
        raise Refusal("give --agent or --profile, not both", {})
    if arguments.agent is not None:
        adapter = ADAPTERS.get(arguments.agent)
        if adapter is None:
            raise Refusal(f"no agent is called {arguments.agent}: there are {', '.join(ADAPTERS)}", {})
        return shipped_setup(adapter)
    if arguments.profile is not None:
        return _profile_setup(arguments)
    return Setup(GenericGrammar(), LEGACY)


def _profile_setup(arguments: Namespace) -> Setup:
    path = find(arguments.config, os.environ, Path.cwd(), Path.home())
    if path is None:
        raise Refusal("there is no fleetd.yaml to take the profile from: give --config", {})
    try:
        profiles = read(path, shipped=ADAPTERS).profiles
    except ConfigError as bad:
        raise Refusal(str(bad), {}) from None
    if arguments.profile not in profiles:
        raise Refusal(f"{path} has no profile {arguments.profile}: there are {', '.join(profiles) or 'none'}", {})
    return setup_of(profiles[arguments.profile])


def _read(path: Path) -> Frame:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as exc:
        raise Refusal(f"{path} cannot be read: {exc.strerror}", {}) from None
    if len(data) > FILE_BYTES:
        raise Refusal(f"{path} is larger than {FILE_BYTES} bytes: a pane is not", {})
    return frame_of(data.decode("utf-8", "replace").replace("\r\n", "\n"))


def _text(row: Row) -> str:
    said: dict[str, Any] = msgspec.to_builtins(row)
    rest = "  ".join(f"{key}={value!r}" for key, value in said.items() if key not in ("file", "verdict"))
    return f"{row.file}: {row.verdict}{'  ' if rest else ''}{rest}"
