"""How often fleetd is right about a screen, agent by agent, and how often the legacy pattern alone would be.

    python bench/detection.py            print the table
    python bench/detection.py --write    put it into docs/detection.md

The screens are those of tests/corpus: captures of the real programs with what their backend really did, and panes from
public bug reports. They are judged by the code that ``fleetd replay`` and the daemon run. A *miss* is a failed turn
that is not called a failure; a *false alarm* is a failure that was none; a *wrong kind* is a failure of another class.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from actors.patterns import LEGACY_ERROR
from fleetd.agents import ADAPTERS
from tests.agents.corpus import CORPUS, Capture, captures, reports

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "detection.md"
BEGIN: Final = "<!-- table: begin (bench/detection.py --write) -->\n"
END: Final = "<!-- table: end -->\n"
FAILURES: Final = frozenset({"backend_error", "exhausted", "auth", "request", "failed", "interrupted"})


def count(screens: Iterable[Capture]) -> Counter[str]:
    """How many screens there are, and what fleetd and the legacy pattern make of them."""
    found: Counter[str] = Counter()
    for screen in screens:
        found["captures"] += 1
        failed = screen.verdicts[0] in FAILURES
        verdict = screen.judged().verdict
        found["right"] += verdict in screen.verdicts
        found["miss"] += failed and verdict not in FAILURES and verdict not in screen.verdicts
        found["false"] += not failed and verdict in FAILURES and verdict not in screen.verdicts
        found["kind"] += failed and verdict in FAILURES and verdict not in screen.verdicts
        matched = LEGACY_ERROR.matches(screen.text)
        # A pattern alone knows two things: a backend error, and none.
        found["legacy miss"] += failed and not matched
        found["legacy false"] += not failed and matched
        found["legacy kind"] += failed and matched and "backend_error" not in screen.verdicts
    return found


def table() -> str:
    lines = [
        "| agent | screens | right | misses | false alarms | wrong kind | legacy: misses | false alarms | wrong kind |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for agent in (name for name in ADAPTERS if (CORPUS / name).is_dir()):
        for what, screens in (("captures", captures(agent)), ("public reports", reports(agent))):
            found = count(screens)
            total += found
            lines.append(_row(f"{agent}, {what}", found))
    lines.append(_row("**all**", total))
    return "\n".join(lines) + "\n"


def _row(name: str, found: Counter[str]) -> str:
    cells = ("captures", "right", "miss", "false", "kind", "legacy miss", "legacy false", "legacy kind")
    return f"| {name} | " + " | ".join(str(found[cell]) for cell in cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/detection.md")
    arguments = parser.parse_args()
    made = table()
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(before + BEGIN + made + END + after, encoding="utf-8")
    print(made, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
