"""The engines are real: they chat, they embed with meaning, and they report on themselves."""

from __future__ import annotations

import json
import math
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.demo.engines import Engine


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        text: str = response.read().decode()
        return text


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def test_chat_answers_in_words_of_exactly_the_length_that_was_asked_for(
    llamacpp_chat: Engine,
) -> None:
    message = {"role": "user", "content": "what does the river do"}
    answer = post(
        f"{llamacpp_chat.base_url}/chat/completions",
        {"model": llamacpp_chat.model, "messages": [message], "max_tokens": 24},
    )
    assert answer["usage"]["completion_tokens"] == 24
    words = answer["choices"][0]["message"]["content"].split()
    assert len(words) == 24
    assert all(word.isalpha() for word in words)


def test_embeddings_of_related_sentences_are_closer_than_of_unrelated_ones(
    llamacpp_embed: Engine,
) -> None:
    texts = [
        "The cat sits on the mat.",
        "A kitten rests on a rug.",
        "Interest rates rose in March.",
    ]
    answer = post(
        f"{llamacpp_embed.base_url}/embeddings", {"model": llamacpp_embed.model, "input": texts}
    )
    cat, kitten, rates = (item["embedding"] for item in answer["data"])
    assert len(cat) == 384
    assert cosine(cat, kitten) > 0.5
    assert cosine(cat, rates) < 0.2


def test_both_engines_serve_metrics_slots_and_props(
    llamacpp_chat: Engine, llamacpp_embed: Engine
) -> None:
    for engine in (llamacpp_chat, llamacpp_embed):
        assert "llamacpp:requests_processing" in get(f"{engine.root}/metrics")
        assert len(json.loads(get(f"{engine.root}/slots"))) == 8
        assert json.loads(get(f"{engine.root}/props"))["total_slots"] == 8
