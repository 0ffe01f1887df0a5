"""``forebay check``: is the configuration what you meant?"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from forebay.config import InvalidConfig, Plan, load
from forebay.config.editor import json_schema
from forebay.config.probe import Probe, probe
from forebay.errors import ConfigError

_PIPE_WIDTH = 200


def check(
    config: Annotated[
        Path | None,
        typer.Option("--config", help="The file. Default: FOREBAY_CONFIG, or the user's own."),
    ] = None,
    ask: Annotated[
        bool, typer.Option("--probe", help="Ask each endpoint whether it is there and serves.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the file's JSON Schema, for editors.")
    ] = False,
) -> None:
    """Validate the configuration and show what it comes to. Starts nothing.

    Exit status 1: it must not start, an endpoint failed its probe, or --strict met a warning.
    """
    if schema:
        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    try:
        plan = load(config)
    except ConfigError as error:
        if as_json:
            print(json.dumps({"ok": False, "errors": _errors(error)}, indent=2))
        else:
            _print_errors(error)
        raise typer.Exit(1) from None
    probes = asyncio.run(probe(plan)) if ask else None
    failed = any(not answer.ok for answer in probes or ())
    ok = not failed and not (strict and plan.warnings)
    if as_json:
        print(json.dumps(_as_json(plan, probes, ok=ok), indent=2, ensure_ascii=False))
    else:
        _print(plan, probes, ok=ok)
    if not ok:
        raise typer.Exit(1)


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


def _as_json(plan: Plan, probes: list[Probe] | None, *, ok: bool) -> dict[str, Any]:
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
            }
            for planned in plan.endpoints
        },
        "groups": {name: asdict(group) for name, group in plan.groups.items()},
        "models": {name: asdict(model) for name, model in plan.models.items()},
    }
    if probes is not None:
        result["probes"] = [asdict(answer) for answer in probes]
    return result


def _print(plan: Plan, probes: list[Probe] | None, *, ok: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)  # nothing is cut or folded in a pipe
    console.print(_endpoints_table(plan, probes))
    console.print(_groups_table(plan))
    for warning in plan.warnings:
        console.print(
            f"[yellow]warning:[/] {escape(str(warning))}", soft_wrap=True, highlight=False
        )
    verdict = "[green]ok[/]" if ok else "[red]not ok[/]"
    count = len(plan.warnings)
    console.print(f"{verdict}: {escape(plan.file)}, {count} warning{'s' * (count != 1)}")


def _endpoints_table(plan: Plan, probes: list[Probe] | None) -> Table:
    columns = ["endpoint", "base URL", "role", "class", "floor", "ceiling", "GPU group"]
    table = _table("Endpoints", [*columns, "probe"] if probes is not None else columns)
    answers = {answer.endpoint: answer for answer in probes or ()}
    for planned in plan.endpoints:
        endpoint = planned.endpoint
        role = f"fallback of {endpoint.fallback_of}" if endpoint.fallback_of else endpoint.role
        row: list[object] = [endpoint.id, endpoint.base_url, role, endpoint.service_class.value]
        row += [endpoint.floor, endpoint.ceiling, endpoint.gpu_group]
        cells = [escape(str(cell)) for cell in row]
        if probes is not None:
            answer = answers[endpoint.id]
            colour = "green" if answer.ok else "red"
            cells.append(f"[{colour}]{escape(answer.message)}[/]")
        table.add_row(*cells)
    return table


def _groups_table(plan: Plan) -> Table:
    table = _table("GPU groups", ["GPU group", "budget", "reserved", "floors", "endpoints"])
    for group in plan.groups.values():
        budget = "none" if group.budget is None else str(group.budget)
        cells = [group.name, budget, group.reserved, group.floors, ", ".join(group.endpoints)]
        table.add_row(*(escape(str(cell)) for cell in cells))
    return table


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        numeric = column in {"floor", "ceiling", "budget", "reserved", "floors"}
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    return table
