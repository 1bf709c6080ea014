"""Mutation operators: small faults planted in the syntax tree of a module, one at a time.

| operator | change |
|---|---|
| arithmetic | `+` and `-`, `*` and `/`, `<<` and `>>`, `&` and `|` swapped |
| arithmetic | `//`, `%` and `**` to `*`; `^` to `&` |
| unary | `-x`, `not x`, `~x` to `x` |
| comparison | `<` and `<=`, `>` and `>=`, `==` and `!=`, `is`, `in` and their negations swapped |
| boolean | `and` and `or` swapped |
| condition | the condition of an `if`, `while`, conditional expression or filter negated |
| constant | a number plus 1 (doubled from 2^53 on), a truth value negated, a text between "XX" |
| function | `min` and `max`, `any` and `all`, `minimum` and `maximum`, `floor` and `ceil` swapped |
| return | `return x` to `return None` |
| statement | a call whose value is not used, or a `raise`, removed |
| statement | an assignment to an attribute or to an element removed |
| loop | `break` and `continue` swapped |
| handler | an exception that was handled is raised again |

Not mutated: docstrings, annotations, type aliases, imports, decorators, patterns of `match`, the
types in `isinstance`, names of type variables, `strict` of `zip` (an assertion), the literal text
of f-strings, and everything in a `raise`: messages are for people, and a test that repeats one word
by word would only make it harder to improve. A change that compiles to the same bytecode is not a
mutant.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NEGATED_BY_COMPARISON = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
FUNCTIONS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "floor": "ceil",
    "ceil": "floor",
}
_TYPE_NAMES = ("TypeVar", "ParamSpec", "NewType")
_TYPE_CHECKS = ("isinstance", "issubclass")

Place = tuple[ast.AST, str, int | None]
"""A node, the name of a field, and the position in it where the field is a list."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module, which can be compiled any number of times."""

    id: str
    """Follows from module, function, statement and change, not from line numbers."""
    module: str
    function: str
    """Qualified name of the outermost function around the change; empty outside functions."""
    function_line: int
    line: int
    operator: str
    change: str
    source: Source
    place: Place
    replacement: ast.AST

    def compile(self) -> CodeType:
        """Return the bytecode of the whole module with this change."""
        parent, field, index = self.place
        original = _get(parent, field, index)
        _set(parent, field, index, self.replacement)
        try:
            return self.source.compile()
        finally:
            _set(parent, field, index, original)


class Source:
    """The syntax tree of one module."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.module = str(path.relative_to(root))
        self.tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        # As the engine's keys do it: comments and line numbers do not make another module.
        self.digest = hashlib.sha256(ast.dump(self.tree).encode()).hexdigest()[:16]

    def compile(self) -> CodeType:
        return compile(self.tree, str(self.path), "exec", dont_inherit=True)

    def mutants(self) -> list[Mutant]:
        """Return all mutants in the order of the source."""
        original = self.compile()
        seen: Counter[tuple[str, ...]] = Counter()
        found = []
        for change in _Walk().module(self.tree):
            if _compiles_alike(self, change, original):
                continue
            identity = (
                self.module,
                change.qualname,
                change.operator,
                change.text,
                change.statement,
            )
            seen[identity] += 1
            digest = hashlib.sha256(repr((*identity, seen[identity])).encode()).hexdigest()[:12]
            found.append(
                Mutant(
                    digest,
                    self.module,
                    change.function,
                    change.function_line,
                    change.line,
                    change.operator,
                    f"{change.text} in `{change.statement}`",
                    self,
                    change.place,
                    change.replacement,
                )
            )
        return found


def _compiles_alike(source: Source, change: _Change, original: CodeType) -> bool:
    parent, field, index = change.place
    before = _get(parent, field, index)
    _set(parent, field, index, change.replacement)
    try:
        return source.compile() == original
    except SyntaxError:
        return True
    finally:
        _set(parent, field, index, before)


@dataclass(frozen=True)
class _Change:
    place: Place
    replacement: ast.AST
    operator: str
    text: str
    statement: str
    qualname: str
    function: str
    function_line: int
    line: int


class _Walk:
    """Visits what is mutated, and knows the function and the statement it is in."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._function = ("", 0)
        self._statement: ast.stmt | None = None

    def module(self, tree: ast.Module) -> Iterator[_Change]:
        yield from self._block(tree, "body")

    def _block(self, parent: ast.AST, field: str) -> Iterator[_Change]:
        for index, statement in enumerate(getattr(parent, field)):
            outer = self._statement
            self._statement = statement
            yield from self._stmt(statement, (parent, field, index))
            self._statement = outer

    def _stmt(self, node: ast.stmt, place: Place) -> Iterator[_Change]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                # Defaults are evaluated where the function is defined.
                yield from self._expressions(node.args.defaults, node.args, "defaults")
                yield from self._expressions(node.args.kw_defaults, node.args, "kw_defaults")
                outer = self._function
                self._names.append(node.name)
                if not outer[0]:
                    first = [one.lineno for one in node.decorator_list] + [node.lineno]
                    self._function = (".".join(self._names), min(first))
                yield from self._block(node, "body")
                self._names.pop()
                self._function = outer
            case ast.ClassDef():
                self._names.append(node.name)
                yield from self._block(node, "body")
                self._names.pop()
            case ast.Import() | ast.ImportFrom() | ast.Global() | ast.Nonlocal() | ast.Pass():
                return
            case ast.Raise():
                yield self._change(place, ast.Pass(), "statement", "raise removed")
            case ast.Break():
                yield self._change(place, ast.Continue(), "loop", "break to continue")
            case ast.Continue():
                yield self._change(place, ast.Break(), "loop", "continue to break")
            case ast.Return(value=value) if value is not None:
                if not (isinstance(value, ast.Constant) and value.value is None):
                    nothing = ast.Return(ast.Constant(None))
                    yield self._change(place, nothing, "return", "value to None")
                yield from self._expression(value, (node, "value", None))
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Expr(value=value):
                if isinstance(value, ast.Call):
                    yield self._change(place, ast.Pass(), "statement", "call removed")
                yield from self._expression(value, (node, "value", None))
            case ast.Assign():
                if not self._function[0] and _is_alias(node.value):
                    return
                if all(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets):
                    yield self._change(place, ast.Pass(), "statement", "assignment removed")
                yield from self._expressions(node.targets, node, "targets")
                yield from self._expression(node.value, (node, "value", None))
            case ast.AnnAssign(value=value):
                if isinstance(node.target, ast.Attribute | ast.Subscript) and value is not None:
                    yield self._change(place, ast.Pass(), "statement", "assignment removed")
                if value is not None:
                    yield from self._expression(value, (node, "value", None))
            case ast.AugAssign(op=operation):
                other = ARITHMETIC.get(type(operation))
                if other is not None:
                    text = f"{_symbol(operation)}= to {_symbol(other())}="
                    yield self._change((node, "op", None), other(), "arithmetic", text, node)
                if isinstance(node.target, ast.Attribute | ast.Subscript):
                    yield self._change(place, ast.Pass(), "statement", "assignment removed")
                yield from self._expression(node.target, (node, "target", None))
                yield from self._expression(node.value, (node, "value", None))
            case ast.If() | ast.While():
                yield from self._condition(node.test, (node, "test", None))
                yield from self._block(node, "body")
                yield from self._block(node, "orelse")
            case ast.For() | ast.AsyncFor():
                yield from self._expression(node.iter, (node, "iter", None))
                yield from self._block(node, "body")
                yield from self._block(node, "orelse")
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    yield from self._expression(item.context_expr, (item, "context_expr", None))
                yield from self._block(node, "body")
            case ast.Try():
                yield from self._block(node, "body")
                for handler in node.handlers:
                    if not isinstance(handler.body[0], ast.Raise):
                        again = ast.ExceptHandler(handler.type, handler.name, [ast.Raise()])
                        where = (node, "handlers", node.handlers.index(handler))
                        yield self._change(where, again, "handler", "raised again", handler)
                    yield from self._block(handler, "body")
                yield from self._block(node, "orelse")
                yield from self._block(node, "finalbody")
            case ast.Match():
                yield from self._expression(node.subject, (node, "subject", None))
                for case in node.cases:
                    if case.guard is not None:
                        yield from self._condition(case.guard, (case, "guard", None))
                    yield from self._block(case, "body")
            case _:
                yield from self._children(node)

    def _condition(self, test: ast.expr, place: Place) -> Iterator[_Change]:
        simple = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            simple = isinstance(test.ops[0], NEGATED_BY_COMPARISON)
        if isinstance(test, ast.Constant):
            simple = True
        if not simple:
            negated = ast.UnaryOp(ast.Not(), test)
            yield self._change(place, negated, "condition", f"`{ast.unparse(test)}` negated")
        yield from self._expression(test, place)

    def _expressions(
        self, nodes: list[ast.expr] | list[ast.expr | None], parent: ast.AST, field: str
    ) -> Iterator[_Change]:
        for index, node in enumerate(nodes):
            if node is not None:
                yield from self._expression(node, (parent, field, index))

    def _expression(self, node: ast.expr, place: Place) -> Iterator[_Change]:
        match node:
            case ast.Constant(value=value):
                yield from self._constant(value, place)
                return
            case ast.BinOp(op=operation):
                other = ARITHMETIC.get(type(operation))
                if other is not None:
                    text = f"{_symbol(operation)} to {_symbol(other())} after `{_cut(node.left)}`"
                    yield self._change((node, "op", None), other(), "arithmetic", text, node)
            case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
                yield self._change(place, node.operand, "unary", f"`{_cut(node)}` to its operand")
                if isinstance(node.operand, ast.Constant):
                    return
            case ast.Compare():
                for index, operation in enumerate(node.ops):
                    swapped = COMPARISONS[type(operation)]()
                    left = [node.left, *node.comparators][index]
                    text = f"{_symbol(operation)} to {_symbol(swapped)} after `{_cut(left)}`"
                    where = (node, "ops", index)
                    yield self._change(where, swapped, "comparison", text, node)
            case ast.BoolOp(op=operation):
                swap = ast.Or() if isinstance(operation, ast.And) else ast.And()
                text = f"{_symbol(operation)} to {_symbol(swap)} after `{_cut(node.values[0])}`"
                yield self._change((node, "op", None), swap, "boolean", text, node)
            case ast.IfExp():
                yield from self._condition(node.test, (node, "test", None))
                yield from self._expression(node.body, (node, "body", None))
                yield from self._expression(node.orelse, (node, "orelse", None))
                return
            case ast.Call(func=ast.Name(id=name)) if name in _TYPE_NAMES:
                return
            case ast.Call(func=ast.Name(id=name)) if name in _TYPE_CHECKS:
                yield from self._expression(node.args[0], (node, "args", 0))
                return
            case ast.Call(func=ast.Name(id="zip")):
                yield from self._expressions(node.args, node, "args")
                return
            case ast.Name(id=name) if name in FUNCTIONS and isinstance(node.ctx, ast.Load):
                swapped_name = ast.Name(FUNCTIONS[name], ast.Load())
                text = f"{name} to {FUNCTIONS[name]}"
                yield self._change(place, swapped_name, "function", text)
            case ast.Attribute(attr=name) if name in FUNCTIONS and isinstance(node.ctx, ast.Load):
                swapped_attribute = ast.Attribute(node.value, FUNCTIONS[name], ast.Load())
                text = f"{name} to {FUNCTIONS[name]}"
                yield self._change(place, swapped_attribute, "function", text)
            case ast.JoinedStr():
                for part in node.values:
                    if isinstance(part, ast.FormattedValue):
                        yield from self._expression(part.value, (part, "value", None))
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                for generator in node.generators:
                    for index, test in enumerate(generator.ifs):
                        yield from self._condition(test, (generator, "ifs", index))
                    yield from self._expression(generator.iter, (generator, "iter", None))
                fields = ("key", "value") if isinstance(node, ast.DictComp) else ("elt",)
                for field in fields:
                    yield from self._expression(getattr(node, field), (node, field, None))
                return
            case ast.Lambda():
                yield from self._expressions(node.args.defaults, node.args, "defaults")
                yield from self._expression(node.body, (node, "body", None))
                return
        yield from self._children(node)

    def _children(self, node: ast.AST) -> Iterator[_Change]:
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                yield from self._expression(value, (node, field, None))
            elif isinstance(value, list):
                for index, one in enumerate(value):
                    if isinstance(one, ast.expr):
                        yield from self._expression(one, (node, field, index))
                    elif isinstance(one, ast.keyword):
                        yield from self._expression(one.value, (one, "value", None))

    def _constant(self, value: object, place: Place) -> Iterator[_Change]:
        other: object
        if isinstance(value, bool):
            other = not value
        elif isinstance(value, int | float):
            other = value + 1 if abs(value) < 2**53 else 2 * value
        elif isinstance(value, str):
            other = f"XX{value}XX"
        else:
            return
        text = f"{_cut(ast.Constant(value))} to {_cut(ast.Constant(other))}"
        yield self._change(place, ast.Constant(other), "constant", text)

    def _change(
        self,
        place: Place,
        replacement: ast.AST,
        operator: str,
        text: str,
        at: ast.AST | None = None,
    ) -> _Change:
        assert self._statement is not None
        parent, field, index = place
        node = at or _get(parent, field, index)
        if "lineno" in replacement._attributes:
            ast.copy_location(replacement, node)
            ast.fix_missing_locations(replacement)
        return _Change(
            place,
            replacement,
            operator,
            text,
            _first_line(self._statement),
            ".".join(self._names),
            *self._function,
            getattr(node, "lineno", self._statement.lineno),
        )


def _get(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(parent, field)
    return value if index is None else value[index]


def _set(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _is_alias(value: ast.expr) -> bool:
    """Whether the value is a type: a union, or a generic class with its arguments."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.BitOr)
    return isinstance(value, ast.Subscript)


def _first_line(statement: ast.stmt) -> str:
    return ast.unparse(statement).partition("\n")[0][:160]


def _cut(node: ast.AST) -> str:
    text = ast.unparse(node).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


_SYMBOLS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
}


def _symbol(node: ast.AST) -> str:
    return _SYMBOLS[type(node)]
