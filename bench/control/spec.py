"""Scenario files: what there is, what happens, what is promised.

A file is TOML. Everything has a default but `about`, `engine` and `load`::

    about = "one line for the table"
    seconds = 300                     # how long a run is
    from_s = 30                       # work counts from here on
    phases = [0, 100, 200]            # the oracle may have another limit in each; default [0]
    knees = [32, 16, 32]              # the best static limit of each phase, as found by trying

    [endpoint.m]                      # one table for each model; `forebay.sim.endpoint`'s arguments
    ceiling = 512

    [engine.m]                        # kind fifo, shared, llm or encoder, and its numbers
    kind = "fifo"
    servers = 16
    service_s = 0.1                   # of a request of the load's median size

    [[load]]                          # kind open or closed, and their numbers
    model = "m"
    kind = "closed"
    workers = 300
    input = 100                       # median tokens; `output`, `sigma`, `texts`, `most` as well

    [scrape]                          # left out: no metrics
    every_s = 5
    lag_s = 18

    [[change]]                        # a function of `forebay.sim.changes` and its arguments
    at_s = 100
    do = "servers"
    endpoint_id = "m@gpu"
    count = 8

    [bands]                           # figure = [least, most], for any seed; see `measure.Figures`
    share = [0.85, 1.1]
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.sim import (
    Closed,
    EncoderSpec,
    FifoSpec,
    LlmSpec,
    Open,
    Scenario,
    Scrape,
    SharedSpec,
    changes,
    endpoint,
    lognormal,
    shift,
    steady,
    steps,
    wave,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.model import Endpoint
    from forebay.sim import Change, Load, Rate, ServerSpec, Sizes

FOLDER = Path(__file__).parent / "scenarios"

_NOMINAL_TOKENS = 100  # a request of so many tokens takes `service_s`


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One file.

    Args:
        name: the file's name.
        about: one line.
        scenario: what is simulated; its `law` is to be replaced.
        governed: the endpoint whose limit is compared.
        seconds: length of a run.
        from_s: where counting begins.
        phases: when each phase begins, seconds.
        knees: the best static limit of each phase that counts.
        bands: for each figure, the least and the most.
    """

    name: str
    about: str
    scenario: Scenario
    governed: Endpoint
    seconds: float
    from_s: float
    phases: tuple[float, ...]
    knees: tuple[int, ...]
    bands: Mapping[str, tuple[float, float]]

    def spans(self) -> list[tuple[float, float]]:
        """The phases as far as they count, each with its beginning and end."""
        ends = (*self.phases[1:], self.seconds)
        spans = [(max(a, self.from_s), b) for a, b in zip(self.phases, ends, strict=True)]
        return [span for span in spans if span[0] < span[1]]


def names() -> list[str]:
    """All scenarios, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Spec:
    """Read one scenario file."""
    raw = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    endpoints = {
        model: endpoint(model, **raw.get("endpoint", {}).get(model, {})) for model in raw["engine"]
    }
    scenario = Scenario(
        servers={endpoints[model]: _engine(**engine) for model, engine in raw["engine"].items()},
        loads=[_load(**one) for one in raw["load"]],
        budgets=raw.get("budgets", {}),
        scrape=Scrape(**raw["scrape"]) if "scrape" in raw else None,
        changes=[_change(**change) for change in raw.get("change", [])],
    )
    return Spec(
        name=name,
        about=raw["about"],
        scenario=scenario,
        governed=endpoints[raw.get("governed", next(iter(endpoints)))],
        seconds=raw.get("seconds", 300.0),
        from_s=raw.get("from_s", 30.0),
        phases=tuple(raw.get("phases", (0.0,))),
        knees=tuple(raw["knees"]),
        bands={figure: (least, most) for figure, (least, most) in raw.get("bands", {}).items()},
    )


def _engine(kind: str, service_s: float = 0.1, **numbers: Any) -> ServerSpec:  # noqa: ANN401 - TOML
    if kind == "fifo":
        return FifoSpec(service_s=lambda size: service_s * size.work / _NOMINAL_TOKENS, **numbers)
    if kind == "shared":
        return SharedSpec(lambda size: service_s * size.work / _NOMINAL_TOKENS)
    return {"llm": LlmSpec, "encoder": EncoderSpec}[kind](**numbers)


def _load(kind: str, rate: Any = None, **numbers: Any) -> Load:  # noqa: ANN401 - TOML
    sizes = _sizes(numbers)
    if kind == "closed":
        return Closed(sizes=sizes, **numbers)
    return Open(rate=_rate(rate), sizes=sizes, **numbers)


def _sizes(numbers: dict[str, Any]) -> Sizes:
    """Take the numbers of the sizes out of a load's, and make them."""
    then = numbers.pop("then", None)
    keys = [key for key in ("input", "output", "sigma", "texts", "most") if key in numbers]
    first = {key: numbers.pop(key) for key in keys}
    if then is None:
        return _lognormal(**first)
    at_s = then.pop("at_s")
    return shift(at_s, _lognormal(**first), _lognormal(**{**first, **then}))


def _lognormal(*, input: float = 100, output: float = 0, sigma: float = 0.0, **more: int) -> Sizes:  # noqa: A002 - the file's key
    return lognormal(input, output, sigma=sigma, **more)


def _rate(rate: Any) -> Rate:  # noqa: ANN401 - TOML
    if isinstance(rate, dict):
        return wave(**rate)
    return steps(*map(tuple, rate)) if isinstance(rate, list) else steady(rate)


def _change(at_s: float, do: str, **arguments: Any) -> tuple[float, Change]:  # noqa: ANN401
    return at_s, getattr(changes, do)(**arguments)
