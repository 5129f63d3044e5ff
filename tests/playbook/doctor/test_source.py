"""Where the review says that a layer was made."""

from torch import nn

from playbook.doctor import source


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)  # the stem
        stages = []
        for _ in range(3):
            stages += [nn.Linear(8, 8), nn.BatchNorm1d(8)]  # a stage
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(8, 2)  # the head


class Helped(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int) -> list[nn.Module]:
            return [nn.Linear(inputs, 8), nn.ReLU()]  # a block

        self.net = nn.Sequential(*block(4), *block(8), nn.Linear(8, 2))  # the head


class Called(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 8)  # the stem
        self.stages = nn.ModuleList([self.stage() for _ in range(2)])

    def stage(self) -> nn.Module:
        return nn.Linear(8, 8)  # a stage


def comments(model: nn.Module) -> list[str]:
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    places = [source.construction(model, layer) for layer in layers]
    return [place.code.rpartition("# ")[2] if place else "" for place in places]


def test_the_line_that_made_a_layer() -> None:
    assert comments(Looped()) == ["the stem", *["a stage"] * 3, "the head"]
    assert comments(Helped()) == ["a block", "a block", "the head"]
    assert comments(Called()) == ["the stem", "a stage", "a stage"]
