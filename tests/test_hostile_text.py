"""Words of others: what a member prints, answers, asks or fails with, and what fleetd itself types to a lead.

Nothing of it may be an order to the terminal that it ends on, and nothing that fleetd types may look like a failure to
any program's patterns.
"""

from __future__ import annotations

import json
import logging
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.classify import Kind, classify
from actors.clock import NS_PER_S
from actors.nudge import AtDialog, EndedTicket, Item, LateAnswer, OpenQuestion, Outage, Unattributed, compose
from actors.patterns import LEGACY_ERROR, Lines, Pattern
from actors.prompt import guarded, harmless, sanitise
from actors.screen import Frame
from actors.turn import Status
from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.captures import Redactor, text_of
from fleetd.logs import LineFormatter
from fleetd.profiles import NAME
from fleetd.replay import shipped_setup
from fleetd.testing import Fleet

#: What no text of others may hold where a terminal shows it.
CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
#: Clears the screen, renames the window, asks for the cursor's position, writes the clipboard, in C0 and in C1.
NASTY: Final = "\x1b[2J\x1b]0;pwned\x07\x1b[6n\x9b31m\x9d52;c;eA==\x9c\x00\x08\x7f\rfrom the start"

texts = st.text(st.one_of(st.characters(), st.sampled_from("\x00\x07\x08\x1b\x7f\x85\x9b\x9d\r\n\t\ud800\udfff")))


def strings(value: object) -> Iterator[str]:
    """Every text in a structure, keys too."""
    match value:
        case str():
            yield value
        case Mapping():
            for key, inner in value.items():
                yield from strings(key)
                yield from strings(inner)
        case list() | tuple():
            for inner in value:
                yield from strings(inner)


def controls(value: object) -> list[str]:
    return [text for text in strings(value) if CONTROLS.search(text)]


# -- one text -------------------------------------------------------------------------------------------------------


@given(texts)
@example(NASTY)
def test_a_harmless_text_has_no_controls_and_loses_nothing_else(text: str) -> None:
    shown = harmless(text)
    assert not CONTROLS.search(shown)
    assert harmless(shown) == shown
    assert shown.replace("\n", "") == CONTROLS.sub("", text).replace("\n", "")


@given(texts)
def test_what_is_typed_is_harmless_and_no_command(text: str) -> None:
    typed = guarded(sanitise(text))
    assert not CONTROLS.search(typed)
    assert not typed.startswith(("/", "!", "#", "@", "\\"))
    assert not typed.endswith(("\\", "\n", " "))


# -- what a member says ---------------------------------------------------------------------------------------------

HELPERS: Final = """
profiles:
  helper: {command: [my-helper], credentialId: c, capacity: 8, idlePattern: '^> *$', busyPattern: '^thinking',
           answerMarker: '=', errorPattern: '^service unavailable', minTurnSeconds: 0}
"""


async def started(fleet: Fleet, name: str = "a") -> str:
    """A helper with an open turn; its ticket."""
    member = await fleet.spawn(name, profile="helper")
    member.shows("> ", title=NASTY)
    await fleet.advance(seconds=1)
    ticket = await fleet.lead().send(name, "go")
    member.shows("> go", "thinking")
    await fleet.advance(seconds=3)
    return ticket.id


async def as_member(fleet: Fleet, name: str, tool: str, **arguments: Any) -> dict[str, Any]:
    caller = Caller(Role.MEMBER, fleet.member(name).target, "/")
    return dict((await fleet.tools.call(caller, tool, arguments)).structured)


async def everything(fleet: Fleet, ticket: str) -> tuple[str, list[object]]:
    """All that a lead can be shown of a send and its member: as one JSON text, and the results themselves."""
    results: list[object] = []
    for tool, arguments in (
        ("fleet_list", {}),
        ("fleet_wait", {"tickets": [ticket], "waitSeconds": 0}),
        ("fleet_explain", {"ticket": ticket}),
        ("fleet_explain", {"target": "a"}),
        ("fleet_peek", {"target": "a"}),
        ("fleet_collect", {"ticket": ticket}),
        ("fleet_health", {}),
    ):
        result = await fleet.lead().result(tool, **arguments)
        results += [dict(result.structured), result.text]
    return json.dumps(results), results


@pytest.mark.fleet_config(HELPERS)
async def test_controls_of_a_reply_reach_no_lead(fleet: Fleet) -> None:
    ticket = await started(fleet)
    await as_member(fleet, "a", "fleet_reply", text=f"one {NASTY}\n\ttwo")
    await fleet.advance(seconds=1)
    shown, results = await everything(fleet, ticket)
    assert "from the start" in shown
    assert "\\n\\ttwo" in shown
    assert not controls(results)


@pytest.mark.fleet_config(HELPERS)
async def test_controls_of_a_question_reach_no_lead_and_those_of_its_answer_no_member(fleet: Fleet) -> None:
    ticket = await started(fleet)
    asked = await as_member(fleet, "a", "fleet_ask", text=f"may I {NASTY}?", waitSeconds=0)
    shown, results = await everything(fleet, ticket)
    assert "may I" in shown
    assert not controls(results)
    await fleet.lead().call("fleet_answer", question=asked["question"], text=f"yes {NASTY}")
    answered = await as_member(fleet, "a", "fleet_ask", question=asked["question"])
    assert answered["answer"].startswith("yes ")
    assert not controls(answered)


@pytest.mark.fleet_config(HELPERS)
@pytest.mark.parametrize("ending", [f"= done {NASTY}", f"service unavailable {NASTY}"])
async def test_controls_of_a_screen_reach_no_lead(fleet: Fleet, ending: str) -> None:
    ticket = await started(fleet)
    fleet.member("a").shows("> go", ending, "> ")
    await fleet.advance(seconds=4)
    shown, results = await everything(fleet, ticket)
    assert "from the start" in shown
    assert not controls(results)
    await fleet.advance(seconds=5)
    assert fleet.lead().nudges
    assert all(nudge.isprintable() for nudge in fleet.lead().nudges)


@pytest.mark.fleet_config(HELPERS)
async def test_a_late_answer_has_no_controls_either(fleet: Fleet) -> None:
    await fleet.spawn("a", profile="helper")
    fleet.member("a").shows("> ")
    await fleet.advance(seconds=1)
    ticket = await fleet.lead().send("a", "go", timeoutSeconds=2)
    fleet.member("a").shows("> go", "thinking")
    await fleet.advance(seconds=4)
    await as_member(fleet, "a", "fleet_reply", text=NASTY)
    await fleet.advance(seconds=1)
    result = await ticket.result()
    assert result["status"] == "timed_out"
    assert result["lateReply"].endswith("from the start")
    assert not controls(result)


def test_a_log_line_has_no_controls_and_says_in_one_line_what_others_said() -> None:
    words = f"a{NASTY}\nb"
    record = logging.LogRecord("fleetd.x", logging.WARNING, "x.py", 1, "said %s", (words,), None)
    record.fleet_reason = words
    line = LineFormatter().format(record)
    assert not CONTROLS.search(line)
    assert "\n" not in line
    try:
        raise ValueError(words)
    except ValueError as exc:
        crash = logging.LogRecord("fleetd.x", logging.ERROR, "x.py", 1, "crashed", (), (ValueError, exc, None))
    assert not CONTROLS.search(LineFormatter().format(crash))


# -- captures for bug reports ---------------------------------------------------------------------------------------

SECRET: Final = "c0ffee-and-nothing-else-0123456789"
STYLED: Final = "".join(f"\x1b[3{n % 8}m{ch}" for n, ch in enumerate(SECRET))


@pytest.mark.parametrize(
    "lines",
    [
        (f"the key is {SECRET}.",),
        (f"the key is \x1b[1m{SECRET}\x1b[0m.",),
        (f"the key is \x1b[1m{SECRET[:9]}\x1b[0m{SECRET[9:]}.",),
        (f"the key is {STYLED}.",),
        (f"the key is {SECRET[:9]}", f"{SECRET[9:]}."),
        (f"│ the key is {SECRET[:9]}    │", f"│ {SECRET[9:]}. │"),
        (f"the key is {SECRET[:9]}", SECRET[9:20], f"    {SECRET[20:]}."),
    ],
    ids=["plain", "bold", "half-bold", "colours", "wrapped", "framed", "twice-wrapped"],
)
def test_a_secret_is_taken_out_of_a_capture_however_it_is_drawn(lines: Sequence[str]) -> None:
    frame = Frame(lines, title=SECRET, styled=tuple(lines))
    text = text_of(frame, "demo", datetime.now(UTC), Redactor([("MY_TOKEN", SECRET), ("PLAIN", "the key")], "/root"))
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for start in range(len(SECRET) - 8):
        assert SECRET[start : start + 8] not in bare
    assert "the key is" in bare
    assert text.count("\n") == len(lines) + 1


# -- what fleetd types ----------------------------------------------------------------------------------------------

#: Words of the shipped patterns, as far as they are names that a configuration may give.
WORDS: Final = (
    *("API", "Error", "API-Error", "api_error", "API.Error", "error", "500", "503", "529", "429", "401", "400", "402"),
    *("Overloaded", "overloaded", "rate_limit", "rate-limit", "quota", "usage_limit_reached", "usage_limit", "limit"),
    *("internal_error", "server_error", "network_error", "terminated", "socket", "timeout", "timed-out", "econnreset"),
    *("unauthorized", "forbidden", "authentication", "invalid_request", "not_found", "unsupported", "malformed"),
    *("insufficient_quota", "billing_error", "model_capacity", "resource_exhausted", "throttled", "Login", "Quota"),
    *("Invalid", "Request", "PDF", "Image", "Claude", "Connection", "Limit", "Usage", "Credit", "You", "resets"),
)
names = st.one_of(st.sampled_from(WORDS), st.from_regex(NAME, fullmatch=True))
numbers = st.integers(1, 10**6)
targets = numbers.map("m-{}".format)
tickets = numbers.map("t-{}".format)
items = st.one_of(
    st.builds(
        Outage,
        numbers.map("inc-{}".format),
        names,
        st.lists(names, min_size=1, max_size=12).map(tuple),
        st.lists(targets, min_size=1, max_size=12).map(tuple),
        st.integers(0, 200 * NS_PER_S),
    ),
    st.builds(Unattributed, targets),
    st.builds(EndedTicket, tickets, targets, st.sampled_from(Status)),
    st.builds(LateAnswer, tickets, targets),
    st.builds(OpenQuestion, numbers.map("q-{}".format), targets),
    st.builds(AtDialog, targets, numbers),
)
waiting = st.lists(items, min_size=1, max_size=12, unique_by=lambda item: item.key)

SHIPPED: Final = (
    LEGACY_ERROR,
    *(
        Pattern(text, f"@{adapter.name} {kind}")
        for adapter in ADAPTERS.values()
        for kind, text in (
            ("error", adapter.error_pattern),
            ("exhausted", adapter.exhausted_pattern),
            ("auth", adapter.auth_pattern),
            ("request", adapter.request_pattern),
            ("failed", adapter.failed_pattern),
        )
        if text
    ),
)


@settings(max_examples=60)
@given(waiting, st.integers(20, 220), st.booleans())
def test_no_nudge_matches_a_shipped_pattern_however_it_is_wrapped(told: list[Item], width: int, cut: bool) -> None:
    """In a terminal's own rows (cut anywhere) and in a program's (cut at blanks), in column 0 and indented."""
    text, _ = compose(told, 0)
    assert text.isprintable()
    rows = [text[at : at + width] for at in range(0, len(text), width)] if cut else textwrap.wrap(text, width)
    for indent in ("", "  ", "    "):
        lines = [indent + row for row in rows]
        hits = [hit for pattern in SHIPPED if (hit := pattern.find(Lines(lines, width))) is not None]
        assert not hits, hits


Screen = Callable[[Sequence[str], Sequence[str]], Sequence[str]]


def _behind(mark: str, rows: Sequence[str], indent: str = "  ") -> list[str]:
    return [(mark if index == 0 else indent) + row for index, row in enumerate(rows)]


def _claude(asked: Sequence[str], said: Sequence[str]) -> list[str]:
    box = ["─" * 80, "❯\xa0", "─" * 80, "  ? for shortcuts"]
    return [*_behind("❯ ", asked), "", *said, "", "✻ Brewed for 3s", "", *box]


def _codex(asked: Sequence[str], said: Sequence[str]) -> list[str]:
    box = ["› Ask Codex to do anything", "", "  gpt-5 default · ~/work"]
    return ["", "  >_ OpenAI Codex (v0.171.0)", "", *_behind("› ", asked), "", *said, "", *box]


def _gemini(asked: Sequence[str], said: Sequence[str]) -> list[str]:
    region = ["   ? for shortcuts", "─" * 80, " Shift+Tab to accept edits", "▄" * 80]
    region += [" >   Type your message or @path/to/file", "▀" * 80, " ~/work    no sandbox    gemini-2.5-pro"]
    return ["▄" * 80, *_behind(" > ", asked, "   "), "▀" * 80, *said, "", *region]


def _opencode(asked: Sequence[str], said: Sequence[str]) -> list[str]:
    box = ["  ┃", "  ┃", "  ┃", "  ┃  Build · Fake Model Fake", "  ╹" + "▀" * 75]
    done = ["", "     ▣  Build · Fake Model · 3.5s"]
    footer = "   ~/work                                    1.3K (1%)  ctrl+p commands"
    return ["", "  ┃", *(f"  ┃  {row}" for row in asked), "  ┃", "", *said, *done, "", *box, footer]


def _qwen(asked: Sequence[str], said: Sequence[str]) -> list[str]:
    box = ["─" * 80, ">   Type your message or @path/to/file", "─" * 80, "  ➜ work · fake-model"]
    return [*_behind("  > ", asked, "    "), "", *said, "", *box]


def _demo(asked: Sequence[str], said: Sequence[str]) -> list[str]:
    box = ["─" * 80, "❯ Ask for something, or script it: demo: work 3; say hello", "─" * 80, "  ready · /exit quits"]
    return [*_behind("> ", asked), *said, "— done in 3s", *box]


#: Each program's screen, how it begins an answer, and an error line of its own.
SCREENS: Final[Mapping[str, tuple[Screen, str, str, str]]] = {
    "claude": (_claude, "● ", "  ", "● API Error: 529 Overloaded."),
    "codex": (_codex, "• ", "  ", "■ unexpected status 503 Service Unavailable"),
    "gemini": (_gemini, "✦ ", "  ", '✕ [API Error: {"error":{"code":503,"message":"The model is overloaded."}}]'),
    "opencode": (_opencode, "     ", "     ", "  ┃  Service unavailable, the engine is overloaded"),
    "qwen": (_qwen, "  ◆ ", "    ", "  ✕ [API Error: 503 The engine is currently overloaded]"),
    "demo": (_demo, "● ", "  ", "✗ API Error: 529 Overloaded"),
}


def judged(agent: str, asked: Sequence[str], said: Sequence[str]) -> Kind:
    setup = shipped_setup(ADAPTERS[agent])
    lines = tuple(line.rstrip() for line in SCREENS[agent][0](asked, said))
    frame = Frame(lines, width=80, height=max(60, len(lines)))
    return classify(setup.grammar.read(frame), setup.patterns, width=80, fast=False).kind


def test_every_adapter_has_a_screen_here() -> None:
    assert set(SCREENS) == set(ADAPTERS)


@pytest.mark.parametrize("agent", SCREENS)
def test_these_screens_are_read_as_their_programs_screens(agent: str) -> None:
    """Else the next test would show nothing."""
    _, mark, indent, error = SCREENS[agent]
    assert judged(agent, ["Do it."], _behind(mark, ["It is done.", "All of it."], indent)) is Kind.COMPLETED
    assert judged(agent, ["Do it."], [error]) is Kind.BACKEND_ERROR


@pytest.mark.parametrize("agent", SCREENS)
@settings(max_examples=25)
@given(told=waiting, quotes=st.booleans())
def test_a_lead_that_was_nudged_and_quotes_it_has_not_failed(agent: str, told: list[Item], quotes: bool) -> None:
    """Its program draws the nudge as a prompt's echo, and as an answer where the lead repeats it."""
    _, mark, indent, _ = SCREENS[agent]
    rows = textwrap.wrap(compose(told, 0)[0], 72)
    assert judged(agent, rows, _behind(mark, rows if quotes else ["Noted."], indent)) is Kind.COMPLETED
