"""Euclidean norms of many tensors, in few kernels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each tensor, in float32 on the device of the first; half precision would overflow beyond 65,504.

    Args:
        tensors: at least one, dense or sparse, of any types and devices.
    """
    places: dict[Any, list[int]] = {}
    dense = [tensor.coalesce().values() if tensor.is_sparse else tensor for tensor in tensors]
    for place, tensor in enumerate(dense):
        places.setdefault((tensor.device, tensor.dtype), []).append(place)
    values = [torch.empty(0)] * len(dense)
    for (_, dtype), members in places.items():
        wider = torch.float32 if dtype in (torch.float16, torch.bfloat16) else None
        # private to torch, which has no public operation on a list of tensors before 2.15
        for place, norm in zip(members, torch._foreach_norm([dense[n] for n in members], 2, wider), strict=True):
            values[place] = norm
    return torch.stack([value.to(dense[0].device, torch.float32) for value in values])
