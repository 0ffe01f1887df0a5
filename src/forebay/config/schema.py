"""The configuration file's keys. Names and meanings are a contract; unknown keys are refused."""

from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from forebay.config.fields import (
    ApiPrefix,
    Count,
    DiscoverUrl,
    EngineName,
    Factor,
    Flag,
    Fraction,
    GroupName,
    Name,
    Natural,
    OptionalSecret,
    RoleList,
    Routing,
    Seconds,
    Text,
    Url,
    Window,
)
from forebay.config.settings import ForebaySettings, Section

RESERVED_ROLES = ("chat", "generator", "default", "lite", "super")


class Server(Section):
    """One server, and what may run on it at once.

    Its URLs are not shown by `repr`: a query may hold a key.
    """

    base_url: Url | None = Field(default=None, repr=False)
    """Where the server is, as people write it: with or without `http://`, `/v1`, a proxy's path."""
    gpu_group: GroupName | None = None
    """The physical GPU; `{host}` in it stands for the server's host. Without it the group is the
    endpoint's host and port."""
    parallel_instances: Count = 1
    """Engine instances behind the URL. Floor = this * `max_parallel_calls`."""
    max_parallel_calls: Count = 1
    """Calls that one instance can always take at once."""
    max_concurrent_requests: Count | None = None
    """The ceiling. Left out: the floor or `MODEL_MAX_CONCURRENT_REQUESTS`, whichever is more."""
    api_key: OptionalSecret = None
    """Sent to the server as bearer token; empty: none is sent."""
    engine: EngineName | None = None
    """infinity, llamacpp, lmdeploy, ollama, sglang, tei, tgi, triton, trtllm, unknown or vllm, or
    what a plug-in adds. Left out: it is found out."""
    metrics_url: Url | None = Field(default=None, repr=False)
    """Where the engine's metrics are. Left out: `/metrics` of the server's root."""
    api_prefix: ApiPrefix | None = None
    """What stands before `/embeddings` and the like. Left out: `/v1`; `""`: the API is at the
    root."""
    slot_weight: Count = 1
    """Slots that one request takes, at least."""
    tokens_per_slot: Count | None = None
    """Tokens of a request that take one slot: a large one takes several. Left out: size does not
    count."""
    piece_tokens: Natural | None = None
    """Embedding models: tokens that one request may have; a larger one goes in pieces, each with a
    slot of its own. 0: never in pieces. Left out: 2048 where an interactive model is on the same
    GPU, else 0."""
    max_batch_items: Count | None = None
    """Embedding models: inputs that the server takes in one request. Left out: what the server
    tells, or is found to take; likewise the next two."""
    max_batch_tokens: Count | None = None
    """Embedding models: tokens that the server takes in one request, all its inputs together."""
    max_batch_bytes: Count | None = None
    """Embedding models: bytes that the server takes in the body of one request."""
    first_byte_s: Seconds | None = None
    """Seconds from sending a request to the first byte of its answer. Left out:
    `forebay.timeouts.first_byte_s`."""
    note: str | None = None
    """For people; ignored."""


class EndpointEntry(Server):
    """One of several servers of a model; what it leaves out is as the model's entry says."""

    discover: DiscoverUrl | None = None
    """In place of `base_url`, where servers are found while Forebay runs: `dns://name:port/v1`,
    `srv://_service._tcp.name/v1` or `k8s://namespace/service:port/v1`."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.base_url is None) == (self.discover is None):
            raise ValueError("needs base_url or discover, one of the two")
        if self.discover is not None and self.metrics_url is not None:
            raise ValueError("metrics_url belongs to one server, and discover finds several")
        return self


class FallbackEntry(Server):
    """A server that stands in for another one while that is away."""

    id: Text
    """The model's name on that server."""
    base_url: Url = Field(repr=False)
    provider: Text | None = None
    """Ignored; for programs that share the file."""
    fallback: Any = None
    """Ignored with a warning: there is one level only."""

    @model_validator(mode="before")
    @classmethod
    def _has_id_and_base_url(cls, value: object) -> object:
        if isinstance(value, dict) and not {"id", "base_url"} <= value.keys():
            raise ValueError("fallback needs id and base_url")
        return value


class ModelEntry(Server):
    """A model, and the server or servers that have it."""

    id: Text
    """The served model's name, as requests give it. The same id twice: two servers of one model."""
    provider: Text | None = None
    """Ignored; for programs that share the file."""
    role: Name | None = None
    """chat, generator, default, lite, super, embedding, rerank, batch, or one of your own. Left
    out: chat, embedding or rerank, by the list it stands in. `fallback`: this entry stands in for
    the other entries of its id."""
    endpoints: tuple[EndpointEntry, ...] | None = Field(default=None, min_length=1)
    """Several servers, in place of `base_url`."""
    fallback: FallbackEntry | None = None
    """A server that stands in for this one."""
    routing: Routing = "least_inflight"
    """How requests are spread over several servers. `least_inflight`: where most is free. `hrw`:
    requests with the same `prompt_cache_key` or `user` prefer the same server."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if self.base_url is None and self.endpoints is None:
            raise ValueError("needs base_url, or endpoints")
        if self.base_url is not None and self.endpoints is not None:
            raise ValueError("has base_url and endpoints; keep one of the two")
        if self.endpoints is not None and self.metrics_url is not None:
            raise ValueError("metrics_url belongs to each of the endpoints")
        return self


class ForebayConfig(Section):
    """The whole file."""

    editor_schema: str | None = Field(default=None, alias="$schema")
    """For editors; ignored."""
    chat_models: tuple[ModelEntry, ...] = ()
    """Models that generate text."""
    embedding_models: tuple[ModelEntry, ...] = ()
    """Models that embed texts."""
    rerank_models: tuple[ModelEntry, ...] = ()
    """Models that rank texts."""
    budgets: dict[GroupName, Count] = Field(default={}, alias="GPU_CONCURRENCY_BUDGETS")
    """Group → requests in flight at once on that GPU, over all its models; with `{host}`, as
    `gpu_group` has it, on each such GPU. A group without one has no joint budget."""
    reserved_roles: RoleList = Field(default=RESERVED_ROLES, alias="GPU_RESERVED_ROLES")
    """Roles that are interactive: their floors are always kept free. A list, or a text with
    commas."""
    max_concurrency: Count = Field(default=512, alias="MODEL_MAX_CONCURRENCY")
    """No endpoint's limit ever grows beyond it."""
    max_concurrent_requests: Count = Field(default=32, alias="MODEL_MAX_CONCURRENT_REQUESTS")
    """The ceiling of endpoints that set none."""
    gradient_target: Fraction = Field(default=0.9, alias="MODEL_LATENCY_GRADIENT_TARGET")
    """A limit grows while latency at rest ÷ latency now is at least this."""
    autoscale_window: Window = Field(default=16, alias="MODEL_AUTOSCALE_WINDOW")
    """Latency readings for one decision on a limit."""
    circuit_breaker: Flag = Field(default=True, alias="MODEL_CIRCUIT_BREAKER")
    """Whether an endpoint that fails is left alone for a while."""
    breaker_fail_threshold: Count = Field(default=3, alias="MODEL_BREAKER_FAIL_THRESHOLD")
    """Failures in a row that open its breaker."""
    breaker_base_cooldown_s: Seconds = Field(default=5.0, alias="MODEL_BREAKER_BASE_COOLDOWN_S")
    """The first pause, seconds."""
    breaker_max_cooldown_s: Seconds = Field(default=300.0, alias="MODEL_BREAKER_MAX_COOLDOWN_S")
    """The longest pause, seconds."""
    breaker_backoff_factor: Factor = Field(default=2.0, alias="MODEL_BREAKER_BACKOFF_FACTOR")
    """Each pause in a row is longer than the one before by this factor."""
    forebay: ForebaySettings = ForebaySettings()

    @field_validator("budgets", mode="before")
    @classmethod
    def _names_each_group_once(cls, value: object) -> object:
        if isinstance(value, dict) and len({name.strip().casefold() for name in value}) < len(
            value
        ):
            raise ValueError("names a group twice (case does not count); keep one of the two")
        return value

    @model_validator(mode="after")
    def _cooldowns_fit(self) -> Self:
        if self.breaker_max_cooldown_s < self.breaker_base_cooldown_s:
            raise ValueError(
                "MODEL_BREAKER_MAX_COOLDOWN_S must be at least MODEL_BREAKER_BASE_COOLDOWN_S"
            )
        return self


def override_keys() -> tuple[str, ...]:
    """Top-level keys that the environment may set: those in upper case."""
    aliases = (field.alias for field in ForebayConfig.model_fields.values())
    return tuple(alias for alias in aliases if alias and alias.isupper())
