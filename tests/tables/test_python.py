"""Tables from Python: the data sets the sizes of the net, and the Trainer trains it."""

import pytest
from torch.optim import AdamW

from playbook import Trainer, build
from playbook.testing.command import UNSAVED
from src.data.tables.scikit_table import ScikitTable
from src.nets.tables.tabm import TabM
from src.tasks.classification import Classification


@pytest.mark.usefixtures("workdir")
def test_an_ensemble_learns_wine() -> None:
    data = ScikitTable("wine", members=4)
    model = build(Classification, data, net=TabM, optimizer=lambda parameters: AdamW(parameters, lr=3e-3))
    net = model.net
    assert isinstance(net, TabM)
    assert (model.num_classes, net.members, net.embedding.dims) == (3, 4, [16] * 13)
    trainer = Trainer(**UNSAVED, max_epochs=5)
    trainer.fit(model, datamodule=data)
    [metrics] = trainer.test(model, datamodule=data, verbose=False)
    assert metrics["test/accuracy"] > 0.9, metrics
