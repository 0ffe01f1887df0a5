from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.adapters.engines.detect import detect
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
from forebay.adapters.engines.vllm import Vllm
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from forebay.adapters.engines.base import Engine

pytestmark = pytest.mark.anyio

ENGINES: tuple[Engine, ...] = (
    *(Infinity(), LlamaCpp(), Lmdeploy(), Ollama(), Sglang(), Tei(), Tgi()),
    *(Triton(), TrtLlm(), Vllm()),
)


def answers(pages: dict[str, str], status: int = 404) -> Callable[[str], Awaitable[Reply]]:
    async def get(path: str) -> Reply:
        if path in pages:
            return Reply(200, {}, pages[path].encode())
        return Reply(status, {}, b"")

    return get


def models(owner: str) -> str:
    return f'{{"object":"list","data":[{{"id":"m","object":"model","owned_by":"{owner}"}}]}}'


GENERIC = '# TYPE http_requests_total counter\nhttp_requests_total{handler="/embeddings"} 812.0\n'


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        ("vllm", {"/metrics": 'vllm:num_requests_running{engine="0"} 1\n'}),
        ("vllm", {"/metrics": "# TYPE vllm:num_requests_running gauge\n"}),
        ("vllm", {"/metrics": "ray_vllm_num_requests_running 3\n"}),
        ("vllm", {"/v1/models": models("vllm")}),
        ("sglang", {"/metrics": "sglang:num_running_reqs 1\n"}),
        ("sglang", {"/v1/models": models("sglang")}),
        ("lmdeploy", {"/metrics": "lmdeploy:num_requests_running 1\n"}),
        ("llamacpp", {"/metrics": "llamacpp:requests_processing 0\n"}),
        ("llamacpp", {"/metrics": '"llamacpp:requests_processing 0\\n"'}),
        ("llamacpp", {"/v1/models": models("llamacpp")}),
        ("llamacpp", {"/props": '{"total_slots":4,"default_generation_settings":{}}'}),
        ("tei", {"/metrics": "# TYPE te_queue_size gauge\nte_queue_size 0\n"}),
        ("tei", {"/info": '{"max_client_batch_size":32,"max_concurrent_requests":512}'}),
        ("tgi", {"/metrics": "tgi_queue_size 0\n"}),
        ("tgi", {"/info": '{"router":"text-generation-router","max_client_batch_size":4}'}),
        ("triton", {"/metrics": 'nv_inference_pending_request_count{model="m"} 0\n'}),
        ("trtllm", {"/metrics": '[{"iter":1,"numActiveRequests":0}]'}),
        ("infinity", {"/metrics": GENERIC, "/models": models("infinity")}),
        ("infinity", {"/metrics": GENERIC, "/v1/models": models("infinity")}),
        ("infinity", {"/models": '{"data":[{"id":"m","stats":{"queue_absolute":0}}]}'}),
        ("ollama", {"/api/ps": '{"models":[]}', "/v1/models": models("library")}),
        ("unknown", {"/metrics": GENERIC, "/v1/models": models("somebody")}),
        ("unknown", {}),
        ("unknown", {"/metrics": "<html>vllm: the docs</html>"}),
    ],
)
async def test_an_engine_is_known_by_its_pages(name: str, pages: dict[str, str]) -> None:
    assert (await detect(answers(pages), ENGINES)).name == name


async def test_a_llamacpp_that_still_loads_is_known_by_how_it_says_so() -> None:
    async def get(path: str) -> Reply:
        del path
        return Reply(503, {}, b'{"error":{"code":503,"message":"Loading model"}}')

    assert (await detect(get, ENGINES)).name == "llamacpp"


async def test_a_server_in_trouble_is_not_taken_for_an_unknown_one() -> None:
    with pytest.raises(ScrapeFailed, match="502"):
        await detect(answers({}, status=502), ENGINES)


async def test_a_proxy_that_hides_the_metrics_does_not_put_the_server_in_trouble() -> None:
    get = answers({"/v1/models": models("somebody")}, status=502)

    assert (await detect(get, ENGINES)).name == "unknown"


async def test_a_page_that_cannot_be_unpacked_fits_nothing() -> None:
    async def get(path: str) -> Reply:
        del path
        return Reply(200, {}, b"\x1f\x8bnonsense")

    assert (await detect(get, ENGINES)).name == "unknown"


async def test_a_server_that_cannot_be_reached_is_not_taken_for_an_unknown_one() -> None:
    async def get(path: str) -> Reply:
        raise ScrapeFailed(f"{path}: refused")

    with pytest.raises(ScrapeFailed):
        await detect(get, ENGINES)


async def test_one_read_is_enough_for_an_engine_with_metrics() -> None:
    asked: list[str] = []

    async def get(path: str) -> Reply:
        asked.append(path)
        return Reply(200, {}, b"vllm:num_requests_running 1\n")

    await detect(get, ENGINES)

    assert asked == ["/metrics"]
