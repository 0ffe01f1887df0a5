from __future__ import annotations

import asyncio
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.infinity import Infinity
from forebay.adapters.engines.llamacpp import LlamaCpp
from forebay.adapters.engines.lmdeploy import Lmdeploy
from forebay.adapters.engines.ollama import Ollama
from forebay.adapters.engines.sglang import Sglang
from forebay.adapters.engines.status import classify, classify_error, hint, stream_error
from forebay.adapters.engines.tei import Tei
from forebay.adapters.engines.tgi import Tgi
from forebay.adapters.engines.triton import Triton
from forebay.adapters.engines.trtllm import TrtLlm
from forebay.adapters.engines.unknown import Unknown
from forebay.adapters.engines.vllm import Vllm
from forebay.core.model import Outcome
from forebay.errors import ConnectFailed, UpstreamError, UpstreamTimeout

CONGESTION, FAILURE, CLIENT_ERROR = Outcome.CONGESTION, Outcome.FAILURE, Outcome.CLIENT_ERROR
CONFIGURATION, LOADING, TIMEOUT = Outcome.CONFIGURATION, Outcome.LOADING, Outcome.TIMEOUT

VLLM_CONTEXT = b'{"error":{"message":"the maximum context length is 32768","code":400}}'
VLLM_NO_MODEL = b'{"error":{"message":"The model `x` does not exist.","type":"NotFoundError"}}'
VLLM_QUEUE = b'{"error":{"message":"The request queue is full","code":503}}'
LLAMACPP_NO_CHAT = (
    b'{"error":{"code":500,"message":"the current context does not support logits computation. '
    b'skipping","type":"server_error"}}'
)
VLLM_DEAD = b'{"error":{"message":"EngineCore encountered an issue","code":500}}'
TEI_OOM = b'{"message":"DriverError(CUDA_ERROR_OUT_OF_MEMORY)","type":"backend"}'
TEI_FULL = b'{"message":"Model is overloaded","code":429,"type":"overloaded"}'
LLAMACPP_LOADING = b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'
SGLANG_EVICTED = (
    b'{"object":"error","message":"The request is aborted by a higher priority request.",'
    b'"code":503}'
)
SGLANG_NO_PRIORITY = (
    b'{"object":"error","message":"Using priority is disabled for this server. Please send a new '
    b'request without a priority.","code":503}'
)
SGLANG_CONTEXT = (
    b'{"object":"error","message":"The input (40000 tokens) is longer than the model\'s context '
    b'length (32768 tokens).","code":400}'
)
OLLAMA_BUSY = b'{"error":"server busy, please try again.  maximum pending requests exceeded"}'


@pytest.mark.parametrize(
    ("engine", "status", "body", "outcome"),
    [
        (Vllm(), 400, VLLM_CONTEXT, CLIENT_ERROR),
        (Vllm(), 404, VLLM_NO_MODEL, CONFIGURATION),
        (Vllm(), 503, VLLM_QUEUE, CONGESTION),
        (Vllm(), 500, VLLM_DEAD, FAILURE),
        (Tei(), 424, TEI_OOM, FAILURE),
        (Tei(), 429, TEI_FULL, CONGESTION),
        (Tei(), 422, b'{"message":"Tokenization error","type":"tokenizer"}', CLIENT_ERROR),
        (Tei(), 400, b'{"message":"inputs cannot be empty","type":"empty"}', CLIENT_ERROR),
        (LlamaCpp(), 503, LLAMACPP_LOADING, LOADING),
        (LlamaCpp(), 503, b'{"status":"loading model"}', LOADING),
        (LlamaCpp(), 503, b'{"status":"no slot available"}', CONGESTION),
        (LlamaCpp(), 501, b'{"error":{"type":"not_supported_error"}}', CONFIGURATION),
        (Infinity(), 429, b"model bge-m3 is currently overloaded", CONGESTION),
        (LlamaCpp(), 500, LLAMACPP_NO_CHAT, CLIENT_ERROR),
        (Infinity(), 500, b'{"error":{"message":"CUDA out of memory"}}', FAILURE),
        (Ollama(), 503, OLLAMA_BUSY, CONGESTION),
        (Ollama(), 500, b'{"error":"unexpected server status: llm server loading model"}', LOADING),
        (
            Ollama(),
            500,
            b'{"error":"unexpected status: llm busy - no slots available"}',
            CONGESTION,
        ),
        (Ollama(), 500, b'{"error":"llama runner process has terminated: CUDA error"}', FAILURE),
        (Ollama(), 500, b'{"error":"runner has terminated: error loading model"}', FAILURE),
        (
            Ollama(),
            404,
            b'{"error":{"message":"model \\"x\\" not found, try pulling"}}',
            CONFIGURATION,
        ),
        (Sglang(), 503, b'{"object":"error","message":"The request queue is full."}', CONGESTION),
        (Sglang(), 503, SGLANG_EVICTED, CONGESTION),
        (
            Sglang(),
            503,
            b'{"object":"error","message":"Request waiting timeout reached."}',
            CONGESTION,
        ),
        (Sglang(), 503, SGLANG_NO_PRIORITY, CLIENT_ERROR),
        (Sglang(), 400, SGLANG_CONTEXT, CLIENT_ERROR),
        (
            Sglang(),
            500,
            b'{"object":"error","message":"Out of memory even after retracting"}',
            FAILURE,
        ),
        (Lmdeploy(), 503, b'{"error":"Engine is sleeping; call POST /wakeup first"}', LOADING),
        (Lmdeploy(), 503, b'{"object":"error","message":"engine is unavailable"}', FAILURE),
        (
            Lmdeploy(),
            404,
            b'{"object":"error","message":"The model `x` does not exist."}',
            CONFIGURATION,
        ),
        (Triton(), 503, b'{"error":"Exceeds maximum queue size"}', CONGESTION),
        (Triton(), 503, b'{"error":"Request timeout expired"}', CONGESTION),
        (Triton(), 503, b'{"error":"Server is stopping"}', FAILURE),
        (Triton(), 500, b'{"error":"in ensemble: CUDA out of memory"}', FAILURE),
        (
            TrtLlm(),
            400,
            b'{"object":"error","message":"prompt length exceeds max_num_tokens"}',
            CLIENT_ERROR,
        ),
        (Tgi(), 429, b'{"error":"Model is overloaded","error_type":"overloaded"}', CONGESTION),
        (Tgi(), 424, b'{"error":"Server error: CUDA","error_type":"generation"}', FAILURE),
        (Tgi(), 422, b'{"error":"inputs too long","error_type":"validation"}', CLIENT_ERROR),
        (LlamaCpp(), 500, b'{"error":{"message":"Context size has been exceeded."}}', CLIENT_ERROR),
        (LlamaCpp(), 503, b'{"error":{"message":"error loading model: out of memory"}}', FAILURE),
        (Vllm(), 503, b'{"object":"error","message":"no","type":"ServiceUnavailable"}', CONGESTION),
        (Vllm(), 503, b'{"error":"The model is currently scaling."}', LOADING),
        (Unknown(), 401, b"", CONFIGURATION),
        (Unknown(), 403, b"", CONFIGURATION),
        (Unknown(), 404, b"404 page not found", CONFIGURATION),
        (Unknown(), 408, b"", FAILURE),
        (Unknown(), 413, b"", CLIENT_ERROR),
        (Unknown(), 429, b"", CONGESTION),
        (Unknown(), 500, b"", FAILURE),
        (Unknown(), 502, b"<html>502 Bad Gateway nginx</html>", FAILURE),
        (Unknown(), 504, b"", TIMEOUT),
        (Unknown(), 524, b"<html>A timeout occurred</html>", TIMEOUT),
        (Unknown(), 307, b"", CONFIGURATION),
        (Unknown(), 418, b"", CLIENT_ERROR),
        (Unknown(), 599, b"", FAILURE),
        (Unknown(), 0, b"", FAILURE),
    ],
)
def test_an_answer_is_taken_for_what_that_engine_means_by_it(
    engine: Vllm | Tei, status: int, body: bytes, outcome: Outcome
) -> None:
    assert engine.classify(status, {}, body) is outcome


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"Invalid model: Engine for model name x not found."}}',  # Infinity
        b'{"error":"Request for unknown model: \'x\' is not found"}',  # Triton
        b'{"error":{"code":400,"message":"model not found","type":"invalid_request_error"}}',
        b'{"error":{"code":400,"message":"model \'x\' not found"}}',  # llama.cpp's router
        b'{"object":"error","message":"The model `x` does not exist."}',
    ],
)
def test_a_model_that_is_not_served_is_configuration_where_it_says_400_too(body: bytes) -> None:
    assert classify(400, {}, body) is CONFIGURATION


@pytest.mark.parametrize(
    "body",
    [
        VLLM_CONTEXT,
        b'{"error":{"message":"this model does not support tools"}}',
        b'{"error":{"message":"The file x does not exist"}}',
        b'{"error":{"message":"modelling failed: tool not found"}}',
        b"",
    ],
)
def test_any_other_400_is_the_clients(body: bytes) -> None:
    assert classify(400, {}, body) is CLIENT_ERROR


def test_a_plain_503_is_a_failure_unless_something_says_it_is_load() -> None:
    proxy = b"<html><h1>503 Service Temporarily Unavailable</h1>nginx</html>"

    assert classify(503, {}, proxy) is FAILURE
    assert classify(503, {}, b"no healthy upstream") is FAILURE
    assert classify(503, {"Retry-After": "2"}, proxy) is CONGESTION
    assert classify(503, {}, b"Server is too busy") is CONGESTION


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "text/html; charset=utf-8"}, b""),
        ({"content-type": "application/json"}, b"<!DOCTYPE html><title>Sign in</title>"),
        ({}, b"\n <HTML>"),
    ],
)
def test_a_web_page_in_place_of_an_answer_is_a_failure(
    headers: dict[str, str], body: bytes
) -> None:
    assert classify(200, headers, body) is FAILURE


def test_a_success_is_a_success() -> None:
    assert classify(200, {"content-type": "application/json"}, b'{"error":null}') is Outcome.OK
    assert classify(200, {"content-type": "text/event-stream"}, b"") is Outcome.OK
    assert classify(204, {}, b"") is Outcome.OK


def test_an_error_inside_a_success_is_an_error() -> None:
    assert classify(200, {}, b'{"error":{"message":"CUDA error","code":500}}') is FAILURE


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectFailed("refused"), FAILURE),
        (UpstreamTimeout("no first byte"), TIMEOUT),
        (UpstreamError("closed", response_started=True), FAILURE),
        (TimeoutError(), TIMEOUT),
        (ConnectionResetError(), FAILURE),
        (ssl.SSLError(), FAILURE),
        (asyncio.CancelledError(), Outcome.CANCELLED),
    ],
)
def test_an_exception_has_an_outcome_too(error: BaseException, outcome: Outcome) -> None:
    assert classify_error(error) is outcome


def test_a_tls_error_comes_with_a_hint_at_the_configuration() -> None:
    wrapped = ConnectFailed("gpu-a.lan:443: TLS handshake failed")
    wrapped.__cause__ = ssl.SSLError("wrong version number")
    untrusted = ConnectFailed("gpu-a.lan:443: TLS handshake failed")
    untrusted.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")

    assert "base_url" in (hint(wrapped) or "")
    assert "CA" in (hint(untrusted) or "")
    assert hint(ConnectFailed("refused")) is None


def test_a_ring_of_causes_ends() -> None:
    one, other = ValueError(), ValueError()
    one.__cause__, other.__cause__ = other, one

    assert hint(one) is None


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (b'data: {"error":{"message":"engine overloaded","code":503}}\n\n', CONGESTION),
        (b'data: {"error":{"message":"boom","code":500}}\r\n\r\n', FAILURE),
        (b'data: {"error":{"message":"too long","code":"400"}}\n\n', CLIENT_ERROR),
        (b'data: {"error":{"message":"slow down","status":429}}\n\n', CONGESTION),
        (
            b'data:{"error":{"message":"x","type":"invalid_request_error","code":null}}\n\n',
            CLIENT_ERROR,
        ),
        (b'data: {"error":{"message":"x","type":"authentication_error"}}\n\n', CONFIGURATION),
        (b'data: {"error":{"message":"request timed out"}}\n\n', TIMEOUT),
        (b'data: {"error":{"message":"something else","code":1301}}\n\n', FAILURE),
        (
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
            CONGESTION,
        ),
        (b'data: {"type":"error","code":"server_error","message":"x"}\n\n', FAILURE),
        (b'error: {"code":503,"message":"Loading model"}\n\n', LOADING),
        (b'{"error":"model runner has unexpectedly stopped"}\n', FAILURE),
        (b'data: {"error":"no","code":503,"message":"queue is full"}\n\n', CONGESTION),
        (b'data: {"error":"Server error: CUDA","error_type":"generation"}\n\n', FAILURE),
        (b'data: {"object":"error","message":"too long","code":400}\n\n', CLIENT_ERROR),
        (b'data: {"type":"response.failed","response":{"error":{"code":"x"}}}\n\n', FAILURE),
        (b'data: {"object":"error","message":"engine died","code":500}\n\n', FAILURE),
        (b'data: {"error":%b}\n\n' % SGLANG_EVICTED, CONGESTION),
        (b': ping\n\ndata: {"error":"server overloaded"}\n\n', CONGESTION),
        (b'{\n  "error": {\n    "message": "bad", "code": 400\n  }\n}', CLIENT_ERROR),
    ],
)
def test_an_error_in_the_first_event_has_its_own_class(event: bytes, outcome: Outcome) -> None:
    assert stream_error(event) is outcome


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[{"delta":{"content":"an \\"error\\": {} in text"}}]}\n\n',
        b'data: {"id":"x","error":null,"choices":[]}\n\n',
        b'data: {"id":"x","error":{},"choices":[]}\n\n',
        b'data: {"type":"response.created","response":{"id":"x","error":null}}\n\n',
        b'data: {"type":["error"],"object":{"error":1},"response":"error"}\n\n',
        b"data: [DONE]\n\n",
        b": error\n\n",
        b"data:\n\n",
        b"",
        b"error",
    ],
)
def test_what_is_no_error_is_none(event: bytes) -> None:
    assert stream_error(event) is None


HEADERS = st.dictionaries(
    st.sampled_from(["content-type", "Retry-After", "x"]), st.text(max_size=20), max_size=3
)


@given(st.integers(), HEADERS, st.binary(max_size=200))
def test_no_answer_is_without_an_outcome(status: int, headers: dict[str, str], body: bytes) -> None:
    for engine in (Unknown(), Vllm(), Tei()):
        assert engine.classify(status, headers, body) in Outcome


@given(st.binary(max_size=200), st.sampled_from([b"data: ", b"error: ", b"", b'data: {"error":']))
def test_no_first_event_raises(noise: bytes, start: bytes) -> None:
    assert stream_error(start + noise + b"error") in {None, *Outcome}
