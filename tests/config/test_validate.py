from __future__ import annotations

import json

import pytest

from forebay.adapters.engines import registry
from forebay.config import ForebayConfig, InvalidConfig, plan_from

LAB = """\
// my lab
{
  "chat_models": [
    { "id": "chat", "base_url": "http://gpu-a.lan:8000/v1", /* big */ "gpu_group": "gb10", },
  ],
  "embedding_models": [
    { "id": "bge-m3", "base_url": "http://gpu-b.lan:7997", "note": "a // b /* c */ , ] }", },
  ],
  "GPU_CONCURRENCY_BUDGETS": { "gb10": 6, },
}
"""


def config_of(text: str) -> ForebayConfig:
    return plan_from(text, file="lab.json", environ={}).config


def refusal(text: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        config_of(text)
    return str(caught.value)


def refusal_of(**keys: object) -> str:
    model = {"id": "chat", "base_url": "http://gpu-a.lan:8000"}
    return refusal(json.dumps({"chat_models": [model], **keys}))


def refusal_of_model(**keys: object) -> str:
    return refusal_of(chat_models=[{"id": "chat", "base_url": "http://gpu-a.lan:8000", **keys}])


def test_a_file_as_people_write_it_loads() -> None:
    config = config_of(LAB)
    assert config.budgets == {"gb10": 6}
    assert config.embedding_models[0].note == "a // b /* c */ , ] }"


def test_the_defaults_are_those_that_are_promised() -> None:
    config = config_of('{"chat_models": [{"id": "a", "base_url": "http://h"}]}')
    assert config.model_dump(by_alias=True, exclude={"chat_models"}) == {
        "$schema": None,
        "embedding_models": (),
        "rerank_models": (),
        "GPU_CONCURRENCY_BUDGETS": {},
        "GPU_RESERVED_ROLES": ("chat", "generator", "default", "lite", "super"),
        "MODEL_MAX_CONCURRENCY": 512,
        "MODEL_MAX_CONCURRENT_REQUESTS": 32,
        "MODEL_LATENCY_GRADIENT_TARGET": 0.9,
        "MODEL_AUTOSCALE_WINDOW": 16,
        "MODEL_CIRCUIT_BREAKER": True,
        "MODEL_BREAKER_FAIL_THRESHOLD": 3,
        "MODEL_BREAKER_BASE_COOLDOWN_S": 5.0,
        "MODEL_BREAKER_MAX_COOLDOWN_S": 300.0,
        "MODEL_BREAKER_BACKOFF_FACTOR": 2.0,
        "forebay": {
            "limit": {"law": "knee"},
            "max_overtakes": 8,
            "protection": None,
            "identity": {"min_cosine": 0.98, "allow_unverified": False},
            "queue": {"max_requests": 1024, "max_bytes": 268435456},
            "timeouts": {
                "connect_s": 5.0,
                "unreachable_s": 15.0,
                "request_s": 600.0,
                "first_byte_s": 600.0,
                "between_chunks_s": 120.0,
                "probe_s": 15.0,
                "retry_after_s": 120.0,
            },
            "breaker": {
                "ramp_double_s": 30.0,
                "reset_after_requests": 10,
                "reset_after_s": 60.0,
            },
            "discovery": {
                "nameservers": (),
                "interval_s": 30.0,
                "kubernetes_url": None,
                "kubernetes_token_file": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                "kubernetes_ca_file": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
            },
            "body_limit_bytes": 67108864,
            "sse_keepalive_s": 15.0,
            "api_keys": (),
            "scrape_interval_s": 5.0,
            "log_level": "info",
        },
    }


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        (
            '"GPU_CONCURRENCY_BUDGETS"',
            '"GPU_CONCURRENCY_BUDGET"',
            "9:3: GPU_CONCURRENCY_BUDGET: unknown key; did you mean 'GPU_CONCURRENCY_BUDGETS'?",
        ),
        ('"gpu_group"', '"group"', "lab.json:4:71: chat_models[0].group: unknown key; did you"),
        ('"gpu_group"', '"zz"', "unknown key; there are: base_url, gpu_group,"),
        (
            '"gpu_group"',
            '"GPU_CONCURRENCY_BUDGETS"',
            "unknown key here; it belongs in the file itself, outside of any other object",
        ),
        ('"gpu_group"', '"log_level"', "unknown key here; it belongs in forebay"),
        (
            '"gpu_group": "gb10"',
            '"gpu_group": "gpu-{hostname}"',
            "gpu_group: has the unknown placeholder {hostname}; did you mean {host}? (got",
        ),
        (
            '"gb10": 6,',
            '"gb10": 6, "gpu-{Host_}": 6,',
            "has the unknown placeholder {host_}; did you mean {host}?",
        ),
        (
            '"gb10": 6,',
            '"gb10": 6.5,',
            "lab.json:9:32: GPU_CONCURRENCY_BUDGETS.gb10: must be a whole number (got 6.5)",
        ),
        ('"gb10": 6,', '"gb10": -1,', "must be at least 1 (got -1)"),
        ('"gb10": 6,', '"gb10": 0,', "must be at least 1 (got 0)"),
        ('"gb10": 6,', '"gb10": true,', "must be a whole number (got true)"),
        ('"gb10": 6,', '"gb10": null,', "must be a whole number (got null)"),
        ('"gb10": 6,', '"gb10": 6, "GB10": 7', "names a group twice"),
        ('"gb10": 6,', '"gb10": 6, "gb10": 20', "already there on line 9"),
        ('"id": "chat", ', "", "lab.json:4:5: chat_models[0].id: is required"),
        ('"id": "chat"', '"id": " "', "chat_models[0].id: must not be empty"),
        ('"id": "chat"', '"id": "a\\nb"', "must not hold a line break"),
        ('"base_url": "http://gpu-a.lan:8000/v1",', "", "[0]: needs base_url, or endpoints"),
        ("http://gpu-a.lan:8000/v1", "ftp://gpu-a.lan/v1", 'http or https (got "ftp'),
        (
            "http://gpu-a.lan:8000/v1",
            "http://gpu-a.lan:80a0/v1",
            'base_url: port must be a number from 1 to 65535 (got "http://gpu-a.lan:80a0/v1")',
        ),
        ("http://gpu-a.lan:8000/v1", "http://::1:8000/v1", "brackets here: http://[fd00::5]:8000"),
        ("http://gpu-b.lan:7997", "http://gpu-b.lan:7997/rerank", '"api_prefix": ""'),
        ('"note": "a', '"fallback": {}, "note": "a', "fallback: fallback needs id and base_url"),
        ("{\n", "\\{\n", "lab.json:2:1: unexpected"),
        ("// my lab", "/* my lab", "lab.json:4:82: unexpected ':'"),
        ('  "GPU', '  /* "GPU', "lab.json:9:3: this comment is never closed with */"),
    ],
)
def test_a_slip_is_refused_with_its_place_and_the_way_out(
    written: str, instead: str, said: str
) -> None:
    assert said in refusal(LAB.replace(written, instead, 1))


def test_a_number_in_quotes_is_a_number() -> None:
    assert config_of(LAB.replace('"gb10": 6', '"gb10": "6"')).budgets == {"gb10": 6}


def test_a_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    assert config_of(LAB.replace('"gb10": 6', '"gb10": 6.0')).budgets == {"gb10": 6}


def test_an_api_prefix_has_one_form() -> None:
    text = LAB.replace('"gpu_group"', '"api_prefix": " api//v3/ ", "gpu_group"')
    text = text.replace(":8000/v1", ":8000")
    assert config_of(text).chat_models[0].api_prefix == "/api/v3"


def test_a_byte_order_mark_and_crlf_change_nothing() -> None:
    text = "\ufeff" + LAB.replace("\n", "\r\n")
    assert plan_from(text.encode(), file="f", environ={}).config == config_of(LAB)


def test_all_problems_are_told_at_once() -> None:
    text = LAB.replace("gb10", "${NOPE}").replace("7997", "x").replace('"id": "chat", ', "")
    assert len(refusal(text).splitlines()) == 4  # two uses of the variable, a port, an id


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"chat_models": {}}, "chat_models: must be a list […] (got an object)"),
        ({"chat_models": ["chat"]}, "chat_models[0]: must be an object {…}"),
        ({"GPU_CONCURRENCY_BUDGETS": 6}, "must be an object {…} (got 6)"),
        ({"GPU_RESERVED_ROLES": [1]}, "GPU_RESERVED_ROLES[0]: must be a text (got 1)"),
        ({"GPU_RESERVED_ROLES": ""}, "must not be empty; write [] in the file"),
        ({"MODEL_LATENCY_GRADIENT_TARGET": 1}, "must be less than 1"),
        ({"MODEL_LATENCY_GRADIENT_TARGET": 0}, "must be more than 0"),
        ({"MODEL_AUTOSCALE_WINDOW": 1}, "must be at least 2"),
        ({"MODEL_BREAKER_BACKOFF_FACTOR": 0.5}, "must be at least 1"),
        ({"MODEL_BREAKER_MAX_COOLDOWN_S": 1}, "must be at least MODEL_BREAKER_BASE_COOLDOWN_S"),
        ({"MODEL_CIRCUIT_BREAKER": "maybe"}, "must be true or false"),
        ({"forebay": []}, "forebay: must be an object"),
        ({"forebay": {"timeouts": {"connect": 1}}}, "did you mean 'connect_s'?"),
        ({"forebay": {"timeouts": {"connect_s": 0}}}, "must be more than 0"),
        ({"forebay": {"queue": {"max_requests": -1}}}, "must be at least 0"),
        ({"forebay": {"log_level": "loud"}}, "must be one of 'debug', 'info'"),
        ({"forebay": {"limit": "gradient"}}, "forebay.limit: names no limit law; there are: fixed"),
        ({"forebay": {"limit": {}}}, "forebay.limit: names no limit law"),
        ({"forebay": {"limit": 3}}, "forebay.limit: must be an object"),
        (
            {"forebay": {"limit": {"law": "gradient_aimd", "back_off": 0.5}}},
            "forebay.limit.back_off: unknown key; did you mean 'backoff'?",
        ),
        (
            {"max_parallel_calls": 3},
            "max_parallel_calls: unknown key here; it belongs in an entry of chat_models, embed",
        ),
        (
            {"timeouts": {}},
            "timeouts: unknown key here; it belongs in forebay",
        ),
        (
            {"forebay": {"first_byte_s": 3}},
            "an entry of chat_models, embedding_models or rerank_models, or forebay.timeouts",
        ),
        (
            {"forebay": {"MODEL_CIRCUIT_BREAKER": True}},
            "it belongs in the file itself, outside of any other object",
        ),
        (
            {"forebay": {"backoff": 0.5}},
            "forebay.backoff: unknown key here; it belongs in forebay.limit",
        ),
        (
            {"max_concurrent_requests": 4},
            "embedding_models or rerank_models; or did you mean 'MODEL_MAX_CONCURRENT_REQUESTS'?",
        ),
        ({"forebay": {"limit": {"law": "gradient_aimd", "backoff": 1}}}, "must be less than 1"),
        (
            {"forebay": {"api_keys": [{"name": "a", "key": "k1"}, {"name": "a", "key": "k2"}]}},
            "two entries have the same name or the same key",
        ),
        ({"forebay": {"api_keys": [{"name": "a", "key": ""}]}}, "key: must not be empty"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(keys: dict[str, object], said: str) -> None:
    assert said in refusal_of(**keys)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"endpoints": [{"base_url": "http://h"}]}, "has base_url and endpoints"),
        ({"base_url": None, "endpoints": []}, "endpoints: must not be empty"),
        ({"base_url": None, "endpoints": [{}]}, "endpoints[0]: needs base_url or discover"),
        (
            {
                "base_url": None,
                "endpoints": [{"base_url": "http://h"}],
                "metrics_url": "http://h/metrics",
            },
            "metrics_url belongs to each of the endpoints",
        ),
        ({"engine": "vlm"}, "must be one of 'infinity', 'llamacpp'"),
        ({"api_key": 5}, "api_key: must be a text"),
        ({"api_key": "a\nb"}, "must be printable ASCII"),
        ({"api_prefix": "https://h/v1"}, "must be a path such as"),
        ({"api_prefix": "/v1?x=1"}, "must be a path such as"),
        ({"metrics_url": "http://h:x/metrics"}, "metrics_url: port"),
        ({"slot_weight": 0}, "must be at least 1"),
        ({"tokens_per_slot": 0}, "tokens_per_slot: must be at least 1"),
        ({"piece_tokens": -1}, "piece_tokens: must be at least 0"),
        ({"id": 16}, "id: must be a text"),
        ({"gpu_group": ""}, "gpu_group: must not be empty"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(keys: dict[str, object], said: str) -> None:
    assert said in refusal_of_model(**keys)


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "null"])
def test_a_file_must_hold_an_object(text: str) -> None:
    assert "must be an object {…} at the top" in refusal(text)


def test_a_file_without_models_must_not_start() -> None:
    assert "names no model" in refusal("{}")


def test_editors_may_find_their_schema_in_the_file() -> None:
    config_of('{"$schema": "./s.json", "chat_models": [{"id": "a", "base_url": "http://h"}]}')


def test_every_engine_that_is_installed_can_be_named() -> None:
    for name in registry.names():
        text = f'{{"chat_models": [{{"id": "a", "base_url": "http://h", "engine": "{name}"}}]}}'
        assert plan_from(text.encode(), file="f", environ={}).endpoints[0].engine == name


def test_engine_names_and_log_levels_know_no_case() -> None:
    config = config_of(
        '{"chat_models": [{"id": "a", "base_url": "http://h", "engine": "vLLM"}],'
        '"forebay": {"log_level": "DEBUG"}}'
    )
    assert config.chat_models[0].engine == "vllm"
    assert config.forebay.log_level == "debug"


def test_an_empty_key_of_an_endpoint_is_no_key() -> None:
    text = '{"chat_models": [{"id": "a", "base_url": "http://h", "api_key": "${KEY:-}"}]}'
    assert config_of(text).chat_models[0].api_key is None


def test_a_list_with_a_mistake_in_it_is_not_called_empty() -> None:
    text = json.dumps({"chat_models": [{"id": "a", "endpoints": [{"base_urll": "http://a"}]}]})
    with pytest.raises(InvalidConfig) as caught:
        plan_from(text, file="c.json", environ={})
    (problem,) = caught.value.problems
    assert problem.message == "unknown key; did you mean 'base_url'?"
