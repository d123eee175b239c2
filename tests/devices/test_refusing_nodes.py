"""Which nodes refuse claims can be asked without making a result for the others."""

from __future__ import annotations

from tests.devices.building import claim, device, engine, exactly, node, slice_, take


def test_it_names_exactly_the_nodes_on_which_allocate_refuses() -> None:
    slices = [slice_([device(f"d{n}")], name=f"s{n}", pool=f"p{n}", nodeName=f"n{n}") for n in range(3)]
    made = engine(*slices, *(node(f"n{n}") for n in range(4)))
    take(made, claim(exactly()), on="n1")
    asked = [claim(exactly())]
    names = [f"n{n}" for n in range(4)]
    found = dict(made.refusing(names, asked))
    assert list(found) == [name for name in names if not made.allocate(name, asked).ok] == ["n1", "n3"]
    assert all(not verdict.ok for verdict in found.values())


def test_a_request_that_no_node_can_satisfy_is_told_once_and_a_node_that_is_not_known_is_an_error() -> None:
    made = engine(slice_([device("d")]))
    [(name, verdict)] = made.refusing(["n1", "n2"], [claim(exactly(cls="absent"))])
    assert (name, verdict.ok, verdict.node_error) == ("", False, False)
    assert verdict.error
    [(name, verdict)] = made.refusing(["unknown"], [claim(exactly())])
    assert (name, verdict.node_error) == ("unknown", True)
