"""Every numbered acceptance criterion has a test that carries its id."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
MARK = re.compile(r'criterion\("(U\d+\.\d+)"\)')


def test_each_criterion_is_shown_by_a_test_and_no_test_names_another() -> None:
    listed = {line.split("\t", 1)[0] for line in (TESTS / "criteria.tsv").read_text().splitlines()[1:]}
    marked = {id for path in TESTS.rglob("test_*.py") for id in MARK.findall(path.read_text(encoding="utf-8"))}
    assert marked == listed
