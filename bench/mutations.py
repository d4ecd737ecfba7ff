"""Small wrong versions of a module, one change each: what a test suite must notice.

Mutated are comparisons (the boundary and the whole sense), boolean operators, numbers and truth values, texts,
arithmetic, conditions, ``not``, ``min`` and ``max``, entries of dict and set displays, returned values, and statements,
which are removed. Left alone is what has no behaviour or is not the module's own: annotations, docstrings, imports,
assertions, logging, the values of enumerations, and the keywords of a class (``frozen=True``).
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
#: A number from here on is doubled and halved: nobody could see one more or less of it.
_LARGE = 1000
_LOGGERS = frozenset({"log", "debug", "info", "warning", "error", "exception"})
_ENUMS = frozenset({"Enum", "StrEnum", "IntEnum"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

#: What a mutant is called in ``mutants.md``: module, place, before, after, and which of several equal ones.
Key = tuple[str, str, str, str, int]


@dataclass(frozen=True)
class Mutant:
    """One module with one change."""

    module: str
    #: The function (``Class.method``) or the module's own name that holds the change.
    where: str
    #: The changed lines without their indentation, before and after.
    before: str
    after: str
    #: Which of several equal changes in one place, from 1.
    nth: int
    source: str

    @property
    def key(self) -> Key:
        return self.module, self.where, self.before, self.after, self.nth

    @property
    def entry(self) -> str:
        """As ``mutants.md`` lists it, but for the reason."""
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"- `{self.before}` → `{self.after}`{nth}"


class _Span(NamedTuple):
    """A part of the source: lines from 1, columns in bytes, as the syntax tree counts them."""

    line: int
    column: int
    end_line: int
    end_column: int


class _Change(NamedTuple):
    where: str
    span: _Span
    text: str


def mutants(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module's source, in the order of the text."""
    found: list[Mutant] = []
    times, shapes = Counter[tuple[str, str, str]](), {ast.dump(ast.parse(source))}
    for change in _Finder().find(ast.parse(source)):
        mutated = _spliced(source, change.span, change.text)
        try:
            shape = ast.dump(ast.parse(mutated))
        except SyntaxError:
            continue
        if shape in shapes:
            continue
        shapes.add(shape)
        diff = list(difflib.unified_diff(source.splitlines(), mutated.splitlines(), n=0, lineterm=""))[2:]
        key = change.where, _changed(diff, "-"), _changed(diff, "+")
        times[key] += 1
        found.append(Mutant(module, *key, times[key], mutated))
    return found


def _changed(diff: Sequence[str], sign: str) -> str:
    return " / ".join(line[1:].strip() for line in diff if line.startswith(sign)) or "nothing"


def _spliced(source: str, span: _Span, text: str) -> str:
    lines = source.encode().splitlines(keepends=True)
    first, last = span.line - 1, span.end_line - 1
    head, tail = lines[first][: span.column], lines[last][span.end_column :]
    return b"".join([*lines[:first], head + text.encode() + tail, *lines[last + 1 :]]).decode()


def _span(node: ast.expr | ast.stmt) -> _Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _Span(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


class _Finder:
    """Walks a tree and offers changes."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def find(self, tree: ast.Module) -> Iterator[_Change]:
        yield from self._block(tree.body)

    def _at(self, span: _Span, text: str) -> _Change:
        return _Change(".".join(self._names) or "the module", span, text)

    def _instead(self, node: ast.expr | ast.stmt, new: ast.expr | ast.stmt | str) -> _Change:
        """Put something in a node's place; an expression stays one in its brackets."""
        if isinstance(new, str):
            return self._at(_span(node), new)
        bracketed = isinstance(new, ast.Compare | ast.BoolOp | ast.UnaryOp)
        return self._at(_span(node), f"({ast.unparse(new)})" if bracketed else ast.unparse(new))

    def _block(self, body: list[ast.stmt], *, function: bool = False) -> Iterator[_Change]:
        for node in body:
            text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if text or isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Pass):
                continue
            if isinstance(node, _DEFINITIONS):
                yield from self._definition(node)
                continue
            named = "" if self._names else _assigned(node)
            self._names += [named] if named else []
            yield from self._statement(node, final=function and node is body[-1])
            if named:
                self._names.pop()

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[_Change]:
        self._names.append(node.name)
        body = node.body
        if isinstance(node, ast.ClassDef):
            if any(ast.unparse(base).split(".")[-1] in _ENUMS for base in node.bases):
                body = [each for each in body if not isinstance(each, ast.Assign)]
        else:
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                yield from self._expression(default)
        yield from self._block(body, function=not isinstance(node, ast.ClassDef))
        self._names.pop()

    def _statement(self, node: ast.stmt, *, final: bool) -> Iterator[_Change]:
        match node:
            case ast.Expr(value=value) if _logs(value):
                return
            case ast.Return(value=value):
                empty = value is None or ast.unparse(value) == "None"
                if not empty:
                    yield self._instead(node, "return None")
                if not final:
                    yield self._instead(node, "pass" if value is None or empty else ast.Expr(value))
            case ast.Expr() | ast.Raise() | ast.Delete() | ast.Break() | ast.Continue():
                yield self._instead(node, "pass")
            case ast.AugAssign(target=target, op=op, value=value):
                yield self._instead(node, "pass")
                if (other := _ARITHMETIC.get(type(op))) is not None:
                    yield self._instead(node, ast.AugAssign(target, other(), value))
            # Without its variable the code cannot run at all.
            case ast.Assign(targets=[target]) if not isinstance(target, ast.Name):
                yield self._instead(node, "pass")
            case ast.If(test=test) | ast.While(test=test):
                yield from self._condition(test)
        yield from self._inside(node)

    def _inside(self, node: ast.stmt) -> Iterator[_Change]:
        """What a statement holds: expressions, but for annotations, and blocks."""
        for name, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            if children and isinstance(children[0], ast.stmt):
                yield from self._block(children)
                continue
            for child in children:
                if isinstance(child, ast.expr) and name != "annotation":
                    yield from self._expression(child)
                elif isinstance(child, ast.match_case):
                    if child.guard is not None:
                        yield from self._condition(child.guard)
                        yield from self._expression(child.guard)
                    yield from self._block(child.body)
                elif isinstance(child, ast.ExceptHandler):
                    yield from self._block(child.body)
                elif isinstance(child, ast.withitem):
                    yield from self._expression(child.context_expr)

    def _condition(self, test: ast.expr) -> Iterator[_Change]:
        """The other way round; a comparison and a ``not`` have mutants of their own that are that."""
        turned = isinstance(test, ast.Constant | ast.Compare) or (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        )
        if not turned:
            yield self._instead(test, ast.UnaryOp(ast.Not(), test))

    def _expression(self, node: ast.expr) -> Iterator[_Change]:
        if _logs(node):
            return
        match node:
            case ast.Compare(left=left, ops=ops, comparators=right):
                for index, op in enumerate(ops):
                    for other in _COMPARISONS[type(op)]:
                        yield self._instead(node, ast.Compare(left, [*ops[:index], other(), *ops[index + 1 :]], right))
            case ast.BoolOp(op=op, values=values):
                yield self._instead(node, ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._instead(node, f"({ast.unparse(operand)})")
            case ast.BinOp(left=one, op=op, right=two) if (swapped := _ARITHMETIC.get(type(op))) is not None:
                yield self._instead(node, f"({ast.unparse(ast.BinOp(one, swapped(), two))})")
            case ast.IfExp(test=test):
                yield from self._condition(test)
            case ast.Constant(value=bool(value)):
                yield self._instead(node, repr(not value))
            case ast.Constant(value=int(number) | float(number)):
                large = number >= _LARGE
                yield self._instead(node, str(number * 2 if large else number + 1))
                yield self._instead(node, str(number // 2 if large else number - 1))
            case ast.Constant(value=str(text)):
                yield self._instead(node, '""' if text else '"mutant"')
            case ast.JoinedStr():
                yield self._instead(node, '""')
            case ast.Call(func=ast.Name(id="min" | "max" as name) as function):
                yield self._instead(function, "max" if name == "min" else "min")
            case ast.Dict(keys=keys, values=values):
                starts = [_start(key, value) for key, value in zip(keys, values, strict=True)]
                yield from self._entries(node, starts, [_span(value)[2:] for value in values])
            case ast.Set(elts=elements) if len(elements) > 1:
                spans = [_span(element) for element in elements]
                yield from self._entries(node, [span[:2] for span in spans], [span[2:] for span in spans])
        if isinstance(node, ast.JoinedStr):
            return  # positions inside are not to be relied on before Python 3.12
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.comprehension):
                for test in child.ifs:
                    yield from self._condition(test)
                for part in (child.iter, *child.ifs):
                    yield from self._expression(part)
            elif isinstance(child, ast.keyword):
                yield from self._expression(child.value)
            elif isinstance(child, ast.expr):
                yield from self._expression(child)

    def _entries(
        self, node: ast.expr, starts: Sequence[tuple[int, int]], ends: Sequence[tuple[int, int]]
    ) -> Iterator[_Change]:
        """Each entry of a display taken out, with the comma that follows it or else the one before."""
        for index, start in enumerate(starts):
            if index + 1 < len(starts):
                yield self._at(_Span(*start, *starts[index + 1]), "")
            elif index:
                yield self._at(_Span(*ends[index - 1], *ends[index]), "")
            else:
                yield self._instead(node, "{}")


def _start(key: ast.expr | None, value: ast.expr) -> tuple[int, int]:
    """Where an entry of a dict display begins; one without key is ``**value``."""
    line, column = _span(key or value)[:2]
    return line, column - (2 if key is None else 0)


def _assigned(node: ast.stmt) -> str:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _logs(node: ast.expr) -> bool:
    """A call of a logger, whatever it is called: nobody's state depends on it."""
    match node:
        case ast.Call(func=ast.Attribute(value=logger, attr=attr)) if attr in _LOGGERS:
            return "log" in ast.unparse(logger).lower()
    return False
