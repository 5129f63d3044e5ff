"""Assigns predictions to objects in training."""

import torch
from torch import Tensor

ALPHA, BETA = 1.0, 6.0  # powers of the score and of the IoU (Feng et al. 2021, section 4.1)


@torch.no_grad()
def task_aligned(
    scores: Tensor, overlaps: Tensor, candidates: Tensor, labels: Tensor, top_k: int = 10
) -> tuple[Tensor, Tensor]:
    """Assigns to every object the predictions that both classify and locate it best (Feng et al. 2021, section 3.2).

    An object ranks its candidates by score^α · IoU^β and takes the first k, where k is the sum of its top_k largest
    IoUs, rounded down, but at least 1 (Ge et al. 2021, section 2.1). A prediction that several objects claim goes to
    the one that it overlaps most. The computation is vectorised over images and objects.

    Args:
        scores: probabilities of the classes (B, N, K).
        overlaps: IoU of objects and predicted boxes (B, M, N).
        candidates: which predictions an object may take (B, M, N); none for rows of padding.
        labels: classes of the objects (B, M).
        top_k: largest number of predictions per object, at least 1.

    Returns:
        owner (B, N), the object assigned to each prediction, or -1; and quality (B, N), its target score: its rank as a
        share of the object's best rank, times the object's best IoU, or 0.
    """
    of_class = scores.mT.gather(1, labels[..., None].expand_as(overlaps))  # (B, M, N)
    overlaps = overlaps.masked_fill(~candidates, 0)  # a row that fills up may hold NaN, of two boxes without extent
    rank = of_class**ALPHA * overlaps**BETA
    best, index = rank.masked_fill(~candidates, -1).topk(min(top_k, rank.shape[-1]))  # (B, M, k)
    total = overlaps.topk(best.shape[-1]).values.sum(-1, keepdim=True)  # (B, M, 1)
    place = torch.arange(best.shape[-1], device=rank.device)
    is_taken = torch.zeros_like(candidates).scatter(-1, index, (best >= 0) & (place < total.floor().clamp(min=1)))
    owner = overlaps.masked_fill(~is_taken, -1).argmax(1, keepdim=True)  # (B, 1, N)
    is_taken &= torch.zeros_like(is_taken).scatter(1, owner, True)
    rank, overlaps = rank * is_taken, overlaps * is_taken
    # of boxes that overlap next to nothing, the sixth power may vanish
    share = rank / rank.amax(-1, keepdim=True).clamp(min=torch.finfo(rank.dtype).tiny)
    quality = (share * overlaps.amax(-1, keepdim=True)).sum(1)  # (B, N), of one owner at most
    return torch.where(is_taken.any(1), owner[:, 0], -1), quality
