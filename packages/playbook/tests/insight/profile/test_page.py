"""The table in the terminal and the sections of the page."""

from pathlib import Path

import torch
from torch import nn

from playbook.insight.profile import page
from playbook.insight.profile.loading import Stage
from playbook.insight.profile.operators import Roofline
from playbook.insight.profile.recorder import BACKWARD, Recorder
from playbook.insight.profile.remedies import Remedy, Trial, Trials
from playbook.insight.profile.steps import Steps
from playbook.insight.report.blocks import Section


def steps(ms: float, loss: float = 1.0, planned: int | None = 1000) -> Steps:
    shares = {"forward": 0.7, "data": 0.3}
    return Steps(ms, ms, 64e3 / ms, 0.0, 100.0, [loss], planned, "data", "--data.num_workers 2", shares)


def made() -> Trials:
    trials = Trials(steps(10.0), again=steps(10.1))
    trials.trials = [
        Trial(Remedy("2 workers", ("--data.num_workers", "2")), steps(5.0)),
        Trial(Remedy("bf16", ("--bf16",)), steps(4.0, loss=3.0)),
        Trial(Remedy("batches of 8", ("--data.batch_size", "8"), keeps_training=False), steps(8.0)),
        Trial(Remedy("compile", why_not="there is no C++ compiler"), failure="there is no C++ compiler"),
        Trial(Remedy("fused", ("--fused",)), failure="no such option"),
    ]
    return trials


def test_the_terminal_shows_each_change_and_the_first_to_make() -> None:
    lines = page.table(page.rows_of(made()), ["change", "loss", "remark"]).splitlines()
    assert lines[0] == "change               step ms  × time  × memory  loss                  remark"
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "as it is", "as it is, once more", "2 workers", "bf16", "batches of 8", "compile", "fused",
    ]  # fmt: skip
    assert lines[3].split() == ["2", "workers", "5.00", "0.50", "1.00", "same", "--data.num_workers", "2"]
    assert "200.0% off, too much" in lines[4]
    assert "another training" in lines[5]
    assert lines[6].endswith("not tried: there is no C++ compiler")
    assert lines[7].endswith("failed: no such option")
    text = page.advice(made(), "python -m src fit --config a.yaml")
    assert text == "first 2 workers: × 0.50 of the time\n  python -m src fit --config a.yaml --data.num_workers 2"
    assert page.advice(Trials(steps(10.0)), "") == "none of the remedies gains more than 3% of the time of the training"


def test_the_page_holds_it_all(tmp_path: Path) -> None:
    net = nn.Linear(4, 4)
    recorder = Recorder(net, [], None, torch.device("cpu"))
    with recorder:
        loss = net(torch.ones(2, 4)).sum()
        recorder.begin(BACKWARD)
        loss.backward()
    sections = [
        page.verdict_section(steps(10.0)),
        page.remedies_section(made(), "python -m src fit", "Stopped before 2 of 7 remedies were tried."),
        page.operators_section(recorder, Roofline(1e9, 1e9)),
        page.memory_section(recorder),
        page.loading_section([Stage("collate", 1000.0, 10)]),
        page.trace_section("trace.json.gz", 3),
        Section("Nothing", []),
    ]
    page.write(tmp_path / "profile.html", "net", "a profile", page.glance(steps(10.0)), sections)
    html = (tmp_path / "profile.html").read_text()
    for text in (
        "Training is bound by data",
        "× memory",
        "addmm",
        "What is alive at the peak",
        "Stopped before 2 of 7",
    ):
        assert text in html, text
    assert "python -m src fit --data.num_workers 2" in html
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert html.count('role="img" aria-label="') == 3
    assert 'href="#nothing"' not in html


def test_nothing_measured_leaves_its_section_out() -> None:
    assert page.remedies_section(Trials(steps(1.0)), "", "").blocks == []
    assert page.loading_section([]).blocks == []
    unknown = Steps(10.0, 10.0, None, 0.0, None)
    assert [name for name, _ in page.glance(unknown)] == ["bound by", "step"]
    assert page.rows_of(Trials(unknown, again=unknown))[1]["× memory"] is None
