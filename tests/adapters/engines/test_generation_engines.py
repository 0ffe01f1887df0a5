"""SGLang, LMDeploy, TGI, Triton and trtllm-serve, by the shapes of their pages."""

from __future__ import annotations

import json

import pytest

from forebay.adapters.engines.counters import mean_queue_s
from forebay.adapters.engines.lmdeploy import Lmdeploy
from forebay.adapters.engines.reply import Reply
from forebay.adapters.engines.sglang import Sglang
from forebay.adapters.engines.tgi import Tgi
from forebay.adapters.engines.triton import Triton
from forebay.adapters.engines.trtllm import TrtLlm
from forebay.errors import ScrapeFailed


def page(text: str) -> dict[str, Reply]:
    return {"/metrics": Reply(200, {}, text.encode())}


TRTLLM_BACKEND = """\
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 2
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 30
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 34
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm"} 0.73
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 7000
nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 1
nv_inference_pending_request_count{model="preprocessing",version="1"} 0
nv_inference_pending_request_count{model="ensemble",version="1"} 0
nv_inference_queue_summary_us_count{model="tensorrt_llm",version="1"} 240
nv_inference_queue_summary_us_sum{model="tensorrt_llm",version="1"} 15600
nv_inference_queue_summary_us{model="tensorrt_llm",version="1",quantile="0.99"} Nan
"""


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm"])
def test_triton_tells_load_by_request_type_and_its_maximum_is_no_load(model: str) -> None:
    signal = Triton().read(page(TRTLLM_BACKEND), model, 1.0)

    assert (signal.running, signal.waiting, signal.kv_usage) == (30, 4, 0.73)
    assert signal.saturated is True
    assert signal.warnings == 0


def test_tritons_microseconds_become_seconds() -> None:
    signal = Triton().read(page(TRTLLM_BACKEND), "ensemble", 1.0)

    assert mean_queue_s(None, signal) == pytest.approx(6.5e-05)


def test_a_plain_triton_model_waits_in_its_own_pending_count_only() -> None:
    text = (
        'nv_inference_pending_request_count{model="bge_m3",version="1"} 95\n'
        'nv_inference_pending_request_count{model="tokenizer",version="1"} 7\n'
    )

    assert Triton().read(page(text), "bge_m3", 1.0).waiting == 95
    assert Triton().read(page(text), "not-served", 1.0).waiting is None


LMDEPLOY = """\
lmdeploy:num_api_requests_routed{engine="0",model_name="lab/chat-7b"} 18.0
lmdeploy:num_requests_running{engine="0",model_name="lab/chat-7b"} 16.0
lmdeploy:num_requests_waiting{engine="0",model_name="lab/chat-7b"} 2.0
lmdeploy:gpu_cache_usage_perc{engine="0",model_name="lab/chat-7b"} 0.52
lmdeploy:iteration_tokens_total_sum{engine="0",model_name="lab/chat-7b"} 2048.0
"""
FOR_HANDLE = 'lmdeploy:num_api_requests_waiting{engine="0",model_name="lab/chat-7b"} 6.0\n'


def test_lmdeploys_two_queues_add_up() -> None:
    signal = Lmdeploy().read(page(LMDEPLOY + FOR_HANDLE), "chat", 1.0)

    assert (signal.running, signal.waiting, signal.kv_usage) == (16, 8, 0.52)
    assert signal.saturated is True


def test_an_lmdeploy_with_one_queue_is_read_too() -> None:
    assert Lmdeploy().read(page(LMDEPLOY), "chat", 1.0).waiting == 2


def test_half_of_lmdeploys_queues_is_no_total() -> None:
    signal = Lmdeploy().read(page(FOR_HANDLE.replace("6.0", "0.0")), "chat", 1.0)

    assert (signal.waiting, signal.saturated) == (None, None)


@pytest.mark.parametrize("separator", [":", "_"])
def test_sglangs_total_is_the_series_without_a_priority(separator: str) -> None:
    text = """\
sglang:num_running_reqs{model_name="chat",tp_rank="0",priority=""} 12.0
sglang:num_running_reqs{model_name="chat",tp_rank="0",priority="0"} 8.0
sglang:num_running_reqs{model_name="chat",tp_rank="0",priority="9"} 4.0
sglang:num_queue_reqs{model_name="chat",tp_rank="0",priority=""} 3.0
sglang:num_queue_reqs{model_name="chat",tp_rank="0",priority="9"} 3.0
sglang:token_usage{model_name="chat",tp_rank="0",priority=""} 0.37
"""
    signal = Sglang().read(page(text.replace("sglang:", f"sglang{separator}")), "chat", 1.0)

    assert (signal.running, signal.waiting, signal.kv_usage) == (12, 3, 0.37)
    assert signal.saturated is True


def test_sglangs_tensor_ranks_are_copies_and_its_data_ranks_add_up() -> None:
    text = "\n".join(
        f'sglang:num_running_reqs{{model_name="chat",dp_rank="{dp}",tp_rank="{tp}"}} {running}\n'
        f'sglang:token_usage{{model_name="chat",dp_rank="{dp}",tp_rank="{tp}"}} {usage}'
        for dp, running, usage in ((0, 5, 0.2), (1, 3, 0.9))
        for tp in range(2)
    )
    signal = Sglang().read(page(text), "chat", 1.0)

    assert (signal.running, signal.kv_usage) == (8, 0.9)
    assert (signal.waiting, signal.saturated) == (None, None)


def test_sglangs_retractions_are_preemptions() -> None:
    text = (
        'sglang:num_retracted_reqs{model_name="chat"} 1\n'
        'sglang:num_retracted_requests_total{model_name="chat"} 6\n'
    )

    assert Sglang().read(page(text), "chat", 1.0).preemptions == 6


def test_tgi_tells_its_batch_and_its_queue() -> None:
    text = (
        "tgi_batch_current_size 4\ntgi_queue_size 7\n"
        'tgi_request_failure{err="overloaded"} 2\ntgi_request_failure{err="validation"} 5\n'
    )
    signal = Tgi().read(page(text), "chat", 1.0)

    assert (signal.running, signal.waiting, signal.rejections) == (4, 7, 2)
    assert signal.saturated is True


def iteration(number: int, running: int, queued: int) -> dict[str, object]:
    return {
        "iter": number,
        "numActiveRequests": running,
        "numQueuedRequests": queued,
        "maxNumActiveRequests": 64,
        "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 600, "freeNumBlocks": 400},
    }


def test_trtllm_serve_is_read_from_its_newest_iteration() -> None:
    body = json.dumps([iteration(8, 9, 3), iteration(7, 1, 0)])
    signal = TrtLlm().read(page(body), "chat", 1.0)

    assert (signal.running, signal.waiting, signal.kv_usage, signal.slots) == (9, 3, 0.6, 64)
    assert signal.saturated is True


def test_trtllm_serve_with_nothing_new_is_unknown_not_idle() -> None:
    signal = TrtLlm().read(page("[]"), "chat", 1.0)

    assert (signal.running, signal.waiting, signal.saturated) == (None, None, None)


def test_trtllm_serve_with_something_else_than_iterations_fails_the_scrape() -> None:
    with pytest.raises(ScrapeFailed):
        TrtLlm().read(page("<html>Sign in</html>"), "chat", 1.0)
