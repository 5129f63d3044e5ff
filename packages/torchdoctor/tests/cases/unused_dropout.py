from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    """Makes dropout that its forward leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.3)  # here


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.dropout(x))


# -- recurrent
RecurrentData = Blobs


class RecurrentModel(Classifier):
    """Asks one recurrent layer to drop what goes to the next."""

    def __init__(self, num_layers: int = 1) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 16, num_layers, dropout=0.3, batch_first=True)  # here
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.unflatten(1, (4, 2)))[0].mean(1))


class RecurrentRepaired(RecurrentModel):
    def __init__(self) -> None:
        super().__init__(num_layers=2)
