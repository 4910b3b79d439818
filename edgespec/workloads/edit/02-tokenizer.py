"""Splits arithmetic source text into tokens and evaluates it."""

import re
from typing import Iterator, NamedTuple

TOKEN_PATTERN = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|[-+*/%()=,])"
    r"|(?P<space>\s+)"
    r"|(?P<bad>.)"
)

MAX_DEPTH = 50


class Token(NamedTuple):
    kind: str
    text: str
    column: int


class ParseError(ValueError):
    """The expression is malformed; the message names the column."""


def scan(source: str) -> Iterator[Token]:
    for match in TOKEN_PATTERN.finditer(source):
        kind = match.lastgroup or "bad"
        if kind == "space":
            continue
        if kind == "bad":
            raise ParseError(f"unexpected {match.group()!r} at column {match.start()}")
        yield Token(kind, match.group(), match.start())
    yield Token("end", "", len(source))


class Parser:
    """Recursive descent over sums, products, powers and parentheses."""

    def __init__(self, source: str, variables: dict[str, float]):
        self.tokens = list(scan(source))
        self.position = 0
        self.depth = 0
        self.variables = variables

    def peek(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def expect(self, text: str) -> None:
        token = self.take()
        if token.text != text:
            raise ParseError(f"expected {text!r} at column {token.column}, found {token.text!r}")

    def parse_sum(self) -> float:
        left = self.parse_product()
        while self.peek().text in ("+", "-"):
            op = self.take().text
            right = self.parse_product()
            left = left + right if op == "+" else left - right
        return left

    def parse_product(self) -> float:
        left = self.parse_power()
        while self.peek().text in ("*", "/", "%"):
            op = self.take().text
            right = self.parse_power()
            if op == "*":
                left = left * right
            elif op == "/":
                left = left / right
            else:
                left = left % right
        return left

    def parse_power(self) -> float:
        base = self.parse_atom()
        if self.peek().text == "**":
            self.take()
            return base ** self.parse_power()
        return base

    def parse_atom(self) -> float:
        token = self.take()
        if token.kind == "number":
            return float(token.text)
        if token.kind == "name":
            if token.text not in self.variables:
                raise ParseError(f"unknown name {token.text!r} at column {token.column}")
            return self.variables[token.text]
        if token.text == "-":
            return -self.parse_atom()
        if token.text == "(":
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise ParseError(f"more than {MAX_DEPTH} nested parentheses")
            value = self.parse_sum()
            self.expect(")")
            self.depth -= 1
            return value
        raise ParseError(f"unexpected {token.text!r} at column {token.column}")


def evaluate(source: str, variables: dict[str, float] | None = None) -> float:
    parser = Parser(source, variables or {})
    value = parser.parse_sum()
    parser.expect("")
    return value
