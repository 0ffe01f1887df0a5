"""What ``forebay check`` prints: endpoints, groups, and whatever is wrong."""

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from forebay.config import InvalidConfig, Plan, PlannedEndpoint, load
from forebay.config.editor import json_schema
from forebay.config.probe import Probe, probe
from forebay.config.settings import Protection
from forebay.errors import ConfigError
from forebay.live import look_up

_PIPE_WIDTH = 200


def print_schema() -> None:
    """Print the JSON Schema of the file."""
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def report(file: Path | None, *, ask: bool, strict: bool, as_json: bool) -> bool:
    """Print what a configuration comes to, and return whether all is well.

    Args:
        file: where it is; None: `find_config` decides.
        ask: ask each endpoint, too.
        strict: a warning is an error.
        as_json: print JSON.
    """
    found: dict[str, Any] = {}
    try:
        plan = load(file)
        if ask and plan.sources:
            found = _looked_up(plan)
            plan = load(file, found={url: told["found"] for url, told in found.items()})
    except ConfigError as error:
        if as_json:
            print(json.dumps({"ok": False, "errors": _errors(error)}, indent=2))
        else:
            _print_errors(error)
        return False
    probes = asyncio.run(probe(plan)) if ask else None
    failed = any(not answer.ok for answer in probes or ())
    failed = failed or any(told["failure"] or not told["found"] for told in found.values())
    ok = not failed and not (strict and plan.warnings)
    if as_json:
        print(json.dumps(_as_json(plan, probes, found, ok=ok), indent=2, ensure_ascii=False))
    else:
        _print(plan, probes, found, ok=ok)
    return ok


def _looked_up(plan: Plan) -> dict[str, Any]:
    """What the plan's sources find; what they log of it is printed here once."""
    logging.disable(logging.WARNING)
    try:
        return asyncio.run(look_up(plan))
    finally:
        logging.disable(logging.NOTSET)


def _errors(error: ConfigError) -> list[dict[str, str]]:
    if isinstance(error, InvalidConfig):
        return [asdict(problem) for problem in error.problems]
    return [{"where": "", "key": "", "message": str(error)}]


def _print_errors(error: ConfigError) -> None:
    console = Console(stderr=True)
    lines = str(error).splitlines()
    for line in lines:
        console.print(f"[red]error:[/] {escape(line)}", soft_wrap=True, highlight=False)
    console.print(f"{len(lines)} error{'s' * (len(lines) > 1)}: this must not start")


def _as_json(
    plan: Plan, probes: list[Probe] | None, found: dict[str, Any], *, ok: bool
) -> dict[str, Any]:
    protection = plan.config.forebay.protection
    result: dict[str, Any] = {
        "ok": ok,
        "config": plan.file,
        "errors": [],
        "warnings": [asdict(warning) for warning in plan.warnings],
        "endpoints": {
            planned.endpoint.id: {
                **asdict(planned.endpoint),
                "kind": planned.kind,
                "model_key": planned.model_key,
                "engine": planned.engine,
                "piece_tokens": planned.piece_tokens,
                **_batches(planned),
                "first_byte_s": _first_byte_s(plan, planned),
            }
            for planned in plan.endpoints
        },
        "groups": {name: asdict(group) for name, group in plan.groups.items()},
        "protection": None if protection is None else protection.model_dump(),
        "models": {name: asdict(model) for name, model in plan.models.items()},
        "sources": list(plan.sources),
    }
    if probes is not None:
        result["probes"] = [asdict(answer) for answer in probes]
        result["found"] = found
    return result


def _batches(planned: PlannedEndpoint) -> dict[str, int | None]:
    """What is configured of how much the endpoint takes in one request, by the keys of the file."""
    limits = planned.batch_limits
    return {
        "max_batch_items": limits.max_inputs,
        "max_batch_tokens": limits.max_tokens,
        "max_batch_bytes": limits.max_body_bytes,
    }


def _first_byte_s(plan: Plan, planned: PlannedEndpoint) -> float:
    return planned.first_byte_s or plan.config.forebay.timeouts.first_byte_s


def _print(plan: Plan, probes: list[Probe] | None, found: dict[str, Any], *, ok: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)  # nothing is cut or folded in a pipe
    console.print(_endpoints_table(plan, probes))
    for source in plan.sources:
        console.print(_source(source, found.get(source)), highlight=False, soft_wrap=True)
    console.print(_groups_table(plan))
    console.print(_protection(plan.config.forebay.protection), highlight=False)
    for warning in plan.warnings:
        console.print(
            f"[yellow]warning:[/] {escape(str(warning))}", soft_wrap=True, highlight=False
        )
    verdict = "[green]ok[/]" if ok else "[red]not ok[/]"
    count = len(plan.warnings)
    console.print(f"{verdict}: {escape(plan.file)}, {count} warning{'s' * (count != 1)}")


def _source(url: str, told: dict[str, Any] | None) -> str:
    """Where endpoints are found, and which, if that was looked up."""
    if told is None:
        return f"further endpoints are found at {escape(url)}"
    if told["failure"]:
        return f"[red]{escape(told['failure'])}[/]"
    names = ", ".join(map(escape, told["found"]))
    return f"{escape(url)} finds {names}" if names else f"[red]{escape(url)} finds no endpoint[/]"


def _endpoints_table(plan: Plan, probes: list[Probe] | None) -> Table:
    columns = ["endpoint", "base URL", "role", "class", "floor", "ceiling", "GPU group"]
    columns += ["a request takes"]
    table = _table("Endpoints", [*columns, "probe"] if probes is not None else columns)
    answers = {answer.endpoint: answer for answer in probes or ()}
    for planned in plan.endpoints:
        endpoint = planned.endpoint
        role = f"fallback of {endpoint.fallback_of}" if endpoint.fallback_of else endpoint.role
        row: list[object] = [endpoint.id, endpoint.base_url, role, endpoint.service_class.value]
        row += [endpoint.floor, endpoint.ceiling, endpoint.gpu_group, _takes(planned)]
        cells = [escape(str(cell)) for cell in row]
        if probes is not None:
            answer = answers[endpoint.id]
            colour = "green" if answer.ok else "red"
            cells.append(f"[{colour}]{escape(answer.message)}[/]")
        table.add_row(*cells)
    return table


def _takes(planned: PlannedEndpoint) -> str:
    """The slots of a request, the size of its pieces and batches, and how long it may take."""
    weight, per_slot = planned.endpoint.slot_weight, planned.endpoint.tokens_per_slot
    slots = f"{weight} slot{'s' * (weight != 1)}"
    if per_slot is not None:
        slots = f"1 slot per {per_slot} tokens" + (f", {weight} at least" if weight > 1 else "")
    if planned.piece_tokens is not None:
        slots += f"; pieces of {planned.piece_tokens} tokens"
    batches = [f"{n} {key.rpartition('_')[2]}" for key, n in _batches(planned).items() if n]
    if batches:
        slots += f"; at most {', '.join(batches)}"
    if planned.first_byte_s is not None:
        slots += f"; {planned.first_byte_s:g} s to its first byte"
    return slots


def _groups_table(plan: Plan) -> Table:
    table = _table("GPU groups", ["GPU group", "budget", "reserved", "floors", "endpoints"])
    for group in plan.groups.values():
        budget = "none" if group.budget is None else str(group.budget)
        cells = [group.name, budget, group.reserved, group.floors, ", ".join(group.endpoints)]
        table.add_row(*(escape(str(cell)) for cell in cells))
    return table


def _protection(section: Protection | None) -> str:
    """How chat is protected, in words."""
    if section is None:
        return (
            'Protection of chat by its own times: off ("forebay": {"protection": {}} turns it on)'
        )
    goals = [f"{section.target:g} × its times without best-effort work"]
    if section.first_token_s is not None:
        goals.append(f"first token {section.first_token_s:g} s")
    if section.output_token_s is not None:
        goals.append(f"each further token {section.output_token_s:g} s")
    least = f"at least {section.min_duty:.0%} of the best-effort floors go on"
    return f"Protection of chat by its own times: {', '.join(goals)}; {least}"


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        numeric = column in {"floor", "ceiling", "budget", "reserved", "floors"}
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    return table
