"""What can be changed in a file: one operator, bound or statement each, rewritten in place, all else left as it is.

- operators: `<` is exchanged with `<=`, `>` with `>=`, `==` with `!=`, `is` and `in` with `is not` and `not in`, `and`
  with `or`, `+` with `-`, `*` with `//`, `<<` with `>>`, `&` with `|`; `not` and a minus sign are taken away;
- bounds: `min` is exchanged with `max`, `any` with `all`, `True` with `False`; a number becomes one more; a condition
  without an operator is negated;
- statements: a call, a `del`, a `raise`, an early `return`, and an assignment to an attribute or an element are taken
  away; `break` is exchanged with `continue`.

Skipped is what no test should pin down:
texts, annotations, decorators, imports, protocols, and what only a type checker reads, for they do nothing at run time;
`__repr__`, log lines, `assert`, and what an exception is raised with, for they speak to people who look for a bug;
`check_integrity` and `strict=True`, which are tests themselves;
code outside of functions, which is constants and fields with defaults: such a number is a choice that a test could only
repeat; and assignments to attributes in `__init__`, for without one of them any test fails.
"""

import ast
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SKIPPED = {"__repr__", "__str__", "check_integrity"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_HAS_OPERATOR = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Constant)


@dataclass(frozen=True)
class Change:
    """The source from `start` to `end` reads `new`. Tests that run one of `lines` can find it."""

    path: str
    function: str  # with its class
    start: int
    end: int
    new: str
    lines: range

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]

    def name(self, source: str) -> str:
        """The line before and after, without its number, so that the name outlives changes elsewhere in the file."""
        first, last = source.rfind("\n", 0, self.start) + 1, source.find("\n", self.end)
        before, after = source[first:last], source[first : self.start] + self.new + source[self.end : last]
        return f"{self.path} {self.function}: {_on_one_line(before)}  =>  {_on_one_line(after)}"


def changes_of(path: Path, root: Path) -> dict[str, Change]:
    """The changes by name. Of those that read alike in one function, one is enough."""
    source = path.read_text()
    finder = _Finder(source, str(path.relative_to(root)))
    finder.visit(ast.parse(source))
    return {change.name(source): change for change in finder.found}


def _on_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str, path: str) -> None:
        self.found: list[Change] = []
        self._source, self._path = source, path
        self._names: list[str] = []
        self._lines = range(0)  # of the statement that is visited
        sizes = [len(line) for line in source.splitlines(keepends=True)]
        self._line_starts = [0, *(sum(sizes[:number]) for number in range(1, len(sizes) + 1))]

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self._lines = _own_lines(node)
        super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name not in {"annotation", "returns", "decorator_list"}:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.visit(child)

    # What is skipped.

    def visit_Module(self, node: ast.Module | ast.ClassDef) -> None:
        for child in node.body:
            if isinstance(child, ast.ClassDef | _Function):
                self.visit(child)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            self._names.append(node.name)
            self.visit_Module(node)
            self._names.pop()

    def visit_FunctionDef(self, node: _Function) -> None:
        if node.name in _SKIPPED:
            return
        self._names.append(node.name)
        self._lines = range(node.body[0].lineno, _end(node.body[-1]) + 1)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for number, child in enumerate(node.body):
            if number or not _is_text(child):
                self.visit(child)
        self._take_early_returns(node)
        self._names.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        targets = (ast.Subscript,) if self._names[-1] == "__init__" else (ast.Attribute, ast.Subscript)
        if all(isinstance(target, targets) for target in node.targets):
            self._rewrite(node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None: ...

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...

    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...

    # Statements.

    def visit_Expr(self, node: ast.Expr) -> None:
        called = node.value.func if isinstance(node.value, ast.Call) else None
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "logger":
            return
        if isinstance(node.value, ast.Call | ast.Await):
            self._rewrite(node, "pass")
        if not _is_text(node):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._rewrite(node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._rewrite(node, "pass")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._rewrite(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._rewrite(node, "break")

    def _take_early_returns(self, function: _Function) -> None:
        """Only those that something follows: a function without its last one returns None, which any test finds."""
        for statement in function.body[:-1]:
            for node in ast.walk(statement):
                if isinstance(node, ast.Return):
                    self._lines = _own_lines(node)
                    self._rewrite(node, "pass")

    # Operators and bounds.

    def visit_Compare(self, node: ast.Compare) -> None:
        for operator, (left, right) in zip(node.ops, pairwise([node.left, *node.comparators]), strict=True):
            self._swap(operator, left, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self._swap(node.op, left, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not _is_text(node.left):  # text % values
            self._swap(node.op, node.left, node.right)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._swap(node.op, node.target, node.value)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            start = self._start(node)
            self._found(start, start + (3 if isinstance(node.op, ast.Not) else 1), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._rewrite(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._rewrite(node, str(node.value + 1))

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _NAMES:
            self._rewrite(node, _NAMES[node.id])

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, _HAS_OPERATOR):
            start, end = self._start(test), self._stop(test)
            self._found(start, end, f"not ({self._source[start:end]})")

    def _swap(self, operator: ast.AST, left: ast.AST, right: ast.AST) -> None:
        old, new = _SWAPS[type(operator)]
        start = self._stop(left)
        between = re.sub("#.*", lambda comment: " " * len(comment[0]), self._source[start : self._start(right)])
        at = start + between.index(old)
        self._found(at, at + len(old), new)

    def _rewrite(self, node: ast.AST, new: str) -> None:
        self._found(self._start(node), self._stop(node), new)

    def _found(self, start: int, end: int, new: str) -> None:
        self.found.append(Change(self._path, ".".join(self._names), start, end, new, self._lines))

    def _start(self, node: ast.AST) -> int:
        assert isinstance(node, ast.expr | ast.stmt)
        return self._offset(node.lineno, node.col_offset)

    def _stop(self, node: ast.AST) -> int:
        assert isinstance(node, ast.expr | ast.stmt)
        return self._offset(_end(node), node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        """Columns are counted in bytes, as the parser does."""
        start = self._line_starts[line - 1]
        return start + len(self._source[start : self._line_starts[line]].encode()[:column].decode())


def _end(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _own_lines(node: ast.stmt) -> range:
    """The lines of a statement without those inside it: of an `if`, the lines of its condition."""
    inside = [child.lineno for child in ast.walk(node) if isinstance(child, ast.stmt) and child is not node]
    return range(node.lineno, max(min(inside, default=_end(node) + 1), node.lineno + 1))


def _is_text(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else node
    return isinstance(value, ast.Constant) and isinstance(value.value, str | bytes)
