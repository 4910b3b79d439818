"""Does all that EdgeSpec needs work here? A table of checks: another one is a function and a row.

Nothing is sent anywhere, no connection is opened, and nothing is changed but the remembered result of the kernel probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from . import places, resources, software, terminal
from .finding import Finding, Status, warn

__all__ = ["CHECKS", "Finding", "Status", "examine"]

Check = Callable[[], Finding]

CHECKS: Mapping[str, Check] = {
    "python": software.python,
    "binding": software.binding,
    "llama.cpp": software.library,
    "cpu features": software.features,
    "kernels": software.kernels,
    "gpu": software.gpu,
    "threads": resources.threads,
    "memory": resources.memory,
    "swap": resources.swap,
    "disk": places.disk,
    "folders": places.folders,
    "config": places.config,
    "colours": terminal.colours,
    "width": terminal.width,
    "clipboard": terminal.clipboard,
    "offline": places.offline,
    "profiles": places.profiles,
}


def examine(checks: Mapping[str, Check] = CHECKS) -> Iterator[tuple[str, Finding]]:
    """Each check's name and what it found, in order, as it is found."""
    for name, check in checks.items():
        try:
            finding = check()
        except Exception as error:  # the others can still help
            what = " ".join(str(error).split()) or type(error).__name__
            finding = warn(f"could not be checked: {what}", "see the other lines; `edgespec -v doctor` may tell more")
        yield name, finding
