"""Limit laws by name: each one's settings, and how a law is built from them.

A law is registered by an entry point of the group ``forebay.limits`` whose value is its
`LawSettings` class; those that come with Forebay are registered in the same way.
"""

from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from forebay.config.fields import Fraction
from forebay.config.settings import Section
from forebay.core.limits.fixed import Fixed
from forebay.core.limits.gradient_aimd import GradientAimd, GradientSettings
from forebay.core.limits.knee import Knee, KneeSettings

if TYPE_CHECKING:
    from forebay.config.schema import ForebayConfig
    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint

ENTRY_POINTS = "forebay.limits"


class LawSettings(Section, ABC):
    """What the file may say about a law, besides its name. Subclasses add their keys."""

    law: str
    """The law's name."""

    @abstractmethod
    def build(self, endpoint: "Endpoint", config: "ForebayConfig") -> "Limit":
        """Make the law for one endpoint."""


class FixedSettings(LawSettings):
    """The limit is the ceiling, always."""

    def build(self, endpoint: "Endpoint", config: "ForebayConfig") -> "Limit":  # noqa: ARG002
        """Make the law for one endpoint."""
        return Fixed(floor=endpoint.floor, ceiling=endpoint.ceiling)


class GradientAimdSettings(LawSettings):
    """Grow while latency is as at rest, shrink by a factor when it is not."""

    backoff: Fraction = 0.8
    """The factor of one cut."""

    def build(self, endpoint: "Endpoint", config: "ForebayConfig") -> "Limit":
        """Make the law for one endpoint."""
        settings = GradientSettings(
            target=config.gradient_target, window=config.autoscale_window, backoff=self.backoff
        )
        return GradientAimd(floor=endpoint.floor, ceiling=endpoint.ceiling, settings=settings)


class KneeLawSettings(LawSettings):
    """Run as many requests at once as raise the work per second, and no more."""

    backoff: Fraction = 0.8
    """The factor of a cut, after refusals for load, time-outs or preemptions."""

    def build(self, endpoint: "Endpoint", config: "ForebayConfig") -> "Limit":  # noqa: ARG002
        """Make the law for one endpoint."""
        settings = KneeSettings(backoff=self.backoff)
        return Knee(floor=endpoint.floor, ceiling=endpoint.ceiling, settings=settings)


def names() -> tuple[str, ...]:
    """Names of all laws that are installed."""
    return tuple(sorted(entry_points(group=ENTRY_POINTS).names))


def settings_class(name: str) -> type[LawSettings]:
    """Find the settings of a law.

    Raises:
        KeyError: no law of that name is installed.
    """
    found = next(iter(entry_points(group=ENTRY_POINTS, name=name)), None)
    if found is None:
        raise KeyError(name)
    loaded: type[LawSettings] = found.load()
    return loaded
