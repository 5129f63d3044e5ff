"""A classifier's rows go where the model has their classes; rows of new classes stay as the model began."""

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from playbook import UserError
from playbook.facts import KEY, pack
from playbook.training.class_rows import match_rows
from playbook.training.initial import load_weights

KNOWN = ["cat", "dog", "owl"]
CHANGES = {
    "permuted": ["owl", "cat", "dog"],
    "subset": ["owl", "cat"],
    "superset": ["ant", "cat", "dog", "elk", "owl"],
    "one in common": ["owl", "yak"],
}


class Tiny(pl.LightningModule):
    """Any net."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net


def net(num_classes: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, num_classes)).double()


@pytest.mark.parametrize("classes", CHANGES.values(), ids=CHANGES)
def test_classes_in_common_keep_their_logits(tmp_path: Path, classes: list[str], capsys: Any) -> None:
    source, target = Tiny(net(len(KNOWN), seed=0)), Tiny(net(len(classes), seed=1))
    former = {name: value.clone() for name, value in target.state_dict().items()}
    torch.save({"state_dict": source.state_dict(), KEY: pack({"classes": KNOWN})}, tmp_path / "source.ckpt")
    load_weights(target, tmp_path / "source.ckpt", {"classes": classes})
    inputs = torch.randn(5, 4, dtype=torch.float64)
    expected, logits = source.net(inputs), target.net(inputs)
    for number, name in enumerate(classes):
        if name in KNOWN:
            torch.testing.assert_close(logits[:, number], expected[:, KNOWN.index(name)], rtol=0, atol=1e-12)
        else:
            assert torch.equal(target.state_dict()["net.2.weight"][number], former["net.2.weight"][number]), name
            assert torch.equal(target.state_dict()["net.2.bias"][number], former["net.2.bias"][number]), name
    common = [name for name in classes if name in KNOWN]
    new = [name for name in classes if name not in KNOWN]
    told = f"classes matched by name in net.2.weight, net.2.bias: {len(common)} loaded"
    told += f", {len(new)} new ({', '.join(new)})\n" if new else "\n"
    assert told in capsys.readouterr().out


def test_no_class_in_common_leaves_the_classifier_as_it_began(tmp_path: Path, capsys: Any) -> None:
    source, target = Tiny(net(3, seed=0)), Tiny(net(3, seed=1))
    former = target.state_dict()["net.2.weight"].clone()
    torch.save({"state_dict": source.state_dict(), KEY: pack({"classes": KNOWN})}, tmp_path / "source.ckpt")
    load_weights(target, tmp_path / "source.ckpt", {"classes": ["ant", "elk", "yak"]})
    assert torch.equal(target.state_dict()["net.2.weight"], former)
    assert torch.equal(target.state_dict()["net.0.weight"], source.state_dict()["net.0.weight"])
    assert "0 loaded, 3 new (ant, elk, yak)" in capsys.readouterr().out


@pytest.mark.parametrize("facts", [None, {}, {"classes": KNOWN}], ids=["none", "empty", "the same"])
def test_without_two_lists_of_classes_rows_stay_in_place(tmp_path: Path, facts: Any, capsys: Any) -> None:
    source, target = Tiny(net(3, seed=0)), Tiny(net(3, seed=1))
    torch.save({"state_dict": source.state_dict(), KEY: pack({"classes": KNOWN})}, tmp_path / "source.ckpt")
    load_weights(target, tmp_path / "source.ckpt", facts)
    assert torch.equal(target.state_dict()["net.2.weight"], source.state_dict()["net.2.weight"])
    assert "matched by name" not in capsys.readouterr().out


def test_classes_come_with_safetensors_too(tmp_path: Path) -> None:
    source, target = Tiny(net(3, seed=0)), Tiny(net(3, seed=1))
    save_file(source.state_dict(), tmp_path / "w.safetensors", {KEY: json.dumps(pack({"classes": KNOWN}))})
    load_weights(target, tmp_path / "w.safetensors", {"classes": ["owl", "cat", "dog"]})
    assert torch.equal(target.state_dict()["net.2.weight"], source.state_dict()["net.2.weight"][[2, 0, 1]])


def matched(name: str, file: Tensor, own: Tensor, classes: list[str]) -> Tensor:
    """The rows of one weight after they were matched."""
    weights = {name: file.clone()}
    assert match_rows(weights, {name: own}, KNOWN, classes)
    return weights[name]


def test_rows_behind_a_background() -> None:
    """K + 1 rows: the first belongs to no class, and is taken over."""
    file, own = torch.arange(8.0).view(4, 2), -torch.arange(6.0).view(3, 2)
    expected = torch.stack([file[0], file[3], own[2]])  # background, owl, new
    assert torch.equal(matched("net.cls_score.weight", file, own, ["owl", "yak"]), expected)


def test_rows_that_repeat_for_every_anchor() -> None:
    """A * K rows, anchor by anchor, as in RetinaNet's classification head."""
    file, own = torch.randn(3 * 3, 2, 3, 3), torch.randn(3 * 2, 2, 3, 3)
    rows = matched("net.head.cls_logits.weight", file, own, ["owl", "yak"]).unflatten(0, (3, 2))
    assert torch.equal(rows[:, 0], file.unflatten(0, (3, 3))[:, 2])
    assert torch.equal(rows[:, 1], own.unflatten(0, (3, 2))[:, 1])


def test_a_layer_that_is_not_named_as_a_head_keeps_its_rows() -> None:
    hidden, head = torch.randn(3, 3), torch.randn(3, 3)
    weights = {"net.stem.weight": hidden, "net.fc.weight": head}
    match_rows(weights, {name: torch.zeros(3, 3) for name in weights}, KNOWN, ["owl", "cat", "dog"])
    assert torch.equal(weights["net.stem.weight"], hidden)
    assert torch.equal(weights["net.fc.weight"], head[[2, 0, 1]])


def test_an_unknown_head_of_the_same_shape_is_refused() -> None:
    weights = {"net.inner.weight": torch.randn(3, 2), "net.scale": torch.randn(1)}
    own = {name: torch.zeros_like(value) for name, value in weights.items()}
    with pytest.raises(UserError, match="its classes are cat, dog, owl, those of the data owl, cat, dog; expected"):
        match_rows(weights, own, KNOWN, ["owl", "cat", "dog"])


def test_a_net_with_more_outputs_than_the_data_has_classes_is_refused() -> None:
    """Its rows would be those of other classes."""
    weights = {"net.body.weight": torch.randn(4, 2), "net.head.weight": torch.randn(3, 4)}
    own = {name: torch.zeros_like(value) for name, value in weights.items()}
    with pytest.raises(UserError, match="its classes are cat, dog, owl, those of the data owl, yak; expected the same"):
        match_rows(weights, own, KNOWN, ["owl", "yak"])


def test_an_unknown_head_of_another_shape_is_left_at_its_initialisation() -> None:
    file = torch.randn(3, 2)
    weights = {"net.inner.weight": file, "net.scale": torch.randn(1)}
    own = {"net.inner.weight": torch.zeros(2, 2), "net.scale": torch.zeros(1)}
    assert match_rows(weights, own, KNOWN, ["owl", "cat"]) == ""
    assert weights["net.inner.weight"] is file


def test_hidden_layers_of_a_head_are_left_alone() -> None:
    """Their widths are often multiples of the number of classes."""
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    own = {f"net.classifier.{name}": torch.zeros_like(value) for name, value in head.state_dict().items()}
    weights = {f"net.classifier.{name}": value for name, value in head.state_dict().items()}
    hidden = weights["net.classifier.0.weight"].clone()
    told = match_rows(weights, own, ["a", "b"], ["b", "c"])
    assert told == "classes matched by name in net.classifier.2.weight, net.classifier.2.bias: 1 loaded, 1 new (c)"
    assert torch.equal(weights["net.classifier.0.weight"], hidden)
    assert torch.equal(weights["net.classifier.2.weight"][0], head.state_dict()["2.weight"][1])


def test_the_boxes_of_a_two_stage_detector_move_with_their_classes() -> None:
    weight = torch.arange(12.0)[:, None]  # background, a, b: four sides each
    weights = {"net.box_predictor.bbox_pred.weight": weight.clone()}
    own = {"net.box_predictor.bbox_pred.weight": torch.full((16, 1), -1.0)}
    match_rows(weights, own, ["a", "b"], ["c", "b", "a"])
    expected = [0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10, 11, 4, 5, 6, 7]
    assert weights["net.box_predictor.bbox_pred.weight"].flatten().tolist() == expected
