"""From settings to a plan: floors, ceilings, classes and groups of every endpoint.

Floors are sacrosanct and a budget is hard, so what promises both falsely is refused here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from forebay.adapters.engines.batching import BatchLimits
from forebay.config import api_root
from forebay.config.consistency import Use, check_law, check_models, check_roles, merged
from forebay.config.fields import Kind
from forebay.config.findings import Findings
from forebay.config.groups import group_on, plan_groups
from forebay.config.plan import Plan, PlannedEndpoint, PlannedModel
from forebay.core.model import Endpoint, ServiceClass
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from forebay.config.fields import Routing
    from forebay.config.laws import LawSettings
    from forebay.config.plan import PlannedGroup
    from forebay.config.problems import Document, KeyPath
    from forebay.config.schema import ForebayConfig, ModelEntry, Server
    from forebay.config.urls import BaseUrl

FALLBACK = "fallback"
# Tokens of a piece beside an interactive model. GPUs compute at full speed from 200 to 400 tokens
# at once on (operations per second ÷ bytes per second): pieces of five times that cost little, and
# a model of half a billion parameters reads one in 0.05 s at 40 TFLOP/s (2 · parameters · tokens).
PIECE_TOKENS = 2048
_BATCH_KEYS = ("max_batch_items", "max_batch_tokens", "max_batch_bytes")


def resolve(
    config: ForebayConfig,
    law: LawSettings,
    document: Document,
    found: Mapping[str, Collection[str]],
) -> Plan:
    """Resolve every endpoint, group and model.

    Raises:
        InvalidConfig: with everything that contradicts itself.
    """
    findings = Findings(document)
    uses = sorted(_uses(config, found, findings), key=lambda use: use.fallback_of is not None)
    if not uses:
        findings.refuse((), "names no model; add chat_models, embedding_models or rerank_models")
    check_models(uses, findings)
    check_roles(config, uses, findings)
    check_law(config, findings)
    placed = merged([(use.path, _planned(use, config, findings)) for use in uses], findings)
    further = {use.server.gpu_group for use in uses if use.source is not None}
    groups = plan_groups(placed, config, findings, further=further)
    findings.raise_if_refused()
    endpoints = tuple(_with_pieces(planned, groups) for _, planned in placed)
    return Plan(
        file=document.file,
        config=config,
        law=law,
        endpoints=endpoints,
        groups=groups,
        models=_models(uses, endpoints, config),
        warnings=tuple(findings.warnings),
        sources=tuple(dict.fromkeys(source for use in uses if (source := use.source))),
    )


def _uses(
    config: ForebayConfig, found: Mapping[str, Collection[str]], findings: Findings
) -> Iterator[Use]:
    for kind in get_args(Kind):
        list_key = f"{kind}_models"
        for n, entry in enumerate(getattr(config, list_key)):
            yield from _uses_of_entry(entry, (list_key, n), kind, found, findings)


def _uses_of_entry(
    entry: ModelEntry,
    path: KeyPath,
    kind: Kind,
    found: Mapping[str, Collection[str]],
    findings: Findings,
) -> Iterator[Use]:
    is_fallback = entry.role == FALLBACK
    role = kind if entry.role is None or is_fallback else entry.role
    stands_for = entry.id if is_fallback else None
    for server, at, source in _servers(entry, path, found):
        yield Use(server, at, kind, entry.id, role, stands_for, source)
    nested = entry.fallback if is_fallback else entry.fallback and entry.fallback.fallback
    if nested is not None:
        where = (*path, FALLBACK) if is_fallback else (*path, FALLBACK, FALLBACK)
        findings.warn("nested_fallback", where, "ignored: a fallback has no fallback of its own")
    if entry.fallback is not None and not is_fallback:
        at = (*path, FALLBACK)
        yield Use(entry.fallback, at, kind, entry.fallback.id, kind, fallback_of=entry.id)


def _servers(
    entry: ModelEntry, path: KeyPath, found: Mapping[str, Collection[str]]
) -> Iterator[tuple[Server, KeyPath, str | None]]:
    """Each server of an entry, its place, and the source if it stands for what that finds."""
    if entry.endpoints is None:
        yield entry, path, None
        return
    for n, endpoint in enumerate(entry.endpoints):
        said = {name: getattr(endpoint, name) for name in endpoint.model_fields_set}
        source, at = said.pop("discover", None), (*path, "endpoints", n)
        server = entry.model_copy(update=said)
        yield server, at, source
        for base_url in sorted(found.get(source, ())) if source else ():
            yield server.model_copy(update={"base_url": base_url}), at, None


def _planned(use: Use, config: ForebayConfig, findings: Findings) -> PlannedEndpoint | None:
    server = use.server
    if use.source is not None:
        return None
    try:
        url = api_root.normalise(str(server.base_url), api_prefix=server.api_prefix)
    except ConfigError as error:
        findings.refuse((*use.path, "base_url"), str(error), show=True)
        return None
    _check_page(url, (*use.path, "base_url"), findings)
    _check_pieces(use, findings)
    floor, ceiling = _bounds(use, config, findings)
    endpoint = Endpoint(
        id=f"{use.model}@{url.host}{url.prefix}",
        model=use.model,
        base_url=url.api,
        gpu_group=group_on(url.hostname, server.gpu_group or url.host),
        role=use.role,
        service_class=_service_class(use, config),
        floor=floor,
        ceiling=ceiling,
        slot_weight=server.slot_weight,
        tokens_per_slot=server.tokens_per_slot,
        fallback_of=use.fallback_of,
    )
    return PlannedEndpoint(
        endpoint=endpoint,
        kind=use.kind,
        model_key=use.model if use.fallback_of is None else f"{use.kind}:{FALLBACK}",
        url=url,
        api_key=server.api_key,
        engine=server.engine,
        metrics_url=server.metrics_url or f"{url.root}/metrics",
        piece_tokens=server.piece_tokens,
        batch_limits=BatchLimits(
            max_inputs=server.max_batch_items,
            max_body_bytes=server.max_batch_bytes,
            max_tokens=server.max_batch_tokens,
        ),
        first_byte_s=server.first_byte_s,
    )


def _service_class(use: Use, config: ForebayConfig) -> ServiceClass:
    if use.role in config.reserved_roles and use.fallback_of is None:
        return ServiceClass.INTERACTIVE
    return ServiceClass.BEST_EFFORT


def _check_page(url: BaseUrl, path: KeyPath, findings: Findings) -> None:
    if not url.page:
        return
    message = f"ends in {url.page}, where no API begins; it is read as {url.api}: write that"
    if url.api_prefix:
        message += f", or add {url.api_prefix} if {url.page} is a proxy's path"
    findings.warn("page_as_base_url", path, message)


def _check_pieces(use: Use, findings: Findings) -> None:
    for key in ("piece_tokens", *_BATCH_KEYS):
        if getattr(use.server, key) and use.kind != "embedding":
            findings.warn(
                f"unused_{key}",
                (*use.path, key),
                "has no effect: only requests for embeddings go in pieces",
            )


def _with_pieces(planned: PlannedEndpoint, groups: Mapping[str, PlannedGroup]) -> PlannedEndpoint:
    """The endpoint with its size of pieces: without one where no interactive model needs it."""
    tokens = planned.piece_tokens
    if planned.kind != "embedding":
        tokens = None
    elif tokens is None and groups[planned.endpoint.gpu_group].reserved:
        tokens = PIECE_TOKENS
    return replace(planned, piece_tokens=tokens or None)


def _bounds(use: Use, config: ForebayConfig, findings: Findings) -> tuple[int, int]:
    server = use.server
    floor = server.parallel_instances * server.max_parallel_calls
    ceiling, source = server.max_concurrent_requests, "max_concurrent_requests"
    if ceiling is None:
        ceiling = max(floor, config.max_concurrent_requests)
    if ceiling > config.max_concurrency:
        if server.max_concurrent_requests is not None:
            findings.warn(
                "ceiling_lowered",
                (*use.path, source),
                f"is {ceiling}, but MODEL_MAX_CONCURRENCY is {config.max_concurrency}; that counts",
            )
        ceiling, source = config.max_concurrency, "MODEL_MAX_CONCURRENCY"
    if floor > ceiling:
        findings.warn(
            "floor_lowered",
            use.path,
            f"the floor of {use.model!r} is {floor} (parallel_instances * max_parallel_calls = "
            f"{server.parallel_instances} * {server.max_parallel_calls}), above its {source} "
            f"{ceiling}; the floor is lowered to {ceiling}",
        )
        floor = ceiling
    return floor, ceiling


def _models(
    uses: list[Use], endpoints: tuple[PlannedEndpoint, ...], config: ForebayConfig
) -> dict[str, PlannedModel]:
    with_affinity = _with_affinity(config)
    models: dict[str, PlannedModel] = {}
    for use in uses:
        if use.fallback_of is None:
            routing: Routing = "hrw" if use.model in with_affinity else "least_inflight"
            service_class = _service_class(use, config)
            models[use.model] = PlannedModel(use.model, use.kind, (), (), service_class, routing)
    for planned in endpoints:
        endpoint = planned.endpoint
        for id_, stands_in in endpoint.serves:
            model = models[id_]
            if stands_in:
                models[id_] = replace(model, fallbacks=(*model.fallbacks, endpoint.id))
            else:
                models[id_] = replace(model, endpoints=(*model.endpoints, endpoint.id))
    return models


def _with_affinity(config: ForebayConfig) -> set[str]:
    """The models that have `hrw` in one of their entries."""
    entries = (*config.chat_models, *config.embedding_models, *config.rerank_models)
    return {entry.id for entry in entries if entry.routing == "hrw"}
