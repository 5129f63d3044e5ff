from torch import Tensor

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        gate = self.net(x).sigmoid()
        out = gate * 2.0
        gate[:, 0] = 0.0  # here
        return out * gate


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        gate = self.net(x).sigmoid()
        return gate * 2.0 * gate
