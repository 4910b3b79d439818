"""Short texts and pieces of code that the model is asked to shorten or to change."""

from __future__ import annotations

import hashlib

TEXT_EDITS = (
    "Rewrite this text in a more formal tone and change nothing else:\n\n{}",
    "Copy this text and put it in the past tense:\n\n{}",
    "Make this text friendlier, but keep every fact:\n\n{}",
)
CODE_EDITS = (
    "Add a docstring to this function and give me all of it:\n\n```python\n{}\n```",
    "Rename the function to something clearer and show the whole code:\n\n```python\n{}\n```",
    "Add type hints to this code and change nothing else:\n\n```python\n{}\n```",
    "Explain what this code does, line by line:\n\n```python\n{}\n```",
    "Rewrite this so that it checks its input first:\n\n```python\n{}\n```",
    "Write two tests for this function:\n\n```python\n{}\n```",
    "Translate this code to JavaScript:\n\n```python\n{}\n```",
    "Is there a mistake in this code? Show a better version.\n\n```python\n{}\n```",
)
_SNIPPETS = r"""
def f(a, b):
    while b:
        a, b = b, a % b
    return a
---
def total(prices, rate):
    result = 0
    for price in prices:
        result += price * (1 + rate)
    return result
---
def longest(words):
    best = ''
    for word in words:
        if len(word) > len(best):
            best = word
    return best
---
def load(path):
    lines = open(path).read().split('\n')
    return [line.split(',') for line in lines]
---
def mean(values):
    return sum(values) / len(values)
---
class Counter:
    def __init__(self):
        self.n = 0

    def add(self, k):
        self.n = self.n + k
---
def pairs(items):
    out = []
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            out.append((items[i], items[j]))
    return out
---
def grade(points):
    if points > 90:
        return 'A'
    if points > 75:
        return 'B'
    return 'C'
---
def clean(text):
    return ' '.join(text.lower().split())
---
def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)
---
def invert(table):
    result = {}
    for key in table:
        result[table[key]] = key
    return result
---
def zeros(rows, columns):
    return [[0] * columns] * rows
---
def retry(call, times):
    for _ in range(times):
        try:
            return call()
        except Exception:
            pass
---
def chunks(items, size):
    i = 0
    while i < len(items):
        yield items[i:i + size]
        i += size
---
def is_leap(year):
    return year % 4 == 0
---
def insert(values, new):
    for i, value in enumerate(values):
        if value > new:
            values.insert(i, new)
            return
    values.append(new)
"""
SNIPPETS = tuple(_SNIPPETS.strip().split("\n---\n"))

_PEOPLE = ("Amira", "Jonas", "Mrs Okafor", "my uncle", "the new teacher", "Li Wei", "a young engineer", "Pilar")
_FIRST = (
    "Last spring {who} began to read everything about {it}.",
    "For years {who} had wanted to understand {it}, and nobody in the town could help.",
    "{who} works with {it} every day and still finds it surprising.",
    "When the council met, {who} asked for an hour to speak about {it}.",
)
_SECOND = (
    "It started with a mistake that cost two weeks of work and a good deal of money.",
    "There were three notebooks full of numbers, and most of them did not agree.",
    "A neighbour laughed at first, but later offered a room, a table and some tools.",
    "The first attempt failed because of the rain, the second because of a missing part.",
)
_THIRD = (
    "In the end it was patience that helped: every evening one small step, written down and dated.",
    "By autumn there was a group of nine people who met on Thursdays and shared what they had learned.",
    "What looked like one problem turned out to be two, and the second one was easy to solve.",
    "A short report went to the library, where it is still on the shelf beside the door.",
)
_LAST = (
    "Today visitors come from other towns to see how it was done.",
    "Nobody expected that it would save so much time.",
    "The cost was small: about forty hours and the price of a used bicycle.",
    "Some still doubt it, and that is why the notes are kept.",
)


def passage(subject: str) -> str:
    """A short text about a subject, always the same one."""
    digest = hashlib.sha256(subject.encode()).digest()
    who = _PEOPLE[digest[0] % len(_PEOPLE)]
    first = _FIRST[digest[1] % 4].format(who=who, it=subject)
    rest = (part[digest[2 + i] % 4] for i, part in enumerate((_SECOND, _THIRD, _LAST)))
    return " ".join((first[0].upper() + first[1:], *rest))
