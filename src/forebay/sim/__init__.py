"""The core that serves, on virtual time, in front of modelled engines.

`Scenario` says what there is, its `run` gives a `Record`; `docs/simulator.md` shows how.
"""

from forebay.sim import changes, traces
from forebay.sim.encoder import EncoderSpec
from forebay.sim.gpu import Gpu, sharing
from forebay.sim.llm import LlmSpec
from forebay.sim.loads import Closed, Conversations, Load, Open, Rate, Trace, steady, steps, wave
from forebay.sim.queues import FifoSpec, SharedSpec
from forebay.sim.record import Record, Request, Sample, Selection, jain, percentile
from forebay.sim.scenario import Change, Scenario, Scrape, endpoint, fixed_limit
from forebay.sim.server import Job, Server, ServerSpec, Size
from forebay.sim.simulation import Simulation
from forebay.sim.sizes import Sizes, fixed, lognormal, mix, shift
from forebay.sim.world import Event, World

__all__ = [
    "Change",
    "Closed",
    "Conversations",
    "EncoderSpec",
    "Event",
    "FifoSpec",
    "Gpu",
    "Job",
    "LlmSpec",
    "Load",
    "Open",
    "Rate",
    "Record",
    "Request",
    "Sample",
    "Scenario",
    "Scrape",
    "Selection",
    "Server",
    "ServerSpec",
    "SharedSpec",
    "Simulation",
    "Size",
    "Sizes",
    "Trace",
    "World",
    "changes",
    "endpoint",
    "fixed",
    "fixed_limit",
    "jain",
    "lognormal",
    "mix",
    "percentile",
    "sharing",
    "shift",
    "steady",
    "steps",
    "traces",
    "wave",
]
