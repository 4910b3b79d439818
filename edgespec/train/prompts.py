"""What the model is asked to write about: forms times subjects. Some subjects are for validation alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from .snippets import CODE_EDITS, SNIPPETS, TEXT_EDITS, passage

T = TypeVar("T")

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
    "Can you help me plan a weekend around {}?",
    "I have to give a talk about {}. Suggest an outline.",
    "Why do some people dislike {}?",
    "Make a table of good and bad sides of {}.",
    "What questions should I ask an expert on {}?",
    "Write a poem about {}.",
    "How has {} changed over the last hundred years?",
    "Write the opening of a newspaper article about {}.",
)
_SUBJECTS = (
    "the tides", "baking bread", "old bicycles", "learning a language", "house plants", "night trains", "honey bees",
    "saving money", "long walks", "volcanoes", "sleep", "public libraries", "chess openings", "rainwater",
    "migrating birds", "a first job", "maps", "electric motors", "moving to another town", "school lunches",
    "lighthouses", "the moon",
    "repairing clothes", "noisy neighbours", "wooden boats", "vaccines", "coffee", "mountain weather", "city gardens",
    "bridges", "keeping a diary", "street music", "recycling glass", "a lost dog", "solar panels", "winter sports",
    "fractions", "ancient Rome", "deserts", "time zones",
    "the printing press", "apple trees", "radio waves", "a family recipe", "hospital visits", "the water cycle",
    "board games", "gravity", "small shops", "photosynthesis", "job interviews", "trade unions", "black holes",
    "a broken phone", "earthquakes", "growing tomatoes", "the heart", "first aid", "learning to swim", "elections",
    "wool", "glaciers", "remote work", "magnets", "taxes", "the violin", "fire safety", "rivers", "teenagers",
    "probability", "railway stations", "cheese",
)  # fmt: skip
_CODE = (
    "Write a Python function that {}.",
    "Write a small command-line program that {}.",
    "Write a JavaScript function that {}, with comments.",
    "Show how a C function that {} could look.",
    "Write unit tests for a function that {}.",
    "Explain step by step how to write code that {}.",
    "Write a Python class that {}, with docstrings.",
    "Give me a short Java method that {}.",
    "What is the simplest way to write code that {}? Show it.",
    "Write a shell script that {}.",
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
    "finds the primes below a number", "translates Roman numerals", "counts vowels", "flattens nested lists",
    "downloads a file and retries", "tracks the stock of a shop", "plays a guessing game", "sorts people by age",
    "computes a factorial", "checks for palindromes", "keeps a to-do list", "shuffles a deck of cards",
    "finds the common items of two lists", "transposes a table", "renames files by a pattern", "finds the median",
)  # fmt: skip
_SHORTEN = (
    "Summarise this text in one sentence:\n\n{}",
    "What is the main point of the following text?\n\n{}",
    "Turn this into a list of short points:\n\n{}",
    "Read the text and answer: who did what, and why?\n\n{}",
    "Write a title for this text and explain your choice.\n\n{}",
)

# System messages under which a model is to ask: they name a subject, and leave the form to it.
_ABOUT = (("You answer questions about {}.", _SUBJECTS), ("You help to write a program that {}.", _TASKS))

# Of no form above: what somebody asks is not what anybody thought of. Heads guess texts of known forms better.
MEASURED = (
    "I get a headache whenever I read on the bus. Is that normal?",
    "What is the capital of Mongolia, and what is it known for?",
    "My code prints None instead of the sum. What did I forget? def add(a, b): print(a + b)",
    "Translate into French: The shop is closed on Mondays, but the bakery next door is open.",
    "Three friends share 47 coins. Two get the same number and the third gets five more. How many does each get?",
    "Give me a name for a small grey cat who is afraid of nothing.",
    "How do I get red wine out of a white tablecloth?",
    "Which is heavier, a litre of oil or a litre of water, and why?",
    "Write a polite e-mail to my landlord: the heating has been off since Tuesday.",
    "What does the word serendipity mean? Use it in two sentences.",
    "Write an SQL query for the five customers who spent most in 2023.",
    "Continue this story: The lift stopped between two floors, and then somebody knocked from above.",
    "Should I learn the guitar or the piano first? I am fifty and have small hands.",
    "Turn this into bullet points: we need bread and eggs, the car goes to the garage, and Ana's party is at six.",
    "How does a submarine dive and come up again?",
    "In a regular expression, what is the difference between a+ and a*?",
)


def shipped() -> tuple[list[str], list[str]]:
    """(to train on, held out): texts in a fixed order. No subject is in both."""
    train: list[str] = []
    held: list[str] = []
    for forms, subjects in _tables():
        for number, subject in enumerate(subjects):
            (held if number % HELD_OUT == HELD_OUT - 1 else train).extend(form.format(subject) for form in forms)
    return train, held


def abouts(count: int) -> list[str]:
    """So many system messages to ask questions under; every HELD_OUTth names a subject that is held out."""
    learned, held = (mixed(*(_about(*row, held=held) for row in _ABOUT)) for held in (False, True))
    return [
        held[number // HELD_OUT % len(held)] if number % HELD_OUT == HELD_OUT - 1 else learned[number % len(learned)]
        for number in range(count)
    ]


def _about(form: str, subjects: Sequence[str], *, held: bool) -> list[str]:
    return [form.format(s) for i, s in enumerate(subjects) if (i % HELD_OUT == HELD_OUT - 1) == held]


def _tables() -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Forms, and what goes into each of them."""
    passages = [passage(subject) for subject in _SUBJECTS]
    yield _TALK, _SUBJECTS
    yield _CODE, _TASKS
    yield _SHORTEN, passages
    yield TEXT_EDITS, passages
    yield CODE_EDITS, SNIPPETS


def divided(own: Sequence[T]) -> tuple[list[T], list[T]]:
    """The user's own prompts in the same way: (to train on, held out)."""
    held = list(own[HELD_OUT - 1 :: HELD_OUT])
    return [prompt for i, prompt in enumerate(own) if i % HELD_OUT != HELD_OUT - 1], held


def mixed(some: Sequence[T], others: Sequence[T]) -> list[T]:
    """In turns, as long as there are both; then the rest."""
    both = [item for pair in zip(some, others, strict=False) for item in pair]
    return [*both, *some[len(others) :], *others[len(some) :]]
