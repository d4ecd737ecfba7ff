"""``fleetd replay``: saved panes through the code that production runs."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from actors.classify import classify, hopeless, word
from actors.ending import REASONS
from actors.patterns import LEGACY, Pattern, Patterns
from actors.prompt import harmless
from actors.resets import local_now, moment
from actors.screen import Frame, Sent
from actors.setup import Setup
from actors.turn import spoken
from fleetd.agents import ADAPTERS
from fleetd.agents.adapter import Adapter, with_shipped
from fleetd.agents.generic import GenericGrammar
from fleetd.captures import frame_of, header_of
from fleetd.client import Refusal
from fleetd.config import ConfigError, find, read
from fleetd.launching import setup_of

#: A capture file larger than this is no pane, in bytes.
FILE_BYTES: Final = 4 * 1024 * 1024
#: How a pane is read of which nobody knows the program.
UNKNOWN: Final = Setup(GenericGrammar(), LEGACY)


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


def shipped_setup(adapter: Adapter) -> Setup:
    """An agent's screens with its shipped patterns."""
    patterns = Patterns(
        exhausted=(Pattern(adapter.exhausted_pattern, f"@{adapter.name}"),),
        error=(Pattern(adapter.error_pattern, f"@{adapter.name}"),),
    )
    return Setup(adapter.grammar, with_shipped(patterns, adapter), adapter.typing)


def judge(name: str, frame: Frame, setup: Setup, baseline: Frame | None = None, now: datetime | None = None) -> Row:
    """Classify one pane as production would if it came to rest like this.

    Args:
        now: when the pane was captured, with a time zone, for the reset times on it; none are read without it.
    """
    sent = None if baseline is None else Sent("", baseline)
    reading = setup.grammar.read(frame, sent)
    verdict = hopeless(reading.retrying) or classify(
        reading, setup.patterns, width=frame.width, sent=sent, screen=frame.lines, fast=False, wall=now
    )
    said = word(reading, verdict)
    if said in ("working", "blocked", "idle"):
        return Row(name, said)
    return Row(
        name,
        said,
        REASONS.get(verdict.kind) or spoken(verdict.line) or UNSET,
        verdict.source,
        verdict.pattern or UNSET,
        harmless(verdict.line).rstrip() or UNSET,
        UNSET if now is None or verdict.resets_in_ns is None else moment(now, verdict.resets_in_ns),
    )


def replay(arguments: Namespace) -> int:
    """Print a line a file. The exit code says whether every file could be read, not what was found in it."""
    setup = _setup(arguments)
    baseline = None if arguments.baseline is None else frame_of(_read(arguments.baseline))
    code = 0
    for path in arguments.files:
        try:
            text = _read(path)
        except Refusal as refusal:
            print(f"fleetd: {refusal}", file=sys.stderr)
            code = 1
            continue
        header, _ = header_of(text)
        how = setup or (shipped_setup(ADAPTERS[header.agent]) if header.agent in ADAPTERS else UNKNOWN)
        row = judge(str(path), frame_of(text), how, baseline, arguments.now or header.at or local_now())
        print(json.dumps(msgspec.to_builtins(row), ensure_ascii=False) if arguments.json else _text(row))
    return code


def _setup(arguments: Namespace) -> Setup | None:
    """How to read every file; ``None`` where each is read as what its header says."""
    if arguments.agent is not None and arguments.profile is not None:
        raise Refusal("give --agent or --profile, not both", {})
    if arguments.agent is not None:
        adapter = ADAPTERS.get(arguments.agent)
        if adapter is None:
            raise Refusal(f"no agent is called {arguments.agent}: there are {', '.join(ADAPTERS)}", {})
        return shipped_setup(adapter)
    return None if arguments.profile is None else _profile_setup(arguments)


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


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as exc:
        raise Refusal(f"{path} cannot be read: {exc.strerror}", {}) from None
    if len(data) > FILE_BYTES:
        raise Refusal(f"{path} is larger than {FILE_BYTES} bytes: a pane is not", {})
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _text(row: Row) -> str:
    said: dict[str, Any] = msgspec.to_builtins(row)
    rest = "  ".join(f"{key}={value!r}" for key, value in said.items() if key not in ("file", "verdict"))
    return f"{row.file}: {row.verdict}{'  ' if rest else ''}{rest}"
