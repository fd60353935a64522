"""The settings by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from dpaudit.errors import UsageError
from dpaudit.registry import nearest
from dpaudit.types import Reference
from dpaudit_attacks.pool_inference.real_settings import real_emoji, real_news
from dpaudit_attacks.pool_inference.setting import Setting
from dpaudit_attacks.pool_inference.synthetic_settings import emojis, equal_pools, news

__all__ = [
    "SETTINGS",
    "Setting",
    "emojis",
    "equal_pools",
    "load_setting",
    "make_setting",
    "news",
    "real_emoji",
    "real_news",
    "setting_options",
]

SETTINGS: dict[str, Callable[..., Setting]] = {
    "emojis": emojis,
    "equal-pools": equal_pools,
    "news": news,
    "real-emoji": real_emoji,
    "real-news": real_news,
}


def setting_options(name: str) -> tuple[str, ...]:
    """The options that a setting takes.

    Raises:
        UsageError: no such setting.
    """
    return tuple(inspect.signature(_factory(name)).parameters)


def _factory(name: str) -> Callable[..., Setting]:
    if name not in SETTINGS:
        raise UsageError(f"setting={name}: not known{nearest(name, SETTINGS)}")
    return SETTINGS[name]


def make_setting(name: str, **options: object) -> Setting:
    """A setting by its name: ``emojis``, ``news``, ``equal-pools``, ``real-emoji`` or ``real-news``.

    Raises:
        UsageError: no such setting, an option that it does not take or lacks, or one that makes no sense.
    """
    factory = _factory(name)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise UsageError(f"setting={name}: {error}; it takes {', '.join(setting_options(name))}") from error
    return factory(**options)


def load_setting(text: str) -> Setting:
    """A setting as people write it: ``emojis``, ``news:universe=250000``, ``equal-pools:size=50,zipf=0.5``.

    Raises:
        UsageError: as :func:`make_setting`.

    >>> round(load_setting("equal-pools:size=10,zipf=0").entropies()[0], 2)
    3.32
    """
    reference = Reference.parse(text)
    return make_setting(reference.name, **reference.options)
