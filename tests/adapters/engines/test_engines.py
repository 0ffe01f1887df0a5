"""Promises that every engine keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.infinity import Infinity
from forebay.adapters.engines.llamacpp import LlamaCpp
from forebay.adapters.engines.lmdeploy import Lmdeploy
from forebay.adapters.engines.ollama import Ollama
from forebay.adapters.engines.reply import Reply
from forebay.adapters.engines.sglang import Sglang
from forebay.adapters.engines.tei import Tei
from forebay.adapters.engines.tgi import Tgi
from forebay.adapters.engines.triton import Triton
from forebay.adapters.engines.trtllm import TrtLlm
from forebay.adapters.engines.unknown import Unknown
from forebay.adapters.engines.vllm import Vllm
from forebay.core.model import EngineState, Signal
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from forebay.adapters.engines.base import Engine

ENGINES: tuple[Engine, ...] = (
    Infinity(),
    LlamaCpp(),
    Lmdeploy(),
    Ollama(),
    Sglang(),
    Tei(),
    Tgi(),
    Triton(),
    TrtLlm(),
    Unknown(),
    Vllm(),
)
PATHS = ("/metrics", "/models", "/v1/models", "/props", "/info", "/api/ps")

each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


def load(signal: Signal) -> tuple[object, ...]:
    return (signal.running, signal.waiting, signal.kv_usage, signal.saturated)


@each_engine
def test_a_server_that_offers_none_of_the_pages_is_unknown_not_idle(engine: Engine) -> None:
    signal = engine.read({path: Reply(404, {}, b"not found") for path in PATHS}, "m", 5.0)

    assert load(signal) == (None,) * 4
    assert (signal.engine, signal.at, signal.state) == (engine.name, 5.0, EngineState.AWAKE)


@each_engine
def test_pages_that_say_nothing_are_unknown_not_idle(engine: Engine) -> None:
    body = b"[]" if engine.name == "trtllm" else b"# nothing yet\n"
    if engine.name == "ollama":
        body = b'{"models":[]}'
    signal = engine.read({path: Reply(200, {}, body) for path in PATHS}, "m", 5.0)

    assert load(signal) == (None,) * 4


# The keys that engines look for.
KEYS = (
    *("data", "id", "stats", "queue_absolute", "batch_size", "owned_by", "models", "name", "size"),
    *("size_vram", "total_slots", "max_client_batch_size", "router", "error", "iter"),
    *("numActiveRequests", "numQueuedRequests", "kvCacheStats", "maxNumBlocks", "usedNumBlocks"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [b"vllm:num_requests_waiting 1", b"te_queue_size -1\nte_batch_next_size_sum 0"]
    ),
)
REPLIES = st.dictionaries(
    st.sampled_from(PATHS),
    st.builds(Reply, st.sampled_from([200, 400, 404, 501, 503]), st.just({}), BODIES),
)


@given(REPLIES)
def test_no_replies_raise_anything_but_a_failed_scrape(replies: dict[str, Reply]) -> None:
    for engine in ENGINES:
        assert isinstance(engine.fits(replies), bool)
        limits = engine.batch_limits(replies)
        assert limits.max_inputs is None or limits.max_inputs >= 1
        try:
            signal = engine.read(replies, "m", 1.0)
        except ScrapeFailed:
            continue
        assert signal.engine == engine.name
