"""The pretended accelerator behaves as one: values as on the CPU, meetings of devices told."""

import copy

import numpy as np
import pytest
import torch
import wandb
from torch import Tensor, nn

from torchdoctor.running.pretended_device import PRETENDED, PretendedTensor, pretend_device


@pytest.fixture
def met() -> list[str]:
    return []


def _far(met: list[str]):
    return pretend_device(lambda name, strangers: met.append(name), lambda tensor, args: None)


def test_values_and_gradients_are_those_of_the_cpu(met: list[str]) -> None:
    torch.manual_seed(0)
    near, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(5, 3)
    expected = near(x).sum()
    expected.backward()
    with _far(met):
        moved = copy.deepcopy(near).to(PRETENDED)
        moved.zero_grad()
        out = moved(x.to(PRETENDED)).sum()
        assert isinstance(out, PretendedTensor)
        out.backward()
        grad = moved[0].weight.grad
        assert isinstance(grad, PretendedTensor)
        assert out.item() == pytest.approx(expected.item())
        torch.testing.assert_close(grad.cpu_values, near[0].weight.grad)
    assert not met


def test_what_is_read_on_the_host_is_a_value(met: list[str]) -> None:
    with _far(met):
        x = torch.tensor([1.0, 2.0], device=PRETENDED)
        assert x.tolist() == [1.0, 2.0]
        assert x.numpy().sum() == 3.0
        assert f"{x[0]:.1f}" == "1.0"
        assert repr(x) == repr(torch.tensor([1.0, 2.0]))
        assert copy.deepcopy(x).tolist() == [1.0, 2.0]
        assert bool(x.sum() > 2)
        x.unsqueeze_(0)
        assert x.shape == (1, 2)
        assert torch.as_tensor(x, device=PRETENDED) is x
        made = x.new_tensor([3, 4])
        assert (made.device, made.dtype, made.tolist()) == (PRETENDED, torch.float32, [3.0, 4.0])
        assert x.new_tensor([3], device="cpu").device.type == "cpu"
        assert x[:, [-1]].tolist() == [[2.0]]
        made[np.array([1])] = 5
        assert made.tolist() == [3.0, 5.0]
        with torch.autocast(PRETENDED.type, torch.bfloat16):
            assert (x @ x.T).tolist() == [[5.0]]


def test_a_list_of_slices_is_an_index(met: list[str]) -> None:
    values = torch.arange(12.0).view(3, 4)
    index: list[slice] = [slice(None), slice(-2, None)]
    with _far(met):
        part = values.to(PRETENDED)[index]
        assert isinstance(part, PretendedTensor)
        torch.testing.assert_close(part.cpu_values, values[:, -2:])
    assert not met


def test_meetings_are_told(met: list[str]) -> None:
    with _far(met):
        x = torch.zeros(3, device=PRETENDED)
        assert (x + 1).device == PRETENDED
        assert (x + torch.tensor(1.0)).device == PRETENDED, "a number may stay on the CPU"
        assert x[torch.tensor([0, 1])].shape == (2,), "indices may"
        assert not met
        assert (x + torch.ones(3)).tolist() == [1.0, 1.0, 1.0]
        assert met == ["add"]
        x[torch.tensor([0, 1])] = torch.ones(2)
    assert met[1:] == ["index_put_"]


def test_afterwards_nothing_is_left(met: list[str]) -> None:
    enter = torch.autocast.__init__
    with _far(met):
        pass
    assert torch.autocast.__init__ is enter
    assert isinstance(torch.ones(2) + 1, Tensor)
    assert not torch.__future__.get_overwrite_module_params_on_conversion()


def test_a_copy_of_a_net_learns(met: list[str]) -> None:
    net = nn.Linear(3, 1)
    with _far(met):
        net.to(PRETENDED)
        local = copy.deepcopy(net)
        assert [type(weight) for weight in local.parameters()] == [type(weight) for weight in net.parameters()]
        local(torch.randn(5, 3).to(PRETENDED)).sum().backward()
        gradient = torch.zeros_like(net.bias)
        assert local.bias.grad is not None
        gradient += local.bias.grad
        assert gradient.tolist() == [5.0]
    assert not met


def test_libraries_take_it_for_a_tensor_of_torch(met: list[str]) -> None:
    with _far(met):
        image = wandb.Image(torch.rand(3, 4, 6).to(PRETENDED))
    assert image.image is not None
    assert image.image.size == (6, 4)
