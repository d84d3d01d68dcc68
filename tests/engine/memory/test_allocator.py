"""The arena: best fit, joining of neighbours, and a mark that never falls."""

from __future__ import annotations

from service.engine.memory.allocator import Arena


def test_the_smallest_block_that_fits_is_taken() -> None:
    arena = Arena(128)
    large, _, small, _ = (arena.take(n) for n in (1024, 128, 256, 128))
    arena.give(large, 1024)
    arena.give(small, 256)

    assert arena.take(200) == small
    assert arena.take(200) == large


def test_of_blocks_of_one_size_the_last_is_taken() -> None:
    arena = Arena(128)
    first, _, second, _ = (arena.take(128) for _ in range(4))
    arena.give(first, 128)
    arena.give(second, 128)

    assert arena.take(128) == second


def test_neighbours_are_joined_when_they_come_back() -> None:
    arena = Arena(128)
    a, b, c, _ = (arena.take(128) for _ in range(4))
    for offset in (a, c, b):
        arena.give(offset, 128)

    assert arena.take(384) == a


def test_the_mark_is_the_highest_byte_ever_used() -> None:
    arena = Arena(128)
    arena.give(arena.take(1000), 1000)
    arena.take(1)

    assert arena.mark == 1024


def test_a_tensor_of_no_bytes_leaves_the_arena_whole() -> None:
    arena = Arena(128)
    a, b = arena.take(128), arena.take(128)
    arena.give(a, 128)
    arena.give(arena.take(0), 0)
    arena.give(b, 128)

    assert arena.take(256) == 0


def test_a_tensor_of_no_bytes_may_come_back_from_beyond_the_last_free_block() -> None:
    arena = Arena(128)
    a, b = arena.take(128), arena.take(128)
    nothing = arena.take(0)
    arena.give(b, 128)
    arena.give(a, 128)
    arena.give(nothing, 0)

    assert arena.take(512) == 0
    assert arena.mark == 512
