"""The Jinja templates of the page and of the notebook's card."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from dpaudit.render.line_breaks import breakable, kept_whole
from dpaudit.render.tables import width_of

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["get_template"]


@cache
def get_template(name: str) -> Template:
    """The template ``name`` of this package; it escapes every value and refuses undefined ones."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=PackageLoader("dpaudit.render", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "kept_whole": kept_whole, "look": width_of}
    return environment.get_template(name)
