from __future__ import annotations

from millwheel.testing.contracts import Outside, ShardLife
from tests.fakes.small_database import SmallWorld


def test_another_owner_divides_what_was_not_committed_otherwise() -> None:
    world = SmallWorld()
    life = ShardLife(world, [world.value(0, row) for row in range(7)])
    first = life.writer(Outside())
    life.publish(first, life.prepare(first))
    life.owned(Outside())
    assert life.taken == [3, 2, 2]
    assert world.rows() == life.expected() == life.values


def test_refused_values_become_letters_and_are_not_expected() -> None:
    world = SmallWorld()
    values = [world.value(0, row) for row in (0, 13, 1)]
    life = ShardLife(world, values)
    life.owned(Outside())
    assert [(letter.value["row"], letter.reason) for letter in life.letters] == [
        (13, "a row must not be 13")
    ]
    assert world.rows() == life.expected() == [values[0], values[2]]
