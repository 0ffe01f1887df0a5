"""Keys keep their endpoints, whatever else comes and goes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.config.load import plan_from
from support.deployments import admission, endpoint

KEYS = [f"session-{n}" for n in range(10_000)]
HOSTS = ("h1", "h2", "h3", "h4")


def hosts_of(*hosts: str, ceilings: dict[str, int] | None = None) -> dict[str, str]:
    """Where each key goes among these hosts, and nothing runs."""
    return first_choices(among(*hosts, ceilings=ceilings))


def among(*hosts: str, ceilings: dict[str, int] | None = None):
    ceilings = ceilings or {}
    return admission(*(endpoint("m", host=h, group=h, ceiling=ceilings.get(h, 8)) for h in hosts))


def first_choices(core) -> dict[str, str]:
    rendezvous = next(iter(core.states.values())).pool.rendezvous
    return {key: rendezvous.order(key)[0].endpoint.id.removeprefix("m@") for key in KEYS}


def moved(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {k: (before[k], after[k]) for k in KEYS if before[k] != after[k]}


BASE = hosts_of(*HOSTS)


def shares(where: dict[str, str]) -> dict[str, float]:
    return {host: count / len(KEYS) for host, count in Counter(where.values()).items()}


def test_keys_are_spread_evenly() -> None:
    assert shares(BASE) == dict.fromkeys(HOSTS, pytest.approx(0.25, abs=0.02))


def test_shares_are_as_the_ceilings() -> None:
    spread = shares(hosts_of(*HOSTS, ceilings={"h1": 16, "h2": 4, "h3": 4}))
    assert spread == {
        "h1": pytest.approx(16 / 32, abs=0.02),
        "h2": pytest.approx(4 / 32, abs=0.02),
        "h3": pytest.approx(4 / 32, abs=0.02),
        "h4": pytest.approx(8 / 32, abs=0.02),
    }


def test_when_a_host_goes_only_its_keys_move_and_to_all_others() -> None:
    gone = moved(BASE, hosts_of("h1", "h2", "h4"))
    assert set(gone) == {key for key, host in BASE.items() if host == "h3"}
    assert {to for _, to in gone.values()} == {"h1", "h2", "h4"}


def test_when_a_host_comes_only_its_share_moves_and_only_to_it() -> None:
    came = moved(BASE, hosts_of(*HOSTS, "h5"))
    assert {to for _, to in came.values()} == {"h5"}
    assert {was for was, _ in came.values()} == set(HOSTS)
    assert len(came) / len(KEYS) == pytest.approx(1 / 5, abs=0.02)


def test_a_host_with_more_weight_takes_its_share_and_moves_no_others() -> None:
    came = moved(BASE, hosts_of(*HOSTS, "h5", ceilings={"h5": 32}))
    assert {to for _, to in came.values()} == {"h5"}
    assert len(came) / len(KEYS) == pytest.approx(1 / 2, abs=0.02)


def test_a_ceiling_that_is_raised_only_draws_keys_and_one_that_is_lowered_only_gives_some() -> None:
    core = among(*HOSTS)
    core.set_bounds("m@h2", 1, 16, 0.0)
    raised = first_choices(core)
    assert {to for _, to in moved(BASE, raised).values()} == {"h2"}
    core.set_bounds("m@h2", 1, 8, 0.0)
    assert first_choices(core) == BASE


def test_the_order_in_which_hosts_are_listed_moves_nothing() -> None:
    assert hosts_of("h3", "h1", "h4", "h2") == BASE


def test_hosts_that_come_and_go_while_it_runs_leave_what_a_restart_would_find() -> None:
    core = among(*HOSTS)
    core.add(endpoint("m", host="h5", group="h5", ceiling=8), 0.0)
    assert first_choices(core) == hosts_of(*HOSTS, "h5")
    core.drain("m@h3", 0.0)
    assert first_choices(core) == hosts_of("h1", "h2", "h4", "h5")
    core.remove("m@h3", 0.0)
    core.remove("m@h5", 0.0)
    core.add(endpoint("m", host="h3", group="h3", ceiling=8), 0.0)
    assert first_choices(core) == BASE


def test_another_process_comes_to_the_same() -> None:
    program = (
        "from forebay.core.routing.rendezvous import _hash, _uniform\n"
        "print(_hash('m@h1'), _uniform(_hash('session-1')))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_another_spelling_of_an_address_is_the_same_endpoint() -> None:
    def ids(url: str) -> list[str]:
        text = f'{{"chat_models": [{{"id": "m", "base_url": "{url}"}}]}}'
        plan = plan_from(text.encode(), file="config", environ={})
        return [planned.endpoint.id for planned in plan.endpoints]

    spellings = ("http://gpu-a:8000/v1", "http://gpu-a:8000/v1/", "GPU-A:8000", "gpu-a:8000/")
    assert len({tuple(ids(spelling)) for spelling in spellings}) == 1


@given(
    ceilings=st.dictionaries(st.sampled_from("abcdefghijkl"), st.integers(1, 64), min_size=3),
    keys=st.lists(st.text(), min_size=1, max_size=50),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_whoever_goes_takes_nobody_elses_keys_along(ceilings, keys, data) -> None:
    core = among(*ceilings, ceilings=ceilings)
    rendezvous = core.states[f"m@{next(iter(ceilings))}"].pool.rendezvous
    orders = {key: rendezvous.order(key) for key in keys}
    gone = core.states[f"m@{data.draw(st.sampled_from(sorted(ceilings)))}"]
    rendezvous.remove(gone)
    for key, order in orders.items():
        left = [state for state in order if state is not gone]
        assert list(rendezvous.order(key)[: len(left)]) == left
