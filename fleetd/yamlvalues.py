"""Values out of YAML nodes. Each reader knows the type that it is asked for, and refuses what can be read two ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from actors.clock import NS_PER_S
from fleetd.yamlfile import Listing, Node, Scalar, YamlError, kind_of, retyped, shown, table

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_SECONDS: Final = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.([0-9]{1,9}))?", re.ASCII)

T = TypeVar("T")

#: The field that a key fills, and the reader of its value.
Key = tuple[str, Callable[[Node], Any]]


def values(keys: Mapping[str, Key], node: Node) -> dict[str, Any]:
    """The fields that a mapping fills. A key that is not known is refused."""
    found: dict[str, Any] = {}
    for name, entry in table(node).items():
        if name not in keys:
            near = get_close_matches(name, keys, n=1)
            hint = f"the nearest known one is {near[0]}" if near else f"known here are {', '.join(keys)}"
            raise YamlError.at(entry, f"there is no such key: {hint}")
        field, reader = keys[name]
        found[field] = reader(entry)
    return found


def fill(make: Callable[..., T], keys: Mapping[str, Key], node: Node) -> T:
    """What ``make`` makes of a mapping's fields."""
    return make(**values(keys, node))


def items(node: Node) -> tuple[Node, ...]:
    """A list's items; none where nothing is written."""
    if isinstance(node, Listing):
        return node.items
    if isinstance(node, Scalar) and node.absent:
        return ()
    raise YamlError.at(node, f"a list ([one, two]) is wanted here, found {kind_of(node)}")


def string(node: Node) -> str:
    """A string: quoted, or a text that nobody reads as anything else."""
    if not isinstance(node, Scalar):
        raise YamlError.at(node, f"a string is wanted here, found {kind_of(node)}: put the text in quotes")
    if node.absent:
        raise YamlError.at(node, "it has no value: write a string, or delete the key")
    if node.plain and (kind := retyped(node.text)) is not None:
        raise YamlError.at(node, f"a string is wanted, and the text, unquoted, is {kind} to YAML: put it in quotes")
    return node.text


def choice(node: Node, options: Sequence[str]) -> str:
    """One of some words."""
    chosen = string(node)
    if chosen not in options:
        raise YamlError.at(node, f"one of {', '.join(options)} is wanted, found {shown(chosen)}")
    return chosen


def boolean(node: Node) -> bool:
    if isinstance(node, Scalar) and node.plain and node.text in ("true", "false"):
        return node.text == "true"
    raise YamlError.at(node, f"a boolean is wanted, true or false in lower case without quotes, found {_found(node)}")


def integer(node: Node, low: int, high: int) -> int:
    if isinstance(node, Scalar) and node.plain and _INTEGER.fullmatch(node.text) and low <= int(node.text) <= high:
        return int(node.text)
    raise YamlError.at(
        node,
        f"an integer from {low} to {high} is wanted, decimal digits without quotes or a leading zero, "
        f"found {_found(node)}",
    )


def seconds(node: Node, low_ns: int, high_ns: int) -> int:
    """Seconds, with up to nine decimals, as nanoseconds: exactly, without a float in between."""
    found = _SECONDS.fullmatch(node.text) if isinstance(node, Scalar) and node.plain else None
    if found is not None:
        ns = int(found[1]) * NS_PER_S + int((found[2] or "").ljust(9, "0"))
        if low_ns <= ns <= high_ns:
            return ns
    raise YamlError.at(
        node,
        f"seconds from {_decimal(low_ns)} to {_decimal(high_ns)} are wanted, written like 60 or 0.5 without quotes, "
        f"found {_found(node)}",
    )


# -- words for errors -----------------------------------------------------------------------------------------------


def _found(node: Node) -> str:
    if not isinstance(node, Scalar) or node.absent:
        return kind_of(node)
    return shown(node.text) if node.plain else f'the string "{shown(node.text)}"'


def _decimal(ns: int) -> str:
    whole, rest = divmod(ns, NS_PER_S)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".")
