"""When a model counts as failed over, and who hears of it."""

from __future__ import annotations

from forebay.core.breaker import BreakerSettings
from forebay.core.failovers import Failovers
from forebay.core.limits.fixed import Fixed
from forebay.core.model import Ending, Outcome
from forebay.core.observer import Observer, Observers
from forebay.core.protection import ProtectionSettings
from support.deployments import BEST_EFFORT, Desk, admission, endpoint

FAILED = Ending(Outcome.FAILURE)
AT_ONCE = BreakerSettings(fail_threshold=1, base_cooldown_s=5.0, jitter=0.0)


class Heard(Observer):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.news: list[tuple] = []

    def limit_changed(self, endpoint, decision, now):
        self.news.append(("limit", endpoint.id, decision.limit, now))

    def breaker_changed(self, endpoint, change, now):
        self.news.append(("breaker", endpoint.id, change.after.value, now))

    def share_changed(self, guard, now):
        self.news.append(("share", guard.group, now))

    def stand_in_changed(self, model, now, *, serves):
        self.news.append(("stand-in", model, serves, now))


class Setting:
    """An embedder on some hosts, with a fallback or without, and who follows them."""

    def __init__(self, *hosts: str, fallback: bool = True) -> None:
        self.heard = Heard()
        self.failovers = Failovers(self.heard)
        made = [endpoint("m", host=host, group=host, interactive=False) for host in hosts]
        if fallback:
            made.append(endpoint("m", host="f", group="f", interactive=False, fallback_of="m"))
        core = admission(*made, breaker=AT_ONCE, observer=self.failovers)
        self.failovers.watch(core)
        self.desk = Desk(core)

    def fail(self, *hosts: str) -> None:
        """Let a request fail at each of these hosts."""
        for host in hosts:
            avoid = frozenset(s for s in self.desk.core.states if s != f"m@{host}")
            self.desk.ask("m", avoid=avoid)
            self.desk.finish(self.desk.running[-1], FAILED)

    @property
    def counts(self) -> tuple[int, int]:
        return self.failovers.failovers["m"], self.failovers.recoveries["m"]


def test_a_model_fails_over_when_the_last_of_its_endpoints_breaks() -> None:
    setting = Setting("a", "b")
    setting.fail("a")
    assert setting.counts == (0, 0)
    setting.fail("b")
    assert setting.counts == (1, 0)
    assert setting.failovers.failed_over == {"m"}
    assert setting.heard.news == [("stand-in", "m", True, 0.0)]


def test_a_probe_that_fails_is_no_second_failover_and_one_that_does_not_is_a_recovery() -> None:
    setting = Setting("a")
    setting.fail("a")
    setting.desk.now = 6.0
    setting.desk.ask("m")
    setting.desk.finish(setting.desk.running[-1], FAILED)
    assert setting.counts == (1, 0)
    setting.desk.now = 60.0
    setting.desk.ask("m")
    assert setting.counts == (1, 0), "a probe that is under way has brought nothing back"
    setting.desk.finish(setting.desk.running[-1])
    assert setting.counts == (1, 1)
    assert not setting.failovers.failed_over
    assert setting.heard.news[-1] == ("stand-in", "m", False, 60.0)


def test_a_model_without_a_fallback_has_nothing_to_fail_over_to() -> None:
    setting = Setting("a", fallback=False)
    setting.fail("a")
    assert setting.counts == (0, 0)
    assert not setting.heard.news


def test_a_stand_in_that_breaks_changes_nothing() -> None:
    setting = Setting("a")
    setting.fail("a")
    setting.desk.ask("m")
    setting.desk.finish(setting.desk.running[-1], FAILED)
    assert setting.counts == (1, 0)


def test_all_observers_hear_everything() -> None:
    one, two = Heard(), Heard()
    both = Observers(one, two)
    core = admission(
        endpoint("m"),
        endpoint("e", interactive=False),
        breaker=AT_ONCE,
        law=lambda e: Fixed(floor=e.floor, ceiling=e.ceiling),
        observer=both,
        protection=ProtectionSettings(),
    )
    desk = Desk(core)
    desk.ask("m")
    desk.finish(desk.running[0], FAILED)
    core.set_bounds("e@a", floor=2, ceiling=9, now=1.0)
    both.stand_in_changed("m", 2.0, serves=True)
    both.share_changed(core.rooms["m@a"].guard, 3.0)
    desk.ask("e", BEST_EFFORT)
    assert one.news == two.news
    assert [each[0] for each in one.news] == ["breaker", "limit", "stand-in", "share"]


def test_a_primary_that_is_replaced_is_no_failover_any_more():
    setting = Setting("a")
    setting.fail("a")
    assert setting.failovers.failed_over == {"m"}
    desk, core = setting.desk, setting.desk.core
    desk.see(core.add(endpoint("m", host="b", group="b", interactive=False), desk.now))
    setting.failovers.rearranged(desk.now)
    assert setting.failovers.failed_over == set()
    assert setting.counts == (1, 1)


def test_a_fallback_that_is_taken_away_is_no_failover_any_more_and_no_recovery():
    setting = Setting("a")
    setting.fail("a")
    desk, core = setting.desk, setting.desk.core
    desk.see(core.drain("m@f", desk.now))
    setting.failovers.rearranged(desk.now)
    assert setting.failovers.failed_over == set()
    assert setting.counts == (1, 0)


def test_a_model_that_goes_is_followed_no_more():
    setting = Setting("a")
    setting.fail("a")
    desk, core = setting.desk, setting.desk.core
    for id_ in ("m@a", "m@f"):
        desk.see(core.remove(id_, desk.now))
    setting.failovers.rearranged(desk.now)
    assert setting.failovers.failed_over == set()


def test_what_failed_over_stays_so_where_only_its_fallback_is_left():
    setting = Setting("a")
    setting.fail("a")
    desk, core = setting.desk, setting.desk.core
    desk.see(core.drain("m@a", desk.now))
    setting.failovers.rearranged(desk.now)
    assert setting.failovers.failed_over == {"m"}
    assert setting.counts == (1, 0)
