"""Layers of nets with few and with many modules."""

from playbook.training.statistics.layers import MOST_LAYERS, grouped, layer_of


def test_a_parameter_belongs_to_its_module() -> None:
    assert layer_of("net.stages.0.weight") == "net.stages.0"
    assert layer_of("net._orig_mod.stages.0.weight") == "net.stages.0"
    assert layer_of("scale") == "scale"


def test_few_modules_are_layers_themselves() -> None:
    paths = [f"net.{number}" for number in range(MOST_LAYERS)]
    assert grouped(paths) == {path: path for path in paths}


def test_many_modules_are_grouped_by_block() -> None:
    """A ResNet-18 has 62 modules with parameters in 8 blocks; 41 outside of shortcuts."""
    blocks = [f"net.layer{stage}.{block}" for stage in range(1, 5) for block in range(2)]
    inner = [f"{block}.{name}" for block in blocks for name in ("conv1", "bn1", "conv2", "bn2", "x", "y", "z")]
    layers = grouped(["net.conv1", *inner, "net.fc"])
    assert list(dict.fromkeys(layers.values())) == ["net.conv1", *blocks, "net.fc"]
    assert layers["net.layer4.1.bn2"] == "net.layer4.1"


def test_very_many_blocks_are_not_lumped_together() -> None:
    paths = [f"net.blocks.{block}.{name}" for block in range(80) for name in ("attention", "mlp")]
    assert len(set(grouped([*paths, "net.head"]).values())) == 81


def test_nothing_has_no_layers() -> None:
    assert grouped([]) == {}
