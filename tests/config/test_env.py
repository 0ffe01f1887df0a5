from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.config import InvalidConfig, plan_from
from forebay.config.env import expand

NO_DOLLAR = st.text(st.characters(blacklist_characters="$", blacklist_categories=["Cs"]))


def expanded(text: str, key: str = "api_key", **environ: str) -> object:
    result = expand({key: text}, environ)
    assert result.failures == []
    assert isinstance(result.value, dict)
    return result.value[key]


def failure(text: str, **environ: str) -> str:
    ((path, message),) = expand({"base_url": text}, environ).failures
    assert path == ("base_url",)
    return message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("x${A}-${B}y", "xone-twoy"),
        ("${NONE:-http://gpu-b.lan:7997}", "http://gpu-b.lan:7997"),
        ("${NONE:-}", ""),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${A:-default}", "one"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$${A}${A}", "${A}one"),
        ("pa$$word", "pa$$word"),
        ("$A $ $$ %A%", "$A $ $$ %A%"),
        ("{A}", "{A}"),
    ],
)
def test_variables_are_put_in(text: str, value: str) -> None:
    assert expanded(text, A="one", B="two", EMPTY="") == value


@settings(deadline=None)
@given(NO_DOLLAR)
def test_texts_without_a_dollar_are_left_alone(text: str) -> None:
    assert expanded(text) == text


@settings(deadline=None)
@given(st.text())
def test_what_a_variable_holds_is_not_expanded_again(held: str) -> None:
    assert expanded("${A}", A=held) == held


def test_an_unset_variable_is_named_and_nothing_stands_in_for_it() -> None:
    assert failure("${EMBED_URL}").startswith("environment variable EMBED_URL is not set")


def test_all_unset_variables_are_named() -> None:
    result = expand({"a": "${ONE}${TWO}", "b": ["${THREE}"]}, {})
    assert [path for path, _ in result.failures] == [("a",), ("a",), ("b", 0)]


@pytest.mark.parametrize(
    "text", ["${", "${A", "${}", "${1A}", "${A-x}", "${A:?x}", "${A B}", "${A:-${B}}", "${ A }"]
)
def test_other_forms_of_the_shell_are_refused(text: str) -> None:
    assert "write ${NAME} or ${NAME:-default}" in failure(text, A="1", B="2")


def test_variables_in_keys_are_refused() -> None:
    result = expand({"${GROUP}": 6}, {"GROUP": "gb10"})
    assert result.failures == [(("${GROUP}",), "variables work in values, not in keys")]


def test_notes_are_prose() -> None:
    assert expanded("costs ${5}", key="note") == "costs ${5}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("http://${HOST}:8000/v1", "http://[fd00:10::5]:8000/v1"),
        ("http://${HOST}/v1", "http://[fd00:10::5]/v1"),
        ("http://${HOST}", "http://[fd00:10::5]"),
        ("${HOST}", "[fd00:10::5]"),
        ("${HOST}:8000", "[fd00:10::5]:8000"),
        ("http://${NONE:-FD00:10:0::5}:8000", "http://[fd00:10::5]:8000"),
        ("http://[${HOST}]:8000", "http://[fd00:10::5]:8000"),
        ("http://gpu/${HOST}", "http://gpu/fd00:10::5"),
        ("http://${NAME}:8000", "http://gpu-a.lan:8000"),
        ("http://${V4}:8000", "http://10.0.0.5:8000"),
    ],
)
def test_an_ipv6_address_gets_brackets_where_a_url_has_its_host(text: str, value: str) -> None:
    environ = {"HOST": "fd00:10::5", "NAME": "gpu-a.lan", "V4": "10.0.0.5"}
    assert expanded(text, key="base_url", **environ) == value


def test_an_ipv6_address_elsewhere_is_left_alone() -> None:
    assert expanded("${HOST}", key="gpu_group", HOST="fd00::5") == "fd00::5"


CONFIG = """{
  "embedding_models": [{
    "id": "bge-m3", "base_url": "${EMBED_URL:-http://gpu-b.lan:7997}",
    "max_concurrent_requests": "${EMBED_MAX:-8}"
  }],
  "MODEL_MAX_CONCURRENT_REQUESTS": 20
}"""


def ceiling(**environ: str) -> int:
    (planned,) = plan_from(CONFIG, file="c.json", environ=environ).endpoints
    return planned.endpoint.ceiling


def refusal(**environ: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        plan_from(CONFIG, file="c.json", environ=environ)
    return str(caught.value)


@pytest.mark.parametrize("text", ["16", " 16 ", "+16"])
def test_numbers_from_variables_are_numbers(text: str) -> None:
    assert ceiling(EMBED_MAX=text) == 16


@pytest.mark.parametrize("text", ["sixteen", "16.5", "1_6", "0x10", "١٦", "-1", "0"])
def test_other_texts_are_not_numbers(text: str) -> None:
    assert "c.json:4:5: embedding_models[0].max_concurrent_requests: must be" in (
        refusal(EMBED_MAX=text)
    )


def test_a_wrong_value_names_the_variable_it_came_from() -> None:
    assert '(got "sixteen", from ${EMBED_MAX})' in refusal(EMBED_MAX="sixteen")


def test_an_empty_variable_is_no_number() -> None:
    text = CONFIG.replace(":-8", "")
    with pytest.raises(InvalidConfig, match=r"must be a whole number \(got \"\", from"):
        plan_from(text, file="c.json", environ={"EMBED_MAX": ""})


def test_the_environment_wins_over_the_file() -> None:
    text = CONFIG.replace('"max_concurrent_requests": "${EMBED_MAX:-8}"', '"gpu_group": "gb10"')
    environ = {
        "MODEL_MAX_CONCURRENT_REQUESTS": " 24 ",
        "GPU_CONCURRENCY_BUDGETS": '{ "GB10": 6, /* knee */ }',
        "GPU_RESERVED_ROLES": "chat, Embedding",
        "MODEL_CIRCUIT_BREAKER": "false",
        "MODEL_LATENCY_GRADIENT_TARGET": "0.8",
    }
    plan = plan_from(text, file="c.json", environ=environ)
    (planned,) = plan.endpoints
    assert planned.endpoint.ceiling == 24
    assert plan.groups["gb10"].budget == 6
    assert plan.groups["gb10"].source == "environment"
    assert plan.config.reserved_roles == ("chat", "embedding")
    assert plan.config.circuit_breaker is False
    assert plan.config.gradient_target == 0.8


def test_what_the_environment_replaces_need_not_be_right_in_the_file() -> None:
    text = CONFIG.replace("20", '"${UNSET}"')
    plan = plan_from(text, file="c.json", environ={"MODEL_MAX_CONCURRENT_REQUESTS": "7"})
    assert plan.config.max_concurrent_requests == 7


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MODEL_MAX_CONCURRENCY", "many", 'must be a whole number (got "many")'),
        ("MODEL_MAX_CONCURRENCY", "", "is set but empty"),
        ("MODEL_LATENCY_GRADIENT_TARGET", "nan", "must be a number"),
        ("MODEL_LATENCY_GRADIENT_TARGET", "1.5", "must be less than 1"),
        ("MODEL_CIRCUIT_BREAKER", "maybe", "must be true or false"),
        ("GPU_CONCURRENCY_BUDGETS", "gb10=6", "must be an object"),
        ("GPU_CONCURRENCY_BUDGETS", '{"gb10": 6', "the file ends here"),
        ("GPU_CONCURRENCY_BUDGETS", '{"gb10": 0}', "must be at least 1"),
        ("GPU_RESERVED_ROLES", " , ", "must not be empty"),
    ],
)
def test_errors_name_the_environment_variable(name: str, value: str, said: str) -> None:
    message = refusal(**{name: value})
    assert message.startswith(f"environment variable {name}: ")
    assert said in message
