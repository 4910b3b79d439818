"""The benchmark texts that belong to this project: 20 each of edit tasks, code, chat, prose and summaries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath

HERE = files(__name__)
NAMES = ("edit", "code", "chat", "prose", "summarise")

# The word after the opening fence, by file suffix.
LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".c": "c",
    ".go": "go",
    ".rs": "rust",
    ".sh": "sh",
    ".sql": "sql",
    ".toml": "toml",
}


@dataclass(frozen=True, slots=True)
class EditTask:
    """A source file and a small change asked for; `name` is the file's name in the edit folder."""

    name: str
    source: str
    instruction: str

    @property
    def prompt(self) -> str:
        """The instruction, then the whole source in a fenced block."""
        return f"{self.instruction}\n\n```{LANGUAGES[PurePath(self.name).suffix]}\n{self.source.rstrip()}\n```\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; `chat` is True where its line holds messages (one, of the user) rather than a bare prompt."""

    name: str
    text: str
    chat: bool

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as a conversation of one user message."""
        return [{"role": "user", "content": self.text}]


def edit_tasks() -> list[EditTask]:
    """The edit suite in the order of its file names."""
    tasks = []
    for line in (HERE / "edit" / "tasks.jsonl").read_text(encoding="utf-8").splitlines():
        task = json.loads(line)
        source = (HERE / "edit" / task["file"]).read_text(encoding="utf-8")
        tasks.append(EditTask(name=task["file"], source=source, instruction=task["instruction"]))
    return tasks


def prompts(name: str) -> list[Prompt]:
    """The prompts of one workload of NAMES; raises ValueError for any other name."""
    if name not in NAMES:
        raise ValueError(f"no workload {name!r}; use one of {', '.join(NAMES)}")
    if name == "edit":
        return [Prompt(name=task.name, text=task.prompt, chat=True) for task in edit_tasks()]
    found = []
    for number, line in enumerate((HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(), start=1):
        fields = json.loads(line)
        if "prompt" in fields:
            text = fields["prompt"]
        else:
            (message,) = fields["messages"]
            text = message["content"]
        found.append(Prompt(name=f"{name}-{number:02}", text=text, chat="messages" in fields))
    return found
