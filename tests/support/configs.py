"""Configurations for the gateway's tests, small enough to read at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.emulator import Host


def entry(model: str, base_url: str, *, ceiling: int = 8, floor: int = 1, **more) -> dict[str, Any]:
    """One model on the group ``gpu``."""
    return {
        "id": model,
        "base_url": base_url,
        "gpu_group": "gpu",
        "max_parallel_calls": floor,
        "max_concurrent_requests": ceiling,
        **more,
    }


def one_chat(
    url: str, *, ceiling: int = 8, forebay: dict[str, Any] | None = None, **more
) -> dict[str, Any]:
    """One chat model ``m``; its limit does not move, and its engine is not asked which one it is.

    Args:
        url: scheme, host and port of the server.
        ceiling: how many requests it takes at once.
        forebay: Forebay's own settings.
        more: further keys of the model's entry, or, in upper case, of the file.
    """
    of_file = {name: value for name, value in more.items() if name.isupper()}
    of_entry = {name: value for name, value in more.items() if not name.isupper()}
    return {
        "chat_models": [
            entry("m", f"{url}/v1", ceiling=ceiling, **{"engine": "unknown", **of_entry})
        ],
        "forebay": {"limit": "fixed", **(forebay or {})},
        **of_file,
    }


def emulated(
    host: Host,
    *,
    chat: int = 8,
    embedding: int = 8,
    budget: int | None = None,
    forebay: dict[str, Any] | None = None,
    **more,
) -> dict[str, Any]:
    """The emulator's two models; limits do not move."""
    config = {
        "chat_models": [entry("chat", host.chat_url, ceiling=chat, engine="vllm")],
        "embedding_models": [entry("embedding", host.embed_url, ceiling=embedding, engine="tei")],
        "forebay": {"limit": "fixed", **(forebay or {})},
        **more,
    }
    if budget is not None:
        config["GPU_CONCURRENCY_BUDGETS"] = {"gpu": budget}
    return config
