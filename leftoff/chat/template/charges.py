"""Charges for what Jinja compiles to plain Python: loops, literals, sums, comparisons and slices.

Jinja lets a sandbox intercept calls and some operators, but not these. So their nodes are changed before a template is
compiled: each is wrapped in a filter that charges the budget of the rendering.
"""

from functools import reduce
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateAssertionError
from jinja2.visitor import NodeTransformer

from leftoff.chat.template.budget import REFERENCE, SCALARS, current, size_of

# Filters, because those are the quickest calls there are. No template can write these names.
_TICK, _SIZE, _WALK, _ADD = "tick!", "size!", "walk!", "add!"


def _tick(characters: int) -> None:
    current().tick(characters)


def _added(*values: Any) -> Any:  # noqa: ANN401
    """A sum from left to right. Nearly always it is of texts, often of several: they are joined at once."""
    budget = current()
    try:
        budget.charge(sum(map(len, values)))
        return "".join(values)
    except TypeError:  # of lists or numbers
        return reduce(lambda left, right: budget.made(left + right), values)


def _charge_size(value: object) -> object:
    current().charge(size_of(value))
    return value


def charge_walk(value: object) -> object:
    """Charges for walking through a container. Strings and numbers are free."""
    if type(value) not in SCALARS:
        current().charge_walk(value)
    return value


CHARGING_FILTERS = {_TICK: _tick, _SIZE: _charge_size, _WALK: charge_walk, _ADD: _added}


def _filtered(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, [*args], [], None, None)


def _is_constant(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)


class Charges(NodeTransformer):
    """Wraps the nodes that Jinja compiles to plain Python in filters that charge for them."""

    def _visit_block(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        num_characters = sum(REFERENCE + len(text.data) for text in node.find_all(nodes.TemplateData))
        node.body.insert(0, nodes.ExprStmt(_filtered(nodes.Const(num_characters), _TICK), lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _visit_block  # noqa: N815

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        """Makes constants part of the template's own text, which is charged with the block that it is in."""
        node.nodes = [
            nodes.TemplateData(part.value) if isinstance(part, nodes.Const) and isinstance(part.value, str) else part
            for part in node.nodes
        ]
        return self.generic_visit(node)

    def _visit_literal(self, node: nodes.List | nodes.Dict) -> nodes.Node:
        return _filtered(self.generic_visit(node), _SIZE)

    visit_List = visit_Dict = _visit_literal  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        if node.ctx != "load" or _is_constant(node):
            return self.generic_visit(node)
        # Hashing a tuple walks through all that is inside, and overflows Python's stack where that is deep.
        return _filtered(self.generic_visit(node), _WALK)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        operands: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        changing = [operand for operand in operands if not _is_constant(operand.expr)]
        self.generic_visit(node)
        if len(changing) > 1:  # comparing with a constant takes no longer than the constant is
            for operand in changing:
                operand.expr = _filtered(operand.expr, _WALK)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        is_slice = isinstance(node.arg, nodes.Slice)
        changed = self.generic_visit(node)
        return _filtered(changed, _SIZE) if is_slice else changed

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        operands = [node.right]
        while isinstance(node.left, nodes.Add):
            node = node.left
            operands.append(node.right)
        first, *others = (self.visit(operand) for operand in (node.left, *reversed(operands)))
        return _filtered(first, _ADD, *others)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, "string") for part in node.nodes]
        return node

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier) -> nodes.Node:  # noqa: N802
        raise TemplateAssertionError("autoescape is for HTML", node.lineno)
