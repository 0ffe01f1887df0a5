"""Forebay's own settings: what stands under ``"forebay"``."""

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from forebay.config.fields import (
    Count,
    Flag,
    LogLevel,
    Multiple,
    Nameserver,
    Natural,
    Part,
    Seconds,
    SecondsOrOff,
    Secret,
    Text,
    Url,
)


class Section(BaseModel):
    """An object of the file: no unknown keys, never changed, never shown whole in an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


class QueueSettings(Section):
    """How much may wait, for each model and class."""

    max_requests: Natural = 1024
    """Requests that may wait."""
    max_bytes: Count = 268_435_456
    """Bytes that the bodies of waiting requests may take together."""


class TimeoutSettings(Section):
    """How long anything may take, in seconds."""

    connect_s: Seconds = 5.0
    """Opening a connection."""
    unreachable_s: Seconds = 15.0
    """Until an endpoint's host that acknowledges nothing any more counts as gone; the engine may be
    silent for longer."""
    request_s: Seconds = 600.0
    """A request's whole life, waiting included, where the request itself does not say."""
    first_byte_s: Seconds = 600.0
    """From sending a request to the first byte of its answer."""
    between_chunks_s: Seconds = 120.0
    """Silence inside an answer, and of a client that sends its request or takes its answer."""
    probe_s: Seconds = 15.0
    """A breaker's probe of an endpoint that was away, up to its answer or its first token; three
    times what that usually takes, where it is more."""
    retry_after_s: Seconds = 120.0
    """Longest that an endpoint is left alone because it asks for it, with `Retry-After`."""


class BreakerSettings(Section):
    """How an endpoint comes back after its breaker was open."""

    ramp_double_s: Seconds = 30.0
    """Seconds in which what the endpoint may take doubles, beginning at its floor."""
    reset_after_requests: Count = 10
    """Good answers since it came back after which, once `reset_after_s` is over too, the next
    outage begins with the first pause again."""
    reset_after_s: Seconds = 60.0
    """Seconds since it came back after which, with `reset_after_requests` answers too, the next
    outage begins with the first pause again."""


class Protection(Section):
    """How far best-effort work may slow chat down that runs on the same GPU."""

    target: Multiple = 1.25
    """Chat's first token and each further one may take so many times as long as without it."""
    first_token_s: Seconds | None = None
    """Seconds that the first token may take, in place of `target`."""
    output_token_s: Seconds | None = None
    """Seconds that each further token may take, in place of `target`."""
    min_duty: Part = 0.2
    """The part of the best-effort floors that goes on however slow chat is; 1: the floors always
    hold, and nothing pauses to measure chat alone."""


class DiscoverySettings(Section):
    """How endpoints are found that are not written down."""

    nameservers: tuple[Nameserver, ...] = ()
    """DNS servers to ask, each an address with or without a port; none: the system's."""
    interval_s: Seconds = 30.0
    """Seconds between looking up a name, at most; sooner where its records are valid for less."""
    kubernetes_url: Url | None = None
    """The API server. Left out: the one of the cluster that Forebay runs in."""
    kubernetes_token_file: Text = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105
    """File with the bearer token for it; without such a file none is sent."""
    kubernetes_ca_file: Text = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    """File with the certificates that sign the server's; without such a file the system's count."""


class IdentitySettings(Section):
    """Whether vectors of another endpoint are those of its model; compared before they are used."""

    min_cosine: Part = 0.98
    """Cosine between two endpoints' vectors of one text from which on they are one model's."""
    allow_unverified: Flag = False
    """Whether a fallback may serve while no endpoint of the model itself has answered since the
    start, so that there is nothing to compare it with."""


class ApiKey(Section):
    """A key that callers of the gateway present."""

    name: Text
    """Stands for the key in logs."""
    key: Secret
    """What callers send as bearer token."""
    may_raise: Flag = False
    """Whether its callers may ask for a better class than the model's."""
    admin: Flag = False
    """Whether it opens the admin pages."""


class ForebaySettings(Section):
    """Forebay's own settings."""

    limit: dict[str, Any] = {"law": "knee"}
    """The limit law: its name, or an object with `law` and the settings of that law."""
    max_overtakes: Natural = 8
    """How many others may start before a model that waits with nothing running is next."""
    protection: Protection | None = None
    """Hold best-effort work back by chat's own times; {} for the usual target, null: do not."""
    identity: IdentitySettings | None = IdentitySettings()
    """Keep vectors of another model from callers, where several endpoints serve an embedding model;
    null: trust the configuration."""
    queue: QueueSettings = QueueSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    breaker: BreakerSettings = BreakerSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    body_limit_bytes: Count = 67_108_864
    """The largest request body, bytes."""
    sse_keepalive_s: SecondsOrOff = 15.0
    """Seconds between comments in a stream that still waits; 0: none."""
    api_keys: tuple[ApiKey, ...] = ()
    """Keys that open the gateway; none: it is open to whoever reaches it."""
    scrape_interval_s: Seconds = 5.0
    """Seconds between readings of the engines' metrics."""
    log_level: LogLevel = "info"
    """debug, info, warning or error."""

    @field_validator("limit", mode="before")
    @classmethod
    def _named_law(cls, value: object) -> object:
        return {"law": value} if isinstance(value, str) else value

    @field_validator("api_keys")
    @classmethod
    def _keys_differ(cls, keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
        names = {key.name for key in keys}
        values = {key.key.get_secret_value() for key in keys}
        if min(len(names), len(values)) < len(keys):
            raise ValueError("two entries have the same name or the same key")
        return keys
