"""Which endpoint the status says embeds is the one that does."""

from __future__ import annotations

import json
import random

import pytest

from forebay.config import plan_from
from forebay.config.build import admission_of
from forebay.config.embedding_status import embedding_endpoint_status
from forebay.core.failovers import Failovers
from forebay.core.model import Ending, EngineState, Outcome, Signal
from forebay.core.observer import Observer
from support.deployments import Desk
from support.flaky import failing_over

PRIMARY, FALLBACK = "http://own/v1", "http://shared/v1"
PLAN = plan_from(json.dumps(failing_over(PRIMARY, FALLBACK)), file="c.json", environ={})


@pytest.fixture
def desk() -> Desk:
    return Desk(admission_of(PLAN, random.Random(0), Observer()))


def served_by(desk: Desk) -> str:
    """What the status says, which must be so."""
    failovers = Failovers(Observer())
    said = embedding_endpoint_status(PLAN, desk.core, failovers, desk.now)["active_base_url"]
    desk.ask("m")
    assert desk.running[-1].endpoint.base_url == said
    return said


def test_a_fallback_that_is_away_itself_serves_nobody(desk) -> None:
    for id_ in desk.core.states:
        desk.see(desk.core.signal(id_, Signal("vllm", desk.now, EngineState.ASLEEP), desk.now))
    said = embedding_endpoint_status(PLAN, desk.core, Failovers(Observer()), desk.now)
    assert (said["serving"], said["is_fallback"]) == (False, False)
    assert said["active_base_url"] == PRIMARY


@pytest.mark.parametrize("state", [EngineState.ASLEEP, EngineState.LOADING])
def test_while_the_primarys_engine_does_not_serve_it_is_the_fallback(desk, state) -> None:
    primary = next(iter(desk.core.states))
    assert served_by(desk) == PRIMARY
    desk.see(desk.core.signal(primary, Signal("vllm", desk.now, state), desk.now))
    assert served_by(desk) == FALLBACK
    desk.see(desk.core.signal(primary, Signal("vllm", desk.now), desk.now))
    assert served_by(desk) == PRIMARY


def test_while_the_primary_asks_for_a_long_rest_it_is_the_fallback(desk) -> None:
    assert served_by(desk) == PRIMARY
    desk.finish(desk.running[0], Ending(Outcome.CONGESTION, retry_after_s=60.0))
    assert served_by(desk) == FALLBACK
    desk.now = 60.0
    desk.see(desk.core.tick(desk.now))
    assert served_by(desk) == PRIMARY
