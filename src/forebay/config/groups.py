"""GPU groups and their budgets, checked against the floors that are promised inside them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from forebay.config.fields import HOST
from forebay.config.plan import PlannedGroup
from forebay.config.problems import nearest
from forebay.core.model import Endpoint, ServiceClass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from forebay.config.findings import Findings
    from forebay.config.plan import PlannedEndpoint
    from forebay.config.problems import KeyPath
    from forebay.config.schema import ForebayConfig

BUDGETS = "GPU_CONCURRENCY_BUDGETS"


def group_on(hostname: str, name: str) -> str:
    """The name of a group on a host: what was written, with the host in the place that it has."""
    return name.replace(HOST, hostname.strip("[]").casefold())


def plan_groups(
    placed: list[tuple[KeyPath, PlannedEndpoint]],
    config: ForebayConfig,
    findings: Findings,
    *,
    further: Collection[str | None] = (),
) -> dict[str, PlannedGroup]:
    """Group the endpoints, and refuse or warn about budgets that cannot be meant.

    `further` are the groups of endpoints that are still to be found; None: they have their hosts'.
    """
    members: defaultdict[str, list[Endpoint]] = defaultdict(list)
    for _, planned in placed:
        members[planned.endpoint.gpu_group].append(planned.endpoint)
    budgets = _budgets(placed, config)
    groups = {
        name: _group(name, endpoints, budgets.get(name), findings)
        for name, endpoints in members.items()
    }
    for group in groups.values():
        _check_floors(group, members[group.name], findings)
    _check_names(groups, config, findings, further)
    if not config.budgets:
        _check_protection(placed, findings)
    _check_shared_servers(placed, groups, findings)
    return groups


def _budgets(
    placed: list[tuple[KeyPath, PlannedEndpoint]], config: ForebayConfig
) -> dict[str, int]:
    """Budgets by group: what stands for every host counts where nothing else does."""
    of_hosts = {
        group_on(planned.url.hostname, name): budget
        for name, budget in config.budgets.items()
        if HOST in name
        for _, planned in placed
    }
    return of_hosts | config.budgets


def _group(
    name: str, endpoints: list[Endpoint], budget: int | None, findings: Findings
) -> PlannedGroup:
    source: Literal["file", "environment", "none"] = "none"
    if budget is not None:
        source = "environment" if BUDGETS in findings.document.overrides else "file"
    interactive = (e for e in endpoints if e.service_class is ServiceClass.INTERACTIVE)
    return PlannedGroup(
        name=name,
        budget=budget,
        endpoints=tuple(e.id for e in endpoints),
        reserved=sum(e.floor for e in interactive),
        floors=sum(e.floor for e in endpoints),
        source=source,
    )


def _check_floors(group: PlannedGroup, endpoints: list[Endpoint], findings: Findings) -> None:
    if group.budget is not None and group.floors > group.budget:
        parts = ", ".join(f"{e.id} {e.floor}" for e in endpoints)
        findings.refuse(
            _budget_path(group.name, findings),
            f"the floors in group {group.name!r} add up to {group.floors} ({parts}), but its "
            f"budget is {group.budget}; raise the budget, or lower the floors "
            "(parallel_instances * max_parallel_calls)",
        )


def _check_names(
    groups: dict[str, PlannedGroup],
    config: ForebayConfig,
    findings: Findings,
    further: Collection[str | None],
) -> None:
    to_come = {*groups, *further}
    for name in config.budgets if None not in further else ():
        if name not in to_come and HOST not in name:
            findings.warn(
                "unused_budget",
                _budget_path(name, findings),
                f"no model is in group {name!r}; {_nearest('groups in use', name, groups)}",
            )
    for group in groups.values():
        if config.budgets and group.budget is None:
            findings.warn(
                "no_budget",
                (BUDGETS,),
                f"group {group.name!r} ({', '.join(group.endpoints)}) has no budget, so each "
                "of its models has its own limit only; "
                f"{_nearest('budgets', group.name, config.budgets)}",
            )


def _check_protection(placed: list[tuple[KeyPath, PlannedEndpoint]], findings: Findings) -> None:
    """Warn where bulk work shares a machine with chat, and no budget keeps it from hurting chat."""
    machines: defaultdict[str, dict[ServiceClass, str]] = defaultdict(dict)
    for _, planned in placed:
        endpoint = planned.endpoint
        is_tagged = endpoint.gpu_group != planned.url.host
        machine = endpoint.gpu_group if is_tagged else planned.url.hostname
        machines[machine].setdefault(endpoint.service_class, endpoint.id)
    for machine, classes in machines.items():
        if len(classes) > 1:
            first, second = classes.values()
            findings.warn(
                "no_joint_budget",
                (BUDGETS,),
                f"{first} and {second} are both on {machine!r}, and no budget limits them "
                "together, so bulk work is not kept from slowing chat; if they share a GPU, give "
                f"both one gpu_group and that group an entry in {BUDGETS}",
            )


def _nearest(what: str, name: str, names: Iterable[str]) -> str:
    meant = nearest(name, names)
    listed = f"{what}: {', '.join(map(repr, names)) or 'none'}"
    return f"{listed}; did you mean {meant!r}?" if meant else listed


def _check_shared_servers(
    placed: list[tuple[KeyPath, PlannedEndpoint]],
    groups: dict[str, PlannedGroup],
    findings: Findings,
) -> None:
    """Warn when one server's models are in several groups: mostly a tag that was forgotten."""
    first: dict[str, PlannedEndpoint] = {}
    for path, planned in placed:
        other = first.setdefault(planned.url.root, planned)
        names = (other.endpoint.gpu_group, planned.endpoint.gpu_group)
        if names[0] != names[1] and any(groups[name].budget is not None for name in names):
            findings.warn(
                "server_in_two_groups",
                path,
                f"{other.endpoint.id} and {planned.endpoint.id} are on one server, but in groups "
                f"{names[0]!r} and {names[1]!r}; if they share a GPU, give both the same gpu_group",
            )


def _budget_path(name: str, findings: Findings) -> KeyPath:
    """The key path of a budget as it is written, whatever its case."""
    written = findings.document.get((BUDGETS,), default={})
    keys = written if isinstance(written, dict) else {}
    return next(((BUDGETS, key) for key in keys if key.strip().casefold() == name), (BUDGETS,))
