"""Mutation testing: break the actors one small step at a time and see that a test notices.

    python bench/mutate.py                     every group
    python bench/mutate.py outage push         some groups
    python bench/mutate.py --check             and compare what survives with bench/mutants.md
    python bench/mutate.py outage --only CoolOffs.record

A mutant is *killed* when a test of its group fails, and *timed out* when the tests do not end; both count. One that
*survives* is a change that no test notices: a missing test, or a change that changes nothing, which ``mutants.md`` then
says. The run works on a copy in a temporary directory, and each mutant is a forked process that loads the one changed
module in place of the real one, so nothing of the tree is written to. It takes the test files one by one, the quick
ones first, and stops at the first that fails.
Tests that fail without any change are left out, and named.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from mutations import Key, Mutant, mutants

REPOSITORY: Final = Path(__file__).resolve().parent.parent
EXPLAINED: Final = Path(__file__).resolve().parent / "mutants.md"
#: What the tests of the groups need of the repository.
COPIED: Final = ("actors", "fleetd", "tests", "docs", "pyproject.toml", "README.md", "CLAUDE.md", "fleetd.example.yaml")
#: Loaded once, before the forks: none of it is under test.
PRELOADED: Final = ("pytest", "pytest_trio", "hypothesis.stateful", "trio.testing", "msgspec", "outcome", "re2", "yaml")
#: Percent of a group's mutants that must be killed.
TARGET: Final = 95.0
#: How long a mutant may take: so many times the tests without a change, and at least so many seconds.
PATIENCE: Final = 5.0
PATIENCE_S: Final = 20.0
#: Address space of one test process, in bytes: a mutant that never stops appending ends too.
MEMORY: Final = 4 * 1024**3
#: Hypothesis' examples for a mutant; the models scale theirs by it. Most mutants die before.
EXAMPLES: Final = 30


@dataclass(frozen=True)
class Group:
    """Modules of ``actors`` that are one subject, and the tests that are about it, quick ones first; by their names."""

    modules: str
    tests: str


GROUPS: Final = {
    "outage": Group("outage", "actors/test_outage models/test_killed_mutants* models/test_outage"),
    "push": Group("push nudge", "actors/test_push models/test_killed_mutants* models/test_push"),
    "roster": Group("roster row member", "actors/test_roster models/test_killed_mutants* models/test_roster"),
    "classify": Group("classify patterns", "actors/test_resolver models/test_killed_mutants* agents/test_generic"),
    "resolver": Group(
        "resolver sendqueue delivery sight reports tracker openturn standstill ending",
        "actors/test_resolver actors/test_signals models/test_killed_mutants* models/test_mailboxes",
    ),
}
#: Nobody reads why a test fails, so pytest need not rewrite assertions, which takes longer than most tests.
PLAIN: Final = ("-q", "--assert=plain", "-pno:cacheprovider", "-pno:anyio")
#: pytest's status where a file has no test left.
_NO_TESTS: Final = 5


class _Instead(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds one module in its mutant, and loads it from there."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = mutant.module.removesuffix(".py").replace("/", ".")
        self._path = str(Path.cwd() / mutant.module)
        self._source = mutant.source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def get_source(self, fullname: str) -> str:
        return self._source


@dataclass
class _Failures:
    """A pytest plugin that writes down which tests failed."""

    path: Path

    def pytest_runtest_logreport(self, report: object) -> None:
        if getattr(report, "failed", False):
            with self.path.open("a") as out:
                out.write(f"{report.nodeid}\n")  # type: ignore[attr-defined]


def run_tests(
    copy: Path, files: Sequence[str], options: Sequence[str], output: Path, mutant: Mutant | None, limit_s: float
) -> int:
    """Fork, and run the tests in the child; its process id."""
    if (child := os.fork()) != 0:
        return child
    status = 99
    try:
        os.setsid()
        sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
        status = _tests_here(copy, files, options, output.with_suffix(".failed"), mutant)
    except Exception:
        traceback.print_exc()
    finally:
        # Never back into the parent's code, whatever happened.
        sys.stderr.flush()
        os._exit(status)


def _tests_here(copy: Path, files: Sequence[str], options: Sequence[str], failed: Path, mutant: Mutant | None) -> int:
    import pytest
    from hypothesis import Phase, settings

    os.chdir(copy)
    sys.dont_write_bytecode = False  # what is compiled once in the copy is there for the next
    sys.path[:] = [str(copy), *(entry for entry in sys.path if Path(entry or ".").resolve() != REPOSITORY)]
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", deadline=None, database=None, phases=phases, max_examples=EXAMPLES)
    fixed = [*PLAIN, "--hypothesis-profile=mutants", "--hypothesis-seed=1"]
    if mutant is not None:
        sys.meta_path.insert(0, _Instead(mutant))
        fixed.append("-x")
    worst = 0
    for file in files:
        status = int(pytest.main([*fixed, *options, file], plugins=[_Failures(failed)]))
        worst = max(worst, 0 if status == _NO_TESTS else status)
        if worst and mutant is not None:
            break
    return worst


def judge(
    copy: Path, files: Sequence[str], options: Sequence[str], found: Sequence[Mutant], limit_s: float, jobs: int
) -> Iterator[str]:
    """``killed``, ``timed out`` or ``survived`` for each mutant, in order; ``jobs`` at a time."""
    verdicts: dict[int, str] = {}
    running: dict[int, tuple[int, float]] = {}
    waiting, given = list(enumerate(found)), 0
    while given < len(found):
        while waiting and len(running) < jobs:
            index, mutant = waiting.pop(0)
            pid = run_tests(copy, files, options, copy / f"mutant-{index}.out", mutant, limit_s)
            running[pid] = (index, time.monotonic() + limit_s)
        for pid, (index, deadline) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                verdicts[index] = "survived" if code == 0 else "timed out" if code < 0 else "killed"
                del running[pid]
            elif time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
        while given in verdicts:
            yield verdicts[given]
            given += 1
        time.sleep(0.01)


def baseline(copy: Path, files: Sequence[str]) -> tuple[list[str], float]:
    """The tests as they are: which fail already, and how long they take in seconds."""
    output, started = copy / "baseline.out", time.monotonic()
    failed = output.with_suffix(".failed")
    pid = run_tests(copy, files, (), output, None, 600.0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, 1):
        sys.exit(f"the tests do not run: pytest ended with {code}\n{output.read_text()}")
    return failed.read_text().splitlines() if failed.exists() else [], time.monotonic() - started


Judged = dict[str, list[tuple[Mutant, str]]]


def run_group(copy: Path, group: Group, jobs: int, only: str | None) -> Judged:
    """Every mutant of a group with its verdict, by module."""
    found = [sorted((copy / "tests").glob(f"{name}.py")) for name in group.tests.split()]
    files = [str(path.relative_to(copy)) for paths in found for path in paths]
    failing, took_s = baseline(copy, files)
    for name in failing:
        print(f"left out, it fails without any change: {name}", file=sys.stderr)
    options = [f"--deselect={name}" for name in failing]
    judged: Judged = {}
    for module in (f"actors/{name}.py" for name in group.modules.split()):
        every = mutants(module, (copy / module).read_text(encoding="utf-8"))
        some = [mutant for mutant in every if only is None or mutant.where == only]
        limit_s = max(PATIENCE_S, PATIENCE * took_s)
        judged[module] = []
        for mutant, verdict in zip(some, judge(copy, files, options, some, limit_s, jobs), strict=True):
            judged[module].append((mutant, verdict))
            if verdict == "survived":
                print(f"survived: {module}, {mutant.where}:\n  {mutant.entry}", file=sys.stderr, flush=True)
    return judged


_ENTRY: Final = re.compile(r"- `(?P<before>.+?)` → `(?P<after>.+?)`(?: \((?P<nth>\d+)\))?: (?P<why>.+)")


def explained(text: str) -> dict[Key, str]:
    """What ``mutants.md`` says of each survivor, by the mutant's key."""
    module = where = ""
    reasons: dict[Key, str] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            module = line.removeprefix("## ").strip("` ")
        elif line.startswith("### "):
            where = line.removeprefix("### ").strip("` ")
        elif (entry := _ENTRY.match(line)) is not None:
            reasons[module, where, entry["before"], entry["after"], int(entry["nth"] or 1)] = entry["why"]
    return reasons


def check(judged: Judged, reasons: dict[Key, str]) -> list[str]:
    """What is wrong between a run and ``mutants.md``, in sentences."""
    survived = {mutant.key: mutant for rows in judged.values() for mutant, verdict in rows if verdict == "survived"}
    new = [mutant for key, mutant in survived.items() if key not in reasons]
    gone = [key for key in reasons if key[0] in judged and key not in survived]
    return [
        *(f"not explained: {mutant.module}, {mutant.where}:\n  {mutant.entry}" for mutant in new),
        *(f"explained and does not survive any more: {key[0]}, {key[1]}: {key[2]} → {key[3]}" for key in gone),
    ]


def report(judged: Judged) -> None:
    print(f"{'module':24} {'mutants':>8} {'killed':>8} {'timed out':>10} {'survived':>9} {'score':>8}")
    for module, rows in judged.items():
        count = Counter(verdict for _, verdict in rows)
        kinds = f"{count['killed']:8} {count['timed out']:10} {count['survived']:9}"
        print(f"{module:24} {len(rows):8} {kinds} {score(rows):7.1f}%")


def score(rows: Sequence[tuple[Mutant, str]]) -> float:
    return 100.0 * sum(verdict != "survived" for _, verdict in rows) / max(1, len(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--check", action="store_true", help="fail where mutants.md and the run differ")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", metavar="FUNCTION", help="mutate this function only")
    options = parser.parse_args()
    if unknown := [name for name in options.groups if name not in GROUPS]:
        parser.error(f"no group is called {unknown[0]}; there are: {', '.join(GROUPS)}")
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    failed, judged = False, Judged()
    with tempfile.TemporaryDirectory(prefix="mutate-") as directory:
        copy = Path(directory)
        for name in COPIED:
            if (REPOSITORY / name).is_dir():
                shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(REPOSITORY / name, copy / name)
        for name in options.groups or GROUPS:
            rows = run_group(copy, GROUPS[name], options.jobs, options.only)
            together = [row for each in rows.values() for row in each]
            if options.only is None and score(together) < TARGET:
                print(f"group {name}: {score(together):.1f} % killed, under {TARGET:g} %", file=sys.stderr)
                failed = True
            judged |= rows
    report(judged)
    if options.check:
        wrong = check(judged, explained(EXPLAINED.read_text(encoding="utf-8")))
        print("\n".join(wrong) or "every survivor is explained")
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
