"""Kept weights that are not copied, so that training keeps changing them."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import dropwhile
from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.evidence.state_dicts import SharedTensor, StateDict, StateDictTracker, fingerprint, named_weights
from torchdoctor.findings import TRAINING, Defect, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.record import tensors
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject

KEPT_WEIGHTS_CHANGE = Defect(
    "kept-weights-change",
    "warning",
    "Loading them changes nothing: the model keeps the weights of its last step.",
    shown_by=TRAINING,
)
UNTRAINED_WEIGHTS = Defect(
    "untrained-weights",
    "critical",
    "What the program ends with was never trained.",
    shown_by=TRAINING,
)
_ITSELF = "There is one network where two are meant: its copy changes with every step."
_LEAST = 4  # steps that a training has


def kept_weights(subject: Subject) -> Iterator[Finding | str]:
    """Trains a few real steps and follows what `state_dict()` returns until the same model loads it.

    The result holds the model's own tensors unless it is copied. If optimizers' steps have changed them since, loading
    them restores nothing, and a file that they are saved to has the last ones, where the program had a choice. Weights
    that are loaded at once are not reported, unless a network loads its own: what should be its copy is another name
    for it. Nor are weights that the program itself has written since the last step.
    Weights of before the first step that are loaded after the last one are a choice that nothing makes anew.
    """
    watch = rehearsal_notes(subject, KeptWeightsWatch)
    yield from watch.look()
    yield from watch.look_at_end()


class KeptWeightsWatch(Watch):
    """Follows weights that a program keeps, until it loads or saves them."""

    def __init__(self, subject: Subject | None = None) -> None:
        self.tracker = StateDictTracker(self.before_load, self.before_save)
        self.findings: dict[Place, Finding] = {}
        self.loads_others = False  # whether weights were loaded that are not the model's own tensors
        self.reset: tuple[Place, int] | None = None  # where the first weights were loaded last, after how many steps
        self.saved: list[tuple[Place, int]] = []  # where something was saved, after how many steps

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Takes notes from here on; the process is a copy."""
        self.begin()

    def begin(self) -> None:
        """Takes notes of kept and loaded weights in this process, for good."""
        self.tracker.begin()

    def before_load(self, module: nn.Module, weights: Mapping[str, Any], place: Place) -> None:
        own, loads_own = named_weights(module), False
        self.reset = (place, self.tracker.num_steps) if self.is_reset(own, weights) else None
        for state in self.tracker.states:
            pairs = [(state.entries.get(id(tensor)), tensor, own.get(name)) for name, tensor in weights.items()]
            shared = [entry for entry, *pair in pairs if entry is not None and entry.is_loaded_by(*pair)]
            if not shared:
                continue
            loads_own = state.is_loaded = True
            if len(shared) == len(own) and place == state.places[0]:
                self.findings.setdefault(place, _of_itself(place))
            self.judge(state, shared, f"{place.seen_from(state.places[0])} loads", self.tracker.overwritten)
        self.loads_others |= not loads_own

    def is_reset(self, own: Mapping[str, Tensor], weights: Mapping[str, Any]) -> bool:
        """Whether loading these takes a module back to weights of before the first step."""
        if not (self.tracker.num_steps and self.tracker.initial):
            return False
        loaded = fingerprint({name: weights[name] for name in own if isinstance(weights.get(name), Tensor)})
        return loaded in self.tracker.initial and loaded != fingerprint(own)

    def before_save(self, saved: Any, place: Place) -> None:
        self.saved.append((place, self.tracker.num_steps))
        ids = set(map(id, tensors(saved)))
        for state in self.tracker.states:
            shared = [entry for key, entry in state.entries.items() if key in ids]
            if self.is_choice(state):
                self.judge(state, shared, f"{place.seen_from(state.places[0])} saves", self.tracker.unsaved)
            state.is_saved |= bool(shared)

    def judge(self, state: StateDict, shared: list[SharedTensor], use: str, overwritten: Mapping[Place, int]) -> None:
        """Takes down a finding if steps have changed what a state shares with the model by the time it is used.

        Args:
            state: that was kept.
            shared: its entries that are used.
            use: what is done with it, and where.
            overwritten: steps that have changed what a line kept, until it kept weights anew.
        """
        changed = [entry for entry in shared if self.tracker.is_as_stepped(entry.weight())]
        num_steps = max(map(self.tracker.steps_since, changed), default=0)
        if changed and not num_steps and self.is_choice(state):  # in this training, the last are the best
            num_steps = overwritten.get(state.places[0], 0)
        if num_steps:
            self.findings.setdefault(state.places[0], _finding(state.places[0], use, len(changed), num_steps))

    def is_choice(self, state: StateDict) -> bool:
        """Whether the program might have loaded an earlier state: it keeps some of them, or holds all that it kept."""
        states = [each for each in self.tracker.states if each.is_referenced and each.places[0] == state.places[0]]
        return len(states) > 1 or _is_conditional(state.places)

    def look(self) -> Iterator[Finding | str]:
        """What the notes mean."""
        if self.loads_others and not self.findings:
            yield "weights that are loaded are not the model's own tensors"
        yield from self.findings.values()

    def look_at_end(self, files: Iterable[str] = ()) -> Iterator[Finding]:
        """What the notes of a training that has ended say of the weights that remain.

        Args:
            files: of a script, in which every line that saves something is looked for.
        """
        num_steps = self.tracker.num_steps
        if num_steps < _LEAST:
            return
        place, loaded_after = self.reset or (None, None)
        if place is not None and loaded_after == num_steps and _keeps_once(place.file):
            message = f"weights of before the first step are loaded after the last of {num_steps}; no others are kept"
            fix = "best = copy.deepcopy(model.state_dict())  # whenever the validation gets better"
            yield Finding(UNTRAINED_WEIGHTS, place, message, fix)
        calls = [call for file in files for call in source.calls(source.tree(file), "save")]
        if len(self.saved) == len(calls) == 1 and self.saved[0][1] == 0:
            message = f"what is saved here is from before the first of {num_steps} steps, and nothing is saved later"
            fix = "torch.save(model.state_dict(), …)  # after the training"
            yield Finding(UNTRAINED_WEIGHTS, self.saved[0][0], message, fix)


PROBE = Probe(
    look=kept_weights,
    defects=(KEPT_WEIGHTS_CHANGE, UNTRAINED_WEIGHTS),
    needs=(Need.LIGHTNING,),
    watch=KeptWeightsWatch,
    by_rehearsal=(KEPT_WEIGHTS_CHANGE, UNTRAINED_WEIGHTS),
)


def _keeps_once(file: str) -> bool:
    """Whether a file has one call of `state_dict`, which is that of before the training."""
    return len(list(source.calls(source.tree(file), "state_dict"))) == 1


def _is_conditional(places: tuple[Place, ...]) -> bool:
    """Whether an `if` in the loop decides about a call; where the loop is Lightning's, an `if` in the hook."""
    nodes = [node for place in reversed(places) for node in source.around(place, ast.For, ast.While, ast.If)]
    inside = list(dropwhile(lambda node: isinstance(node, ast.If), nodes))
    if not inside and source.function_at(places[0]) is not None:
        inside = nodes
    return any(isinstance(node, ast.If) for node in inside)


def _finding(place: Place, use: str, num_weights: int, num_steps: int) -> Finding:
    if num_weights > 1:
        what, they, them = (
            f"{num_weights} weights are kept here as the model's own tensors, not as copies",
            "they are",
            "them",
        )
    else:
        what, they, them = "a weight is kept here as the model's own tensor, not as a copy", "it is", "it"
    steps = f"{num_steps} steps change" if num_steps > 1 else "a step changes"
    message = f"{what}: {steps} {them} while {they} kept, and {use} {them}"
    calls = [ast.unparse(call) for call in source.around(place, ast.Call) if _is_state_dict(call)]
    call = calls[0] if len(calls) == 1 else "model.state_dict()"
    return Finding(KEPT_WEIGHTS_CHANGE, place, message, f"copy.deepcopy({call})")


def _of_itself(place: Place) -> Finding:
    """A finding of a line that loads the weights of a network into itself."""
    called = [call.func for call in source.around(place, ast.Call) if isinstance(call.func, ast.Attribute)]
    names = [ast.unparse(method.value) for method in called if method.attr in ("load_state_dict", "state_dict")]
    target, given = names if len(names) == 2 else ("the target", "the network")
    message = f"{target} and {given} are one and the same network: it loads its own weights"
    defect = replace(KEPT_WEIGHTS_CHANGE, impact=_ITSELF)
    return Finding(defect, place, message, f"{target} = copy.deepcopy({given})  # where it is made")


def _is_state_dict(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "state_dict"
