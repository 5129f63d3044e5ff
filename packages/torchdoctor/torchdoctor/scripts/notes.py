"""Patches torch to record and control what a script does: loops over loaders, `backward`, constructed objects."""

import gc
import multiprocessing.process
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from traceback import walk_stack
from types import FrameType
from typing import Any, ClassVar, Self
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor import source
from torchdoctor.evidence import origins, scalers

Stack = list[tuple[FrameType, int]]  # the user's frames and their lines, the outermost first
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_LAST = 50  # iterations over loaders that are remembered
_IN_ONE_PROCESS = {"num_workers": 0, "timeout": 0, "pin_memory": False, "persistent_workers": False}

iterations: list[tuple[DataLoader, Stack]] = []  # which loader was begun, from where
_sent = WeakSet[nn.Module]()  # to a device, or to a type


class Loading:
    """Controls how loaders yield batches, as each phase of a review requires.

    Attributes:
        longest: batches of one iteration; None leaves them all.
        chosen: gives the batches of a loader in place of its own; None leaves them.
        latest: the loader that gave the last batch, where iterations are cut short.
        num_quiet: batches that it has given since another loader did, or since a `backward`.
    """

    longest: int | None = None
    latest: DataLoader | None = None
    num_quiet = 0
    chosen: Callable[[DataLoader], Iterator[Any] | None] = staticmethod(lambda loader: None)


class Backward:
    """Controls what `backward` does, as each phase of a review requires."""

    original = staticmethod(torch.autograd.backward)
    act: Callable[..., Any] = staticmethod(torch.autograd.backward)


def stack(frame: FrameType | None) -> Stack:
    """The user's frames around a frame, outermost first; comprehensions belong to the frame around them."""
    frames = walk_stack(frame) if frame is not None else ()
    users = [(frame, line) for frame, line in frames if source.is_user(frame.f_code.co_filename)]
    return [(frame, line) for frame, line in users[::-1] if frame.f_code.co_name not in _COMPREHENSIONS]


def patch() -> None:
    """Patches torch for the rest of this process."""
    origins.note_makers()
    scalers.note_fits()
    begin = DataLoader.__iter__
    DataLoader.__iter__ = lambda self: _iterate(self, begin)  # type: ignore[method-assign]
    DataLoader.__init_subclass__ = classmethod(_note_own_iterations)  # type: ignore[assignment]

    def backward(
        self: Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        Backward.act(self, gradient, retain_graph, create_graph, inputs=inputs)

    def backward_of_several(*args: Any, **kwargs: Any) -> None:
        Backward.act(*args, **kwargs)

    Tensor.backward = backward
    torch.autograd.backward = backward_of_several
    send = nn.Module.to

    def to(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        if source.is_user(sys._getframe(1).f_code.co_filename):  # and not the review
            _sent.add(self)
        return send(self, *args, **kwargs)

    nn.Module.to = to
    nn.Module.cuda = lambda self, *_, **__: _sent.add(self) or self  # as sandbox has it for tensors
    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function  # takes minutes
    _run_processes_here()
    _free_queues()


def _free_queues() -> None:
    """Makes queues unbounded: a forked process lacks the threads that would empty them."""
    make, queues = Queue.__init__, WeakSet[Queue]()

    def note(self: Queue, maxsize: int = 0) -> None:
        make(self, maxsize)
        queues.add(self)

    def free() -> None:
        for each in list(queues):
            make(each)
            each.join = lambda: None

    Queue.__init__ = note
    os.register_at_fork(after_in_child=free)


def _run_processes_here() -> None:
    """Runs the script's own child processes inside this one; daemons, as of a pool, start as usual."""
    kind = multiprocessing.process.BaseProcess
    begin, wait = kind.start, kind.join

    def start(self: Any) -> None:
        code = getattr(self._target or type(self).run, "__code__", None)
        spawned = getattr(self._target, "__module__", "").startswith("torch.multiprocessing")
        if spawned or (code is not None and source.is_user(code.co_filename) and not self.daemon):
            self.run()
        else:
            begin(self)

    def join(self: Any, timeout: float | None = None) -> None:
        if self._popen is not None:
            wait(self, timeout)

    kind.start, kind.join = start, join


def _note_own_iterations(kind: type[DataLoader], **options: Any) -> None:
    """Tracks the iterations of a loader class that reuses its iterator."""
    super(DataLoader, kind).__init_subclass__(**options)
    begin = vars(kind).get("__iter__")
    code = getattr(begin, "__code__", None)
    if begin is not None and code is not None and "super" not in code.co_names:
        kind.__iter__ = lambda self: _iterate(self, begin)  # type: ignore[method-assign]


def _iterate(loader: DataLoader, begin: Callable[[DataLoader], Iterator[Any]]) -> Iterator[Any]:
    iterations.append((loader, stack(sys._getframe(2))))
    del iterations[:-_LAST]
    chosen = Loading.chosen(loader)
    if chosen is not None:
        return chosen
    own = {name: vars(loader)[name] for name in _IN_ONE_PROCESS if name in vars(loader)}
    vars(loader).update(_IN_ONE_PROCESS)
    try:
        batches = begin(loader)
    finally:
        vars(loader).update(own)
    return _Batches(loader, batches)


class _Batches:
    """An iteration over a loader that can be rewound, and is cut short inside of loops.

    A script that calls `next` counts for itself how many batches there are, so that it gets them all.
    """

    living: ClassVar[WeakSet[Self]] = WeakSet()

    def __init__(self, loader: DataLoader, batches: Iterator[Any]) -> None:
        self.loader, self.batches, self.longest = loader, batches, Loading.longest
        self.number = 0
        self.taken: list[Any] | None = None  # since it was noted where it is
        self.again: list[Any] = []  # that have been taken back
        self.living.add(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        batch = self.again.pop(0) if self.again else self._fetch(sys._getframe(1))
        if self.taken is not None:
            self.taken.append(pytree.tree_map_only(Tensor, Tensor.clone, batch))
        return batch

    def _fetch(self, frame: FrameType) -> Any:
        if self.longest is None:
            return next(self.batches)
        if self.number >= self.longest and not _calls_next(frame):
            raise StopIteration
        batch = next(self.batches)
        self.number += 1
        Loading.num_quiet = Loading.num_quiet + 1 if self.loader is Loading.latest else 1
        Loading.latest = self.loader
        return batch


def _calls_next(frame: FrameType) -> bool:
    file, line = frame.f_code.co_filename, frame.f_lineno
    return source.is_user(file) and any(call.lineno == line for call in source.calls(source.tree(file), "next"))


def is_sent(network: nn.Module) -> bool:
    """Whether a network, a part of it or its parent was moved to a device or a type."""
    parts = set(network.modules())
    return any(not parts.isdisjoint(other.modules()) for other in list(_sent))


@contextmanager
def rewound_iterations() -> Iterator[None]:
    """A context that rewinds all iterations over loaders on exit."""
    begun = list(_Batches.living)
    for each in begun:
        each.taken = []
    try:
        yield
    finally:
        for each in begun:
            each.again, each.taken = [*(each.taken or []), *each.again], None


def living_objects(kind: type) -> list[Any]:
    """Existing objects of a type, found by `type`, as `isinstance` fails on dead proxies."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
