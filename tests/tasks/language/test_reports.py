"""Reports of language models from the command line."""

from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.tasks.reports import assert_samples_are_the_metrics, noted_by_fit

LINES = "".join(f"The number {number} comes before {number + 1}.\n" for number in range(400))
NET = ("--model.net.num_layers", "1", "--model.net.dim", "16", "--model.net.num_heads", "2")
CAUSAL = ("--model", "LanguageModelling", "--model.net", "GPT", *NET, "--data", "Text", "--data.root", "lines.txt")
MASKED = ("--model", "MaskedLanguageModelling", "--model.net", "TextEncoder", *NET, "--data", "UnlabelledText")


@pytest.mark.slow
def test_texts_are_continued(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lines.txt").write_text(LINES)
    titles = ["Loss of single sequences", "Single sequences"]
    options = ("--data.vocabulary", "characters", "--data.context_length", "32", "--data.test_share", "0.1")
    noted = noted_by_fit(cli, monkeypatch, titles, *CAUSAL, *options)
    assert [block["title"] for block in noted["examples"]] == ["First test samples", "Largest losses"]
    for row in noted["examples"][0]["rows"]:
        assert f"{row['prompt']}{row['target']}" in LINES
        assert row["text"]
    assert_samples_are_the_metrics({"loss"})


@pytest.mark.slow
def test_gaps_are_filled(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lines.txt").write_text(LINES)
    options = ("--data.sources", "[lines.txt]", "--data.max_length", "16")
    noted = noted_by_fit(cli, monkeypatch, [], *MASKED, *options)
    assert [block["title"] for block in noted["examples"]] == ["First samples of predict, as there was no test"]
    assert all(row["choices"] for row in noted["examples"][0]["rows"])
