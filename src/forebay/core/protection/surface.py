"""A smooth surface through scattered points, by least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

# A point: two coordinates and its height.
Point = tuple[float, float, float]

# The curvature and both slopes are taken to be small unless the points say otherwise: as if so many
# points at a distance of 1 said that they are 0.
_FLATNESS = (0.0, 2.0, 4.0, 4.0)


@dataclass(frozen=True, slots=True)
class Surface:
    """Height = a + b·x + c·x² + d·y, with x and y from the middle of the points.

    Beyond the points it goes on at the height of their edge.

    Args:
        middle: of the points, (x, y).
        least: smallest x and y among the points.
        most: largest ones.
        weights: a, b, c, d.
    """

    middle: tuple[float, float]
    least: tuple[float, float]
    most: tuple[float, float]
    weights: list[float]

    def at(self, x: float, y: float) -> float:
        """The height at a place."""
        x = min(max(x, self.least[0]), self.most[0]) - self.middle[0]
        y = min(max(y, self.least[1]), self.most[1]) - self.middle[1]
        a, b, c, d = self.weights
        return a + b * x + c * x * x + d * y

    def beyond(self, y: float) -> float:
        """How far a place is beyond the points, along y."""
        return max(self.least[1] - y, y - self.most[1], 0.0)


FLAT = Surface((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), [0.0] * 4)


def fit(points: Collection[Point]) -> Surface:
    """The surface that misses the points least; there must be one."""
    xs, ys, _ = zip(*points, strict=True)
    middle = sum(xs) / len(xs), sum(ys) / len(ys)
    rows = [
        ((1.0, x - middle[0], (x - middle[0]) ** 2, y - middle[1]), height)
        for x, y, height in points
    ]
    matrix = []
    for i, flatness in enumerate(_FLATNESS):
        sums = [sum(row[i] * row[j] for row, _ in rows) for j in range(len(_FLATNESS))]
        sums[i] += flatness
        matrix.append([*sums, sum(row[i] * height for row, height in rows)])
    weights = _solve(matrix)
    return Surface(middle, (min(xs), min(ys)), (max(xs), max(ys)), weights)


def _solve(matrix: list[list[float]]) -> list[float]:
    """Solve a system of equations, positive definite: elimination needs no pivots."""
    size = len(matrix)
    for i in range(size):
        pivot = matrix[i][i]
        matrix[i] = [value / pivot for value in matrix[i]]
        for j in range(size):
            if j != i:
                factor = matrix[j][i]
                matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i], strict=True)]
    return [row[-1] for row in matrix]
