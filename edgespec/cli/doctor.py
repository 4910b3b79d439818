"""`edgespec doctor`: does all that EdgeSpec needs work here?"""

from __future__ import annotations

import click

from ..text import sanitize
from .json_text import json_text
from .options import SETTINGS

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor", context_settings=SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(as_json: bool) -> int:
    """Check that all that EdgeSpec needs works here, and say how to mend what does not.

    Nothing is sent anywhere and no connection is opened. Exit code 1 if a check fails; a warning is no failure.

    --json keys: checks (a list of name, status, detail, fix). status is ok, warn or fail; fix is null if it is ok.
    """
    from rich.console import Console

    from ..doctor import examine

    console = Console()
    colour = console.color_system is not None and not console.no_color
    found = []
    for name, finding in examine():
        found.append((name, finding))
        if not as_json:
            status = click.style(f"{finding.status:<5}", fg=_COLOURS[finding.status])
            click.echo(f"{status} {name:<13} {_line(finding.detail)}", color=colour)
            if finding.fix is not None:
                click.echo(f"{'':<20}fix: {_line(finding.fix)}")
    if as_json:
        rows = [{"name": name, "status": f.status, "detail": f.detail, "fix": f.fix} for name, f in found]
        click.echo(json_text({"checks": rows}))
    return int(any(finding.status == "fail" for _, finding in found))


def _line(text: str) -> str:
    return sanitize(" ".join(text.split()))
