"""Whether the places of the file that speak of one model, or of one endpoint, agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forebay.config.problems import nearest
from forebay.config.schema import RESERVED_ROLES

if TYPE_CHECKING:
    from collections.abc import Collection

    from forebay.config.fields import Kind
    from forebay.config.findings import Findings
    from forebay.config.plan import PlannedEndpoint
    from forebay.config.problems import KeyPath
    from forebay.config.schema import ForebayConfig, Server

_KNOWN_ROLES = (*RESERVED_ROLES, "embedding", "rerank", "batch")


@dataclass(frozen=True, slots=True)
class Use:
    """A server as one place of the file uses it.

    Args:
        server: its settings, with what it takes over from its model's entry.
        path: the place.
        kind: what the model is for.
        model: the model's id on this server.
        role: see `Endpoint.role`.
        fallback_of: id of the model that it stands in for, else None.
        source: where servers like this one are found; then it is no server itself.
    """

    server: Server
    path: KeyPath
    kind: Kind
    model: str
    role: str
    fallback_of: str | None = None
    source: str | None = None


def check_models(uses: list[Use], findings: Findings) -> None:
    """Refuse a model that is two things at once, and a fallback for nothing."""
    first: dict[str, Use] = {}
    for use in uses:
        if use.fallback_of is not None:
            _check_fallback(use, first, findings)
            continue
        known = first.setdefault(use.model, use)
        if known.kind != use.kind:
            findings.refuse(
                use.path,
                f"model {use.model!r} is in {known.kind}_models too; requests name a model by its "
                "id alone, so give one of the two another id",
            )
        elif known.role != use.role:
            findings.refuse(
                use.path,
                f"model {use.model!r} has role {known.role!r} in "
                f"{findings.document.key(known.path)} and {use.role!r} here; a model has one role",
            )


def _check_fallback(use: Use, regular: dict[str, Use], findings: Findings) -> None:
    if use.fallback_of not in regular:
        findings.refuse(
            use.path,
            f'has "role": "fallback", but no other entry has the id {use.model!r} that it could '
            "stand in for",
        )


def check_roles(config: ForebayConfig, uses: list[Use], findings: Findings) -> None:
    """Warn about roles that look misspelt: such a model would lose its reserve in silence."""
    known = {*_KNOWN_ROLES, *config.reserved_roles}
    for use in uses:
        if use.role not in known and (meant := nearest(use.role, known)):
            findings.warn(
                "unknown_role",
                (*use.path, "role"),
                f"{use.role!r} is best effort, since GPU_RESERVED_ROLES does not name it; did you "
                f"mean {meant!r}?",
            )
    in_use = {use.role for use in uses}
    for role in config.reserved_roles:
        if role not in in_use | set(_KNOWN_ROLES) and (meant := nearest(role, in_use)):
            findings.warn(
                "unused_reserved_role",
                ("GPU_RESERVED_ROLES",),
                f"names {role!r}, which no model has; did you mean {meant!r}?",
            )


def merged(
    placed: list[tuple[KeyPath, PlannedEndpoint | None]], findings: Findings
) -> list[tuple[KeyPath, PlannedEndpoint]]:
    """Let every server of a model be there once, however often and however spelt it is listed."""
    kept: dict[str, tuple[KeyPath, PlannedEndpoint]] = {}
    for path, planned in placed:
        if planned is None:
            continue
        first_path, first = kept.setdefault(planned.endpoint.id, (path, planned))
        if first is not planned:
            first_key = findings.document.key(first_path)
            both = _compare(first, planned, first_key, path, findings)
            kept[planned.endpoint.id] = (first_path, both)
    return list(kept.values())


def _compare(
    first: PlannedEndpoint,
    again: PlannedEndpoint,
    first_key: str,
    path: KeyPath,
    findings: Findings,
) -> PlannedEndpoint:
    """The endpoint that is listed twice, with what the second place makes it stand in for."""
    name, one, two = first.endpoint.id, first.endpoint, again.endpoint
    stands_in_for = two.fallback_of
    if one.gpu_group != two.gpu_group:
        findings.refuse(
            path,
            f"{name} is in two GPU groups: {one.gpu_group!r} by {first_key}, {two.gpu_group!r} "
            "here; one endpoint is on one GPU, so give both the same gpu_group",
        )
    elif one.fallback_of is None and stands_in_for == one.model:
        findings.warn(
            "fallback_is_regular",
            path,
            f"{name} is a regular endpoint already ({first_key}), so it cannot stand in as well; "
            "ignored here",
        )
    elif stands_in_for is not None and stands_in_for not in {served for served, _ in one.serves}:
        return _standing_in(first, again, stands_in_for, first_key, path, findings)
    elif differences := _differences(first, again):
        findings.refuse(
            path,
            f"{name} is listed already ({first_key}), with another {', '.join(differences)}; "
            "keep one of the two",
        )
    else:
        findings.warn(
            "duplicate_endpoint", path, f"{name} is listed already ({first_key}); it counts once"
        )
    return first


def _standing_in(  # noqa: PLR0913, PLR0917 - two places of the file, by name
    first: PlannedEndpoint,
    again: PlannedEndpoint,
    model: str,
    first_key: str,
    path: KeyPath,
    findings: Findings,
) -> PlannedEndpoint:
    """An endpoint that serves one model and stands in for another: its limits are those of both."""
    endpoint = first.endpoint
    if first.kind != again.kind:
        findings.refuse(
            path,
            f"{endpoint.id} is one of {first.kind}_models ({first_key}), so it cannot stand in for "
            f"{model!r}, which is one of {again.kind}_models",
        )
    elif differences := _differences(first, again, ignore={"role", "fallback_of"}):
        findings.warn(
            "fallback_shares_endpoint",
            path,
            f"{endpoint.id} is listed already, with another {', '.join(differences)}; what "
            f"{first_key} says counts here too",
        )
    return replace(first, endpoint=replace(endpoint, also_for=(*endpoint.also_for, model)))


def _differences(
    first: PlannedEndpoint, again: PlannedEndpoint, ignore: Collection[str] = ()
) -> list[str]:
    endpoint = ("role", "floor", "ceiling", "slot_weight", "tokens_per_slot", "fallback_of")
    planned = ("kind", "url", "api_key", "engine", "metrics_url", "piece_tokens", "first_byte_s")
    one, two = first.endpoint, again.endpoint
    return [
        *(n for n in endpoint if n not in ignore and getattr(one, n) != getattr(two, n)),
        *(n for n in planned if getattr(first, n) != getattr(again, n)),
    ]


def check_law(config: ForebayConfig, findings: Findings) -> None:
    """Warn of settings of the law `gradient_aimd` where another one of ours is in force."""
    law = config.forebay.limit.get("law")
    if law not in {"fixed", "knee"}:
        return
    for name, key in (
        ("gradient_target", "MODEL_LATENCY_GRADIENT_TARGET"),
        ("autoscale_window", "MODEL_AUTOSCALE_WINDOW"),
    ):
        if name in config.model_fields_set:
            findings.warn(
                "unused_law_setting",
                (key,),
                f'has no effect on the law {law}; "forebay": {{"limit": "gradient_aimd"}} uses it',
            )
