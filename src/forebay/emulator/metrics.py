"""The engines' Prometheus expositions, with the names and the format of vLLM and of TEI."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from forebay.emulator.chat_engine import ChatEngine
    from forebay.emulator.embedding_engine import EmbeddingEngine
    from forebay.emulator.histogram import Histogram

    Sample = tuple[str, Mapping[str, str], float]  # suffix, labels, value


def chat_metrics(engine: ChatEngine) -> str:
    """Return a chat engine's exposition under vLLM's names."""
    own = {"engine": "0", "model_name": engine.spec.model}
    counters = engine.counters
    waiting = len(engine.waiting)
    families: list[tuple[str, str, list[Sample]]] = [
        ("num_requests_running", "gauge", [("", own, len(engine.running))]),
        ("num_requests_waiting", "gauge", [("", own, waiting)]),
        (
            "num_requests_waiting_by_reason",
            "gauge",
            [
                ("", own | {"reason": "capacity"}, waiting),
                ("", own | {"reason": "deferred"}, 0),
            ],
        ),
        ("kv_cache_usage_perc", "gauge", [("", own, engine.used_blocks / engine.spec.kv_blocks)]),
        ("num_preemptions", "counter", [("_total", own, counters.preemptions)]),
        ("prompt_tokens", "counter", [("_total", own, counters.prompt_tokens)]),
        ("generation_tokens", "counter", [("_total", own, counters.output_tokens)]),
        ("time_to_first_token_seconds", "histogram", _histogram(own, engine.first_token_s)),
        ("inter_token_latency_seconds", "histogram", _histogram(own, engine.inter_token_s)),
    ]
    return "".join(
        f"# HELP vllm:{name} Emulated.\n{_family(f'vllm:{name}', kind, samples)}"
        for name, kind, samples in families
    )


def embedding_metrics(engine: EmbeddingEngine, answers: Mapping[tuple[str, str], int]) -> str:
    """Return an embedding engine's exposition under TEI's names.

    TEI writes no HELP lines and no ``_total``, and counts texts in its queue, not requests.

    Args:
        engine: the engine.
        answers: requests by TEI's counter and the value of that counter's label.
    """
    labels = {"te_request_count": "method", "te_request_success": "method"}
    families: list[tuple[str, str, list[Sample]]] = [
        ("te_embed_success", "counter", [("", {}, engine.counters.texts)]),
        ("te_queue_size", "gauge", [("", {}, len(engine.waiting))]),
        ("te_embed_queue_duration", "histogram", _histogram({}, engine.queue_s)),
        ("te_batch_next_size", "histogram", _histogram({}, engine.batch_texts)),
    ]
    for name in ("te_request_count", "te_request_success", "te_request_failure"):
        label = labels.get(name, "err")
        samples: list[Sample] = [
            ("", {label: value}, n) for (of, value), n in answers.items() if of == name
        ]
        families.append((name, "counter", samples))
    return "\n".join(_family(name, kind, samples) for name, kind, samples in families if samples)


def _family(name: str, kind: str, samples: Iterable[Sample]) -> str:
    lines = [f"# TYPE {name} {kind}"]
    for suffix, labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
        lines.append(f"{name}{suffix}{f'{{{inside}}}' if inside else ''} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _histogram(labels: Mapping[str, str], histogram: Histogram) -> list[Sample]:
    buckets: list[Sample] = [
        ("_bucket", {**labels, "le": bound}, count) for bound, count in histogram.cumulative()
    ]
    return [*buckets, ("_sum", labels, histogram.sum), ("_count", labels, histogram.count)]
