"""The forms of heads that can be trained, by the name that --form has for them (settings.FORMS)."""

from __future__ import annotations

from . import eagle, sequential
from .form import Form

FORMS: dict[str, Form] = {"sequential": sequential.FORM, "eagle": eagle.FORM}
