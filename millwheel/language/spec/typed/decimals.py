"""Expressions over decimals, as expressions over whole units: ``price + 1.5`` is ``price + 150``
where ``price`` has two digits behind the point. Rows and columns compute whole numbers then."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from millwheel.core.instants.decimals import MOST_DIGITS, DecimalForm, decimal_form, is_decimal
from millwheel.core.instants.texts import is_time_text
from millwheel.core.instants.time_forms import KIND
from millwheel.language.spec.typed.expressions import FieldKinds, function_of

Fields = Mapping[str, Any]
"""The kinds of the fields of a record: of a decimal the digits behind its point, of a record within
it its fields, of a list a list of the kind of its entries, else a word, "" where it is
uncertain."""
_NULL = "NoneType"
_ALIKE = ("coalesce", "nullif", "max", "min", "mod")
"""Functions whose arguments and result are of one kind."""
_TAKEN = (
    "abs, between, case, cast, ceil, coalesce, float, floor, int, max, min, mod, nullif, round,"
    " sign and str"
)
_SIDES = 2  # Fixed: of a comparison that is not a chain
_MAYBE_NULL = ("case", "coalesce", "nullif", "get")
"""Functions that may give null, of which a cast makes null again."""


def has_decimals(fields: Any) -> bool:
    """Whether a kind is, or holds, a decimal."""
    if isinstance(fields, Mapping):
        return any(map(has_decimals, fields.values()))
    return has_decimals(fields[0]) if isinstance(fields, list) else isinstance(fields, int)


def scales_of(fields: Fields) -> dict[str, Any]:
    """The scales of the decimals alone, for sinks."""
    return {name: _scale_of(kind) for name, kind in fields.items() if has_decimals(kind)}


def _scale_of(kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return scales_of(kind)
    return [_scale_of(kind[0])] if isinstance(kind, list) else kind


def text_of(text: str, scale: int) -> str:
    """The expression for the text, with all digits, of the result of an expression in units."""
    return f"decimal_text({text}, {scale})"


@dataclass(frozen=True, slots=True)
class InUnits:
    """An expression over whole units, and the kind of its result."""

    text: str
    kind: Any


def in_units(text: str, tree: ast.expr, fields: Fields) -> InUnits:
    """The expression over whole units with the result of ``text``, whose tree this is, over
    decimals. Raises ValueError, with the cure, if it cannot be computed exactly."""
    made, kind = _Units(fields).made(deepcopy(tree))
    changed = ast.dump(made) != ast.dump(tree)
    return InUnits(ast.unparse(ast.fix_missing_locations(made)) if changed else text, kind)


class _Units:
    """Makes expressions over units of those over decimals, together with their kinds."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._plain = FieldKinds(
            {name: kind for name, kind in fields.items() if isinstance(kind, str)}
        )

    def made(self, node: ast.expr) -> tuple[ast.expr, Any]:
        """The expression in units, and its kind."""
        match node:
            case ast.Name(id=name):
                word = {"null": _NULL, "true": "bool", "false": "bool"}.get(name, "")
                return node, word or self._fields.get(name, "")
            case ast.Attribute(value=value, attr=name):
                node.value, kind = self.made(value)
                return node, kind.get(name, "") if isinstance(kind, Mapping) else ""
            case ast.Subscript(value=value, slice=index):
                node.value, kind = self.made(value)
                if not isinstance(kind, list):
                    return self._refusing(node), ""
                if isinstance(index, ast.Slice):
                    return node, kind
                node.slice, _ = self.made(index)
                return node, kind[0]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()) if _literal(node) is None:
                node.operand, kind = self.made(node.operand)
                return node, kind
            case ast.BinOp():
                return self._operation(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                node.test, _ = self.made(test)
                (node.body, node.orelse), kind = self._alike(node, [body, orelse])
                return node, kind
            case ast.BoolOp():
                node.values, kind = self._alike(node, node.values)
                return node, kind
            case ast.Call():
                return self._call(node)
        return self._refusing(node), self._plain.of(node)

    def _operation(self, node: ast.BinOp) -> tuple[ast.expr, Any]:
        plain = self._plain.of(node)
        sides = [self.made(node.left), self.made(node.right)]
        (node.left, left), (node.right, right) = sides
        if not (has_decimals(left) or has_decimals(right)):
            whole = "int" if left == right == "int" and _whole(node.op) else ""
            return node, plain or whole or _of_times(node.op, left, right)
        if isinstance(node.op, ast.Mult):
            return self._product(node, left, right)
        if not isinstance(node.op, ast.Add | ast.Sub | ast.Div | ast.FloorDiv | ast.Mod):
            raise ValueError(f"`{ast.unparse(node)}` cannot be computed exactly. Write float(…)")
        scale = self._scale(node, sides)
        node.left, node.right = (self._raised(node, side, kind, scale) for side, kind in sides)
        if isinstance(node.op, ast.Div):
            return node, "float"
        return node, "int" if isinstance(node.op, ast.FloorDiv) else scale

    def _product(self, node: ast.BinOp, left: Any, right: Any) -> tuple[ast.expr, Any]:
        node.left, first = self._factor(node, node.left, left)
        node.right, second = self._factor(node, node.right, right)
        return node, self._bounded(node, first + second)

    def _factor(self, node: ast.expr, part: ast.expr, kind: Any) -> tuple[ast.expr, int]:
        """A side of a product in units, and its digits behind the point."""
        number = _literal(part)
        if number is not None:
            digits = _behind_the_point(number)
            return _constant(number.scaleb(digits)), digits
        if isinstance(kind, int):
            return part, kind
        if kind != "int":
            raise self._mixed(node, part, kind)
        return part, 0

    def _comparison(self, node: ast.Compare) -> tuple[ast.expr, Any]:
        groups = [node.left, *node.comparators]
        listed = (ast.List, ast.Tuple)
        flat = [each.elts if isinstance(each, listed) else [each] for each in groups]
        made = [self.made(each) for group in flat for each in group]
        sides = _with_times(node, made)
        of_null = any(kind == _NULL for _, kind in made) and len(made) == _SIDES
        if any(has_decimals(kind) for _, kind in made) and not of_null:
            scale = self._scale(node, made)
            sides = [self._raised(node, each, kind, scale) for each, kind in made]
        rest = iter(sides)
        for at, group in enumerate(groups):
            if isinstance(group, listed):
                group.elts = [next(rest) for _ in group.elts]
            else:
                groups[at] = next(rest)
        node.left, *node.comparators = groups
        return node, "bool"

    def _alike(self, node: ast.expr, parts: Sequence[ast.expr]) -> tuple[list[ast.expr], Any]:
        """Parts of which one is the result, as parts of one kind."""
        return self._of_one_kind(node, [self.made(each) for each in parts])

    def _of_one_kind(
        self, node: ast.expr, made: Sequence[tuple[ast.expr, Any]]
    ) -> tuple[list[ast.expr], Any]:
        if not any(has_decimals(kind) for _, kind in made):
            kinds = {kind for _, kind in made if not isinstance(kind, Mapping)} - {_NULL}
            return [each for each, _ in made], kinds.pop() if len(kinds) == 1 else ""
        if any(isinstance(kind, Mapping) for _, kind in made):
            raise ValueError(f"`{ast.unparse(node)}` chooses among records with decimals")
        scale = self._scale(node, made)
        return [self._raised(node, each, kind, scale) for each, kind in made], scale

    def _call(self, node: ast.Call) -> tuple[ast.expr, Any]:
        name = _function_name(node)
        if name == "has":
            return node, "bool"
        if name in ("field", "get") and node.args:
            return self._field(node, name)
        made = [self.made(each) for each in node.args]
        if name == "case":
            return self._case(node, made)
        if name == "cast" and (form := _form_cast_to(node)) is not None:
            return self._to_decimal(node, made, form)
        if not any(has_decimals(kind) for _, kind in made):
            node.args = _with_times(node, made) if name == "between" else [it for it, _ in made]
            alike = {kind for _, kind in made if isinstance(kind, str)} - {_NULL}
            return node, KIND if name in _ALIKE and alike == {KIND} else self._plain.of(node)
        if name == "len" and isinstance(made[0][1], list):
            return node, "int"
        if len(made) == 1 and isinstance(made[0][1], int):
            typed = self._of_one(node, name, *made[0])
        elif name in ("round", "cast") and len(made) == 2 and isinstance(made[0][1], int):
            typed = self._rounded(node, *made[0]) if name == "round" else _cast(node, *made[0])
        elif name in _ALIKE or name == "between":
            scale = self._scale(node, made)
            node.args = [self._raised(node, each, kind, scale) for each, kind in made]
            typed = node, "bool" if name == "between" else scale
        else:
            typed = None
        if typed is not None:
            return typed
        cure = " Write float(…) for a number with rounding" if function_of(node) else ""
        raise ValueError(
            f"`{ast.unparse(node)}`: {name or 'this'} takes no decimal; {_TAKEN} do.{cure}"
        )

    def _of_one(
        self, node: ast.Call, name: str, units: ast.expr, scale: int
    ) -> tuple[ast.expr, Any] | None:
        """A function of a decimal alone; None for one that takes none."""
        match name:
            case "abs" | "sign":
                node.args = [units]
                return node, scale if name == "abs" else "int"
            case "float":
                return _over(units, ast.Div(), scale), "float"
            case "int":
                return _called("quotient", units, _unit(scale)), "int"
            case "floor":
                return _over(units, ast.FloorDiv(), scale), "int"
            case "ceil":
                down = _over(ast.UnaryOp(ast.USub(), units), ast.FloorDiv(), scale)
                return ast.UnaryOp(ast.USub(), down), "int"
            case "round":
                return _dropped(units, scale, 0), "int"
            case "str":
                return _called("str", _text_of(units, scale)), "str"
        return None

    def _to_decimal(
        self, node: ast.Call, made: Sequence[tuple[ast.expr, Any]], form: DecimalForm
    ) -> tuple[ast.expr, Any]:
        """A value as a decimal; of one, its text is."""
        (value, kind), *rest = made[0], *made[2:]
        if isinstance(kind, int):
            value = _text_of(value, kind)
        elif has_decimals(kind):
            raise self._mixed(node, value, kind)
        if self._scale(node, rest) > form.scale:
            raise ValueError(
                f"`{ast.unparse(node)}`: {ast.unparse(node.args[2])} has more than {form.scale}"
                " digits behind the point"
            )
        otherwise = [self._raised(node, *each, form.scale) for each in rest]
        digits = (_constant(Decimal(each)) for each in (form.precision, form.scale))
        return _called("decimal_units", value, *digits, *otherwise), form.scale

    def _rounded(self, node: ast.Call, units: ast.expr, scale: int) -> tuple[ast.expr, Any]:
        """A decimal with so many digits behind the point, or as it is where it has no more."""
        digits = _literal(node.args[1])
        if digits is None or digits != int(digits):
            raise ValueError(
                f"`{ast.unparse(node)}`: the digits of a decimal are a written whole number, such"
                " as round(price, 1)"
            )
        if digits >= scale:
            return units, scale
        return _dropped(units, scale, int(digits)), max(int(digits), 0)

    def _case(self, node: ast.Call, made: Sequence[tuple[ast.expr, Any]]) -> tuple[ast.expr, Any]:
        """Of each two arguments the second is a value, and so is the last one alone."""
        values = [at for at in range(len(made)) if at % 2 or at == len(made) - 1]
        parts = [made[at] for at in values]
        args = [each for each, _ in made]
        chosen, kind = self._of_one_kind(node, parts)
        for at, value in zip(values, chosen, strict=True):
            args[at] = value
        node.args = args
        return node, kind

    def _field(self, node: ast.Call, name: str) -> tuple[ast.expr, Any]:
        first = node.args[0]
        read = first.id if isinstance(first, ast.Name) else ""
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            read = first.value
        kind = self._fields.get(read, "")
        if name == "field" or len(node.args) < 2:
            return node, kind
        default = self.made(node.args[1])
        if not has_decimals(kind):
            return node, kind if default[1] in (kind, _NULL) else ""
        scale = self._scale(node, [(first, kind), default])
        if scale != kind:
            raise ValueError(
                f"`{ast.unparse(node)}`: {read!r} has {kind} digits behind the point, fewer than"
                f" {ast.unparse(node.args[1])}"
            )
        node.args[1] = self._raised(node, *default, scale)
        return node, kind

    def _refusing(self, node: ast.expr) -> ast.expr:
        """A node without rules for decimals: none may be in it."""
        for child in ast.walk(node):
            if child is not node and isinstance(child, ast.Name):
                if has_decimals(self._fields.get(child.id, "")):
                    raise ValueError(
                        f"`{ast.unparse(node)}` takes no decimal, and {child.id} is or has one"
                    )
        return node

    def _scale(self, node: ast.expr, parts: Sequence[tuple[ast.expr, Any]]) -> int:
        """The digits behind the point that all parts have room in."""
        scale = 0
        for part, kind in parts:
            number = _literal(part)
            if number is not None:
                scale = max(scale, _behind_the_point(number))
            elif isinstance(kind, int):
                scale = max(scale, kind)
            elif kind not in ("int", _NULL):
                raise self._mixed(node, part, kind)
        return self._bounded(node, scale)

    def _raised(self, node: ast.expr, part: ast.expr, kind: Any, scale: int) -> ast.expr:
        """A part in units of so many digits behind the point."""
        number = _literal(part)
        if number is not None:
            return _constant(number.scaleb(scale))
        factor = 10 ** (scale - kind if isinstance(kind, int) else scale)
        if kind == _NULL or factor == 1:
            return part
        return ast.BinOp(part, ast.Mult(), _constant(Decimal(factor)))

    def _bounded(self, node: ast.expr, scale: int) -> int:
        if scale > MOST_DIGITS:
            raise ValueError(
                f"`{ast.unparse(node)}` has {scale} digits behind the point, more than"
                f" {MOST_DIGITS}. Declare fewer, or write float(…)"
            )
        return scale

    def _mixed(self, node: ast.expr, part: ast.expr, kind: Any) -> ValueError:
        shown = f"`{ast.unparse(node)}`: {ast.unparse(part)} is "
        if kind == "float":
            return ValueError(
                f"{shown}a float beside a decimal, and the result would be one. Declare it as a"
                " decimal, or write float(…) around the decimal"
            )
        if has_decimals(kind):
            return ValueError(f"{shown}a record or a list beside a decimal")
        if not isinstance(kind, str) or not kind:
            return ValueError(
                f"{shown}of no known kind beside a decimal. Declare it in fields of its stream"
            )
        return ValueError(f"{shown}a {kind} beside a decimal, which takes whole numbers")


def _with_times(node: ast.expr, made: Sequence[tuple[ast.expr, Any]]) -> list[ast.expr]:
    """The sides of a comparison; where some are times, a text is one. Raises ValueError, with the
    cure, for a text that is none."""
    if all(kind != KIND for _, kind in made):
        return [each for each, _ in made]
    return [_as_time(node, each) if _is_text(each) else each for each, _ in made]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _as_time(node: ast.expr, text: ast.expr) -> ast.expr:
    value = ast.literal_eval(text)
    if is_time_text(value):
        return _called("parse_time", text)
    raise ValueError(
        f"`{ast.unparse(node)}` compares a time with the text {value!r}, which is none. Write it as"
        " '2026-01-31' or '2026-01-31T12:00:00Z', or parse_time(text, format)"
    )


def _of_times(op: ast.operator, left: Any, right: Any) -> str:
    """The kind of a sum or a difference with times, "" for none."""
    if left == right == KIND and isinstance(op, ast.Sub):
        return "int"
    shifted = (left, right) == (KIND, "int") and isinstance(op, ast.Add | ast.Sub)
    return KIND if shifted or ((left, right) == ("int", KIND) and isinstance(op, ast.Add)) else ""


def _whole(op: ast.operator) -> bool:
    return isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod)


def _literal(node: ast.expr) -> Decimal | None:
    """The number that is written, exactly as it is; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _literal(node.operand)
        return -inner if inner is not None and isinstance(node.op, ast.USub) else inner
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Decimal(repr(value))


def _behind_the_point(number: Decimal) -> int:
    exponent = number.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _constant(number: Decimal) -> ast.expr:
    whole = ast.Constant(abs(int(number)))
    return ast.UnaryOp(ast.USub(), whole) if number < 0 else whole


def _unit(scale: int) -> ast.expr:
    return _constant(Decimal(10**scale))


def _over(units: ast.expr, op: ast.operator, scale: int) -> ast.expr:
    return ast.BinOp(units, op, _unit(scale))


def _called(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _text_of(units: ast.expr, scale: int) -> ast.expr:
    return _called("decimal_text", units, _constant(Decimal(scale)))


def _dropped(units: ast.expr, scale: int, digits: int) -> ast.expr:
    """Units that are rounded to so many digits behind the point, which are fewer; they are units
    of the last one then, and whole where there is none."""
    if digits == scale:
        return units
    rounded = _called("round", units, _constant(Decimal(digits - scale)))
    left = scale - max(digits, 0)
    return _over(rounded, ast.FloorDiv(), left) if left else rounded


def _cast(node: ast.Call, units: ast.expr, scale: int) -> tuple[ast.expr, Any] | None:
    """A decimal as something else. Null stays null; nothing is computed twice but a field."""
    to = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
    if to == "bool":
        node.args[0] = units
        return node, "bool"
    if to == "text":
        return _text_of(units, scale), "str"
    if to not in ("int", "float"):
        return None
    whole = to == "int"
    made = _called("quotient", units, _unit(scale)) if whole else _over(units, ast.Div(), scale)
    if isinstance(units, ast.Name | ast.Attribute):
        null = ast.Name("null", ast.Load())
        absent = ast.Compare(units, [ast.Is()], [null])
        return ast.IfExp(absent, null, made), to
    if isinstance(units, ast.IfExp | ast.BoolOp) or _function_name(units) in _MAYBE_NULL:
        raise ValueError(f"`{ast.unparse(node)}`: this may be null. Write {to}(…) in place of cast")
    return made, to


def _form_cast_to(node: ast.Call) -> DecimalForm | None:
    to = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
    return decimal_form(to) if isinstance(to, str) and is_decimal(to) else None


def _function_name(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return function.id if isinstance(function, ast.Name) else ""
