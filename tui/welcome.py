"""Where a new user begins, and where a model is chosen later: what is here, what can be fetched, what fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from ..errors import EdgeSpecError
from ..history import Conversation
from .background import in_thread
from .fetching import Fetching
from .labels import line, model_name
from .model_list import Choice, choices, with_drafts

_TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class Chosen:
    """model: a name or path.  conversation: one to go on with instead, with the model that it has."""

    model: str = ""
    conversation: int | None = None


class WelcomeScreen(Screen[Chosen | None]):
    """latest: the conversation to go on with, offered first. Dismissed with None where the user leaves."""

    DEFAULT_CSS = """
    WelcomeScreen:inline { height: 20; }
    WelcomeScreen > #title { height: auto; padding: 1 2 0 2; }
    WelcomeScreen > #body { height: 1fr; padding: 1 1 0 1; }
    WelcomeScreen OptionList { width: 1fr; height: 1fr; border: round $primary; background: transparent; padding: 0 1; }
    WelcomeScreen OptionList:focus { border: round $accent; }
    WelcomeScreen #facts { width: 1fr; padding: 1 2; }
    WelcomeScreen #facts > Static { height: auto; }
    WelcomeScreen > #fetch { height: auto; padding: 0 2; }
    WelcomeScreen > ProgressBar { padding: 0 2; height: 1; }
    WelcomeScreen.-narrow > #body { layout: vertical; }
    WelcomeScreen.-narrow OptionList { width: 100%; }
    WelcomeScreen.-narrow #facts { height: 8; width: 100%; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", show=False),
        Binding("ctrl+q", "leave", "Quit", priority=True),
        Binding("f5", "look", "Look again"),
    ]

    def __init__(self, latest: Conversation | None = None, *, picking: bool = False) -> None:
        """picking: a chat is open below; leaving goes back to it."""
        super().__init__()
        self._latest, self._picking = latest, picking
        self._choices: dict[str, Choice] = {}
        self._fetching: Fetching | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with Horizontal(id="body"):
            yield OptionList(id="models", markup=False)
            with VerticalScroll(id="facts", can_focus=False):
                yield Static(id="about")
        yield Static(id="fetch")
        yield ProgressBar(id="bar", show_eta=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        title = "Choose a model" if self._picking else "Welcome to EdgeSpec"
        sub = "Enter takes the one that is marked. Everything runs on this machine."
        self.query_one("#title", Static).update(Content.assemble((title, "bold $text-accent"), f"\n{sub}"))
        self.query_one("#bar").display = False
        self._tell("")
        self.action_look()

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width < 84, "-narrow")

    def action_look(self) -> None:
        """Look at the disk."""
        self.query_one("#about", Static).update(Content("Looking for models on this machine ..."))
        self.run_worker(self._look(), group="look", exclusive=True)

    async def _look(self) -> None:
        try:
            found = await in_thread(choices)
        except EdgeSpecError as error:
            self._tell(str(error))
            return
        models = self.query_one("#models", OptionList)
        models.clear_options()
        self._choices = {f"m{i}": choice for i, choice in enumerate(found)}
        if self._latest is not None and not self._picking:
            models.add_option(Option(Content(f"Go on: {line(self._latest.label, 50)}"), id="latest"))
        self._heading(models, "On this machine", [k for k, c in self._choices.items() if c.path is not None])
        self._heading(models, "Can be fetched", [k for k, c in self._choices.items() if c.path is None])
        first = next((i for i in range(models.option_count) if not models.get_option_at_index(i).disabled), None)
        models.highlighted = first
        models.focus()

    def _heading(self, models: OptionList, title: str, keys: list[str]) -> None:
        if not keys:
            return
        models.add_option(Option(Content.styled(title, "bold $text-primary"), disabled=True))
        for key in keys:
            choice = self._choices[key]
            mark = "  " if choice.usable else "✗ "
            models.add_option(Option(Content(f"{mark}{choice.summary}"), id=key))

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if event.option.id == "latest" and self._latest is not None:
            latest = self._latest
            self._about(f"{line(latest.label, 200)}\n\n{latest.messages} messages with {model_name(latest.model)}")
        elif event.option.id in self._choices:
            self.run_worker(self._explain(event.option.id), group="explain", exclusive=True)

    async def _explain(self, key: str) -> None:
        choice = self._choices[key]
        self._about("\n".join((choice.summary, "", *choice.facts)))
        if choice.path is not None:
            self._choices[key] = choice = await in_thread(lambda: with_drafts(choice))
            self._about("\n".join((choice.summary, "", *choice.facts)))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self._fetching is not None:
            return
        if event.option.id == "latest" and self._latest is not None:
            self.dismiss(Chosen(conversation=self._latest.id))
        elif (choice := self._choices.get(event.option.id or "")) is not None:
            if not choice.usable:
                self._tell("this file cannot be used; choose another")
            elif choice.path is not None:
                self.dismiss(Chosen(choice.path))
            else:
                self.run_worker(self._fetch(choice), group="fetch")

    async def _fetch(self, choice: Choice) -> None:
        """Fetch a model with its draft, then take it."""
        with_draft = choice.entry is not None and choice.entry.draft is not None
        self._fetching = fetching = Fetching(choice.name, with_draft=with_draft)
        bar = self.query_one("#bar", ProgressBar)
        bar.display = True
        ticking = self.set_interval(_TICK_S, lambda: self._progress(fetching))
        try:
            path = await in_thread(fetching.run)
        except (EdgeSpecError, OSError) as error:
            self._tell("stopped; what has arrived is kept" if fetching.stopped else str(error))
        else:
            self.dismiss(Chosen(str(path)))
        finally:
            ticking.stop()
            bar.display = False
            self._fetching = None

    def _progress(self, fetching: Fetching) -> None:
        shown, done, total = fetching.progress
        self._tell(f"{shown}  (Esc stops)")
        self.query_one("#bar", ProgressBar).update(total=total or None, progress=done)

    def _about(self, text: str) -> None:
        self.query_one("#about", Static).update(Content(text))

    def _tell(self, text: str) -> None:
        tell = self.query_one("#fetch", Static)
        tell.update(Content(line(text, 400)))
        tell.display = bool(text)

    def action_back(self) -> None:
        if self._fetching is not None:
            self._fetching.stop()
        elif self._picking:
            self.dismiss(None)

    def action_leave(self) -> None:
        if self._fetching is not None:
            self._fetching.stop()
        self.app.exit()
