"""YAML without its traps: a text in, plain nodes with key paths and line numbers out.

YAML 1.1 guesses. ``no`` is false, ``010`` is eight, ``12:30:45`` is 45045, the second of two equal keys wins in
silence, and 431 bytes of aliases unfold into 390 million values. A configuration must not be guessed at, so this module
takes only PyYAML's *events*, which still know how each value was written, and does the rest itself:

* refused while reading: duplicate keys, anchors and aliases, merge keys, tags, a second document, keys that are not
  strings, control characters, and whatever exceeds one of the bounds below;
* nothing has a type until somebody asks for one; see :mod:`fleetd.yamlvalues`.

Every refusal is a :class:`YamlError` with the key path (``profiles.claude-a.command[2]``), the line counted from 1, and
a sentence. Free text (a variable's value, a word of a command) is never in it: it may be a secret.

PyYAML's own scanner is used and not libyaml's: it is the same wherever PyYAML is, and the bounds keep it to about a
second on the worst of files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml
from yaml.reader import ReaderError
from yaml.resolver import Resolver

#: Bytes of one file.
MAX_BYTES: Final = 256 * 1024
#: Mappings and lists inside each other.
MAX_DEPTH: Final = 32
#: Values of all kinds in one file.
MAX_VALUES: Final = 10_000
#: Characters of a key or a value that an error shows.
SHOWN_CHARS: Final = 64

#: What a refused character means, and what to do about it. Tried in order against the scanner's own words.
_HINTS: Final = (
    ("'\\t'", "indent with spaces, not with tabs"),
    ("cannot start any token", "put the value in quotes"),
    ("unknown escape", "in double quotes a backslash is special: use single quotes"),
    ("mapping values are not allowed", "quote a text that holds ': ', and line up the keys of one mapping"),
    ("expected <block end>", "line up keys and dashes, and quote a text that begins with [ or {"),
)
_CONTROL: Final = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")
#: Numbers of YAML 1.2 and booleans of YAML 1.1 that PyYAML's resolver does not know.
_RETYPED_ELSEWHERE: Final = re.compile(
    r"[yYnN]|0o[0-7]+|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII
)
_KINDS: Final = {"bool": "a boolean", "null": "nothing", "timestamp": "a date", "merge": "a merge", "value": "a marker"}
_RESOLVER: Final[Any] = Resolver()


class YamlError(ValueError):
    """The file is refused. ``key`` is empty where no key is concerned, ``line`` 0 where no line is."""

    def __init__(self, key: str, line: int, why: str) -> None:
        super().__init__(why)
        self.key = key
        self.line = line
        self.why = why

    @classmethod
    def at(cls, node: Node, why: str) -> YamlError:
        return cls(node.key, node.line, why)


class Scalar(msgspec.Struct, frozen=True):
    """One value as it is written."""

    key: str
    #: Where its key stands, or where it begins when it is an item of a list.
    line: int
    text: str
    #: It is written without quotes, and so could mean something else than its text.
    plain: bool

    @property
    def absent(self) -> bool:
        """Nothing is written behind the key."""
        return self.plain and not self.text


class Listing(msgspec.Struct, frozen=True):
    key: str
    line: int
    items: tuple[Node, ...]


class Table(msgspec.Struct, frozen=True):
    key: str
    line: int
    #: In the order of the file.
    entries: Mapping[str, Node]


Node = Scalar | Listing | Table


def parse(data: bytes) -> Table:
    """The mapping that the file holds; an empty one when the file holds nothing.

    Raises:
        YamlError: the file is refused.
    """
    if len(data) > MAX_BYTES:
        raise YamlError("", 0, f"the file is larger than {MAX_BYTES // 1024} KiB, the most that is read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise YamlError("", data.count(b"\n", 0, exc.start) + 1, "the file is not UTF-8: save it as UTF-8") from None
    return _Parser(text).document()


# -- from events to nodes -------------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._events = yaml.parse(text, Loader=yaml.SafeLoader)
        self._values = 0

    def document(self) -> Table:
        self._next()  # the stream's start
        if isinstance(self._next(), yaml.StreamEndEvent):
            return Table("", 1, {})
        root = self._node(self._next(), "", 1, 1)
        self._next()  # the document's end
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise YamlError("", after.start_mark.line + 1, "a second document begins here: one file holds one")
        return Table("", 1, table(root))

    def _next(self, key: str = "") -> Any:
        """The next event; what is wrong with the text from here on is charged to ``key``."""
        try:
            return next(self._events)
        except yaml.MarkedYAMLError as exc:
            problem = exc.problem or exc.context or "it cannot be read"
            hint = next((f": {hint}" for mark, hint in _HINTS if mark in problem), "")
            line = 0 if exc.problem_mark is None else exc.problem_mark.line + 1
            raise YamlError(key, line, f"not YAML: {problem}{hint}") from None
        except ReaderError as exc:
            line = self._text.count("\n", 0, exc.position) + 1
            raise YamlError(
                "", line, f"it holds a character that YAML does not allow (U+{exc.character:04X})"
            ) from None
        except (ValueError, OverflowError):
            # The scanner lets int() and chr() fail on an absurd %YAML version or a "\U" escape beyond Unicode.
            raise YamlError(key, 0, "not YAML: a number in an escape or a %YAML line is out of range") from None

    def _node(self, event: Any, key: str, line: int, depth: int) -> Node:
        self._values += 1
        if self._values > MAX_VALUES:
            raise YamlError(key, line, f"the file holds more than {MAX_VALUES} values, the most that are read")
        _refuse_shorthand(event, key, line)
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(key, line, _checked(event.value, key, line), plain=not event.style)
        if depth > MAX_DEPTH:
            raise YamlError(key, line, f"it is nested deeper than {MAX_DEPTH} levels, the most that are read")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._listing(key, line, depth)
        return self._table(key, line, depth)

    def _listing(self, key: str, line: int, depth: int) -> Listing:
        items: list[Node] = []
        while not isinstance(event := self._next(path := f"{key}[{len(items)}]"), yaml.SequenceEndEvent):
            items.append(self._node(event, path, event.start_mark.line + 1, depth + 1))
        return Listing(key, line, tuple(items))

    def _table(self, key: str, line: int, depth: int) -> Table:
        entries: dict[str, Node] = {}
        while not isinstance(event := self._next(key), yaml.MappingEndEvent):
            at = event.start_mark.line + 1
            name = _name(event, key, at)
            path = f"{key}.{shown(name)}" if key else shown(name)
            if (first := entries.get(name)) is not None:
                raise YamlError(path, at, f"the key stands twice, first in line {first.line}: keep one of them")
            entries[name] = self._node(self._next(path), path, at, depth + 1)
        return Table(key, line, entries)


def _refuse_shorthand(event: Any, key: str, line: int) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise YamlError(key, line, "aliases (*name) are refused: write the value out, or quote it if it begins with *")
    if event.anchor is not None:
        raise YamlError(key, line, "anchors (&name) are refused: remove it, or quote the value if it begins with &")
    if event.tag is not None:
        raise YamlError(key, line, "tags (!name) are refused: remove it, or quote the value if it begins with !")


def _name(event: Any, parent: str, line: int) -> str:
    """One key of the mapping ``parent``."""
    _refuse_shorthand(event, parent, line)
    if not isinstance(event, yaml.ScalarEvent):
        raise YamlError(parent, line, "a key must be a string, not a list or a mapping")
    name = _checked(event.value, parent, line)
    if not event.style:
        if name == "<<":
            raise YamlError(parent, line, "merge keys (<<) are refused: write the keys out")
        if (kind := retyped(name)) is not None:
            what = shown(name) or "empty"
            raise YamlError(parent, line, f"the key {what}, unquoted, is {kind} to YAML: put it in quotes")
    return name


def _checked(text: str, key: str, line: int) -> str:
    found = _CONTROL.search(text)
    if found is None:
        return text
    raise YamlError(
        key,
        line,
        f"it holds the control character U+{ord(found[0]):04X}: remove it; in double quotes \\b is a backspace, "
        "so write a regular expression in single quotes",
    )


def retyped(text: str) -> str | None:
    """What YAML makes of a text without quotes, if not a string: in version 1.1 or 1.2, whoever reads it."""
    kind = str(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False))).rpartition(":")[2]
    if kind == "str":
        return "a boolean or a number" if _RETYPED_ELSEWHERE.fullmatch(text) else None
    return _KINDS.get(kind, "a number")


def shown(text: str, chars: int = SHOWN_CHARS) -> str:
    """A text of the file in one line of an error: short, and escaped unless it is printable."""
    cut = text if len(text) <= chars else f"{text[:chars]}..."
    return cut if cut.isprintable() else ascii(cut)


def table(node: Node) -> Mapping[str, Node]:
    """A mapping's entries; none where nothing is written."""
    if isinstance(node, Table):
        return node.entries
    if isinstance(node, Scalar) and node.absent:
        return {}
    raise YamlError.at(node, f"a mapping (key: value) is wanted here, found {kind_of(node)}")


def kind_of(node: Node) -> str:
    """What a node is, for errors."""
    if isinstance(node, Table):
        return "a mapping"
    if isinstance(node, Listing):
        return "a list"
    return "nothing" if node.absent else "a single value"
