"""Tokens to a tree: an operator-precedence parser for the whole CEL grammar.

Nesting is bounded, so no input exhausts the stack, here or in any later walk of the tree. Chains of ``&&`` and ``||`` are one
node each, however long they are.
"""

from __future__ import annotations

from typing import Final, NoReturn

from dray.cel import macros
from dray.cel.errors import CompileError
from dray.cel.lexer import BYTES, END, FLOAT, IDENT, INT, STRING, UINT, Token, tokens
from dray.cel.tree import Call, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral, qualified_name
from dray.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

MAX_LENGTH: Final = 10 * 1024
MAX_DEPTH: Final = 100
"""Levels of the tree. Upstream stops at 250, but every level costs several frames of the stack in every walk."""

_TOO_DEEP: Final = f"expression is nested too deeply: at most {MAX_DEPTH} levels are allowed"
RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
# Loosest first; && and || are handled apart, because they take any number of operands.
_BINARY: Final = {
    "<": (1, "_<_"), "<=": (1, "_<=_"), ">": (1, "_>_"), ">=": (1, "_>=_"),
    "==": (1, "_==_"), "!=": (1, "_!=_"), "in": (1, "@in"),
    "+": (2, "_+_"), "-": (2, "_-_"), "*": (3, "_*_"), "/": (3, "_/_"), "%": (3, "_%_"),
}  # fmt: skip


def parse(expression: str) -> Node:
    """The tree of the expression, or a CompileError that says where it stops making sense."""
    if len(expression.encode("utf-8", "surrogatepass")) > MAX_LENGTH:
        raise CompileError(f"expression is too long: at most {MAX_LENGTH} bytes are allowed", 0, expression)
    parser = _Parser(expression)
    try:
        node = parser.expression()
        parser.expect(END)
    except RecursionError:
        raise CompileError(_TOO_DEEP, 0, expression) from None
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self.at = 0
        self.depth = 0

    # -------------------------------------------------------------------------------------------------- plumbing

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def advance(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, kind: str) -> bool:
        if self.tokens[self.at].kind != kind:
            return False
        self.at += 1
        return True

    def expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            self.unexpected(f"expecting {kind!r}" if kind != END else "extraneous input")
        return self.advance() if kind != END else self.token

    def unexpected(self, wanted: str) -> NoReturn:
        token = self.token
        seen = token.kind if token.kind == END else self.text[token.position : token.position + 20].split("\n")[0]
        self.fail(f"Syntax error: unexpected {seen!r}, {wanted}", token.position)

    def fail(self, message: str, position: int) -> NoReturn:
        raise CompileError(message, position, self.text)

    def bounded(self, node: Node) -> Node:
        if node.depth > MAX_DEPTH:
            self.fail(_TOO_DEEP, node.position)
        return node

    # ------------------------------------------------------------------------------------------------- operators

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(_TOO_DEEP, self.token.position)
        node = self.disjunction()
        if self.token.kind == "?":
            position = self.advance().position
            chosen = self.disjunction()
            self.expect(":")
            node = self.bounded(Call(position, "_?_:_", [node, chosen, self.expression()]))
        self.depth -= 1
        return node

    def disjunction(self) -> Node:
        """Chains of && inside one chain of ||."""
        alternatives: list[Node] = []
        position = -1
        while True:
            terms, at = [self.binary(1)], self.token.position
            while self.accept("&&"):
                terms.append(self.binary(1))
            alternatives.append(terms[0] if len(terms) == 1 else self.bounded(Call(at, "_&&_", terms)))
            position = self.token.position if position < 0 else position
            if not self.accept("||"):
                break
        return alternatives[0] if len(alternatives) == 1 else self.bounded(Call(position, "_||_", alternatives))

    def binary(self, loosest: int) -> Node:
        node = self.unary()
        while True:
            power, function = _BINARY.get(self.token.kind, (0, ""))
            if power < loosest:
                return node
            position = self.advance().position
            node = self.bounded(Call(position, function, [node, self.binary(power + 1)]))

    def unary(self) -> Node:
        kind, position = self.token.kind, self.token.position
        if kind == "!":
            return self.repeated("!", "!_", position)
        if kind == "-" and self.tokens[self.at + 1].kind not in (INT, FLOAT):
            return self.repeated("-", "-_", position)
        return self.member()

    def repeated(self, symbol: str, function: str, position: int) -> Node:
        """A run of the same prefix operator: an even number of them cancels out."""
        count = 0
        while self.accept(symbol):
            count += 1
        operand = self.member()
        return operand if count % 2 == 0 else self.bounded(Call(position, function, [operand]))

    # -------------------------------------------------------------------------------------------------- operands

    def member(self) -> Node:
        named = self.token.kind in (IDENT, ".")
        node = self.primary()
        while True:
            if self.token.kind == ".":
                position = self.advance().position
                node = self.optional_select(node, position) if self.accept("?") else self.select(node, position)
            elif self.token.kind == "[":
                position = self.advance().position
                function = "_[?_]" if self.accept("?") else "_[_]"
                node = Call(position, function, [node, self.expression()])
                self.expect("]")
            elif self.token.kind == "{" and named and (name := qualified_name(node)) is not None:
                node, named = self.struct_literal(name), False
            else:
                return node
            self.bounded(node)

    def select(self, operand: Node, position: int) -> Node:
        name = self.expect(IDENT).value
        if self.token.kind != "(":
            return Select(position, operand, name)
        position = self.advance().position
        args = self.arguments()
        try:
            return macros.expand_member(position, operand, name, args) or Call(position, name, args, operand)
        except macros.MacroError as error:
            self.fail(error.message, error.position)

    def optional_select(self, operand: Node, position: int) -> Node:
        name = self.expect(IDENT)
        return Call(position, "_?._", [operand, Literal(name.position, name.value)])

    def arguments(self) -> list[Node]:
        args: list[Node] = []
        while not self.accept(")"):
            args.append(self.expression())
            if self.token.kind != ")":
                self.expect(",")
                if self.token.kind == ")":
                    self.unexpected("expecting an argument")
        return args

    def primary(self) -> Node:
        token = self.advance()
        kind = token.kind
        if kind == IDENT or (kind == "." and self.token.kind == IDENT):
            return self.name(token)
        if kind in (STRING, BYTES):
            return Literal(token.position, token.value)
        if kind in (INT, UINT, FLOAT):
            return self.number(token, "")
        if kind == "-" and self.token.kind in (INT, FLOAT):
            return self.number(self.advance(), "-")
        if kind in ("true", "false", "null"):
            return Literal(token.position, {"true": True, "false": False, "null": None}[kind])
        if kind == "(":
            node = self.expression()
            self.expect(")")
            return node
        if kind == "[":
            return self.list_literal(token.position)
        if kind != "{":
            self.at -= 1
            self.unexpected("expecting an expression")
        return self.map_literal(token.position)

    def name(self, token: Token) -> Node:
        rooted = token.kind == "."
        name = self.advance().value if rooted else token.value
        if name in RESERVED:
            self.fail(f"reserved identifier: {name}", token.position)
        if self.token.kind != "(":
            return Ident(token.position, f".{name}" if rooted else name)
        position = self.advance().position
        args = self.arguments()
        try:
            return macros.expand_call(position, name, args) or self.bounded(Call(position, name, args))
        except macros.MacroError as error:
            self.fail(error.message, error.position)

    def number(self, token: Token, sign: str) -> Node:
        text = str(token.value)
        if token.kind == FLOAT:
            value = float(sign + text)
            if value in (float("inf"), float("-inf")):
                self.fail("invalid double literal", token.position)
            return Literal(token.position, value)
        digits = text.rstrip("uU")
        # 2**64 has 20 digits; leading zeros are allowed, so strip them before judging the length.
        significant = digits[2:].lstrip("0") if digits.startswith("0x") else digits.lstrip("0")
        if len(significant) > 20:
            self.fail(f"invalid {token.kind} literal", token.position)
        number = int(significant or "0", 16 if digits.startswith("0x") else 10)
        if token.kind == UINT:
            if number > UINT_MAX:
                self.fail("invalid uint literal", token.position)
            return Literal(token.position, Uint(number))
        number = -number if sign else number
        if not INT_MIN <= number <= INT_MAX:
            self.fail("invalid int literal", token.position)
        return Literal(token.position, number)

    def list_literal(self, position: int) -> Node:
        elements: list[Node] = []
        optional: set[int] = set()
        while not self.accept("]"):
            if self.accept("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            if self.token.kind != "]":
                self.expect(",")
        return self.bounded(ListLiteral(position, elements, frozenset(optional)))

    def struct_literal(self, name: str) -> Node:
        position = self.expect("{").position
        entries: list[tuple[str, Node, bool, int]] = []
        while not self.accept("}"):
            optional = self.accept("?")
            field = self.expect(IDENT).value
            place = self.expect(":").position
            entries.append((field, self.expression(), optional, place))
            if self.token.kind != "}":
                self.expect(",")
        return self.bounded(StructLiteral(position, name, entries))

    def map_literal(self, position: int) -> Node:
        entries: list[tuple[Node, Node, bool]] = []
        while not self.accept("}"):
            optional = self.accept("?")
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
            if self.token.kind != "}":
                self.expect(",")
        return self.bounded(MapLiteral(position, entries))
