from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs, Classifier


class LastState(nn.Module):
    """A recurrent classifier that reads the last state, and neither the outputs nor the last cell."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        _, (state, _) = self.lstm(x.t().unsqueeze(2))  # (T, B, 1)
        return self.head(state[-1])  # (B, 3)


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = LastState()  # type: ignore[assignment]


class Data(Blobs):
    pass
