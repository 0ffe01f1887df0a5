from __future__ import annotations

import json
from pathlib import Path

import pytest

from forebay.config import InvalidConfig, Plan, PlannedEndpoint, load, plan_from
from forebay.core.limits.fixed import Fixed
from forebay.core.limits.gradient_aimd import GradientAimd
from forebay.core.model import ServiceClass

EXAMPLES = Path(__file__).parent / "examples"


def model(
    name: str = "chat", url: str = "http://gpu-a.lan:8000", **keys: object
) -> dict[str, object]:
    return {"id": name, "base_url": url, **keys}


def plan(**keys: object) -> Plan:
    return plan_from(json.dumps(keys), file="c.json", environ={})


def endpoint(**keys: object) -> PlannedEndpoint:
    (planned,) = plan(chat_models=[model(**keys)]).endpoints
    return planned


def refusal(**keys: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        plan(**keys)
    return str(caught.value)


def codes(resolved: Plan) -> list[str]:
    return [warning.code for warning in resolved.warnings]


# The examples


def test_one_shared_gpu() -> None:
    resolved = load(EXAMPLES / "one_gpu.json", environ={})
    (group,) = resolved.groups.values()
    assert (group.name, group.budget, group.reserved, group.floors) == ("gb10", 6, 1, 2)
    assert group.source == "file"
    chat, embed = resolved.endpoints
    assert chat.endpoint.id == "qwen3.6-27b@vllm.arpa:80"
    assert chat.endpoint.service_class is ServiceClass.INTERACTIVE
    assert embed.endpoint.service_class is ServiceClass.BEST_EFFORT
    assert codes(resolved) == []


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("two_gpus.json", {"llm-host": 32, "embed-host": 16}),
        ("embedder_with_fallback.json", {"gb10": 20, "gr1080": 16}),
    ],
)
def test_both_ways_to_write_a_fallback_load(name: str, groups: dict[str, int]) -> None:
    resolved = load(EXAMPLES / name, environ={})
    assert {group.name: group.budget for group in resolved.groups.values()} == groups
    assert codes(resolved) == []


# Floors, ceilings, classes


def test_the_floor_is_instances_times_calls() -> None:
    assert endpoint(parallel_instances=2, max_parallel_calls=3).endpoint.floor == 6


@pytest.mark.parametrize(
    ("keys", "floor", "ceiling"),
    [
        ({}, 1, 32),
        ({"parallel_instances": 40}, 40, 40),
        ({"max_concurrent_requests": 8}, 1, 8),
        ({"max_concurrent_requests": 1, "parallel_instances": 3}, 1, 1),
        ({"max_concurrent_requests": 2000}, 1, 512),
        ({"parallel_instances": 600}, 512, 512),
    ],
)
def test_the_ceiling_wins_over_the_floor(keys: dict[str, object], floor: int, ceiling: int) -> None:
    core = endpoint(**keys).endpoint
    assert (core.floor, core.ceiling) == (floor, ceiling)


def test_a_floor_above_its_ceiling_is_lowered_with_a_warning() -> None:
    resolved = plan(
        chat_models=[model(parallel_instances=2, gpu_group="gb10")],
        embedding_models=[
            model(
                "e", "http://b", gpu_group="gb10", max_concurrent_requests=1, parallel_instances=3
            )
        ],
        GPU_CONCURRENCY_BUDGETS={"gb10": 6},
    )
    assert resolved.groups["gb10"].floors == 3
    (warning,) = resolved.warnings
    assert warning.code == "floor_lowered"
    assert str(warning).startswith("c.json:1:")
    assert "the floor of 'e' is 3 (parallel_instances * max_parallel_calls = 3 * 1)" in str(warning)
    assert "the floor is lowered to 1" in str(warning)


def test_an_explicit_ceiling_above_the_overall_one_is_lowered_with_a_warning() -> None:
    resolved = plan(chat_models=[model(max_concurrent_requests=64)], MODEL_MAX_CONCURRENCY=16)
    assert resolved.endpoints[0].endpoint.ceiling == 16
    assert codes(resolved) == ["ceiling_lowered"]


@pytest.mark.parametrize(
    ("kind", "role", "interactive"),
    [
        ("chat_models", None, True),
        ("chat_models", " Lite ", True),
        ("chat_models", "batch", False),
        ("embedding_models", None, False),
        ("embedding_models", "default", True),
        ("rerank_models", None, False),
    ],
)
def test_the_role_decides_the_class(kind: str, role: str | None, interactive: bool) -> None:
    core = plan(**{kind: [model(role=role)]}).endpoints[0].endpoint
    assert (core.service_class is ServiceClass.INTERACTIVE) == interactive


def test_without_a_role_the_list_decides() -> None:
    resolved = plan(
        chat_models=[model("c")], embedding_models=[model("e")], rerank_models=[model("r")]
    )
    assert [p.endpoint.role for p in resolved.endpoints] == ["chat", "embedding", "rerank"]


@pytest.mark.parametrize("roles", ["embedding, Chat", ["Embedding", "chat"]])
def test_reserved_roles_may_be_a_list_or_a_text(roles: object) -> None:
    resolved = plan(embedding_models=[model("e")], GPU_RESERVED_ROLES=roles)
    assert resolved.endpoints[0].endpoint.service_class is ServiceClass.INTERACTIVE


def test_a_misspelt_role_is_warned_about() -> None:
    (warning,) = plan(chat_models=[model(role="chatt")]).warnings
    assert warning.code == "unknown_role"
    assert "did you mean 'chat'?" in warning.message


def test_a_misspelt_reserved_role_is_warned_about() -> None:
    (warning,) = plan(chat_models=[model()], GPU_RESERVED_ROLES=["chatt"]).warnings
    assert warning.code == "unused_reserved_role"


def test_roles_of_ones_own_are_best_effort_without_a_warning() -> None:
    resolved = plan(chat_models=[model(role="ingest")])
    assert resolved.endpoints[0].endpoint.service_class is ServiceClass.BEST_EFFORT
    assert codes(resolved) == []


# Several endpoints


def test_a_list_of_endpoints_takes_over_what_its_model_says() -> None:
    resolved = plan(
        chat_models=[
            {
                "id": "chat",
                "api_key": "k",
                "max_concurrent_requests": 8,
                "endpoints": [
                    {"base_url": "a.lan:8000", "gpu_group": "A"},
                    {"base_url": "b.lan:8000", "max_concurrent_requests": 4, "api_key": None},
                ],
            }
        ]
    )
    first, second = resolved.endpoints
    assert (first.endpoint.ceiling, second.endpoint.ceiling) == (8, 4)
    assert (first.endpoint.gpu_group, second.endpoint.gpu_group) == ("a", "b.lan:8000")
    assert first.api_key is not None
    assert second.api_key is None
    assert resolved.models["chat"].endpoints == ("chat@a.lan:8000", "chat@b.lan:8000")


def test_the_same_id_twice_is_one_model_with_two_endpoints() -> None:
    resolved = plan(chat_models=[model(url="a.lan:8000"), model(url="b.lan:8000")])
    assert resolved.models["chat"].endpoints == ("chat@a.lan:8000", "chat@b.lan:8000")


def test_spellings_of_one_endpoint_are_one_endpoint() -> None:
    resolved = plan(
        chat_models=[
            model(url="http://gpu-a.lan:8000"),
            model(url="GPU-A.lan:8000/v1/"),
            model(url="http://gpu-a.lan:8000/v1/chat/completions"),
        ],
        GPU_CONCURRENCY_BUDGETS={"gpu-a.lan:8000": 1},
    )
    assert len(resolved.endpoints) == 1
    assert resolved.groups["gpu-a.lan:8000"].floors == 1
    assert codes(resolved) == ["page_as_base_url", "duplicate_endpoint", "duplicate_endpoint"]
    assert "listed already (chat_models[0])" in resolved.warnings[1].message


def test_one_endpoint_with_two_settings_is_refused() -> None:
    message = refusal(
        chat_models=[model(max_concurrent_requests=8), model(max_concurrent_requests=16)]
    )
    assert (
        "chat_models[1]: chat@gpu-a.lan:8000 is listed already (chat_models[0]), with another"
        in (message)
    )
    assert "ceiling; keep one of the two" in message


def test_one_endpoint_in_two_groups_is_refused() -> None:
    message = refusal(
        chat_models=[model(gpu_group="gb10"), model(url="gpu-a.lan:8000/v1", gpu_group="gb11")]
    )
    assert "is in two GPU groups: 'gb10' by chat_models[0], 'gb11' here" in message


@pytest.mark.parametrize("again", ["embedding_models", "rerank_models"])
def test_one_id_for_two_kinds_of_model_is_refused(again: str) -> None:
    message = refusal(**{"chat_models": [model()], again: [model(url="http://b")]})
    assert "model 'chat' is in chat_models too" in message


def test_one_model_with_two_roles_is_refused() -> None:
    message = refusal(chat_models=[model(), model(url="http://b", role="batch")])
    assert "has role 'chat' in chat_models[0] and 'batch' here" in message


# Groups and budgets


def test_models_on_one_host_group_by_themselves() -> None:
    resolved = plan(
        chat_models=[model("a", "GPU-A.lan:8000")],
        embedding_models=[model("b", "gpu-a.lan:8000/v1")],
    )
    assert list(resolved.groups) == ["gpu-a.lan:8000"]


def test_a_tag_joins_hosts_and_knows_no_case() -> None:
    resolved = plan(
        chat_models=[model("a", "http://a", gpu_group="GB10")],
        embedding_models=[model("b", "http://b", gpu_group=" gb10 ")],
        GPU_CONCURRENCY_BUDGETS={"Gb10": 6},
    )
    assert resolved.groups["gb10"].budget == 6
    assert len(resolved.groups["gb10"].endpoints) == 2


def test_floors_above_the_budget_are_refused_with_the_numbers() -> None:
    message = refusal(
        chat_models=[model(gpu_group="gb10", parallel_instances=4)],
        embedding_models=[model("e", "http://b", gpu_group="gb10", max_parallel_calls=4)],
        GPU_CONCURRENCY_BUDGETS={"GB10": 6},
    )
    assert message.startswith("c.json:1:")
    assert "GPU_CONCURRENCY_BUDGETS.GB10: the floors in group 'gb10' add up to 8" in message
    assert "(chat@gpu-a.lan:8000 4, e@b:80 4)" in message
    assert "its budget is 6" in message


def test_floors_may_fill_the_budget() -> None:
    plan(chat_models=[model(parallel_instances=6)], GPU_CONCURRENCY_BUDGETS={"gpu-a.lan:8000": 6})


def test_a_fallbacks_floor_counts_in_its_group() -> None:
    message = refusal(
        chat_models=[model(gpu_group="gb10", parallel_instances=6)],
        embedding_models=[
            model("e", "http://b", fallback={**model("e", "http://c"), "gpu_group": "gb10"})
        ],
        GPU_CONCURRENCY_BUDGETS={"gb10": 6},
    )
    assert "add up to 7" in message


def test_unused_budgets_and_missing_ones_are_warned_about_with_the_nearest_name() -> None:
    resolved = plan(
        chat_models=[model(gpu_group="gb11")],
        GPU_CONCURRENCY_BUDGETS={"gb10x": 6},
    )
    unused, missing = resolved.warnings
    assert (unused.code, missing.code) == ("unused_budget", "no_budget")
    assert "no model is in group 'gb10x'" in unused.message
    assert "did you mean 'gb11'?" in unused.message
    assert "group 'gb11' (chat@gpu-a.lan:8000) has no budget" in missing.message
    assert "did you mean 'gb10x'?" in missing.message
    assert resolved.groups["gb11"].budget is None


def test_without_any_budget_nothing_is_warned_about() -> None:
    resolved = plan(chat_models=[model()])
    assert codes(resolved) == []
    assert resolved.groups["gpu-a.lan:8000"].source == "none"


def test_a_forgotten_tag_on_a_shared_server_is_warned_about() -> None:
    resolved = plan(
        chat_models=[model("a", gpu_group="gb10")],
        embedding_models=[model("b")],
        GPU_CONCURRENCY_BUDGETS={"gb10": 6},
    )
    assert codes(resolved) == ["no_budget", "server_in_two_groups"]


# Fallbacks


def test_a_fallback_is_a_best_effort_embedder_in_its_own_group() -> None:
    resolved = load(EXAMPLES / "embedder_with_fallback.json", environ={})
    fallback = resolved.endpoints[-1]
    assert fallback.model_key == "embedding:fallback"
    assert fallback.endpoint.fallback_of == "bge-m3"
    assert fallback.endpoint.role == "embedding"
    assert fallback.endpoint.service_class is ServiceClass.BEST_EFFORT
    assert fallback.endpoint.ceiling == 8
    assert fallback.endpoint.id in resolved.groups["gb10"].endpoints
    assert resolved.models["bge-m3"].endpoints == ("bge-m3@gr1080-embed.arpa:80",)
    assert resolved.models["bge-m3"].fallbacks == (fallback.endpoint.id,)


def test_a_fallback_does_not_get_the_primarys_key() -> None:
    resolved = plan(
        embedding_models=[model("e", api_key="k", fallback=model("e", "http://elsewhere"))]
    )
    assert resolved.endpoints[-1].api_key is None


def test_a_fallback_stays_best_effort_where_embedding_is_reserved() -> None:
    resolved = plan(
        embedding_models=[model("e", fallback=model("e", "http://b"))],
        GPU_RESERVED_ROLES=["embedding"],
    )
    assert resolved.endpoints[0].endpoint.service_class is ServiceClass.INTERACTIVE
    assert resolved.endpoints[1].endpoint.service_class is ServiceClass.BEST_EFFORT


@pytest.mark.parametrize("nested", [{}, model("e", "http://c"), {"nonsense": 1}])
def test_a_nested_fallback_is_ignored_with_a_warning(nested: object) -> None:
    fallback = {**model("e", "http://b"), "fallback": nested}
    resolved = plan(embedding_models=[model("e", fallback=fallback)])
    assert len(resolved.endpoints) == 2
    assert codes(resolved) == ["nested_fallback"]


def test_a_fallback_of_a_fallback_entry_is_ignored_with_a_warning() -> None:
    entries = [
        model("e"),
        model("e", "http://b", role="fallback", fallback=model("e", "http://c")),
    ]
    resolved = plan(embedding_models=entries)
    assert len(resolved.endpoints) == 2
    assert codes(resolved) == ["nested_fallback"]


def test_a_fallback_for_nothing_is_refused() -> None:
    message = refusal(embedding_models=[model("e", role="fallback")])
    assert "no other entry has the id 'e'" in message


def test_an_endpoint_may_serve_one_model_and_stand_in_for_others() -> None:
    resolved = plan(
        chat_models=[
            model("big", "http://a", fallback=model("small", "http://b")),
            model("middle", "http://c", fallback=model("small", "http://b/v1/")),
            model("small", "http://b", max_concurrent_requests=4),
        ]
    )
    assert [e.endpoint.id for e in resolved.endpoints] == ["big@a:80", "middle@c:80", "small@b:80"]
    small = resolved.endpoints[-1].endpoint
    assert (small.fallback_of, small.also_for) == (None, ("big", "middle"))
    assert (small.ceiling, small.service_class) == (4, ServiceClass.INTERACTIVE)
    assert resolved.models["big"].fallbacks == ("small@b:80",)
    assert resolved.models["small"].endpoints == ("small@b:80",)
    assert codes(resolved) == ["fallback_shares_endpoint"] * 2, "the ceilings differ"


def test_one_endpoint_may_be_there_only_to_stand_in_for_two_models() -> None:
    resolved = plan(
        chat_models=[
            model("big", "http://a", fallback=model("spare", "http://b")),
            model("middle", "http://c", fallback=model("spare", "http://b")),
        ]
    )
    spare = resolved.endpoints[-1].endpoint
    assert (spare.fallback_of, spare.also_for) == ("big", ("middle",))
    assert "spare" not in resolved.models
    assert codes(resolved) == []


def test_an_embedder_cannot_stand_in_for_chat() -> None:
    message = refusal(
        chat_models=[model("big", "http://a", fallback=model("e", "http://b"))],
        embedding_models=[model("e", "http://b")],
    )
    assert "cannot stand in for 'big'" in message


def test_a_fallback_on_the_primary_itself_is_ignored_with_a_warning() -> None:
    resolved = plan(embedding_models=[model("e", fallback=model("e"))])
    assert len(resolved.endpoints) == 1
    assert "fallback_is_regular" in codes(resolved)


# What else is in a plan


def test_metrics_are_at_the_root_unless_said_otherwise() -> None:
    assert endpoint(url="https://h/gpu-a/v1").metrics_url == "https://h/gpu-a/metrics"
    assert endpoint(metrics_url="http://h:9/m").metrics_url == "http://h:9/m"


def test_the_id_tells_endpoints_behind_one_proxy_apart() -> None:
    resolved = plan(chat_models=[model(url="https://h/gpu-a/v1"), model(url="https://h/gpu-b/v1")])
    assert [p.endpoint.id for p in resolved.endpoints] == ["chat@h:443/gpu-a", "chat@h:443/gpu-b"]


def test_the_configured_law_is_built_within_the_endpoints_bounds() -> None:
    resolved = plan(chat_models=[model(parallel_instances=3)], forebay={"limit": "fixed"})
    law = resolved.law.build(resolved.endpoints[0].endpoint, resolved.config)
    assert isinstance(law, Fixed)
    assert law.decision.limit == 32


def test_the_adaptive_law_starts_at_the_floor() -> None:
    resolved = plan(
        chat_models=[model(parallel_instances=3)],
        forebay={"limit": {"law": "gradient_aimd", "backoff": "0.7"}},
    )
    law = resolved.law.build(resolved.endpoints[0].endpoint, resolved.config)
    assert isinstance(law, GradientAimd)
    assert law.decision.limit == 3


def test_the_time_to_the_first_byte_is_that_of_the_server_or_of_its_model() -> None:
    servers = [{"base_url": "http://a"}, {"base_url": "http://b", "first_byte_s": "0.5"}]
    resolved = plan(
        chat_models=[
            {"id": "c", "endpoints": servers, "first_byte_s": 30},
            model("d", "http://d"),
        ]
    )
    assert [p.first_byte_s for p in resolved.endpoints] == [30, 0.5, None]
    with pytest.raises(InvalidConfig, match=r"first_byte_s: must be more than 0 \(got 0\)"):
        plan(chat_models=[model(first_byte_s=0)])
    with pytest.raises(InvalidConfig, match="with another first_byte_s"):
        plan(chat_models=[model(first_byte_s=1), model(first_byte_s=2)])


def test_bulk_work_beside_chat_without_a_budget_is_warned_of() -> None:
    chat, embed = "http://gpu-a.lan:8000", "http://gpu-a.lan:8001"
    assert codes(plan(chat_models=[model("c", chat)], embedding_models=[model("e", embed)])) == [
        "no_joint_budget"
    ]
    apart = plan(
        chat_models=[model("c", chat, gpu_group="one")],
        embedding_models=[model("e", embed, gpu_group="two")],
    )
    assert apart.warnings == ()
    budgeted = plan(
        chat_models=[model("c", chat, gpu_group="one")],
        embedding_models=[model("e", embed, gpu_group="one")],
        GPU_CONCURRENCY_BUDGETS={"one": 4},
    )
    assert budgeted.warnings == ()


def test_settings_of_the_adaptive_law_are_warned_of_where_limits_are_fixed() -> None:
    settings = {"MODEL_LATENCY_GRADIENT_TARGET": 0.8, "MODEL_AUTOSCALE_WINDOW": 32}
    resolved = plan(chat_models=[model()], **settings)
    assert [w.code for w in resolved.warnings] == ["unused_law_setting"] * 2
    adaptive = plan(chat_models=[model()], forebay={"limit": "gradient_aimd"}, **settings)
    assert adaptive.warnings == ()


def test_all_contradictions_are_told_at_once() -> None:
    message = refusal(
        chat_models=[model("a", "http://h/v1/x/v2"), model("b", parallel_instances=9)],
        embedding_models=[model("e", role="fallback")],
        GPU_CONCURRENCY_BUDGETS={"gpu-a.lan:8000": 6},
    )
    assert len(message.splitlines()) == 3
