"""Causal models that score tokens differently with a cache or with padding in front."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.evidence.dependence import relative_change, repeat_row
from torchdoctor.evidence.tokens import padding_token, tokens_read
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op, Record, tensors
from torchdoctor.running.subject import Subject

SHIFTED_CAUSAL_MASK = Defect(
    "shifted-causal-mask",
    "critical",
    "Generation sees other tokens, or other positions, than training did: its text is worse than the loss says.",
    explains=("padding-leak",),
    shown_by=Evidence("experiment", "the same tokens were read in one piece and in several"),
)
_SHORTEST = 6  # tokens, for a half, one and three
_CACHES = ("past_key_values", "past_key_value", "past", "past_kv", "layer_past", "kv_cache", "cache")


def causal_offset(subject: Subject, least_change: float = 1e-3) -> Iterator[Finding | str]:
    """Runs what reads tokens in one piece and in several by its cache; and a row with its padding in front and without.

    The cache is `make_cache(B, T)`, or what `forward` returns beside the scores. Pieces are a half, one token, and
    three, for which queries and keys differ in number. Padding in front is the one value that many rows begin with and
    that stands nowhere else; a model that reads it without a mask gives other scores. One that hides it, and gives the
    same scores whatever is embedded there, may count positions from the first place, as it is trained to.
    The line is the first whose values at the last places differ.

    Args:
        subject: the training that has just begun.
        least_change: share of the scores' size; equal sums in another order: below 1e-5.
    """
    with subject.evaluating(), torch.enable_grad():  # a step of manual optimization goes backwards
        record = subject.record(subject.batches[0]).record
    tokens = [leaf for leaf in tokens_read(record) if leaf.shape[1] >= _SHORTEST]
    with subject.evaluating():
        for module, (args, kwargs), _ in record.calls:
            read = next((leaf for leaf in (*args, *kwargs.values()) if any(leaf is item for item in tokens)), None)
            if read is not None and next(nn.Module.parameters(module), None) is not None:
                yield from _cached(module, args, kwargs, read, least_change)
                yield from _padded(module, args, kwargs, read, least_change)
                return


PROBE = Probe(look=causal_offset, defects=(SHIFTED_CAUSAL_MASK,), is_light=True)


def _cached(module: nn.Module, args: Any, kwargs: Any, read: Tensor, least_change: float) -> Iterator[Finding | str]:
    argument = next((name for name in _CACHES if name in inspect.signature(module.forward).parameters), None)
    if argument is None or len(tensors((args, kwargs))) > 1:
        return
    tokens = read[:2]
    half, end = tokens.shape[1] // 2, min(tokens.shape[1] // 2 + 4, tokens.shape[1])
    make_cache = getattr(module, "make_cache", None)
    cache = make_cache(len(tokens), tokens.shape[1]) if callable(make_cache) else None
    try:
        for start, stop in ((0, half), (half, half + 1), (half + 1, end)):
            whole, one = _run(module, tokens[:, :stop])
            piece, other = _run(module, tokens[:, start:stop], **({} if cache is None else {argument: cache}))
            if one is None or other is None:
                return
            worst = relative_change(one[:, start:], other).max().item()
            if worst > least_change:
                message = (
                    f"tokens {start} to {stop - 1}, read with {argument} after the {start} before them, get scores "
                    f"that differ by {worst:.2g} of their size from those of one piece"
                )
                fix = "mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)  # the T queries are the last of S keys"
                place = _first_line(whole, piece, stop - start, least_change)
                yield Finding(SHIFTED_CAUSAL_MASK, place, message, fix, {"variant": "last keys"})
                return
            cache = cache if callable(make_cache) else _returned(piece, argument)
            if cache is None:
                return
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):  # its cache is used in another way
        return
    yield f"scores with {argument} are those without"


def _padded(module: nn.Module, args: Any, kwargs: Any, read: Tensor, least_change: float) -> Iterator[Finding | str]:
    front = padding_token(read.flip(1))
    if front is None:
        return
    lengths = (read != front).sum(1)
    row, (num, total) = int(lengths.clamp(min=1).argmin()), read.shape
    length = int(lengths[row])
    if not 1 < length < total - 1:
        return

    def run(start: int) -> tuple[Record, Tensor | None]:
        cut_args, cut_kwargs = repeat_row((args, kwargs), row, num, total, slice(start, None))
        return _run(module, *cut_args, **cut_kwargs)

    try:
        (whole, one), (piece, other) = run(0), run(total - length)
    except (AssertionError, RuntimeError, ValueError, IndexError):
        return
    if one is None or other is None:
        return
    worst = relative_change(one[:, -length:], other).max().item()
    by_last, by_padding = (
        _sensitivity_per_position(module, lambda: run(0)[1], one, places)
        for places in (slice(total - 1, total), slice(total - length))
    )
    if by_last is not None and by_last[:-1].max() > least_change:
        return  # it reads both ways
    if worst <= least_change or (by_padding is not None and by_padding[-length:].max() <= least_change):
        yield "padding in front does not change scores, but for their positions"
        return
    message = (
        f"{total - length} tokens of padding in front change the scores of {length} tokens by {worst:.2g} of their size"
    )
    fix = "positions = (mask.cumsum(1) - 1).clamp(min=0); seen = causal & mask[:, None, :]  # mask: (B, T), real tokens"
    yield Finding(SHIFTED_CAUSAL_MASK, _first_line(whole, piece, length, least_change), message, fix)


def _sensitivity_per_position(
    module: nn.Module, run: Callable[[], Tensor | None], scores: Tensor, places: slice
) -> Tensor | None:
    """The change of scores at each position (T,) by noise in the embeddings of some; None without embeddings."""

    def disturb(_: nn.Module, __: Any, out: Tensor) -> Tensor:
        if out.dim() < 2 or out.shape[-2] != scores.shape[1]:
            return out
        disturbed.append(out.clone())
        disturbed[-1][..., places, :] += torch.randn_like(out[..., places, :])
        return disturbed[-1]

    disturbed: list[Tensor] = []
    hooks = [part.register_forward_hook(disturb) for part in module.modules() if isinstance(part, nn.Embedding)]
    other = run()
    for hook in hooks:
        hook.remove()
    return relative_change(scores, other).amax((0, 2)) if disturbed and other is not None else None


def _run(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Record, Tensor | None]:
    """The calls of a module, and the scores (B, T, …) that it returns."""
    torch.manual_seed(0)
    with Record() as record:
        result = module(*args, **kwargs)
    length = next(leaf.shape[1] for leaf in args if isinstance(leaf, Tensor))
    floats = [leaf for leaf in tensors(result) if leaf.is_floating_point() and leaf.shape[1:2] == (length,)]
    scores = getattr(result, "logits", None)
    scores = scores if isinstance(scores, Tensor) else next((leaf for leaf in floats if leaf.dim() == 3), None)
    return record, scores


def _returned(piece: Record, argument: str) -> Any:
    """What forward returned beside the scores."""
    _, _, result = piece.calls[-1]
    if hasattr(result, argument):
        return getattr(result, argument)
    return result[1] if isinstance(result, tuple) and len(result) > 1 and tensors(result[1]) else None


def _first_line(whole: Record, piece: Record, length: int, least_change: float) -> Place | None:
    """The first line whose results at the last places differ, of calls that both runs make."""
    twins: dict[tuple[str, Place | None], list[Op]] = {}
    for op in reversed(whole.ops):
        twins.setdefault((op.name, op.place), []).append(op)
    for op in piece.ops:
        twin = twins[op.name, op.place].pop() if twins.get((op.name, op.place)) else None
        if op.place is None or twin is None:
            continue
        for before, after in zip(twin.outputs[:1], op.outputs[:1], strict=False):
            if before.dim() != after.dim() or before.dtype == torch.int64:  # positions may be relative
                continue
            last = before
            for dim, size in enumerate(after.shape):
                if last.shape[dim] > size == length:
                    last = last.narrow(dim, last.shape[dim] - length, length)
            if last.shape == after.shape and last.dim() and (relative_change(last, after) > least_change).any():
                return op.place
    return None
