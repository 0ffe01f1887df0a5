"""Distributions of request sizes: a `Sizes` is any function of a random stream and the time."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from random import Random

from forebay.sim.server import Size

Sizes = Callable[[Random, float], Size]


def fixed(input_tokens: int, output_tokens: int = 0, *, texts: int = 1) -> Sizes:
    """Every request alike."""
    size = Size(input_tokens, output_tokens, texts)
    return lambda _rng, _now: size


def lognormal(
    input_tokens: float,
    output_tokens: float = 0,
    *,
    sigma: float,
    most: int = 4096,
    texts: int = 1,
) -> Sizes:
    """Sizes that scatter, input and output each by itself.

    Args:
        input_tokens: median.
        output_tokens: median; 0 for embeddings.
        sigma: of the logarithm; 0 is all alike, 1.5 is very uneven.
        most: nothing is longer; tokens.
        texts: inputs in each request.
    """

    def draw(rng: Random, median: float) -> int:
        return min(most, max(1, round(exp(rng.gauss(log(median), sigma)))))

    def sizes(rng: Random, _now: float) -> Size:
        generated = draw(rng, output_tokens) if output_tokens else 0
        return Size(max(texts, draw(rng, input_tokens)), generated, texts)

    return sizes


def shift(at_s: float, before: Sizes, after: Sizes) -> Sizes:
    """One mix until `at_s`, another one from then on."""
    return lambda rng, now: (before if now < at_s else after)(rng, now)


def mix(*parts: tuple[float, Sizes]) -> Sizes:
    """Each time one of several, with these probabilities."""
    weights = [weight for weight, _ in parts]
    choices = [sizes for _, sizes in parts]
    return lambda rng, now: rng.choices(choices, weights)[0](rng, now)
