"""The emulator's own HTTP API, under ``/emulator``, the same on both engines' ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from forebay.emulator.faults import EngineName, Fault

if TYPE_CHECKING:
    from forebay.emulator.faults import Faults
    from forebay.emulator.record import Record
    from forebay.emulator.runner import GpuRunner
    from forebay.emulator.spec import EmulatorSpec

_ONE_OR_MORE: TypeAdapter[Fault | list[Fault]] = TypeAdapter(Fault | list[Fault])
_ACTIVE: TypeAdapter[list[Fault]] = TypeAdapter(list[Fault])


class ControlApi:
    """Handlers of the control requests; none of them is recorded or can be hit by a fault.

    Args:
        spec: the emulated host.
        runner: the GPU.
        faults: what goes wrong now.
        record: what was in flight.
    """

    def __init__(
        self, spec: EmulatorSpec, runner: GpuRunner, faults: Faults, record: Record
    ) -> None:
        self._spec = spec
        self._runner = runner
        self._faults = faults
        self._record = record

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/emulator/spec", self._get_spec),
            web.get("/emulator/record", self._get_record),
            web.delete("/emulator/record", self._reset_record),
            web.get("/emulator/faults", self._get_faults),
            web.post("/emulator/faults", self._add_faults),
            web.delete("/emulator/faults", self._clear_faults),
        ]

    async def _get_spec(self, _request: web.Request) -> web.Response:
        return web.json_response(text=self._spec.model_dump_json())

    async def _get_record(self, request: web.Request) -> web.Response:
        """Answer with the record; ``?timeline=N`` adds the last N changes."""
        last = request.query.get("timeline", "0")
        if not last.isdecimal():
            return _refused(f"timeline must be a number, not {last!r}")
        self._runner.catch_up()
        record = self._record.snapshot()
        if int(last):
            record["timeline"] = self._record.timeline(int(last))
        return web.json_response(record)

    async def _reset_record(self, _request: web.Request) -> web.Response:
        self._runner.catch_up()
        self._record.reset()
        return web.json_response(self._record.snapshot())

    async def _get_faults(self, _request: web.Request) -> web.Response:
        return self._active()

    async def _add_faults(self, request: web.Request) -> web.Response:
        """Activate the fault, or the list of faults, in the body."""
        try:
            new = _ONE_OR_MORE.validate_json(await request.read())
        except ValidationError as error:
            return _refused(str(error))
        for fault in new if isinstance(new, list) else [new]:
            self._faults.add(fault)
        return self._active()

    async def _clear_faults(self, request: web.Request) -> web.Response:
        """End all faults, with ``?engine=`` those of one engine."""
        name = request.query.get("engine")
        if name is not None and name not in set(EngineName):
            return _refused(f"engine must be one of {', '.join(EngineName)}, not {name!r}")
        self._faults.clear(None if name is None else EngineName(name))
        return self._active()

    def _active(self) -> web.Response:
        active = _ACTIVE.dump_python(self._faults.active(), mode="json")
        return web.json_response({"faults": active})


def _refused(message: str) -> web.Response:
    return web.json_response({"error": message}, status=422)
