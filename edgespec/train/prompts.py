"""What the model is asked to write about: forms times subjects. Some subjects are for validation alone."""

from __future__ import annotations

from itertools import product

HELD_OUT = 8  # every so manieth subject is never trained on

_TALK = (
    "Explain {} to a beginner.",
    "What should everybody know about {}?",
    "Write a short story in which {} matters.",
    "List five facts about {}.",
    "Give advice to somebody who is worried about {}.",
    "Compare two opinions about {}.",
    "Write a friendly letter about {}.",
    "Describe a day on which {} changed somebody's plans.",
    "What are the most common mistakes with {}?",
    "Write a short dialogue between two friends about {}.",
    "Summarise what is known about {} in three sentences.",
    "How would you teach a child about {}?",
)
_SUBJECTS = (
    "the tides", "baking bread", "old bicycles", "learning a language", "house plants", "night trains", "honey bees",
    "saving money", "long walks", "volcanoes", "sleep", "public libraries", "chess openings", "rainwater",
    "migrating birds", "a first job", "maps", "electric motors", "moving to another town", "school lunches",
    "lighthouses", "the moon",
    "repairing clothes", "noisy neighbours", "wooden boats", "vaccines", "coffee", "mountain weather", "city gardens",
    "bridges", "keeping a diary", "street music", "recycling glass", "a lost dog", "solar panels", "winter sports",
    "fractions", "ancient Rome", "deserts", "time zones",
)  # fmt: skip
_CODE = (
    "Write a Python function that {}.",
    "Write a small command-line program that {}.",
    "Write a JavaScript function that {}, with comments.",
    "Show how a C function that {} could look.",
    "Write unit tests for a function that {}.",
    "Explain step by step how to write code that {}.",
)
_TASKS = (
    "counts the words of a text", "reverses a linked list", "finds the largest gap between numbers", "parses a date",
    "merges two sorted lists", "checks whether brackets match", "removes duplicates but keeps the order",
    "computes a moving average", "reads a CSV file and sums a column", "formats a number of bytes for people",
    "finds all files larger than a limit", "rotates a matrix", "validates an e-mail address",
    "rolls dice and keeps score", "converts temperatures", "groups names by first letter",
    "caches the results of slow calls", "splits a bill",
    "compresses runs of equal characters", "schedules tasks by priority", "draws a text bar chart",
    "generates passwords", "computes the days between two dates", "searches a sorted array",
)  # fmt: skip


def shipped() -> tuple[list[str], list[str]]:
    """(to train on, held out): texts in a fixed order. No subject is in both."""
    train: list[str] = []
    held: list[str] = []
    for forms, subjects in ((_TALK, _SUBJECTS), (_CODE, _TASKS)):
        for (number, subject), form in product(enumerate(subjects), forms):
            (held if number % HELD_OUT == HELD_OUT - 1 else train).append(form.format(subject))
    return train, held


def divided(own: list[str]) -> tuple[list[str], list[str]]:
    """The user's own prompts in the same way: (to train on, held out)."""
    held = own[HELD_OUT - 1 :: HELD_OUT]
    return [text for i, text in enumerate(own) if i % HELD_OUT != HELD_OUT - 1], held
