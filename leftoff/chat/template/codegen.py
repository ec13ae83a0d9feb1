"""Compiles templates so that whatever Jinja leaves to Python itself is on the budget, too.

Literals, comparisons, slices and the pieces of a macro's text become calls of the sandbox.
"""

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateAssertionError

_Literal = nodes.List | nodes.Tuple | nodes.Dict


class BudgetedCode(CodeGenerator):
    """For `Sandbox`, whose methods the code calls."""

    def buffer(self, frame: Frame) -> None:
        frame.buffer = self.temporary_identifier()
        self.writeline(f"{frame.buffer} = environment.pieces()")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self.write("environment.built(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("environment.built(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx != "load" or _is_constant(node):
            super().visit_Tuple(node, frame)
            return
        # Hashing one walks through all that stands inside, and breaks Python's stack where that is deep.
        self.write("environment.walked(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        self.write("(")
        left: nodes.Expr = node.expr
        is_walked = _is_walked(left, node.ops[0])
        self._visit_operand(left, frame, is_walked=is_walked)
        for operand, following in zip(node.ops, [*node.ops[1:], None], strict=True):
            self.write(f" {_OPERATORS[operand.op]} ")
            is_searched = operand.op in ("in", "notin") and not (_is_constant(left) or _is_constant(operand.expr))
            is_walked = following is not None and _is_walked(operand.expr, following)
            self._visit_operand(operand.expr, frame, is_walked=is_searched or is_walked)
            left = operand.expr
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        is_slice = isinstance(node.arg, nodes.Slice)
        self.write("environment.weighed(" if is_slice else "")
        super().visit_Getitem(node, frame)
        self.write(")" if is_slice else "")

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier, frame: Frame) -> None:  # noqa: ARG002, N802
        raise TemplateAssertionError("autoescape is for HTML", node.lineno, self.name, self.filename)

    def _visit_operand(self, node: nodes.Expr, frame: Frame, *, is_walked: bool) -> None:
        self.write("environment.walked(" if is_walked else "")
        self.visit(node, frame)
        self.write(")" if is_walked else "")


_OPERATORS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
    "notin": "not in",
}


def _is_walked(left: nodes.Expr, operand: nodes.Operand) -> bool:
    """Whether both sides may be containers: comparing those walks through the left one."""
    return operand.op not in ("in", "notin") and not (_is_constant(left) or _is_constant(operand.expr))


def _is_constant(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)
