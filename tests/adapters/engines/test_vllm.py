from __future__ import annotations

import random

import pytest

from forebay.adapters.engines.reply import Reply
from forebay.adapters.engines.vllm import Vllm
from forebay.core.model import EngineState, Outcome, Signal
from forebay.errors import ScrapeFailed


def read(text: str, model: str = "chat") -> Signal:
    return Vllm().read({"/metrics": Reply(200, {}, text.encode())}, model, 10.0)


V0_LOADED = """\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="2712"} 1.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="lab/chat-13b"} 7.0
vllm:num_requests_swapped{model_name="lab/chat-13b"} 1.0
vllm:num_requests_waiting{model_name="lab/chat-13b"} 3.0
vllm:gpu_cache_usage_perc{model_name="lab/chat-13b"} 0.9134
vllm:cpu_cache_usage_perc{model_name="lab/chat-13b"} 0.0
vllm:num_preemptions_total{model_name="lab/chat-13b"} 41.0
vllm:prompt_tokens_total{model_name="lab/chat-13b"} 6.120447e+06
"""


def test_the_first_generation_is_read_by_its_old_names() -> None:
    signal = read(V0_LOADED)

    assert signal.engine == "vllm"
    assert signal.at == 10.0
    assert (signal.running, signal.waiting) == (7, 3)
    assert signal.waiting_capacity is None
    assert signal.kv_usage == 0.9134
    assert signal.preemptions == 41
    assert signal.saturated is True


def test_swapped_requests_are_pressure_even_with_nobody_waiting() -> None:
    text = V0_LOADED.replace('waiting{model_name="lab/chat-13b"} 3', "waiting{} 0")

    assert read(text).saturated is True
    assert read(text.replace('swapped{model_name="lab/chat-13b"} 1', "swapped{} 0")).saturated is (
        False
    )


def test_families_declared_without_samples_are_unknown_not_idle() -> None:
    signal = read(
        "# TYPE vllm:num_requests_running gauge\n# TYPE vllm:num_requests_waiting gauge\n"
    )

    assert (signal.running, signal.waiting, signal.kv_usage, signal.saturated) == (None,) * 4
    assert signal.state is EngineState.AWAKE


OLD_KV = 'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.4102\n'
NEW_KV = 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4102\n'


@pytest.mark.parametrize(
    ("lines", "kv_usage"),
    [(OLD_KV + NEW_KV, 0.4102), (NEW_KV, 0.4102), (OLD_KV, 0.4102), ("", None)],
    ids=["both", "new", "old", "neither"],
)
def test_kv_usage_survives_its_renaming(lines: str, kv_usage: float | None) -> None:
    text = lines + (
        'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        'vllm:num_preemptions_total{engine="0",model_name="m"} 5.0\n'
        'vllm:num_preemptions_created{engine="0",model_name="m"} 1.7841120067712e+09\n'
    )

    assert read(text).kv_usage == kv_usage
    assert read(text).preemptions == 5


def by_reason(total: int, **reasons: int) -> str:
    lines = [f'vllm:num_requests_waiting{{engine="0",model_name="chat"}} {total}.0']
    lines += [
        "vllm:num_requests_waiting_by_reason"
        f'{{engine="0",model_name="chat",reason="{reason}"}} {count}.0'
        for reason, count in reasons.items()
    ]
    return "\n".join(lines)


def test_only_waiting_for_capacity_saturates_where_reasons_are_told() -> None:
    signal = read(by_reason(5, capacity=1, deferred=4))

    assert (signal.waiting, signal.waiting_capacity, signal.waiting_deferred) == (5, 1, 4)
    assert signal.saturated is True
    assert read(by_reason(4, capacity=0, deferred=4)).saturated is False


def test_a_reason_never_seen_before_is_not_capacity() -> None:
    signal = read(by_reason(3, capacity=0, deferred=0, some_future_reason=3))

    assert signal.waiting == 3
    assert signal.saturated is False


def test_the_newest_figures_are_read_exactly() -> None:
    signal = read(
        'vllm:num_requests_running{engine="0",model_name="chat"} 12.0\n'
        'vllm:engine_sleep_state{engine="0",model_name="chat",sleep_state="awake"} 1.0\n'
        'vllm:engine_sleep_state{engine="0",model_name="chat",sleep_state="discard_all"} 0.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="chat"} 7.3125e-06\n'
        'vllm:admission_rejections_total{model_name="chat",reason="max_num_queued_reqs"} 9.0\n'
        'vllm:admission_rejections_total{model_name="chat",reason="max_num_queued_tokens"} 2.0\n'
    )

    assert signal.kv_usage == 7.3125e-06
    assert signal.rejections == 11
    assert signal.state is EngineState.AWAKE


TWO_ENGINES = """\
vllm:num_requests_running{engine="0",model_name="chat"} 31.0
vllm:num_requests_running{engine="1",model_name="chat"} 1.0
vllm:num_requests_waiting{engine="0",model_name="chat"} 9.0
vllm:num_requests_waiting{engine="1",model_name="chat"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="chat"} 0.97
vllm:kv_cache_usage_perc{engine="1",model_name="chat"} 0.05
"""


def test_data_parallel_engines_add_up_and_the_fullest_cache_counts() -> None:
    lines = TWO_ENGINES.splitlines()
    rng = random.Random(7)
    for _ in range(6):
        rng.shuffle(lines)
        signal = read("\n".join(lines))
        assert (signal.running, signal.waiting, signal.kv_usage) == (32, 9, 0.97)


def test_a_copy_per_process_does_not_dilute_the_cache() -> None:
    signal = read(
        'vllm:kv_cache_usage_perc{engine="0",model_name="chat",pid="3101"} 0.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="chat",pid="3102"} 0.7712\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="chat",pid="3103"} 0.0\n'
    )

    assert signal.kv_usage == 0.7712


IDLE = """\
vllm:num_requests_running{engine="0",model_name="chat"} 0.0
vllm:num_requests_waiting{engine="0",model_name="chat"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="chat"} 0.0
"""
SLEEP = (
    'vllm:engine_sleep_state{{engine="{engine}",model_name="chat",sleep_state="{state}"}} {on}\n'
)


def test_an_engine_asleep_is_not_an_idle_one() -> None:
    asleep = SLEEP.format(engine=0, state="awake", on=0.0)
    asleep += SLEEP.format(engine=0, state="weights_offloaded", on=1.0)
    signal = read(IDLE + asleep)

    assert signal.state is EngineState.ASLEEP
    assert (signal.running, signal.waiting, signal.kv_usage, signal.saturated) == (None,) * 4


def test_one_engine_awake_keeps_the_server_awake() -> None:
    states = SLEEP.format(engine=0, state="awake", on=0.0)
    states += SLEEP.format(engine=1, state="awake", on=1.0)

    assert read(IDLE + states).state is EngineState.AWAKE


def test_no_sleep_state_means_awake() -> None:
    signal = read(IDLE)

    assert signal.state is EngineState.AWAKE
    assert (signal.running, signal.saturated) == (0, False)


def test_ray_re_exports_the_same_signals() -> None:
    signal = read("ray_vllm_num_requests_running 3\nray_vllm_num_requests_waiting 1\n")

    assert (signal.running, signal.waiting, signal.saturated) == (3, 1, True)


def test_lora_adapters_are_no_load() -> None:
    signal = read('vllm:lora_requests_info{running_lora_adapters="a,b"} 1.790000012e+09\n')

    assert signal.running is None
    assert signal.waiting is None


def test_queue_time_is_read_as_two_counters() -> None:
    signal = read(
        'vllm:request_queue_time_seconds_sum{engine="0"} 30\n'
        'vllm:request_queue_time_seconds_count{engine="0"} 20\n'
    )

    assert (signal.queue_seconds, signal.queued) == (30, 20)


def test_a_server_without_the_page_is_unknown_and_one_that_fails_is_a_failed_scrape() -> None:
    absent = Vllm().read({"/metrics": Reply(404, {}, b"")}, "chat", 1.0)
    assert absent == Signal("vllm", 1.0)

    with pytest.raises(ScrapeFailed, match="502"):
        Vllm().read({"/metrics": Reply(502, {}, b"")}, "chat", 1.0)
    with pytest.raises(ScrapeFailed, match="api_key"):
        Vllm().read({"/metrics": Reply(401, {}, b"")}, "chat", 1.0)
    with pytest.raises(ScrapeFailed):
        Vllm().read({}, "chat", 1.0)


def test_its_full_queue_is_congestion_but_a_proxys_503_is_a_failure() -> None:
    own = b'{"error":{"message":"Admission refused","type":"ServiceUnavailable","code":503}}'

    assert Vllm().classify(503, {}, own) is Outcome.CONGESTION
    assert Vllm().classify(503, {}, b"<html>503 Service Unavailable</html>") is Outcome.FAILURE
    assert Vllm().classify(503, {}, b"") is Outcome.FAILURE
