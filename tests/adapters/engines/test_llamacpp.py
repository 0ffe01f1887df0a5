from __future__ import annotations

import json

import pytest

from forebay.adapters.engines.llamacpp import LlamaCpp
from forebay.adapters.engines.reply import Reply
from forebay.core.model import EngineState, Outcome, Signal

NORMAL = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 51873
llamacpp:n_busy_slots_per_decode 2.41
llamacpp:requests_processing 4
llamacpp:requests_deferred 2
"""
PROPS = Reply(200, {}, b'{"total_slots":4,"default_generation_settings":{}}')


def read(body: str, props: Reply | None = PROPS, status: int = 200) -> Signal:
    replies = {"/metrics": Reply(status, {}, body.encode())}
    if props is not None:
        replies["/props"] = props
    return LlamaCpp().read(replies, "tiny", 1.0)


def test_deferred_requests_behind_full_slots_are_saturation() -> None:
    signal = read(NORMAL)

    assert (signal.running, signal.waiting, signal.slots) == (4, 2, 4)
    assert signal.kv_usage is None
    assert signal.saturated is True


@pytest.mark.parametrize(
    ("running", "deferred", "saturated"), [(3, 2, False), (4, 0, False), (4, 1, True)]
)
def test_saturation_takes_full_slots_and_a_queue(
    running: int, deferred: int, saturated: bool
) -> None:
    text = f"llamacpp:requests_processing {running}\nllamacpp:requests_deferred {deferred}\n"

    assert read(text).saturated is saturated


def test_without_the_number_of_slots_a_queue_is_enough() -> None:
    signal = read(NORMAL, props=None)

    assert signal.slots is None
    assert signal.saturated is True


def test_nan_before_the_first_request_is_skipped() -> None:
    signal = read(NORMAL.replace("2.41", "-nan"))

    assert (signal.running, signal.waiting, signal.warnings) == (4, 2, 0)


def test_a_page_inside_a_json_string_is_read() -> None:
    assert read(json.dumps(NORMAL)).waiting == 2


def test_older_builds_tell_the_cache_too() -> None:
    assert read(NORMAL + "llamacpp:kv_cache_usage_ratio 0.25\n").kv_usage == 0.25


def test_a_server_started_without_metrics_still_tells_its_slots() -> None:
    body = '{"error":{"code":501,"message":"no metrics","type":"not_supported_error"}}'
    signal = read(body, status=501)

    assert (signal.running, signal.waiting, signal.saturated) == (None, None, None)
    assert signal.slots == 4


@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
        '{"status":"loading model"}',
    ],
)
def test_loading_is_a_state_not_a_failure(body: str) -> None:
    assert read(body, status=503, props=None).state is EngineState.LOADING
    assert LlamaCpp().classify(503, {}, body.encode()) is Outcome.LOADING


def test_a_routers_unloaded_model_is_unknown_load() -> None:
    body = '{"error":{"code":400,"message":"model is not loaded"}}'

    assert read(body, status=400, props=None) == Signal("llamacpp", 1.0)


def test_an_input_that_does_not_fit_is_the_callers_fault_although_it_says_500() -> None:
    body = b'{"error":{"code":500,"message":"input is too large to process. increase the batch"}}'

    assert LlamaCpp().classify(500, {}, body) is Outcome.CLIENT_ERROR
    assert LlamaCpp().classify(500, {}, b'{"error":{"message":"CUDA error"}}') is Outcome.FAILURE
