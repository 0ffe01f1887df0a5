"""What a configuration comes to: every endpoint, group and model with its numbers resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from forebay.adapters.engines.batching import NO_LIMITS
from forebay.config.fields import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import SecretStr

    from forebay.adapters.engines.batching import BatchLimits
    from forebay.config.fields import Kind, Routing
    from forebay.config.laws import LawSettings
    from forebay.config.problems import ConfigWarning
    from forebay.config.schema import ForebayConfig
    from forebay.config.urls import BaseUrl
    from forebay.core.model import Endpoint, ServiceClass


@dataclass(frozen=True, slots=True)
class PlannedEndpoint:
    """An endpoint, and what is needed to talk to it.

    Args:
        endpoint: as the core sees it.
        kind: what its model is for.
        model_key: the model's id; for a fallback ``embedding:fallback`` and the like.
        url: where its API lives.
        api_key: sent as bearer token, if there is one.
        engine: the engine's name, or None to find out.
        metrics_url: where its metrics are. Not shown by `repr`: its query may hold a key.
        piece_tokens: best-effort requests for embeddings that are larger go in pieces; None: never.
        batch_limits: how large a request for embeddings may be, as far as that is configured.
        first_byte_s: from sending a request to the first byte of its answer; None: as for all.
    """

    endpoint: Endpoint
    kind: Kind
    model_key: str
    url: BaseUrl
    api_key: SecretStr | None
    engine: str | None
    metrics_url: str = field(repr=False)
    piece_tokens: int | None = None
    batch_limits: BatchLimits = NO_LIMITS
    first_byte_s: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Endpoints on one physical GPU.

    Args:
        name: case-folded.
        budget: requests in flight at once over all of it; None: no joint budget.
        endpoints: ids of its members, fallbacks included.
        reserved: sum of its interactive members' floors.
        floors: sum of all members' floors.
        source: where the budget was set.
    """

    name: str
    budget: int | None
    endpoints: tuple[str, ...]
    reserved: int
    floors: int
    source: Literal["file", "environment", "none"]


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model that requests can name.

    Args:
        id: the name in requests.
        kind: what it is for.
        endpoints: ids of the endpoints that serve it.
        fallbacks: ids of those that stand in for them.
        service_class: of the requests that do not ask for another one.
        routing: `hrw` takes a request's affinity from its body, where no header has one.
    """

    id: str
    kind: Kind
    endpoints: tuple[str, ...]
    fallbacks: tuple[str, ...]
    service_class: ServiceClass
    routing: Routing = "least_inflight"


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration that may start.

    Args:
        file: where it was read from.
        config: all settings as validated.
        law: the limit law's settings; builds the law of each endpoint.
        endpoints: all of them, fallbacks last.
        groups: by name.
        models: by id.
        warnings: what is probably not meant.
        sources: where further endpoints are found, as the file has it.
        text: what the file held. Not shown by `repr`: it may hold keys.
    """

    file: str
    config: ForebayConfig
    law: LawSettings
    endpoints: tuple[PlannedEndpoint, ...]
    groups: Mapping[str, PlannedGroup]
    models: Mapping[str, PlannedModel]
    warnings: tuple[ConfigWarning, ...]
    sources: tuple[str, ...] = ()
    text: bytes = field(default=b"", repr=False)

    @property
    def budgets(self) -> dict[str, int]:
        """Every budget by group, those of groups in which no endpoint is yet as well."""
        written = {name: n for name, n in self.config.budgets.items() if HOST not in name}
        in_use = {name: group.budget for name, group in self.groups.items() if group.budget}
        return {**written, **in_use}
