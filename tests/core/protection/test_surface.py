"""Least squares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.protection.surface import fit

COORDINATE = st.floats(-10, 10)
POINTS = st.lists(st.tuples(COORDINATE, COORDINATE, COORDINATE), min_size=1, max_size=60)


def test_many_points_of_a_surface_give_that_surface() -> None:
    points = [
        (x / 2, y / 2, 3 + 2 * x / 2 + 0.5 * (x / 2) ** 2 - y / 2)
        for x in range(40)
        for y in range(40)
    ]
    surface = fit(points)
    assert surface.at(4, 7) == pytest.approx(3 + 8 + 8 - 7, abs=0.2)


def test_beyond_the_points_it_goes_on_level() -> None:
    surface = fit([(x, x, float(x)) for x in range(10)])
    assert surface.at(100, 100) == surface.at(9, 9)
    assert (surface.beyond(-2), surface.beyond(5), surface.beyond(12)) == (2, 0, 3)


@given(points=POINTS, x=COORDINATE, y=COORDINATE)
def test_it_never_leaves_the_neighbourhood_of_its_points(points, x, y) -> None:
    heights = [height for _, _, height in points]
    reach = 200 * (1 + max(heights) - min(heights))
    assert min(heights) - reach <= fit(points).at(x, y) <= max(heights) + reach


def test_one_point_is_level_ground() -> None:
    assert fit([(1.0, 2.0, 7.0)]).at(50, 50) == pytest.approx(7)
