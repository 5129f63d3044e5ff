"""Compiled in place: the same results, the same names, once."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torchmetrics import MeanMetric

from playbook.network import networks
from playbook.testing.command import QUIET
from playbook.testing.line import Line, line, points
from src.callbacks.compile import Compile


@pytest.fixture(autouse=True)
def _forget_graphs() -> Any:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {**QUIET, "max_epochs": 2, "enable_checkpointing": False, "default_root_dir": folder, **more}


def graphs(counters: Any) -> int:
    return counters["stats"]["unique_graphs"]


@pytest.mark.slow
def test_results_and_names_are_those_of_eager(tmp_path: Path) -> None:
    from torch._dynamo.utils import counters

    counters.clear()
    plain, compiled = line(), line()
    Trainer(**settings(tmp_path)).fit(plain, points(), points())
    assert graphs(counters) == 0
    trainer = Trainer(**settings(tmp_path), callbacks=[Compile(backend="aot_eager")])
    trainer.fit(compiled, points(), points())
    assert 1 <= graphs(counters) <= 2, "one with gradients, one without"
    assert list(compiled.state_dict()) == list(plain.state_dict()) == ["net.weight", "net.bias"]
    torch.testing.assert_close(compiled.net.weight, plain.net.weight)
    impl, before = compiled.net._compiled_call_impl, graphs(counters)
    trainer.test(compiled, points(), verbose=False)
    assert compiled.net._compiled_call_impl is impl
    assert graphs(counters) <= before + 1, "the test is in inference mode, else it compiles nothing anew"


class Parts(LightningModule):
    """No `net`: a part that is made late, a metric, a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(1, 2)
        self.metric = MeanMetric()
        self.loss = nn.MSELoss()

    def configure_model(self) -> None:
        self.decoder = nn.Linear(2, 1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.loss(self.decoder(self.encoder(batch[0])), batch[1])


def test_module_without_net_has_its_parts_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[nn.Module, dict[str, Any]]] = []
    monkeypatch.setattr(nn.Linear, "compile", lambda self, **options: calls.append((self, options)))
    module = Parts()
    assert networks(module) == [module.encoder]
    trainer = Trainer(
        **settings(tmp_path), callbacks=[Compile("reduce-overhead", dynamic=True, fullgraph=True, backend="eager")]
    )
    trainer.validate(module, points(), verbose=False)
    options = {"mode": "reduce-overhead", "dynamic": True, "fullgraph": True, "backend": "eager"}
    assert calls == [(module.encoder, options), (module.decoder, options)]


class Bare(Line):
    """A parameter of its own and no layer."""

    def __init__(self) -> None:
        super().__init__()
        del self.net
        self.slope = nn.Parameter(torch.zeros(1))

    def _error(self, batch: Any) -> Tensor:
        return (batch[0] * self.slope - batch[1]).square().mean()


def test_nothing_to_compile(tmp_path: Path) -> None:
    trainer = Trainer(**settings(tmp_path), callbacks=[Compile()])
    with pytest.raises(ValueError, match="Compile: Bare has no child with parameters"):
        trainer.fit(Bare(), points(), points())
