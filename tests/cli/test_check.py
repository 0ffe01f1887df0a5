from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import start_blocking_portal
from typer.testing import CliRunner, Result

from forebay.cli._app import app
from forebay.config.schema import override_keys
from support.cluster import cluster, endpoint, endpoint_slice
from support.name_server import name_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.name_server import NameServer

EXAMPLES = Path(__file__).parents[1] / "config" / "examples"
CHAT = {"id": "chat", "base_url": "http://gpu-a.lan:8000", "gpu_group": "gb10"}
SECRET = "sk-0123456789abcdefghij"


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FOREBAY_CONFIG", *override_keys()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def forebay(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def checked(tmp_path: Path, *options: str, **keys: Any) -> Result:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(keys), encoding="utf-8")
    return forebay("check", "--config", file, *options)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("one_gpu.json", ["gb10", "6", "qwen3.6-27b@vllm.arpa:80", "interactive", "best_effort"]),
        ("two_gpus.json", ["llm-host", "32", "embed-host", "16", "fallback of <embed>"]),
        ("embedder_with_fallback.json", ["gr1080", "16", "gb10", "20", "fallback of bge-m3"]),
    ],
)
def test_the_examples_are_shown_with_their_groups_and_budgets(name: str, shown: list[str]) -> None:
    result = forebay("check", "--config", EXAMPLES / name)
    assert result.exit_code == 0
    for text in shown:
        assert text in result.stdout


def test_the_file_may_be_named_with_or_without_the_option(tmp_path: Path) -> None:
    file = EXAMPLES / "one_gpu.json"
    by_option = forebay("check", "--config", file)
    assert forebay("check", file).stdout == by_option.stdout
    assert forebay("check", "--json", file).exit_code == by_option.exit_code == 0
    missing = tmp_path / "missing.json"
    for command in ("check", "serve"):
        assert forebay(command, missing).exit_code == 1
        twice = forebay(command, file, "--config", missing)
        assert twice.exit_code == 2
        assert "name the file once" in twice.stderr


def test_a_bad_file_exits_with_every_problem_on_stderr(tmp_path: Path) -> None:
    result = checked(
        tmp_path, chat_models=[{**CHAT, "rol": "x"}], GPU_CONCURRENCY_BUDGETS={"gb10": 0}
    )
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "config.json:1:" in result.stderr
    assert "chat_models[0].rol: unknown key; did you mean 'role'?" in result.stderr
    assert "GPU_CONCURRENCY_BUDGETS.gb10: must be at least 1 (got 0)" in result.stderr
    assert "2 errors: this must not start" in result.stderr


def test_no_file_is_an_error_that_says_how_to_name_one(tmp_path: Path) -> None:
    result = forebay("check")
    assert result.exit_code == 1
    assert f"{tmp_path}/forebay/config.json: cannot be read" in result.stderr
    assert "--config or FOREBAY_CONFIG" in result.stderr


@pytest.mark.parametrize(
    ("budgets", "embedder", "plain", "strict"),
    [
        ({"gb10": 6}, {"parallel_instances": 3}, 0, 0),
        ({"gb10": 3}, {"parallel_instances": 3}, 1, 1),
        ({"gb10": 0}, {}, 1, 1),
        ({"gb10": 6}, {"parallel_instances": 3, "max_concurrent_requests": 1}, 0, 1),
        ({"gb10x": 6}, {}, 0, 1),
        ({"gb10": 6}, {"fallback": {**CHAT, "id": "e", "fallback": {}}}, 0, 1),
    ],
)
def test_strict_makes_warnings_errors(
    tmp_path: Path,
    budgets: dict[str, int],
    embedder: dict[str, Any],
    plain: int,
    strict: int,
) -> None:
    keys: dict[str, Any] = {
        "chat_models": [CHAT],
        "embedding_models": [
            {"id": "e", "base_url": "http://gpu-b.lan", "gpu_group": "gb10", **embedder}
        ],
        "GPU_CONCURRENCY_BUDGETS": budgets,
    }
    assert checked(tmp_path, **keys).exit_code == plain
    assert checked(tmp_path, "--strict", **keys).exit_code == strict
    assert checked(tmp_path, "--strict", "--json", **keys).exit_code == strict


def test_json_holds_what_the_tables_show(tmp_path: Path) -> None:
    result = checked(
        tmp_path,
        "--json",
        chat_models=[{**CHAT, "api_key": SECRET, "base_url": f"{CHAT['base_url']}?code=hidden1"}],
        GPU_CONCURRENCY_BUDGETS={"gb10": 6, "gb11": 1},
    )
    told = json.loads(result.stdout)
    assert told["ok"] is True
    assert told["endpoints"]["chat@gpu-a.lan:8000"] == {
        "id": "chat@gpu-a.lan:8000",
        "model": "chat",
        "base_url": "http://gpu-a.lan:8000/v1",
        "gpu_group": "gb10",
        "role": "chat",
        "service_class": "interactive",
        "floor": 1,
        "ceiling": 32,
        "slot_weight": 1,
        "tokens_per_slot": None,
        "fallback_of": None,
        "also_for": [],
        "kind": "chat",
        "model_key": "chat",
        "engine": None,
        "piece_tokens": None,
        "max_batch_items": None,
        "max_batch_tokens": None,
        "max_batch_bytes": None,
        "first_byte_s": 600,
    }
    assert told["groups"]["gb10"] == {
        "name": "gb10",
        "budget": 6,
        "endpoints": ["chat@gpu-a.lan:8000"],
        "reserved": 1,
        "floors": 1,
        "source": "file",
    }
    (warning,) = told["warnings"]
    assert warning["code"] == "unused_budget"
    assert warning["key"] == "GPU_CONCURRENCY_BUDGETS.gb11"
    assert SECRET not in result.output
    assert "hidden1" not in result.output


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ({}, "1 slot; pieces of 2048 tokens"),
        ({"piece_tokens": 0}, "1 slot "),
        ({"slot_weight": 2, "piece_tokens": 0}, "2 slots "),
        ({"tokens_per_slot": 512}, "1 slot per 512 tokens; pieces of 2048 tokens"),
        ({"tokens_per_slot": 9, "slot_weight": 3}, "1 slot per 9 tokens, 3 at least; pieces"),
        ({"max_batch_items": 32, "piece_tokens": 0}, "1 slot; at most 32 items"),
        ({"max_batch_tokens": 9, "max_batch_bytes": 8}, "2048 tokens; at most 9 tokens, 8 bytes"),
        ({"first_byte_s": 2.5}, "2048 tokens; 2.5 s to its first byte"),
    ],
)
def test_what_a_request_takes_is_shown(tmp_path: Path, keys: dict[str, Any], shown: str) -> None:
    embedder = {"id": "e", "base_url": "http://gpu-b.lan", "gpu_group": "gb10", **keys}
    result = checked(tmp_path, chat_models=[CHAT], embedding_models=[embedder])
    (row,) = (line for line in result.stdout.splitlines() if "best_effort" in line)
    assert shown in row


def test_json_errors_are_json(tmp_path: Path) -> None:
    result = checked(tmp_path, "--json", chat_models=[{**CHAT, "engine": SECRET}])
    assert result.exit_code == 1
    (error,) = json.loads(result.stdout)["errors"]
    assert error["key"] == "chat_models[0].engine"
    assert SECRET not in result.output


def test_a_probe_that_fails_is_shown_and_fails_the_check(tmp_path: Path) -> None:
    # Port 1 of loopback: nothing listens there.
    chat = {**CHAT, "base_url": "http://127.0.0.1:1"}
    result = checked(tmp_path, "--probe", chat_models=[chat])
    assert result.exit_code == 1
    assert "not reachable (" in result.stdout
    as_json = checked(tmp_path, "--probe", "--json", chat_models=[chat])
    (answer,) = json.loads(as_json.stdout)["probes"]
    assert answer["endpoint"] == "chat@127.0.0.1:1"
    assert answer["ok"] is False


@pytest.fixture
def dns() -> Iterator[NameServer]:
    """A DNS server that answers while a command runs, in a thread of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(name_server()) as server,
    ):
        yield server


def found_by(tmp_path: Path, server: NameServer, url: str, *options: str) -> Result:
    return checked(
        tmp_path,
        "--probe",
        *options,
        chat_models=[{"id": "chat", "endpoints": [{"discover": url}]}],
        forebay={"discovery": {"nameservers": [server.address]}},
    )


def test_a_probe_looks_sources_up_and_asks_whom_they_find(tmp_path: Path, dns: NameServer) -> None:
    dns.zone["llm.lan", "A"] = ["127.0.0.1", "127.0.0.2"]
    result = found_by(tmp_path, dns, "dns://llm.lan:1/v1")
    assert "dns://llm.lan:1/v1 finds http://127.0.0.1:1/v1, http://127.0.0.2:1/v1" in result.stdout
    rows = [line for line in result.stdout.splitlines() if "not reachable" in line]
    assert len(rows) == 2
    told = json.loads(found_by(tmp_path, dns, "dns://llm.lan:1/v1", "--json").stdout)
    assert told["found"]["dns://llm.lan:1/v1"]["found"] == [
        "http://127.0.0.1:1/v1",
        "http://127.0.0.2:1/v1",
    ]
    assert len(told["probes"]) == 2


def test_a_source_that_cannot_be_looked_up_fails_the_probe(tmp_path: Path, dns: NameServer) -> None:
    result = found_by(tmp_path, dns, "dns://llm.lan:1/v1")
    assert result.exit_code == 1
    assert "dns://llm.lan:1/v1: cannot be looked up: there is no such name" in result.stdout
    assert result.stderr == ""
    dns.zone["_llm._tcp.lan", "SRV"] = ["0 0 1 ."]
    result = found_by(tmp_path, dns, "srv://_llm._tcp.lan/v1")
    assert result.exit_code == 1
    assert "srv://_llm._tcp.lan/v1 finds no endpoint" in result.stdout


def test_a_pod_that_is_found_in_kubernetes_is_probed(tmp_path: Path) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(cluster()) as api,
    ):
        pods = endpoint_slice(endpoint("127.0.0.1"), ports=(("http", 1),))
        portal.call(partial(api.put, pods))
        url = "k8s://ml/vllm:http/v1"
        result = checked(
            tmp_path,
            "--probe",
            chat_models=[{"id": "chat", "endpoints": [{"discover": url}]}],
            forebay={"discovery": {"kubernetes_url": api.url}},
        )
    assert f"{url} finds http://127.0.0.1:1/v1" in result.stdout
    assert "chat@127.0.0.1:1" in result.stdout


def test_the_schema_is_printed_without_any_file() -> None:
    result = forebay("check", "--schema")
    assert result.exit_code == 0
    assert "GPU_CONCURRENCY_BUDGETS" in json.loads(result.stdout)["properties"]


def test_every_command_has_help() -> None:
    assert forebay("--help").exit_code == 0
    for command in app.registered_commands:
        assert forebay(command.name, "--help").exit_code == 0


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    result = checked(tmp_path, chat_models=[{**CHAT, "id": "[red]llm[/red]"}])
    assert "[red]llm[/red]@gpu-a.lan:8000" in result.stdout


def test_the_installed_command_tells_its_version() -> None:
    command = Path(sys.executable).with_name("forebay")
    result = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("forebay 0.")
