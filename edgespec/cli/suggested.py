"""The sampling that the catalogue suggests for a model, in place of defaults: what the user set stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from ..models.catalog import catalog
from ..models.names import resolve


def suggested_sampling(options: Mapping[str, Any]) -> dict[str, float]:
    """Sampling parameters of the running command's model that neither its command line nor a setting gives.

    Unless quiet, a line on standard error names them.
    """
    if options["temperature"] == 0:  # nothing else has an effect
        return {}
    entry = catalog().of_file(resolve(options["model"]))
    if entry is None or entry.sampling is None:
        return {}
    source = click.get_current_context().get_parameter_source
    wanted = entry.sampling.given().items()
    used = {k: v for k, v in wanted if source(k) is ParameterSource.DEFAULT and v != options[k]}
    if used and not options["quiet"]:
        named = ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in used.items())
        click.echo(f"{entry.name}: {named}, as its makers suggest", err=True)
    return used
