"""The scenarios: what there is, what happens, who works when.

Every endpoint has the law `knee` and begins at a floor of 1; nobody knows what it can do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forebay import sim
from forebay.core.limits.knee import Knee
from forebay.sim import changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.core.limits.protocol import Limit
    from forebay.core.model import Endpoint

Servers = dict["Endpoint", sim.ServerSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One scenario.

    Args:
        name: what it is called.
        about: one line.
        scenario: what there is at first, and what happens.
        phases: from each time on, the endpoints that have something to do, and what is behind them.
        settles_s: what a phase may take until the work is near the oracle's.
        peers: it is about several models on one GPU.
        seconds: length of a run.
    """

    name: str
    about: str
    scenario: sim.Scenario
    phases: Mapping[float, Servers]
    settles_s: float = 30.0
    peers: bool = False
    seconds: float = 300.0

    def spans(self) -> list[tuple[float, float]]:
        """The beginning and the end of each phase."""
        begins = list(self.phases)
        return list(zip(begins, [*begins[1:], self.seconds], strict=True))


def knee(endpoint: Endpoint) -> Limit:
    """The law of every endpoint."""
    return Knee(endpoint.floor, endpoint.ceiling)


def cases() -> list[Case]:
    """All scenarios."""
    a, b, c = (sim.endpoint("m", group=f"gpu-{name}", ceiling=512) for name in "abc")
    small = sim.LlmSpec(max_sequences=16, prefill_overhead_s=0.01)
    large = sim.LlmSpec(max_sequences=32, prefill_overhead_s=0.01)
    bulk = sim.Closed(model="m", workers=200, sizes=sim.lognormal(200, 60, sigma=0.5))
    two: Servers = {a: small, b: small}
    three: Servers = {**two, c: large}
    alike: Servers = {**two, c: small}
    return [
        Case(
            name="host-added",
            about="two hosts; a third one, twice as large, is added at 120 s",
            scenario=sim.Scenario(
                servers=two, loads=[bulk], law=knee, changes=[(120.0, changes.add(c, large))]
            ),
            phases={0.0: two, 120.0: three},
        ),
        Case(
            name="host-removed",
            about="three hosts; the largest is taken out at 120 s",
            scenario=sim.Scenario(
                servers=three, loads=[bulk], law=knee, changes=[(120.0, changes.remove(c.id))]
            ),
            phases={0.0: three, 120.0: two},
        ),
        Case(
            name="host-failed",
            about="three hosts; one breaks at 120 s with all that runs there, and is well at 180 s",
            scenario=sim.Scenario(
                servers=alike,
                loads=[replace(bulk, streamed=False)],  # of a stream, what has begun is lost
                law=knee,
                changes=[(120.0, changes.fail(c.id)), (180.0, changes.recover(c.id))],
            ),
            phases={0.0: alike, 120.0: two, 180.0: alike},
            settles_s=160.0,  # tried again within 40 s, then four doublings of 30 s
            seconds=480.0,
        ),
        _peers("peers-8", slots=8, about="two embedding models share eight slots of a GPU"),
        _peers("peers-16", slots=16, about="the same with sixteen slots, more than they need"),
    ]


def _peers(name: str, *, slots: int, about: str) -> Case:
    """Two models that ask alike for all they can get; the second begins at 100 s."""
    x, y = (sim.endpoint(model, interactive=False) for model in "xy")
    storm = sim.Closed(model="x", workers=32, sizes=sim.lognormal(640, sigma=0.5, texts=16))
    both: Servers = {x: sim.EncoderSpec(), y: sim.EncoderSpec()}
    return Case(
        name=name,
        about=f"{about}; the second begins at 100 s",
        scenario=sim.Scenario(
            servers=both,
            loads=[storm, replace(storm, model="y", since_s=100.0)],
            law=knee,
            budgets={"gpu": slots},
        ),
        phases={0.0: {x: both[x]}, 100.0: both},
        peers=True,
    )
