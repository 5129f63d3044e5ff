"""Every probe on a pair of programs: it finds the defect at its line in one, and nothing at all in the other."""

from importlib import import_module
from pathlib import Path

import pytest

from playbook.doctor.registry import all_probes
from playbook.doctor.report import Report
from playbook.doctor.review import review
from tests.playbook.doctor.programs import needs_fork
from tests.playbook.running import sampled

pytestmark = needs_fork
CASES = Path(__file__).parent / "cases"
NAMES = sorted(file.stem for file in CASES.glob("*.py"))  # <id with underscores>[__variant], or clean__<what it is>
DEFECTIVE = [name for name in NAMES if not name.startswith("clean__")]
CLEAN = [name for name in NAMES if name.startswith("clean__")]
SAMPLE = {  # runs by default; CI runs all of them
    "double_softmax",  # seen in the calls of one step
    "parameter_not_optimized",  # in a short training
    "learning_rate_too_high",  # in longer ones
    "device_unsafe_tensor",  # in the place of tensors
    "train_val_overlap",  # in the data
    "python_loop_over_batch",  # in the source
    "clean__rare_class",
}


def reviewed(name: str, repaired: bool = False, ids: frozenset[str] | None = None) -> Report:
    """The repair of a defective case is `Repaired` in place of Model, `RepairedData` in place of Data."""
    module = import_module(f"tests.playbook.doctor.cases.{name}")
    model = module.Repaired if repaired and hasattr(module, "Repaired") else module.Model
    data = module.RepairedData if repaired and hasattr(module, "RepairedData") else module.Data
    assert not repaired or (model, data) != (module.Model, module.Data), "nothing is repaired"
    return review(lambda: (model(), data()), ids=ids)


def defect_of(name: str) -> str:
    return name.partition("__")[0].replace("_", "-")


@pytest.mark.parametrize("name", sampled(DEFECTIVE, SAMPLE))
def test_finds_the_defect_and_not_its_repair(name: str) -> None:
    defect = defect_of(name)
    report = reviewed(name, ids=frozenset({defect}))
    assert report.findings, report
    lines = (CASES / f"{name}.py").read_text(encoding="utf-8").splitlines()
    marked = [number for number, line in enumerate(lines, start=1) if line.endswith("# here")]
    files = [item for item in report.findings if item["file"].endswith(f"{name}.py")]
    near = [abs(item["line"] - number) for item in files for number in marked]
    assert min(near, default=99) <= 3, (marked, report.findings)

    report = reviewed(name, repaired=True, ids=frozenset({defect}))
    assert not report.findings, report
    assert not report.notes, report


@pytest.mark.slow
def test_the_gain_of_single_precision_is_told() -> None:
    """Two results of 20 doubles and their mean, among the activations of 20 samples."""
    [finding] = reviewed("dtype_promotion", ids=frozenset({"dtype-promotion"})).findings
    assert "float32 saves 3% of the memory" in finding["message"]


@pytest.mark.slow
def test_what_is_on_the_cpu_already_is_read_for_nothing() -> None:
    [finding] = reviewed("host_sync__brought", ids=frozenset({"host-sync"})).findings
    assert finding["message"].startswith(".cpu() here")


ADVICE = (
    "dtype_promotion__small",
    "eval_nondeterminism__channel",
    "train_not_shuffled__series",
    *("unnormalized_input__before_norm", "unnormalized_input__before_relu", "unnormalized_input__bytes_before_norm"),
    "padding_leak__fixed_length",
    "parameter_not_optimized__pretrained",
    "unnormalized_input__small",
    "unused_parameter__option",
)


@pytest.mark.parametrize("name", ADVICE)
def test_what_does_no_harm_here_is_advice(name: str) -> None:
    [finding] = reviewed(name, ids=frozenset({defect_of(name)})).findings
    assert finding["severity"] == "advice"


@pytest.mark.parametrize("name", sampled(CLEAN, SAMPLE))
def test_no_probe_alarms_where_nothing_is_wrong(name: str) -> None:
    report = reviewed(name)
    assert not report.findings, report
    assert not [note for note in report.notes if "Error" in note and "took more" not in note], report


def test_every_probe_has_a_case() -> None:
    assert {defect for probe in all_probes().values() for defect in probe.ids} <= {
        defect_of(name) for name in DEFECTIVE
    }
