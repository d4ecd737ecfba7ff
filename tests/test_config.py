"""``fleetd.yaml``: what every key may hold, what it becomes, and what is refused where."""

from __future__ import annotations

import re
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.health import Coverage, HealthSettings
from actors.outage import OutageSettings
from actors.patterns import LEGACY_ERROR, Pattern, Patterns
from actors.placement import PolicyName
from actors.push import PushSettings
from actors.spawning import ProfileRoom
from fleetd.agents import ADAPTERS
from fleetd.config import Config, ConfigError, HostName, find, load, read
from fleetd.profiles import Profile

NS = 1_000_000_000
EXAMPLE = Path(__file__).parent.parent / "fleetd.example.yaml"


class Ships(msgspec.Struct, frozen=True):
    error_pattern: str
    exhausted_pattern: str


SHIPPED = {
    "claude": Ships("API Error: 5..", "limit reached"),
    "codex": Ships("stream error", "usage limit"),
    "gemini": Ships("fetch failed", "quota"),
    "opencode": Ships("AI_APICallError", "quota"),
    "qwen": Ships("API Error", "quota"),
    "demo": Ships("BACKEND DOWN", ""),
}

#: The contract's table, key by key.
KEYS = (
    *(f"outage.{key}" for key in ("threshold", "windowSeconds", "coolOffSeconds", "holdSends")),
    "quarantineCooldownSeconds",
    "placement.policy",
    *(f"push.{key}" for key in ("tickSeconds", "maxAttempts", "reminders")),
    *(f"health.{key}" for key in ("enabled", "intervalSeconds", "webhook")),
    "host",
    *(
        f"profiles.<name>.{key}"
        for key in (
            *("agent", "command", "env", "envFrom", "credentialId", "capacity", "errorPattern", "exhaustedPattern"),
            *("idlePattern", "busyPattern", "blockedPattern", "answerMarker", "minTurnSeconds"),
        )
    ),
)

EVERYTHING = """
outage: {threshold: 3, windowSeconds: 59.5, coolOffSeconds: 0.25, holdSends: false}
quarantineCooldownSeconds: 60
placement: {policy: priority}
push: {tickSeconds: 0.1, maxAttempts: 1, reminders: 0}
health: {enabled: false, intervalSeconds: 5, webhook: "https://example.org/hook?x=1"}
host: pty
profiles:
  claude-a:
    agent: claude
    command: [claude, --model, opus]
    env: {RETRIES: "2", EMPTY: ""}
    envFrom: [API_KEY]
    credentialId: anthropic-a
    capacity: 64
    errorPattern: "@claude"
    exhaustedPattern: '(?i)quota used up'
    minTurnSeconds: 0
  any.program_2:
    command: [./agent]
    idlePattern: '^>$'
    busyPattern: working
    blockedPattern: '\\?$'
    answerMarker: '* '
"""


def refusal(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(text, shipped=SHIPPED)
    return caught.value


def profile(text: str) -> Profile:
    """The profile ``p`` with these keys, one a line."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return load(f"profiles:\n  p:\n{lines}", shipped=SHIPPED).profiles["p"]


def in_profile(text: str) -> ConfigError:
    """The refusal of the profile ``p`` with these keys; they begin in line 3."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return refusal(f"profiles:\n  p:\n{lines}")


# -- what comes out -------------------------------------------------------------------------------------------------


def test_an_empty_file_is_the_contracts_defaults() -> None:
    config = load("", shipped=SHIPPED)
    assert config == Config()
    assert config.outage == OutageSettings(2, 60 * NS, 60 * NS, hold_sends=True)
    assert config.quarantine_ns == 1800 * NS
    assert config.placement is PolicyName.LEAST_LOADED
    assert config.push == PushSettings(NS, 5, 3)
    assert config.health == HealthSettings(enabled=True, interval_ns=30 * NS, webhook=None)
    assert config.host is None
    assert config.profiles == {}
    assert config.rooms() == ()


def test_every_key_reaches_its_setting() -> None:
    config = load(EVERYTHING, shipped=SHIPPED)
    assert config.outage == OutageSettings(3, 59_500_000_000, 250_000_000, hold_sends=False)
    assert config.quarantine_ns == 60 * NS
    assert config.placement is PolicyName.PRIORITY
    assert config.push == PushSettings(100_000_000, 1, 0)
    assert config.health == HealthSettings(False, 5 * NS, "https://example.org/hook?x=1")
    assert config.host is HostName.PTY
    assert list(config.profiles.values()) == [
        Profile(
            name="claude-a",
            agent="claude",
            command=("claude", "--model", "opus"),
            env={"RETRIES": "2", "EMPTY": ""},
            env_from=("API_KEY",),
            credential_id="anthropic-a",
            capacity=64,
            error_pattern=Pattern("API Error: 5..", "@claude"),
            exhausted_pattern=Pattern("(?i)quota used up", "exhaustedPattern"),
            min_turn_ns=0,
        ),
        Profile(
            name="any.program_2",
            command=("./agent",),
            credential_id="any.program_2",
            idle_pattern=Pattern("^>$", "idlePattern"),
            busy_pattern=Pattern("working", "busyPattern"),
            blocked_pattern=Pattern(r"\?$", "blockedPattern"),
            answer_marker="* ",
        ),
    ]
    assert config.rooms() == (
        ProfileRoom("claude-a", "anthropic-a", 64, config.profiles["claude-a"]),
        ProfileRoom("any.program_2", "any.program_2", 2, config.profiles["any.program_2"]),
    )


def test_a_profile_needs_no_more_than_an_agent() -> None:
    assert profile("agent: codex") == Profile(
        name="p", agent="codex", command=(), credential_id="p", capacity=2, min_turn_ns=2 * NS
    )


def test_sections_whose_lines_are_commented_out_are_their_defaults() -> None:
    assert load("outage:\n  # threshold: 3\npush:\nprofiles:\n", shipped=SHIPPED) == Config()


def test_the_profiles_keep_the_order_of_the_file() -> None:
    text = "profiles:\n" + "".join(f"  {name}: {{agent: demo}}\n" for name in ("zeta", "alpha", "mid"))
    assert [room.name for room in load(text, shipped=SHIPPED).rooms()] == ["zeta", "alpha", "mid"]


def test_a_profiles_repr_does_not_show_the_values_of_its_environment() -> None:
    text = "profiles: {p: {agent: demo, env: {TOKEN: canary-31337}}}"
    assert "canary" not in repr(load(text, shipped=SHIPPED))


# -- patterns -------------------------------------------------------------------------------------------------------


@pytest.mark.criterion("U5.1")
def test_error_patterns_bind_per_profile() -> None:
    text = """
profiles:
  claude-a: {agent: claude, errorPattern: "@claude", exhaustedPattern: "@claude"}
  codex-b: {agent: codex, errorPattern: '(?i)my own error', exhaustedPattern: "@codex"}
  blank: {agent: claude}
"""
    profiles = load(text, shipped=SHIPPED).profiles
    assert profiles["claude-a"].patterns == Patterns(
        exhausted=(Pattern("limit reached", "@claude"),), error=(Pattern("API Error: 5..", "@claude"),)
    )
    assert profiles["codex-b"].patterns == Patterns(
        exhausted=(Pattern("usage limit", "@codex"),), error=(Pattern("(?i)my own error", "errorPattern"),)
    )
    assert profiles["blank"].patterns == Patterns(exhausted=(), error=(LEGACY_ERROR,))


@pytest.mark.criterion("U5.1")
@pytest.mark.parametrize("blank", ["", "errorPattern:", 'errorPattern: ""', "errorPattern: '  '"])
def test_a_blank_error_pattern_is_the_legacy_default(blank: str) -> None:
    found = profile(f"agent: claude\n{blank}")
    assert found.error_pattern is None
    assert found.patterns.error == (LEGACY_ERROR,)
    assert found.patterns.error[0].matches("⎿ api error : 529")


@pytest.mark.criterion("U5.1")
def test_a_configured_error_pattern_replaces_the_legacy_default() -> None:
    (only,) = profile("agent: claude\nerrorPattern: overloaded").patterns.error
    assert only.matches("overloaded")
    assert not only.matches("API Error: 529")


@pytest.mark.parametrize("blank", ["exhaustedPattern:", 'exhaustedPattern: ""'])
def test_a_blank_exhausted_pattern_finds_nothing(blank: str) -> None:
    assert profile(f"agent: claude\n{blank}").patterns.exhausted == ()


@pytest.mark.criterion("U5.2")
@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("'('", "missing )"),
        ("'[a'", "missing ]"),
        (r"'(?=API)Error'", "RE2: no lookaround, no back-references"),
        (r"'(a)\1'", "RE2: no lookaround, no back-references"),
        ("'a{1,5000}'", "invalid repetition"),
        ("'((a{500}){500}){500}'", "RE2"),
        ("'x*'", "matches the empty line"),
        ("'^'", "matches the empty line"),
        ("'error|'", "matches the empty line"),
    ],
)
def test_a_malformed_error_pattern_stops_the_start_with_profile_and_key(pattern: str, why: str) -> None:
    good = "profiles:\n  good: {agent: codex, errorPattern: fine}\n"
    text = f"{good}  bad:\n    agent: claude\n    errorPattern: {pattern}"
    refused = refusal(text)
    assert refused.key == "profiles.bad.errorPattern"
    assert refused.line == 5
    assert why in refused.why
    assert str(refused).startswith("fleetd.yaml:5: profiles.bad.errorPattern: ")


@pytest.mark.criterion("U5.2")
@pytest.mark.parametrize("key", ["errorPattern", "exhaustedPattern", "idlePattern", "busyPattern", "blockedPattern"])
def test_every_pattern_key_is_compiled_at_load(key: str) -> None:
    refused = in_profile(f"command: [x]\n{key}: '('")
    assert (refused.key, refused.line) == (f"profiles.p.{key}", 4)


@pytest.mark.criterion("U5.2")
def test_a_malformed_error_pattern_in_a_file_stops_its_reading(tmp_path: Path) -> None:
    path = tmp_path / "fleetd.yaml"
    path.write_text("profiles:\n  claude-a:\n    agent: claude\n    errorPattern: '('\n")
    with pytest.raises(ConfigError, match=r"fleetd\.yaml:4: profiles\.claude-a\.errorPattern: missing \)"):
        read(path, shipped=SHIPPED)


def test_an_unknown_shipped_pattern_lists_the_known_ones() -> None:
    refused = in_profile('agent: claude\nexhaustedPattern: "@cloude"')
    assert (refused.key, refused.line) == ("profiles.p.exhaustedPattern", 4)
    assert "no shipped pattern is called @cloude" in refused.why
    assert "@claude, @codex, @gemini, @opencode, @qwen;" in refused.why  # @demo ships none for exhaustion


def test_a_shipped_pattern_may_be_longer_than_a_written_one() -> None:
    ships = {"big": Ships("e" * 5000, "")}
    assert load("profiles: {p: {agent: big, errorPattern: '@big'}}", shipped=ships).profiles["p"].error_pattern


def test_a_profile_may_use_the_shipped_pattern_of_another_agent() -> None:
    found = profile('command: [my-claude-wrapper]\nerrorPattern: "@claude"')
    assert found.patterns.error == (Pattern("API Error: 5..", "@claude"),)


# -- what is refused ------------------------------------------------------------------------------------------------

REFUSED = [
    # text, key path, line, a part of the sentence
    ("outage:\n  treshold: 2", "outage.treshold", 2, "the nearest known one is threshold"),
    ("outage: {window_seconds: 2}", "outage.window_seconds", 1, "the nearest known one is windowSeconds"),
    ("outages: {}", "outages", 1, "the nearest known one is outage"),
    ("zzz: 1", "zzz", 1, "known here are outage, quarantineCooldownSeconds, placement, push, health, host, profiles"),
    ("placement: {police: priority}", "placement.police", 1, "policy"),
    ("push: {Reminders: 3}", "push.Reminders", 1, "reminders"),
    ("health: {webHook: x}", "health.webHook", 1, "webhook"),
    ("outage: [2, 60, 60]", "outage", 1, "a mapping (key: value) is wanted here, found a list"),
    ("outage: 2", "outage", 1, "a mapping"),
    ("outage: {threshold: 0}", "outage.threshold", 1, "from 1 to 100 is wanted"),
    ("outage: {threshold: 101}", "outage.threshold", 1, "found 101"),
    ("outage: {threshold: 2.0}", "outage.threshold", 1, "an integer"),
    ("outage: {threshold: '2'}", "outage.threshold", 1, 'found the string "2"'),
    ("outage: {threshold: 010}", "outage.threshold", 1, "a leading zero, found 010"),
    ("outage: {threshold: 1_0}", "outage.threshold", 1, "found 1_0"),
    ("outage: {threshold: 0x10}", "outage.threshold", 1, "found 0x10"),
    ("outage: {threshold: 12:30:45}", "outage.threshold", 1, "found 12:30:45"),
    ("outage: {threshold: }", "outage.threshold", 1, "found nothing"),
    ("outage: {windowSeconds: 0}", "outage.windowSeconds", 1, "seconds from 0.001 to 86400"),
    ("outage: {windowSeconds: -60}", "outage.windowSeconds", 1, "found -60"),
    ("outage: {windowSeconds: 60s}", "outage.windowSeconds", 1, "found 60s"),
    ("outage: {coolOffSeconds: .inf}", "outage.coolOffSeconds", 1, "found .inf"),
    ("outage: {coolOffSeconds: 86401}", "outage.coolOffSeconds", 1, "to 86400"),
    ("outage: {holdSends: yes}", "outage.holdSends", 1, "true or false in lower case without quotes, found yes"),
    ("outage: {holdSends: 'true'}", "outage.holdSends", 1, 'found the string "true"'),
    ("quarantineCooldownSeconds: 0", "quarantineCooldownSeconds", 1, "from 1 to 604800"),
    ("quarantineCooldownSeconds: 0.5", "quarantineCooldownSeconds", 1, "an integer"),
    ("\n\nplacement:\n  policy: random", "placement.policy", 4, "one of least-loaded, round-robin, priority is wanted"),
    ("push: {tickSeconds: 0.09}", "push.tickSeconds", 1, "seconds from 0.1 to 60"),
    ("push: {tickSeconds: 60.1}", "push.tickSeconds", 1, "seconds from 0.1 to 60"),
    ("push: {maxAttempts: 0}", "push.maxAttempts", 1, "from 1 to 100"),
    ("push: {reminders: 11}", "push.reminders", 1, "from 0 to 10"),
    ("health: {enabled: off}", "health.enabled", 1, "a boolean"),
    ("health: {intervalSeconds: 3601}", "health.intervalSeconds", 1, "from 1 to 3600"),
    ("health: {webhook: example.org}", "health.webhook", 1, "an http:// or https:// address"),
    ("health: {webhook: 'ftp://example.org'}", "health.webhook", 1, "an http:// or https:// address"),
    ("health: {webhook: 'https://'}", "health.webhook", 1, "an http:// or https:// address"),
    ("health: {webhook: 'https://a b'}", "health.webhook", 1, "an http:// or https:// address"),
    ("health: {webhook: ''}", "health.webhook", 1, "an http:// or https:// address"),
    ("health: {webhook: }", "health.webhook", 1, "no value"),
    (f"health: {{webhook: 'https://{'a' * 2048}'}}", "health.webhook", 1, "at most 2048"),
    ("host: screen", "host", 1, "one of tmux, pty is wanted, found screen"),
    ("host: ''", "host", 1, "one of tmux, pty"),
    ("host: tmux\nhost: pty", "host", 2, "twice"),
    ("profiles: [claude]", "profiles", 1, "a mapping"),
    ("profiles:\n  a: claude", "profiles.a", 2, "a mapping"),
    ("profiles:\n  a b: {agent: claude}", "profiles.a b", 2, "1 to 64 of letters"),
    ("profiles:\n  -a: {agent: claude}", "profiles.-a", 2, "starts with a letter or digit"),
    ("profiles:\n  ä: {agent: claude}", "profiles.ä", 2, "1 to 64 of letters"),
    ("profiles:\n  'a\\nb': {agent: claude}", "profiles.a\\nb", 2, "1 to 64 of letters"),
    (f"profiles:\n  {'a' * 65}: {{agent: claude}}", f"profiles.{'a' * 64}...", 2, "1 to 64 of letters"),
    ("profiles:\n  1: {agent: claude}", "profiles", 2, "the key 1, unquoted, is a number"),
    ("profiles:\n  a: {agent: claude}\n  a: {agent: codex}", "profiles.a", 3, "twice"),
    ("profiles:\n  a:\n    agent: *x", "profiles.a.agent", 3, "aliases"),
]

REFUSED_IN_A_PROFILE = [
    # keys of the profile p, key, line counted within the profile, a part of the sentence
    ("agent: cloude", "agent", 1, "no agent is called cloude: there are claude, codex, gemini, opencode, qwen, demo"),
    ("agent: claude\nerror_pattern: x", "error_pattern", 2, "the nearest known one is errorPattern"),
    ("agent: claude\npriority: 1", "priority", 2, "there is no such key"),
    ("capacity: 2", "command", 0, "it is required where no agent is given"),
    ("", "command", 0, "it is required where no agent is given"),
    ("command: claude --model opus", "command", 1, "never a shell string: write it like [claude, --model, opus]"),
    ("command: 'claude'", "command", 1, "never a shell string"),
    ("command: {claude: x}", "command", 1, "a list"),
    ("command: []", "command", 1, "it names no program"),
    ("command:", "command", 1, "it names no program"),
    ("command: ['']", "command", 1, "it names no program"),
    ("command:\n  - claude\n  - 10", "command[1]", 3, "put it in quotes"),
    ("command: [claude, [x]]", "command[1]", 1, "a string is wanted here, found a list"),
    ("command: [claude, no]", "command[1]", 1, "a boolean to YAML: put it in quotes"),
    ("command: [claude, '\\']\nenv: x", "env", 2, "a mapping"),
    ("agent: demo\nenv: [A]", "env", 2, "a mapping (key: value) is wanted here, found a list"),
    ("agent: demo\nenv:\n  PORT: 8080", "env.PORT", 3, "put it in quotes"),
    ("agent: demo\nenv: {A: true}", "env.A", 2, "put it in quotes"),
    ("agent: demo\nenv: {A: }", "env.A", 2, "no value"),
    ("agent: demo\nenv: {A: {B: c}}", "env.A", 2, "found a mapping"),
    ("agent: demo\nenv: {A-B: c}", "env.A-B", 2, "the name of a variable"),
    ("agent: demo\nenv: {'': c}", "env.", 2, "the name of a variable"),
    ("agent: demo\nenv: {FLEETD_TOKEN: c}", "env.FLEETD_TOKEN", 2, "FLEETD_* and TMUX* are the daemon's own"),
    ("agent: demo\nenv: {TMUX: c}", "env.TMUX", 2, "the daemon's own"),
    ("agent: demo\nenvFrom: [A, TMUX_PANE]", "envFrom[1]", 2, "the daemon's own"),
    ("agent: demo\nenvFrom: A", "envFrom", 2, "a list"),
    ("agent: demo\nenvFrom: {A: b}", "envFrom", 2, "a list"),
    ("agent: demo\nenvFrom: ['A=b']", "envFrom[0]", 2, "the name of a variable"),
    ("agent: demo\nenvFrom: [A, B, A]", "envFrom[2]", 2, "A stands in the list twice"),
    ("agent: demo\nenv: {A: b}\nenvFrom: [A]", "envFrom", 3, "A stands in env too: keep one"),
    ("agent: demo\ncredentialId: my account", "credentialId", 2, "a credential's id is 1 to 64"),
    ("agent: demo\ncredentialId: 42", "credentialId", 2, "put it in quotes"),
    ("agent: demo\ncredentialId: ''", "credentialId", 2, "a credential's id is 1 to 64"),
    ("agent: demo\ncapacity: 0", "capacity", 2, "from 1 to 64"),
    ("agent: demo\ncapacity: 65", "capacity", 2, "from 1 to 64"),
    ("agent: demo\nminTurnSeconds: 61", "minTurnSeconds", 2, "from 0 to 60"),
    ("agent: demo\nerrorPattern: [Ee]rror", "profiles.p", 2, "quote a text that begins with [ or {"),
    ("agent: demo\nerrorPattern: [Ee]", "errorPattern", 2, "a string is wanted here, found a list"),
    ("agent: demo\nerrorPattern: @claude", "errorPattern", 2, "put the value in quotes"),
    ("agent: demo\nerrorPattern: 529", "errorPattern", 2, "put it in quotes"),
    ("agent: demo\nerrorPattern: ~", "errorPattern", 2, "put it in quotes"),
    ('agent: demo\nerrorPattern: "\\bAPI"', "errorPattern", 2, "write a regular expression in single quotes"),
    ('agent: demo\nerrorPattern: "@nobody"', "errorPattern", 2, "no shipped pattern is called @nobody"),
    (f"agent: demo\nerrorPattern: {'a' * 4097}", "errorPattern", 2, "at most 4096 characters"),
    ("command: [x]\nidlePattern: ''", "idlePattern", 2, "an empty pattern"),
    ("command: [x]\nidlePattern:", "idlePattern", 2, "an empty pattern"),
    ("command: [x]\nbusyPattern: ' '", "busyPattern", 2, "an empty pattern"),
    ("command: [x]\nblockedPattern: ''", "blockedPattern", 2, "an empty pattern"),
    ("command: [x]\nidlePattern: 'x*'", "idlePattern", 2, "matches the empty line"),
    ("command: [x]\nanswerMarker: ''", "answerMarker", 2, "1 to 64 characters"),
    ("command: [x]\nanswerMarker:", "answerMarker", 2, "no value"),
    ("command: [x]\nanswerMarker: ' *'", "answerMarker", 2, "without leading blanks"),
    ('command: [x]\nanswerMarker: "*\\n"', "answerMarker", 2, "1 to 64 characters"),
    (f"command: [x]\nanswerMarker: {'a' * 65}", "answerMarker", 2, "1 to 64 characters"),
    ("agent: demo\nidlePattern: x", "idlePattern", 2, "agent demo has one: delete either key"),
    ("agent: demo\nanswerMarker: x", "answerMarker", 2, "agent demo has one: delete either key"),
]


@pytest.mark.parametrize(("text", "key", "line", "why"), REFUSED)
def test_a_bad_value_is_refused_with_its_key_path_and_line(text: str, key: str, line: int, why: str) -> None:
    refused = refusal(text)
    assert (refused.key, refused.line) == (key, line)
    assert why in refused.why
    assert str(refused) == f"fleetd.yaml:{line}: {key}: {refused.why}"


@pytest.mark.parametrize(("text", "key", "line", "why"), REFUSED_IN_A_PROFILE)
def test_a_bad_profile_is_refused_with_its_key_path_and_line(text: str, key: str, line: int, why: str) -> None:
    refused = in_profile(text)
    assert (refused.key.removeprefix("profiles.p."), refused.line - 2) == (key, line)
    assert why in refused.why


@pytest.mark.parametrize("key", [key for key in KEYS if "." in key])
def test_a_misspelt_key_is_refused_and_the_right_one_is_named(key: str) -> None:
    section, _, name = key.replace("<name>", "p").rpartition(".")
    opening = "{" + section.replace(".", ": {") + f": {{{name}X: 1}}}}" + "}" * section.count(".")
    refused = refusal(opening)
    assert refused.key == f"{section}.{name}X"
    assert refused.why == f"there is no such key: the nearest known one is {name}"


@pytest.mark.parametrize(
    "text", ["TOKEN: 31337", "TOKEN: {a: canary-31337}", "TOKEN: &canary-31337 x", "TMUX: canary-31337"]
)
def test_no_error_repeats_the_value_of_a_variable(text: str) -> None:
    assert "31337" not in str(in_profile(f"agent: demo\nenv:\n  {text}"))


def test_an_error_without_a_line_or_a_key_still_names_the_file() -> None:
    assert str(ConfigError("f.yaml", "", 0, "why")) == "f.yaml: why"
    assert str(ConfigError("f.yaml", "", 3, "why")) == "f.yaml:3: why"


PIECES = st.sampled_from(
    [
        *("outage", "profiles", "p", "agent", "claude", "env", "command", "errorPattern", "capacity", "host", "tmux"),
        *(": ", ":", "\n", "\n  ", "\n    ", "- ", "[", "]", "{", "}", ",", '"', "'", "|", ">", "\\", "#", "&a", "*a"),
        *("!", "!!str", "%", "@", "`", "?", "? ", "---", "...", "<<", "~", "no", "1", "010", "0.5", "(", ")*", "\t"),
        *("%YAML 1.1\n", "%TAG ! x\n", "\\U", "\\x0", "\ufeff", "\x85", "\u2028", "\x00", "\ud800", "😀", " "),
    ]
)


@settings(max_examples=400, deadline=5000)
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=40).map("".join)))
@example('"\\UFFFFFFFF"')
@example("%YAML 1." + "1" * 5000)
@example("a: " + "[" * 5000)
@example("profiles: {p: {agent: claude, errorPattern: " + "(" * 4000 + "}}")
def test_any_text_is_loaded_or_refused_in_one_sentence(text: str) -> None:
    try:
        assert isinstance(load(text, shipped=SHIPPED), Config)
    except ConfigError as refused:
        said = str(refused)
    else:
        return
    assert said.isprintable()
    assert len(said) < 1000


@settings(max_examples=200, deadline=5000)
@given(st.binary(max_size=60))
def test_any_bytes_are_loaded_or_refused(data: bytes) -> None:
    try:
        assert isinstance(load(data, shipped=SHIPPED), Config)
    except ConfigError as refused:
        assert refused.why  # noqa: PT017  (either way is right)


def test_256_profiles_load_in_seconds_and_one_more_is_refused() -> None:
    rows = [
        f"  p{index}: {{command: [x], errorPattern: 'error {index}', exhaustedPattern: 'quota {index}'}}\n"
        for index in range(257)
    ]
    began = time.perf_counter()
    assert len(load("profiles:\n" + "".join(rows[:256]), shipped=SHIPPED).profiles) == 256
    assert time.perf_counter() - began < 10
    refused = refusal("profiles:\n" + "".join(rows))
    assert (refused.key, refused.line) == ("profiles", 1)
    assert "at most 256" in refused.why


# -- files ----------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: it cannot be read: No such file"):
        read(tmp_path / "nowhere.yaml", shipped=SHIPPED)


def test_a_directory_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular file"):
        read(tmp_path, shipped=SHIPPED)


def test_a_file_that_is_too_large_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "fleetd.yaml"
    path.write_bytes(b"#" * (256 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than 256 KiB"):
        read(path, shipped=SHIPPED)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "fleetd.yaml"
    path.write_text("outage: {threshold: 7}", encoding="utf-8")
    assert read(path, shipped=SHIPPED).outage.threshold == 7


def test_the_file_is_looked_for_in_the_order_of_the_contract(tmp_path: Path) -> None:
    cwd, home, xdg = (tmp_path / name for name in ("cwd", "home", "xdg"))
    own, xdg_own = home / ".config/fleetd/fleetd.yaml", xdg / "fleetd/fleetd.yaml"
    for directory in (cwd, own.parent, xdg_own.parent):
        directory.mkdir(parents=True)
    assert find(None, {}, cwd, home) is None
    own.touch()
    assert find(None, {}, cwd, home) == own
    assert find(None, {"XDG_CONFIG_HOME": "relative"}, cwd, home) == own
    assert find(None, {"XDG_CONFIG_HOME": str(xdg)}, cwd, home) is None
    xdg_own.touch()
    assert find(None, {"XDG_CONFIG_HOME": str(xdg)}, cwd, home) == xdg_own
    (cwd / "fleetd.yaml").touch()
    assert find(None, {"XDG_CONFIG_HOME": str(xdg)}, cwd, home) == cwd / "fleetd.yaml"
    environ = {"FLEETD_CONFIG": "named.yaml"}
    assert find(None, environ, cwd, home) == cwd / "named.yaml"
    assert find(Path("/etc/given.yaml"), environ, cwd, home) == Path("/etc/given.yaml")
    assert find(Path("given.yaml"), environ, cwd, home) == cwd / "given.yaml"


def test_a_dangling_link_is_found_so_that_reading_it_fails_loudly(tmp_path: Path) -> None:
    (tmp_path / "fleetd.yaml").symlink_to(tmp_path / "gone.yaml")
    found = find(None, {}, tmp_path, tmp_path)
    assert found is not None
    with pytest.raises(ConfigError, match="cannot be read"):
        read(found, shipped=SHIPPED)


# -- the example ----------------------------------------------------------------------------------------------------


def uncommented() -> str:
    """The example with the settings that are commented out (``#key``, without a blank) switched on."""
    return re.sub(r"(?m)^( *)#(?=[a-z])", r"\1", EXAMPLE.read_text(encoding="utf-8"))


@pytest.mark.criterion("U5.15")
def test_the_example_file_loads_and_holds_the_defaults() -> None:
    config = read(EXAMPLE, shipped=ADAPTERS)
    assert msgspec.structs.replace(config, profiles={}) == Config()
    first = config.profiles["claude-a"]
    assert (first.credential_id, first.capacity, first.min_turn_ns) == ("anthropic-a", 2, 2 * NS)
    assert first.limit_retries
    assert config.profiles["claude-b"].credential_id == "anthropic-a"
    assert config.profiles["other"].patterns == Patterns()


@pytest.mark.criterion("U5.15")
def test_the_example_file_also_loads_with_its_commented_settings() -> None:
    config = load(uncommented(), shipped=ADAPTERS)
    assert config.health.coverage is Coverage.FULL
    assert config.host is HostName.TMUX
    assert config.profiles["claude-a"].env_from == ("ANTHROPIC_API_KEY",)


@pytest.mark.criterion("U5.15")
@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_the_contract_occurs_in_the_example_file(key: str) -> None:
    name = key.rpartition(".")[2]
    assert re.search(rf"(?m)^ *{name}:", uncommented())


@pytest.mark.criterion("U5.15")
@pytest.mark.parametrize(
    "topic",
    [
        *("A blank or missing errorPattern falls back to the legacy default", r"(?i)\bAPI Error\s*:", "degraded"),
        *("2/60/60", "A COOL-OFF is short", "A QUARANTINE is long", "waits for the end of the cool-off", "deferred"),
    ],
)
def test_the_example_file_explains_what_the_seed_asks_for(topic: str) -> None:
    assert topic in " ".join(EXAMPLE.read_text(encoding="utf-8").replace("#", " ").split())
