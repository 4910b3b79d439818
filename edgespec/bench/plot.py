"""The cost curve and the speed-ups of a benchmark as a picture. Needs matplotlib: pip install 'edgespec[bench]'."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from ..errors import BadRequestError

FORMATS = (".png", ".svg")


def check_plot(path: Path) -> None:
    """Raise BadRequestError, before anything is measured, for a plot that could not be written at the end."""
    if path.suffix.lower() not in FORMATS:
        raise BadRequestError(f"plot {path} is neither .png nor .svg; name the file so")
    if not path.absolute().parent.is_dir():
        raise BadRequestError(f"plot {path} lies in no folder that exists; make the folder, or name another")
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise BadRequestError(f"plot {path} cannot be written; name another file")
    if importlib.util.find_spec("matplotlib") is None:
        raise BadRequestError("plots need matplotlib, which is not installed; pip install 'edgespec[bench]'")


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the object of `bench --json` into a PNG or SVG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.8))
    draft = f" + {result['draft']}" if result["draft"] else ""
    figure.suptitle(f"{result['model']}{draft}, {result['regime']}, threads: {result['settings']['threads']}")
    _costs(left, result)
    _speedups(right, result)
    figure.savefig(path, format=path.suffix.lower().removeprefix("."), dpi=150)


def _costs(axes: Any, result: dict[str, Any]) -> None:
    widths = [int(width) for width in result["cost_table"]]
    axes.plot(widths, list(result["cost_table"].values()), marker="o", label="target")
    if result["draft_step_ms"] is not None:
        axes.axhline(result["draft_step_ms"], linestyle="--", color="gray", label="one step of the draft")
        axes.legend()
    axes.set(title="cost of one decode", xlabel="rows", ylabel="milliseconds")
    axes.set_xticks(widths)
    axes.set_ylim(bottom=0)


def _speedups(axes: Any, result: dict[str, Any]) -> None:
    """Grouped bars with intervals; the line at 1 is plain decoding."""
    rows = [row for row in result["workloads"] if row["speedup"] is not None]
    names = list(dict.fromkeys(row["name"] for row in rows))
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    width = 0.8 / max(1, len(modes))
    for i, mode in enumerate(modes):
        mine = [row for row in rows if row["mode"] == mode]
        at = [names.index(row["name"]) + (i - (len(modes) - 1) / 2) * width for row in mine]
        values = [row["speedup"] for row in mine]
        low = [v - (row["ci"] or (v, v))[0] for v, row in zip(values, mine, strict=True)]
        high = [(row["ci"] or (v, v))[1] - v for v, row in zip(values, mine, strict=True)]
        axes.bar(at, values, width, label=mode, yerr=(low, high), capsize=2)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(range(len(names)), names)
    axes.set(title="decode speed over plain, median and 95% interval", ylabel="ratio")
    if rows:
        axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
