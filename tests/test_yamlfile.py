"""Strict YAML: what is refused, where, and what a scalar may be read as."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetd import yamlfile, yamlvalues
from fleetd.yamlfile import Listing, Node, Scalar, Table, YamlError, parse
from fleetd.yamlvalues import boolean, choice, integer, seconds, string

NS = 1_000_000_000


def refusal(text: str | bytes) -> YamlError:
    with pytest.raises(YamlError) as caught:
        parse(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return caught.value


def value(text: str) -> Node:
    """The node of ``a: <text>``."""
    return parse(f"a: {text}".encode()).entries["a"]


def test_nodes_carry_key_paths_and_the_lines_of_their_keys() -> None:
    root = parse(b"# comment\nouter:\n  list:\n    - one\n    -\n      two\n  'quoted': no\n")
    assert root == Table(
        "",
        1,
        {
            "outer": Table(
                "outer",
                2,
                {
                    "list": Listing(
                        "outer.list",
                        3,
                        (
                            Scalar("outer.list[0]", 4, "one", plain=True),
                            Scalar("outer.list[1]", 6, "two", plain=True),
                        ),
                    ),
                    "quoted": Scalar("outer.quoted", 7, "no", plain=True),
                },
            )
        },
    )


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "---\n", "---\n...\n", "\ufeff", "{}"])
def test_a_file_that_holds_nothing_is_an_empty_mapping(text: str) -> None:
    assert parse(text.encode()).entries == {}


REFUSED = [
    # text, key path, line, a part of the sentence
    ("a: 1\nb: 2\na: 3", "a", 3, "twice, first in line 1"),
    ("x:\n  a: 1\n  a: 1", "x.a", 3, "twice, first in line 2"),
    ("x: {a: 1, 'a': 2}", "x.a", 1, "twice"),
    ("a: &anchor 1", "a", 1, "anchors"),
    ("a: &anchor\n  b: 1", "a", 1, "anchors"),
    ("&anchor a: 1", "", 1, "anchors"),
    ("a:\n  - x\n  - *alias", "a[1]", 3, "aliases"),
    ("a: 1\n*alias : 2", "", 2, "aliases"),
    ("a: {<<: {b: 1}}", "a", 1, "merge keys"),
    ("<<: {b: 1}", "", 1, "merge keys"),
    ("a:\n  b: !!str 1", "a.b", 2, "tags"),
    ("a: !!python/object/apply:os.system [x]", "a", 1, "tags"),
    ("a: ! x", "a", 1, "tags"),
    ("a: !local {b: 1}", "a", 1, "tags"),
    ("!!str a: 1", "", 1, "tags"),
    ("a: 1\n---\nb: 2", "", 2, "second document"),
    ("a: 1\n...\nb: 2", "", 3, "not YAML"),
    ("x:\n  1: one", "x", 2, "the key 1, unquoted, is a number"),
    ("no: x", "", 1, "the key no, unquoted, is a boolean"),
    ("y: x", "", 1, "the key y, unquoted"),
    ("2026-01-01: x", "", 1, "is a date"),
    ("x:\n  ?\n  : y", "x", 2, "the key empty, unquoted, is nothing"),
    ("x:\n  ? [a]\n  : b", "x", 2, "a key must be a string"),
    ("? {a: b}\n: c", "", 1, "a key must be a string"),
    ("- a", "", 1, "a mapping (key: value) is wanted here, found a list"),
    ("text", "", 1, "a mapping (key: value) is wanted here, found a single value"),
    ("a:\n  b: @claude", "a.b", 2, "put the value in quotes"),
    ("a: `x", "a", 1, "put the value in quotes"),
    ("a: %x", "a", 1, "put the value in quotes"),
    ('a: "\\s"', "a", 1, "use single quotes"),
    ("a:\n\t- 1", "a", 2, "indent with spaces"),
    ("a: b: c", "", 1, "quote a text that holds ': '"),
    ("a:\n  - b\n  c: d", "a[1]", 3, "line up"),
    ("a: [x\nb: c", "a[1]", 2, "not YAML"),
    ("a: 'x", "a", 1, "not YAML"),
    ('a: "\\UFFFFFFFF"', "a", 0, "out of range"),
    ("%YAML 1." + "1" * 5000 + "\n---\na: 1", "", 0, "out of range"),
    ('a: 1\nb: "\\0"', "b", 2, "U+0000"),
    ('a: "\\b"', "a", 1, "in double quotes \\b is a backspace"),
    ('a: "\\e[31m"', "a", 1, "U+001B"),
    ('a: "\\ud800"', "a", 1, "U+D800"),
    ('"\\x07": 1', "", 1, "U+0007"),
    ("a: 1\nb: \x07", "", 2, "U+0007"),
    (b"a: 1\nb: \xff", "", 2, "not UTF-8"),
    ("a: \ud800", "", 1, "not UTF-8"),
    ("a: 1".encode("utf-16"), "", 1, "not UTF-8"),
]


@pytest.mark.parametrize(("text", "key", "line", "why"), REFUSED)
def test_a_trap_is_refused_with_its_key_path_and_line(text: str | bytes, key: str, line: int, why: str) -> None:
    refused = refusal(text)
    assert (refused.key, refused.line) == (key, line)
    assert why in refused.why
    assert "\n" not in refused.why


def test_an_odd_key_is_escaped_and_cut_in_the_key_path() -> None:
    assert refusal('"a\\nb": 1\n"a\\nb": 2').key == "'a\\nb'"
    assert len(refusal(f"{'k' * 500}: *x").key) < 80


def test_nesting_of_32_levels_is_read_and_of_33_is_refused() -> None:
    def nested(levels: int) -> str:
        return "a: " + "[" * (levels - 1) + "]" * (levels - 1)

    assert parse(nested(32).encode())
    refused = refusal(nested(33))
    assert refused.line == 1
    assert refused.key.startswith("a[0][0]")
    assert "deeper than 32 levels" in refused.why


def test_a_file_of_256_kib_is_read_and_one_byte_more_is_refused() -> None:
    exact = b"a: 1\n#".ljust(yamlfile.MAX_BYTES, b"x")
    assert parse(exact).entries["a"] == Scalar("a", 1, "1", plain=True)
    assert "larger than 256 KiB" in refusal(exact + b"x").why


def test_more_than_10000_values_are_refused() -> None:
    assert "more than 10000 values" in refusal("a: [" + "x," * 10_001 + "]").why


WORST = {
    "open brackets": "[" * yamlfile.MAX_BYTES,
    "open braces": "{" * yamlfile.MAX_BYTES,
    "question marks": "? " * (yamlfile.MAX_BYTES // 2),
    "dashes": "- " * (yamlfile.MAX_BYTES // 2),
    "a list": "a: [" + "x," * (yamlfile.MAX_BYTES // 2 - 4) + "]",
    "words": "a: " + "x " * (yamlfile.MAX_BYTES // 2 - 3),
    "escapes": 'a: "' + "\\n" * (yamlfile.MAX_BYTES // 2 - 4) + '"',
    "a tag": "!" * yamlfile.MAX_BYTES,
    "documents": "---\n" * (yamlfile.MAX_BYTES // 4),
    "an alias bomb": "a: &a [x]\n" + "".join(f"b{i}: &b{i} [*a,*a]\n" for i in range(99)),
    "one long key": '"' + "k" * (yamlfile.MAX_BYTES - 4) + '":',
}


@pytest.mark.parametrize("text", WORST.values(), ids=WORST.keys())
def test_the_worst_files_are_read_or_refused_in_seconds(text: str) -> None:
    """About 0.7 s at most where this was measured; the margin is for noisy machines."""
    began = time.perf_counter()
    said = ""
    try:
        parse(text.encode())
    except YamlError as refused:
        said = f"{refused.key}: {refused.why}"
    assert time.perf_counter() - began < 10
    assert len(said) < 400


# -- scalars --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("no", "yes", "on", "off", "True", "y", "N", "~", "null", "=", "<<", ".inf", "-.INF", ".nan"),
        *("010", "08", "0o17", "0x10", "0b1", "1_000", "12:30:45", "1", "+1", "1.5", "1.", ".5", "1e3", "1.5e3"),
        *("2026-01-01", "2026-01-01 10:00:00"),
    ],
)
def test_a_string_that_yaml_would_retype_must_be_quoted(text: str) -> None:
    with pytest.raises(YamlError, match="put it in quotes"):
        string(value(text))
    assert string(value(f"'{text}'")) == text
    assert string(value(f'"{text}"')) == text


@pytest.mark.parametrize("text", ["claude", "1.2.3", "127.0.0.1", "gpt-5", "a_1", "-y", "--flag=1", "no!", "tRue", "."])
def test_a_string_that_nobody_would_retype_needs_no_quotes(text: str) -> None:
    assert string(value(text)) == text


@given(st.text(alphabet="0123456789.:-+_eExXoObBtTnNyYfFaAlLsSuU~<>= ", min_size=1, max_size=12))
def test_a_plain_string_is_one_that_pyyaml_reads_as_itself(text: str) -> None:
    try:
        taken = string(value(text))
    except YamlError:
        return
    assert yaml.safe_load(f"a: {text}") == {"a": taken}


def test_a_block_or_quoted_text_is_a_string_whatever_it_says() -> None:
    assert string(value("|\n  no\n")) == "no\n"
    assert string(value(">-\n  1\n  2\n")) == "1 2"
    assert string(value("''")) == ""


@pytest.mark.parametrize(("text", "what"), [("", "no value"), ("[x]", "found a list"), ("{x: y}", "found a mapping")])
def test_what_is_no_scalar_is_no_string(text: str, what: str) -> None:
    with pytest.raises(YamlError, match=what):
        string(value(text))


def test_a_refused_string_is_not_repeated_in_the_error() -> None:
    with pytest.raises(YamlError) as caught:
        string(value("31337"))
    assert "31337" not in caught.value.why


@pytest.mark.parametrize("text", ["yes", "on", "True", "TRUE", "1", "'true'", '"false"', "", "[true]", "~"])
def test_a_boolean_is_true_or_false_and_nothing_else(text: str) -> None:
    assert boolean(value("true")) is True
    assert boolean(value("false")) is False
    with pytest.raises(YamlError, match="true or false in lower case without quotes, found "):
        boolean(value(text))


@pytest.mark.parametrize(
    "text",
    ["0", "65", "-1", "010", "0x10", "1_0", "+5", "5.0", "1e1", "'5'", "1:30", "five", "", "[5]", "٥", "9" * 5000],
)
def test_an_integer_is_plain_decimal_digits_within_its_range(text: str) -> None:
    assert [integer(value(str(taken)), 1, 64) for taken in (1, 7, 64)] == [1, 7, 64]
    with pytest.raises(YamlError, match="an integer from 1 to 64 is wanted"):
        integer(value(text), 1, 64)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("60", 60 * NS),
        ("0.1", 100_000_000),
        ("0.3", 300_000_000),
        ("59.999999999", 59_999_999_999),
        ("1.50", 1_500_000_000),
    ],
)
def test_decimal_seconds_become_exact_nanoseconds(text: str, ns: int) -> None:
    assert seconds(value(text), 1, 60 * NS) == ns


@given(st.integers(min_value=0, max_value=10**15))
def test_every_nanosecond_count_survives_being_written_as_seconds(ns: int) -> None:
    assert seconds(value(f"{ns // NS}.{ns % NS:09}"), 0, 10**15) == ns


@pytest.mark.parametrize(
    "text", ["0", "60.000000001", "-1", "1.0000000001", "1.", ".5", "01", "1_0", "1:00", "1e1", ".inf", "'1'", "", "1s"]
)
def test_seconds_are_refused_with_the_range_and_an_example(text: str) -> None:
    with pytest.raises(YamlError, match=r"seconds from 0\.001 to 60 are wanted, written like 60 or 0\.5"):
        seconds(value(text), NS // 1000, 60 * NS)


@pytest.mark.parametrize(("read", "text"), [(yamlfile.table, "[x]"), (yamlfile.table, "x"), (yamlfile.table, "''")])
def test_a_mapping_is_wanted_where_one_is_read(read: Callable[[Node], object], text: str) -> None:
    with pytest.raises(YamlError, match="a mapping"):
        read(value(text))


@pytest.mark.parametrize("text", ["{x: y}", "x", "''"])
def test_a_list_is_wanted_where_one_is_read(text: str) -> None:
    with pytest.raises(YamlError, match="a list"):
        yamlvalues.items(value(text))


def test_a_section_whose_lines_are_all_commented_out_is_empty() -> None:
    node = parse(b"a:\n  # b: 1\n").entries["a"]
    assert yamlfile.table(node) == {}
    assert yamlvalues.items(node) == ()


def test_a_choice_names_its_words() -> None:
    assert choice(value("pty"), ("tmux", "pty")) == "pty"
    with pytest.raises(YamlError, match="one of tmux, pty is wanted, found screen"):
        choice(value("screen"), ("tmux", "pty"))
