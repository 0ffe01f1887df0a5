"""What a request takes: slots by its size, and pieces where chat needs to get in between."""

from __future__ import annotations

import json

import pytest

from forebay.config import InvalidConfig, Plan, plan_from


def plan(*, chat: object = (), embed: object = (), rerank: object = (), **keys: object) -> Plan:
    lists = {"chat_models": chat, "embedding_models": embed, "rerank_models": rerank}
    return plan_from(json.dumps({**lists, **keys}), file="c.json", environ={})


def entry(name: str, group: str = "gpu", **keys: object) -> dict[str, object]:
    return {"id": name, "base_url": f"http://{name}", "gpu_group": group, **keys}


def pieces(resolved: Plan) -> dict[str, int | None]:
    return {planned.endpoint.model: planned.piece_tokens for planned in resolved.endpoints}


def test_size_does_not_count_unless_it_is_said() -> None:
    (said, not_said) = plan(embed=[entry("a", tokens_per_slot="512"), entry("b")]).endpoints
    assert said.endpoint.tokens_per_slot == 512
    assert not_said.endpoint.tokens_per_slot is None


def test_each_of_several_servers_may_count_in_its_own_way() -> None:
    servers = [{"base_url": "http://x"}, {"base_url": "http://y", "tokens_per_slot": 4096}]
    model = {"id": "a", "endpoints": servers, "tokens_per_slot": 512}
    assert [p.endpoint.tokens_per_slot for p in plan(embed=[model]).endpoints] == [512, 4096]


def test_embeddings_go_in_pieces_beside_an_interactive_model() -> None:
    assert pieces(plan(chat=[entry("c")], embed=[entry("e")])) == {"c": None, "e": 2048}


def test_embeddings_stay_whole_where_their_gpu_has_nobody_to_let_in_between() -> None:
    alone = plan(chat=[entry("c", "one")], embed=[entry("e", "two"), entry("f", "two")])
    assert pieces(alone) == {"c": None, "e": None, "f": None}
    bulk = plan(chat=[entry("c", role="batch")], embed=[entry("e")])
    assert pieces(bulk) == {"c": None, "e": None}


def test_an_interactive_embedder_lets_its_own_queries_in_between() -> None:
    assert pieces(plan(embed=[entry("e", role="default")])) == {"e": 2048}


@pytest.mark.parametrize(("said", "meant"), [(0, None), (512, 512), ("${P:-9}", 9)])
def test_what_is_said_counts(said: object, meant: int | None) -> None:
    assert pieces(plan(chat=[entry("c")], embed=[entry("e", piece_tokens=said)]))["e"] == meant
    assert pieces(plan(embed=[entry("e", piece_tokens=said)]))["e"] == meant


def test_pieces_of_anything_but_embeddings_are_warned_of() -> None:
    resolved = plan(chat=[entry("c", piece_tokens=9)], rerank=[entry("r", piece_tokens=9)])
    assert pieces(resolved) == {"c": None, "r": None}
    warned = [(w.code, w.key) for w in resolved.warnings]
    assert ("unused_piece_tokens", "chat_models[0].piece_tokens") in warned
    assert ("unused_piece_tokens", "rerank_models[0].piece_tokens") in warned


@pytest.mark.parametrize("key", ["tokens_per_slot", "piece_tokens"])
def test_one_endpoint_with_two_sizes_is_refused(key: str) -> None:
    with pytest.raises(InvalidConfig, match=f"with another {key}"):
        plan(embed=[entry("e", **{key: 5}), entry("e", **{key: 6})])
