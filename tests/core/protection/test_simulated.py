"""Protection in front of modelled engines, in virtual time: bands that hold on every seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay import sim
from forebay.core.model import ServiceClass
from forebay.core.protection import ProtectionSettings
from forebay.sim import changes

INTERACTIVE, BEST_EFFORT = ServiceClass.INTERACTIVE, ServiceClass.BEST_EFFORT
TARGET = 1.25

chat = sim.endpoint("chat", floor=2, ceiling=64)
embed = sim.endpoint("embed", interactive=False)

STORM = sim.Closed(model="embed", workers=32, sizes=sim.fixed(640, texts=16))
TALK = sim.lognormal(300, 60, sigma=1.0)
PLAIN = sim.lognormal(300, 60, sigma=0.5)

every_seed = pytest.mark.parametrize("seed", range(3))


def scenario(talk: sim.Load, bulk: sim.Load = STORM, **more) -> sim.Scenario:
    servers = more.pop("servers", {chat: sim.LlmSpec(), embed: sim.EncoderSpec()})
    return sim.Scenario(
        servers=servers,
        loads=[talk, bulk],
        protection=ProtectionSettings(target=TARGET, **more.pop("settings", {})),
        **more,
    )


def slowdowns(record: sim.Record, alone: sim.Record, since: float) -> tuple[float, float]:
    """First token and each further one, p95, over those of chat alone."""
    mine = record.select("chat", INTERACTIVE, since=since)
    theirs = alone.select("chat", INTERACTIVE, since=since)
    return (
        mine.first_token_s(0.95) / theirs.first_token_s(0.95),
        mine.output_token_s(0.95) / theirs.output_token_s(0.95),
    )


def only(loads: sim.Scenario, kept: int) -> sim.Scenario:
    """The same with one of its loads only, and no protection."""
    return replace(loads, loads=[loads.loads[kept]], protection=None, changes=())


def work(record: sim.Record, model: str, since: float) -> float:
    return record.select(model, BEST_EFFORT, since=since).work_per_s


@every_seed
@pytest.mark.parametrize("rate", [sim.steady(0.5), sim.steady(2.0)], ids=["light", "busy"])
def test_chat_beside_an_embedding_storm_keeps_its_pace(rate, seed) -> None:
    storm = scenario(sim.Open(model="chat", rate=rate, sizes=PLAIN))
    record, alone = storm.run(900.0, seed=seed), only(storm, 0).run(900.0, seed=seed)
    assert max(slowdowns(record, alone, 300.0)) < TARGET + 0.35
    bulk = only(storm, 1).run(200.0, seed=seed)
    assert work(record, "embed", 300.0) > 0.5 * work(bulk, "embed", 100.0)
    assert record.floor_violations == 0


@every_seed
def test_the_storm_has_the_gpu_to_itself_between_waves_of_chat(seed) -> None:
    waves = [(60.0 * n, 3.0 if n % 2 else 0.0) for n in range(16)]
    storm = scenario(sim.Open(model="chat", rate=sim.steps(*waves), sizes=PLAIN))
    record = storm.run(960.0, seed=seed)
    bulk = only(storm, 1).run(200.0, seed=seed)
    quiet = [record.select("embed", since=t + 20, until=t + 60) for t in (480.0, 600.0, 720.0)]
    per_s = sum(each.work_per_s for each in quiet) / len(quiet)
    assert per_s > 0.8 * work(bulk, "embed", 100.0)


@every_seed
def test_bulk_generation_on_chats_own_engine_leaves_it_a_sequence(seed) -> None:
    engine = sim.LlmSpec(
        weights_s=0.006, token_s=2e-4, overhead_s=0.001, prefill_overhead_s=0.004, max_sequences=8
    )
    talk = sim.Closed(model="chat", workers=1, sizes=sim.lognormal(40, 32, sigma=0.3))
    bulk = sim.Closed(
        model="chat",
        workers=32,
        sizes=sim.lognormal(40, 200, sigma=0.3),
        service_class=BEST_EFFORT,
    )
    storm = scenario(talk, bulk, servers={chat: engine}, settings={})
    storm = replace(storm, protection=ProtectionSettings(target=1.6))
    record, alone = storm.run(900.0, seed=seed), only(storm, 0).run(200.0, seed=seed)
    assert max(slowdowns(record, alone, 100.0)) < 1.75
    generated = only(storm, 1).run(200.0, seed=seed)
    assert work(record, "chat", 500.0) > 0.25 * work(generated, "chat", 50.0)


@every_seed
def test_a_hidden_co_tenant_does_not_hold_bulk_work_down_for_ever(seed) -> None:
    talk = sim.Open(model="chat", rate=sim.steady(1.0), sizes=PLAIN)
    storm = scenario(talk, changes=[(300.0, changes.co_tenant("gpu", seconds=500.0))])
    record = storm.run(1500.0, seed=seed)
    assert any("chat alone takes" in move.reason for move in record.shares if move.at > 300)
    bulk = only(storm, 1).run(200.0, seed=seed)
    assert work(record, "embed", 1100.0) > 0.5 * work(bulk, "embed", 100.0)


@every_seed
def test_a_machine_at_half_its_speed_and_back_is_learned_anew(seed) -> None:
    talk = sim.Open(model="chat", rate=sim.steady(1.0), sizes=PLAIN)
    half, whole = changes.capacity("gpu", 0.5), changes.capacity("gpu", 1.0)
    storm = scenario(talk, changes=[(400.0, half), (900.0, whole)])
    record = storm.run(1400.0, seed=seed)
    bulk = only(storm, 1).run(200.0, seed=seed)
    assert work(record, "embed", 1100.0) > 0.5 * work(bulk, "embed", 100.0)


@every_seed
def test_noise_alone_cuts_hardly_ever(seed) -> None:
    lazy = sim.Closed(model="embed", workers=2, sizes=sim.fixed(64), think_s=0.5)
    storm = scenario(
        sim.Open(model="chat", rate=sim.steady(2.0), sizes=PLAIN),
        lazy,
        changes=[(0.0, changes.noise("gpu", 0.3))],
    )
    record = storm.run(1800.0, seed=seed)
    assert sum(move.reason.startswith("cut") for move in record.shares) <= 1


@every_seed
def test_strict_floors_hold_whatever_chat_says(seed) -> None:
    served = sim.endpoint("embed", interactive=False, floor=2)
    servers = {chat: sim.LlmSpec(), served: sim.EncoderSpec(least_load=1.0)}
    talk = sim.Closed(model="chat", workers=2, sizes=PLAIN)
    storm = scenario(talk, servers=servers, settings={"min_duty": 1.0})
    record = storm.run(200.0, seed=seed)
    busy = [sample.inflight for sample in record.samples_of("embed@gpu", since=10.0)]
    assert min(busy) >= 2
