"""Two configurations are compared by the names that the command line gives to options."""

from typing import Any

import pytest

from playbook.training.resume.options import Change, changed_options


def made(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": f"package.of.{name}", "init_args": arguments}


CASES = [
    ({"seed_everything": 1}, {"seed_everything": 1}, []),
    ({"seed_everything": 1}, {"seed_everything": 2}, ["seed_everything 2 (was 1)"]),
    ({"trainer": {"max_epochs": 1}}, {"trainer": {"max_epochs": 2, "new": 0}}, ["trainer.max_epochs 2 (was 1)"]),
    ({"model": made("A", lr=1.0)}, {"model": made("A", lr=2.0)}, ["model.lr 2.0 (was 1.0)"]),
    ({"model": made("A")}, {"model": {**made("A"), "class_path": "moved.to.A"}}, []),
    ({"model": made("A", lr=1.0)}, {"model": made("B", lr=2.0)}, ["model B (was A)"]),
    ({"net": made("N", x=[1])}, {"net": made("N", x=[2])}, ["net.x [2] (was [1])"]),
    ({"model": made("A", net=made("N", x=1))}, {"model": made("A", net=made("N", x=2))}, ["model.net.x 2 (was 1)"]),
    ({"model": made("A", schedule=None)}, {"model": made("A", schedule=made("S"))}, ["model.schedule S (was none)"]),
    ({"model": made("A", schedule=made("S"))}, {"model": made("A", schedule=None)}, ["model.schedule none (was S)"]),
    ({"trainer": {"x": False}}, {"trainer": {"x": True}}, ["trainer.x true (was false)"]),
    ({"callbacks": [made("E")]}, {"callbacks": None}, ["callbacks none (was E)"]),
    ({"callbacks": None}, {"callbacks": [made("E"), made("F")]}, ["callbacks E, F (was none)"]),
    ({"callbacks": [made("E"), made("F")]}, {"callbacks": made("F")}, ["callbacks F (was E, F)"]),
    ({"callbacks": [made("E"), made("F")]}, {"callbacks": [made("F"), made("E")]}, []),
    ({"callbacks": [made("E", d=1)]}, {"callbacks": [made("F"), made("E", d=2)]},
     ["callbacks F, E (was E)", "callbacks.E.d 2 (was 1)"]),
    ({"callbacks": [made("E", d=1), made("E", d=2)]}, {"callbacks": [made("E", d=1), made("E", d=3)]}, []),
]  # fmt: skip


@pytest.mark.parametrize(("former", "now", "expected"), CASES)
def test_changed_options(former: Any, now: Any, expected: list[str]) -> None:
    assert [str(change) for change in changed_options(former, now)] == expected


def test_the_entry_of_metrics_json() -> None:
    entry = Change("model.optimizer.lr", 0.1, 0.2).entry(7)
    assert entry == {"step": 7, "option": "model.optimizer.lr", "from": 0.1, "to": 0.2}
