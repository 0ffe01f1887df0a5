"""What a demonstration runs on: two engines that share something scarce, and the gateway."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.demo.asking import Target
from forebay.demo.engines import start_chat_engine, start_embedding_engine
from forebay.demo.gateway import Gateway, start_gateway
from forebay.demo.load import Workload

if TYPE_CHECKING:
    from forebay.demo.processes import Processes

_GROUP = "demo"


@dataclass(frozen=True, slots=True)
class Slots:
    """Requests in flight on one model: what it always gets, and what it never exceeds."""

    floor: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class Host:
    """Two engines and how they are governed.

    Args:
        engines: where they are.
        workload: a load that is too much for them.
        budget: requests in flight that are not too much for both together.
        chat: slots of the chat model, which serves the bulk generation too.
        embedding: slots of the embedding model.
    """

    engines: Target
    workload: Workload
    budget: int
    chat: Slots
    embedding: Slots

    def gateway_config(self) -> dict[str, Any]:
        """The gateway's configuration for these engines."""
        engines = self.engines
        return {
            "chat_models": [_entry(engines.chat_model, engines.chat_url, "chat", self.chat)],
            "embedding_models": [
                _entry(engines.embedding_model, engines.embedding_url, "embedding", self.embedding)
            ],
            "GPU_CONCURRENCY_BUDGETS": {_GROUP: self.budget},
        }


def _entry(model: str, base_url: str, role: str, slots: Slots) -> dict[str, Any]:
    return {
        "id": model,
        "base_url": base_url,
        "role": role,
        "gpu_group": _GROUP,
        "parallel_instances": 1,
        "max_parallel_calls": slots.floor,
        "max_concurrent_requests": slots.ceiling,
    }


def start_real_host(processes: Processes) -> Host:
    """Start llama.cpp with a chat model and with MiniLM, on the same two cores.

    Raises:
        DemoNotInstalled: a package that they need is missing.
        ProcessFailed: one did not come up.
    """
    chat = start_chat_engine(processes)
    embedding = start_embedding_engine(processes)
    engines = Target(chat.base_url, embedding.base_url, chat.model, embedding.model)
    return Host(engines, Workload(), budget=3, chat=Slots(1, 8), embedding=Slots(1, 1))


def start_emulated_host(processes: Processes) -> Host:
    """Start the emulator: one GPU of a data centre, as far as its timing goes.

    Raises:
        ProcessFailed: it did not come up.
    """
    command = [sys.executable, "-m", "forebay", "emulate", "--json", "--port", "0"]
    process = processes.start("emulator", command)
    urls = json.loads(process.await_line(r"(\{.*\})"))
    engines = Target(urls["chat_url"], urls["embed_url"], urls["chat_model"], urls["embed_model"])
    workload = Workload(
        chat_answer_tokens=16,
        bulk_workers=16,
        bulk_answer_tokens=(16, 32),
        embedding_workers=32,
        embedding_texts=16,
    )
    return Host(engines, workload, budget=11, chat=Slots(1, 64), embedding=Slots(2, 2))


@dataclass(frozen=True, slots=True)
class Site:
    """A running demonstration.

    Args:
        host: the engines.
        gateway: Forebay before them.
    """

    host: Host
    gateway: Gateway

    @property
    def governed(self) -> Target:
        """The engines' models, through Forebay."""
        engines, base_url = self.host.engines, self.gateway.base_url
        return Target(base_url, base_url, engines.chat_model, engines.embedding_model)


def start_site(processes: Processes, *, emulated: bool) -> Site:
    """Start engines, and the gateway before them.

    Args:
        processes: where they are started.
        emulated: emulate a GPU instead of running real engines.

    Raises:
        DemoNotInstalled: a package that the real engines need is missing.
        ProcessFailed: something did not come up.
    """
    host = start_emulated_host(processes) if emulated else start_real_host(processes)
    return Site(host, start_gateway(processes, host.gateway_config()))
