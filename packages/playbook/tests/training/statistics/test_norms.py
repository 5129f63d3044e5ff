"""Norms of lists of tensors against torch.linalg, one at a time."""

import torch

from playbook.training.statistics.norms import norms


def test_tensors_of_all_kinds() -> None:
    torch.manual_seed(0)
    dense = [torch.randn(3, 4), torch.randn(5).double(), torch.randn(2).bfloat16(), torch.empty(0)]
    rows, values = torch.tensor([[1, 1, 2]]), torch.tensor([[3.0], [1.0], [3.0]])
    sparse = torch.sparse_coo_tensor(rows, values, (4, 1), check_invariants=True)  # 4 and 3
    expected = [torch.linalg.vector_norm(tensor.double()).item() for tensor in dense]
    torch.testing.assert_close(norms([*dense, sparse]), torch.tensor([*expected, 5.0]), rtol=1e-5, atol=0)


def test_half_precision_does_not_overflow() -> None:
    assert norms([torch.full((4,), 60000.0, dtype=torch.float16)]).tolist() == [120000.0]
