"""Steps that all queries share."""

from __future__ import annotations

from service.store.queries import is_id, new_id


def test_an_id_can_be_given_to_a_command() -> None:
    """`advisor admin requeue -AZi…` would be an unknown option."""
    made = {new_id() for _ in range(2000)}
    assert len(made) == 2000
    assert all(is_id(one) and one[0] != "-" for one in made)
