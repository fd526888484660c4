from __future__ import annotations

import math

import pytest

from pytest_attnperf.tools.plotting import Box, Slant, find_free_start, place_labels

INSIDE = (0.0, 0.0, 900.0, 500.0)


def meet(one: Box, other: Box) -> bool:
    """Whether two boxes overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_labels_of_close_points_do_not_meet() -> None:
    """Twelve points within 30 pixels get twelve labels that cover neither a point nor each other."""
    points = [(400 + 7.0 * (index % 4), 250 + 9.0 * (index // 4)) for index in range(12)]
    places = place_labels(points, [str(index) for index in range(12)], INSIDE)
    middles = [(x + place.dx, y + place.dy) for (x, y), place in zip(points, places, strict=True)]
    boxes = [(x - 3, y - 5, x + 3, y + 5) for x, y in middles]
    assert all(place.free for place in places)
    assert not any(meet(one, other) for index, one in enumerate(boxes) for other in boxes[:index])
    assert not any(box[0] < x < box[2] and box[1] < y < box[3] for box in boxes for x, y in points)
    assert any(place.far for place in places)


def test_a_label_stays_inside() -> None:
    """In a corner the label turns to where it has room."""
    (place,) = place_labels([(898.0, 498.0)], ["12"], INSIDE)
    assert place.dx < 0
    assert place.dy < 0


def test_covered_places_are_left_free() -> None:
    """What stands at the upper right of a point sends its label elsewhere."""
    (alone,) = place_labels([(100.0, 100.0)], ["1"], INSIDE)
    (beside,) = place_labels([(100.0, 100.0)], ["1"], INSIDE, [(101.0, 101.0, 200.0, 200.0)])
    assert (alone.dx, alone.dy) != (beside.dx, beside.dy)
    assert beside.free


def test_no_room_at_all() -> None:
    """Where nothing is free, or nothing inside, a label still has a place."""
    (crowded,) = place_labels([(100.0, 100.0)], ["1"], INSIDE, [INSIDE])
    (outside,) = place_labels([(5000.0, 5000.0)], ["1"], INSIDE)
    assert not crowded.free
    assert not outside.free


def test_text_along_a_line_avoids_points() -> None:
    """It begins behind a point that its first place would cover, and on the side of the line it stands on."""
    slant = Slant.from_pixels((0.0, 0.0), (400.0, 300.0))
    assert slant.length == pytest.approx(500.0)
    first = find_free_start(slant, 100.0, True, [])
    x, y = slant.pixel_at(first + 0.05)
    later = find_free_start(slant, 100.0, True, [(x - 4.0, y + 5.0)])
    assert later > first
    above, below = (slant.list_boxes(0.5, 10.0, side)[0] for side in (True, False))
    assert above[1] > below[1]


@pytest.mark.parametrize("length", [0.0, 50.0])
def test_text_longer_than_its_line(length: float) -> None:
    """It begins at the line's own beginning."""
    assert find_free_start(Slant(0.0, 0.0, math.pi / 4, length), 100.0, True, [(0.0, 5.0)]) == 0.0
