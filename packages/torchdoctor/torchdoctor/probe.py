"""The declaration that each file of probes/ makes: one `PROBE`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from torchdoctor.findings import Defect, Finding, NotLookedAt
from torchdoctor.running.rehearsal import Watch
from torchdoctor.running.subject import Subject

Look = Callable[[Subject], Iterable[Finding | str | NotLookedAt]]


class Need(Enum):
    """Requirements of probes that a script's step may not meet; a LightningModule meets all."""

    BATCHES = auto()  # it takes batches
    SAMPLES = auto()  # a loader gives them, so that their dimension of samples is known
    VAL_SAMPLES = auto()  # one also gives those of the validation, if there is any
    FEWER_SAMPLES = auto()  # it takes smaller batches as well
    DENSE = auto()  # its batches are not sparse
    WEIGHTS = auto()  # a module holds the weights
    STEPS = auto()  # its optimizers take one step for each gradient, unlike LBFGS
    ONE_LOSS = auto()  # it goes backward from one loss
    LIGHTNING = auto()  # Lightning runs the loop; no script has that


@dataclass(frozen=True)
class Probe:
    """The declaration of one probe.

    Args:
        look: yields findings, a sentence for each thing that is as it should be, and what could not have been found.
        defects: that it can find. One file makes each defect, others may import it.
        needs: what a script's step must have for it.
        watch: what takes notes for it in a rehearsal, which such probes share.
        by_rehearsal: defects that the rehearsal of a script looks for, where this probe does not run.
        is_light: whether it trains nothing and waits for nothing, so that others may run after it in the same process.
        of_holders: whether it also looks at modules that hold the models of a script in plain lists.
        at_start: whether what it finds may be gone after an epoch, as a poor initialisation is.
    """

    look: Look
    defects: tuple[Defect, ...]
    needs: tuple[Need, ...] = (Need.BATCHES,)
    watch: type[Watch] | None = None
    by_rehearsal: tuple[Defect, ...] = ()
    is_light: bool = False
    of_holders: bool = False
    at_start: bool = False

    @property
    def ids(self) -> frozenset[str]:
        """The ids of its defects."""
        return frozenset(defect.id for defect in self.defects)
