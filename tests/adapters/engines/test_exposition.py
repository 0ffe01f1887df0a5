from __future__ import annotations

import gzip
import json
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.adapters.engines.exposition import parse
from forebay.adapters.engines.reply import MAX_BODY_BYTES, Reply
from forebay.errors import ScrapeFailed

if TYPE_CHECKING:
    import random

HOSTILE = r"""# HELP vllm:num_requests_waiting Requests that wait.
vllm:num_requests_waiting{engine="0",model_name="D:\\weights\\v3, \"new\" {q4}"} 2.0 1790000000000
vllm:lora_requests_info{max_lora="2",running_lora_adapters="a,b",waiting_lora_adapters=""} 1.79e+09
vllm:num_requests_running{ engine="0", model_name="chat", } 3
vllm:num_requests_running_extra 99
vllm:time_to_first_token_seconds_bucket{le="0.5"} 12 # {trace_id="f00"} 0.41 1790000000.1
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 13
no_value_here
unclosed{ 2.0
decimal_comma{interval="1m"} 0,16
not_available{x="1"} [N/A]
vllm:kv_cache_usage_perc{model_name="chat"} +Inf
# EOF
"""


def test_a_hostile_page_loses_its_bad_lines_only() -> None:
    page = parse(HOSTILE)

    (waiting,) = page.select("vllm:num_requests_waiting")
    assert waiting.value == 2
    assert waiting.labels["model_name"] == r'D:\weights\v3, "new" {q4}'
    assert page.value("vllm:num_requests_running") == 3
    assert page.value("vllm:time_to_first_token_seconds_bucket", le="0.5") == 12
    assert page.value("vllm:time_to_first_token_seconds_bucket", le="+Inf") == 13
    assert page.max("vllm:kv_cache_usage_perc") is None
    assert page.warnings == 5


def test_warnings_do_not_depend_on_what_is_wanted() -> None:
    page = parse(HOSTILE, frozenset({"vllm:num_requests_running"}))

    assert set(page.samples) == {"vllm:num_requests_running"}
    assert page.warnings == 5


@pytest.mark.parametrize(
    "wire",
    [
        HOSTILE.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + HOSTILE.encode(),
        gzip.compress(HOSTILE.encode()),
        gzip.compress(b"\xef\xbb\xbf" + HOSTILE.replace("\n", "\r\n").encode()),
        json.dumps(HOSTILE).encode(),
    ],
    ids=["crlf", "bom", "gzip", "gzip-bom-crlf", "json-string"],
)
def test_a_page_reads_the_same_however_it_was_wrapped(wire: bytes) -> None:
    assert parse(Reply(200, {}, wire).text()) == parse(HOSTILE)


def test_a_gzip_header_on_a_body_already_unpacked_does_not_matter() -> None:
    reply = Reply(200, {"Content-Encoding": "gzip"}, b"up 1\n")

    assert parse(reply.text()).value("up") == 1


def test_a_json_string_is_decoded_once_only() -> None:
    page = parse(json.dumps('a{path="C:\\\\n"} 1\n'))

    assert page.value("a", path="C:\\n") == 1


@pytest.mark.parametrize("absence", ["nan", "-nan", "NaN", "Nan", "NAN"])
def test_not_a_number_means_no_data_and_is_no_fault(absence: str) -> None:
    page = parse(f'busy {absence}\nup{{quantile="0.99"}} {absence}\n')

    assert page.value("busy") is None
    assert page.warnings == 0


@pytest.mark.parametrize("infinite", ["+Inf", "-Inf", "inf", "Infinity", "1e999"])
def test_infinite_values_are_counted_as_unreadable(infinite: str) -> None:
    page = parse(f"ratio {infinite}\n")

    assert page.value("ratio") is None
    assert page.warnings == 1


@pytest.mark.parametrize(
    ("number", "value"),
    [("7.3125e-06", 7.3125e-06), ("6.120447e+06", 6120447), (".5", 0.5), ("5.", 5), ("-2", -2)],
)
def test_numbers_are_read_in_every_lawful_form(number: str, value: float) -> None:
    assert parse(f"x {number}").value("x") == value


@pytest.mark.parametrize("number", ["1_000", "0x10", "٣", "1,5", "1.2.3", "--1", "e5", "1e", ""])
def test_what_only_python_would_call_a_number_is_not_one(number: str) -> None:
    page = parse(f"up 1\nx {number}\n")

    assert page.value("x") is None
    assert page.warnings == 1


@pytest.mark.parametrize(
    "body",
    [
        "<html><title>Sign in</title></html>",
        "  <!DOCTYPE html>\n<p>vllm:num_requests_running 0",
        '{"detail":"Not Found"}',
        "404 page not found",
    ],
)
def test_a_body_that_is_no_exposition_fails_the_scrape(body: str) -> None:
    with pytest.raises(ScrapeFailed):
        parse(body)


def test_an_empty_page_and_one_of_declarations_say_nothing_and_are_no_failure() -> None:
    assert parse("").samples == {}
    assert parse("# TYPE x gauge\n").samples == {}


def test_names_match_exactly_so_that_created_series_are_never_counters() -> None:
    page = parse("n_total 5\nn_created 1.7841120067712e+09\nn_total_sum 90211\n")

    assert page.value("n_total") == 5
    assert page.sum("n") is None


def test_absent_is_none_for_every_accessor() -> None:
    page = parse("up 1\n")

    assert page.value("x") is None
    assert page.sum("x") is None
    assert page.max("x") is None
    assert page.ratio("x") is None
    assert page.mean("x") is None
    assert page.sum("up", engine="0") is None


def test_value_refuses_to_choose_between_different_ones() -> None:
    page = parse('x{a="1"} 1\nx{a="2"} 2\n')

    assert page.value("x") is None
    assert page.value("x", a="2") == 2


def test_sum_adds_engines_but_takes_copies_of_one_figure_once() -> None:
    page = parse(
        'x{engine="0",pid="31"} 0\nx{engine="0",pid="32"} 5\n'
        'x{engine="1",tp_rank="0"} 2\nx{engine="1",tp_rank="1"} 2\n'
    )

    assert page.sum("x") == 7


def test_mean_is_the_sum_of_sums_over_the_sum_of_counts() -> None:
    page = parse(
        't_sum{engine="0"} 88\nt_count{engine="0"} 40\n'
        't_sum{engine="1"} 2\nt_count{engine="1"} 10\n'
    )

    assert page.mean("t") == pytest.approx(1.8)


@pytest.mark.parametrize("odd", ["55.0", "-1", "1.7", "+Inf", "NaN"])
def test_what_is_not_from_0_to_1_is_no_ratio(odd: str) -> None:
    assert parse(f"x {odd}\n").ratio("x") is None
    assert parse(f'x{{e="0"}} 0.3\nx{{e="1"}} {odd}\nx{{e="2"}} 0.4\n').ratio("x") == 0.4


def test_mean_over_nothing_is_unknown() -> None:
    assert parse("t_sum 0\nt_count 0\n").mean("t") is None


def test_a_model_is_found_by_its_name_by_being_the_only_one_or_not_at_all() -> None:
    page = parse('q{model="a"} 1\nq{model="b"} 2\nr{model="weights"} 3\ns 4\n')

    assert page.for_model("model", "a").sum("q") == 1
    assert page.for_model("model", "elsewhere").sum("q") is None
    assert page.for_model("model", "elsewhere").sum("r") == 3
    assert page.for_model("model", "a").sum("s") == 4


def test_a_gzip_bomb_fails_within_the_limit() -> None:
    bomb = gzip.compress(b"x" * (MAX_BODY_BYTES * 3))

    with pytest.raises(ScrapeFailed, match="limit"):
        Reply(200, {}, bomb).text()


def test_broken_gzip_fails_the_scrape() -> None:
    with pytest.raises(ScrapeFailed, match="gzip"):
        Reply(200, {}, b"\x1f\x8bnonsense").text()


@pytest.mark.parametrize(
    "line",
    [
        "a{" + 'b="' * 100_000,
        'a{b="' + "\\" * 300_001,
        "a{" + 'b="c",' * 50_000,
        'a{b="c"' + " " * 300_000,
        "a " + "1" * 300_000 + "x",
        "a 1" + " " * 300_000 + "x",
        "a" * 300_000,
    ],
    ids=["open-quotes", "escapes", "labels", "blanks", "digits", "tail", "name"],
)
def test_no_line_however_long_takes_more_than_one_pass(line: str) -> None:
    assert parse(f"up 1\n{line}").warnings == 1  # backtracking would take longer than anyone waits


LABELS = st.dictionaries(
    st.from_regex(r"\A[a-zA-Z_][a-zA-Z0-9_]{0,8}\Z"), st.text(max_size=12), max_size=3
)
SAMPLES = st.lists(
    st.tuples(
        st.sampled_from(["vllm:a", "vllm:a_total", "b"]),
        LABELS,
        st.floats(-1e100, 1e100),
    ),
    max_size=8,
)


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def line(name: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


@given(SAMPLES)
def test_what_is_written_by_the_rules_is_read_back(
    samples: list[tuple[str, dict[str, str], float]],
) -> None:
    page = parse("\n".join(line(*sample) for sample in samples))

    read = [
        (name, dict(sample.labels), sample.value)
        for name, found in page.samples.items()
        for sample in found
    ]
    assert sorted(map(repr, read)) == sorted(map(repr, samples))
    assert page.warnings == 0


def test_values_that_would_add_up_to_infinity_are_no_measurement() -> None:
    page = parse('a{x="1"} 9e307\na{x="2"} 9e307\na{x="3"} 2\nb -inf\n')
    assert page.sum("a") == 2
    assert page.sum("b") is None
    assert page.warnings == 3


@given(SAMPLES, st.randoms(use_true_random=False))
def test_the_order_of_lines_changes_no_result(
    samples: list[tuple[str, dict[str, str], float]], rng: random.Random
) -> None:
    lines = [line(*sample) for sample in samples]
    shuffled = list(lines)
    rng.shuffle(shuffled)
    one, other = parse("\n".join(lines)), parse("\n".join(shuffled))

    for name in ("vllm:a", "vllm:a_total", "b"):
        assert one.sum(name) == other.sum(name)
        assert one.max(name) == other.max(name)
        assert one.value(name) == other.value(name)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_body_raises_anything_but_a_failed_scrape(body: bytes) -> None:
    try:
        page = parse(Reply(200, {}, body).text())
    except ScrapeFailed:
        return
    assert all(math.isfinite(s.value) for found in page.samples.values() for s in found)


@given(st.text(alphabet='a{}=",\\ #.1eE+\n', max_size=200))
def test_no_text_of_the_formats_own_characters_raises(text: str) -> None:
    page = parse("# a comment\n" + text)

    assert page.warnings <= text.count("\n") + 1
