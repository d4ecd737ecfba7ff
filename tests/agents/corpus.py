"""The captures and cases that every adapter is replayed on, through the code that production runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from fleetd.agents import ADAPTERS
from fleetd.captures import frame_of
from fleetd.replay import Row, judge, shipped_setup

CORPUS: Final = Path(__file__).parents[1] / "corpus"
#: Captures whose label is not what they show, with the evidence: they were taken one step later than their name says.
DISPUTED: Final = {
    "qwen/paste-big-draft": "labelled idle with a draft; its input box is empty, and its footer offers to steer a turn",
    "qwen/paste-big-sent": "labelled working; the answer is there, and the program is at rest",
}
#: What a verdict of the public cases may be called more finely.
FINER: Final = {"failed": {"failed", "auth", "request", "interrupted"}}


class Capture(msgspec.Struct, frozen=True):
    """A screen of a real program, and the verdicts that it may get; the first is the right one."""

    agent: str
    name: str
    text: str
    verdicts: tuple[str, ...]
    #: When it was made, where it names a reset time: the wall time it is read at, and when the quota comes back.
    now: datetime | None = None
    resets_at: str | None = None

    def __str__(self) -> str:
        return f"{self.agent}/{self.name}"

    def judged(self) -> Row:
        return judge(self.name, frame_of(self.text), shipped_setup(ADAPTERS[self.agent]), now=self.now)


def captures(agent: str) -> Iterator[Capture]:
    """Every capture of one agent, as plain text and with its colours."""
    with (CORPUS / agent / "INDEX.tsv").open(encoding="utf-8") as index:
        for row in csv.DictReader(index, delimiter="\t", quoting=csv.QUOTE_NONE):
            verdicts = (row["expected"], *filter(None, (row["accept"] or "").replace(",", " ").split()))
            plain = CORPUS / agent / row["file"]
            for path in (plain, plain.with_suffix(".ansi")):
                if path.exists():
                    yield Capture(agent, path.name, path.read_text(encoding="utf-8"), verdicts)


def reports(agent: str) -> Iterator[Capture]:
    """Every pane of one agent that was composed from a public bug report."""
    for line in (CORPUS / "public-reports.jsonl").read_text(encoding="utf-8").splitlines():
        case: dict[str, Any] = json.loads(line)
        if case["kind"] != "pane" or case["cli"] != agent:
            continue
        accept = case.get("accept") or []
        verdicts = [case["expected"], *([accept] if isinstance(accept, str) else accept)]
        finer = [word for verdict in verdicts for word in sorted(FINER.get(verdict, {verdict}))]
        hint = case.get("reset_hint") or {}
        now = datetime.fromisoformat(hint["now"]) if "now" in hint else None
        yield Capture(agent, case["id"], case["input"], (*verdicts, *finer), now, hint.get("at"))
