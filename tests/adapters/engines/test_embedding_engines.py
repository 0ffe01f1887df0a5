"""Infinity, TEI and Ollama: engines whose load is told in inputs, or not at all."""

from __future__ import annotations

import json

import pytest

from forebay.adapters.engines.batching import BatchLimits
from forebay.adapters.engines.infinity import Infinity
from forebay.adapters.engines.ollama import Ollama
from forebay.adapters.engines.reply import Reply
from forebay.adapters.engines.tei import Tei
from forebay.core.model import Outcome, Signal
from forebay.errors import ScrapeFailed

NOT_FOUND = Reply(404, {"Content-Type": "text/plain"}, b"404 page not found")


def reply(value: object) -> Reply:
    return Reply(200, {"content-type": "application/json"}, json.dumps(value).encode())


def infinity_models(queue: int = 128, batch_size: int = 32) -> Reply:
    embedder = {
        "queue_fraction": queue / 32000,
        "queue_absolute": queue,
        "results_pending": queue + batch_size,
        "batch_size": batch_size,
    }
    reranker = {"queue_fraction": 0.0, "queue_absolute": 0, "results_pending": 0, "batch_size": 16}
    return reply(
        {
            "object": "list",
            "data": [
                {"id": "bge-m3", "stats": embedder, "owned_by": "infinity"},
                {"id": "bge-reranker", "stats": reranker, "owned_by": "infinity"},
            ],
        }
    )


@pytest.mark.parametrize("path", ["/models", "/v1/models"])
def test_infinitys_queue_is_in_its_list_of_models(path: str) -> None:
    replies = {"/models": NOT_FOUND, "/v1/models": NOT_FOUND} | {path: infinity_models()}
    signal = Infinity().read(replies, "bge-m3", 1.0)

    assert (signal.waiting, signal.waiting_unit) == (128, "inputs")
    assert (signal.running, signal.kv_usage) == (None, None)
    assert signal.saturated is True


def test_infinitys_models_are_kept_apart() -> None:
    signal = Infinity().read({"/models": infinity_models()}, "bge-reranker", 1.0)

    assert (signal.waiting, signal.saturated) == (0, False)


@pytest.mark.parametrize(("queue", "saturated"), [(64, False), (65, True)])
def test_infinity_is_saturated_beyond_two_batches_whatever_its_fraction_says(
    queue: int, saturated: bool
) -> None:
    replies = {"/models": infinity_models(queue)}

    assert Infinity().read(replies, "bge-m3", 1.0).saturated is saturated
    assert Infinity(queue_batches=4).read(replies, "bge-m3", 1.0).saturated is False


def test_infinity_with_a_model_it_does_not_list_is_unknown() -> None:
    signal = Infinity().read({"/models": infinity_models()}, "other", 1.0)

    assert (signal.waiting, signal.saturated) == (None, None)


def test_infinity_fails_the_scrape_when_it_answers_an_error() -> None:
    with pytest.raises(ScrapeFailed, match="500"):
        Infinity().read({"/models": Reply(500, {}, b"")}, "bge-m3", 1.0)


def test_infinity_takes_the_batch_of_its_schema() -> None:
    assert Infinity().batch_limits({}) == BatchLimits(max_inputs=2048)


TEI_PAGE = """\
# TYPE te_request_count counter
te_request_count{method="batch"} 118
te_request_count{method="single"} 2041

# TYPE te_request_failure counter
te_request_failure{err="overloaded"} 17
te_request_failure{err="batch_size"} 3

# TYPE te_queue_size gauge
te_queue_size 96

# TYPE te_embed_queue_duration histogram
te_embed_queue_duration_bucket{le="0.000015"} 0
te_embed_queue_duration_bucket{le="+Inf"} 5561
te_embed_queue_duration_sum 341.2
te_embed_queue_duration_count 5561

# TYPE te_batch_next_size histogram
te_batch_next_size_bucket{le="+Inf"} 402
te_batch_next_size_sum 5561
te_batch_next_size_count 402
"""


def tei(text: str) -> Signal:
    return Tei().read({"/metrics": Reply(200, {}, text.encode())}, "bge-m3", 1.0)


def test_teis_queue_counts_inputs_and_is_judged_in_batches() -> None:
    signal = tei(TEI_PAGE)  # a mean batch is 13.8 inputs

    assert (signal.waiting, signal.waiting_unit) == (96, "inputs")
    assert (signal.running, signal.kv_usage) == (None, None)
    assert signal.saturated is True
    assert tei(TEI_PAGE.replace("te_queue_size 96", "te_queue_size 20")).saturated is False


def test_teis_queue_without_a_batch_size_is_not_judged() -> None:
    assert tei("te_queue_size 96\n").saturated is None
    assert tei("te_queue_size 0\n").saturated is False


def test_only_overload_counts_as_teis_refusals() -> None:
    signal = tei(TEI_PAGE)

    assert signal.rejections == 17
    assert (signal.queue_seconds, signal.queued) == (341.2, 5561)


def test_tei_tells_its_batch_limits() -> None:
    info = reply(
        {"max_concurrent_requests": 64, "max_client_batch_size": 32, "auto_truncate": True}
    )

    assert Tei().batch_limits({"/info": info}) == BatchLimits(
        max_inputs=32, max_body_bytes=2_000_000, max_inputs_in_flight=64
    )


@pytest.mark.parametrize(
    "info", [{}, {"max_client_batch_size": None}, {"max_client_batch_size": 0}]
)
def test_limits_that_tei_does_not_tell_are_unknown(info: dict[str, object]) -> None:
    assert Tei().batch_limits({"/info": reply(info)}).max_inputs is None


def test_teis_overload_is_congestion_and_its_backend_errors_are_failures() -> None:
    overloaded = b'{"message":"Model is overloaded","code":429,"type":"overloaded"}'
    backend = b'{"message":"DriverError(CUDA_ERROR_OUT_OF_MEMORY)","type":"backend"}'

    assert Tei().classify(429, {}, overloaded) is Outcome.CONGESTION
    assert Tei().classify(424, {}, backend) is Outcome.FAILURE
    assert Tei().classify(422, {}, b'{"type":"tokenizer"}') is Outcome.CLIENT_ERROR
    assert Tei().classify(413, {}, b"length limit exceeded") is Outcome.CLIENT_ERROR


LOADED = reply({"models": [{"name": "bge-m3:latest", "size": 1_200, "size_vram": 900}]})


@pytest.mark.parametrize("model", ["bge-m3", "bge-m3:latest"])
def test_ollama_tells_what_is_in_memory_and_nothing_of_its_load(model: str) -> None:
    signal = Ollama().read({"/api/ps": LOADED}, model, 1.0)

    assert signal.resident == 0.75
    assert (signal.running, signal.waiting, signal.kv_usage, signal.saturated) == (None,) * 4


def test_a_model_that_ollama_has_not_loaded_is_not_resident() -> None:
    assert Ollama().read({"/api/ps": LOADED}, "other", 1.0).resident == 0


def test_ollama_busy_is_congestion() -> None:
    body = b'{"error":"server busy, please try again.  maximum pending requests exceeded"}'

    assert Ollama().classify(503, {}, body) is Outcome.CONGESTION
