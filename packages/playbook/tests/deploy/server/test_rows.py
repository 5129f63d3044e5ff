"""Rows of a table behind the server: every way to send them, every refusal, and the schema that a client gets."""

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor

from deploy.test_runtime_rows import PLAN, ROW, of_rows
from deploy.test_server import client_of
from playbook.data.base import Data
from playbook.deploy.runtime.tables import TableReader
from playbook.deploy.served import ServedArtefact
from playbook.deploy.served_run import ServedRun
from playbook.deploy.server.limits import Limits

PATH = "/v1/models/m"
ANSWER = {"value": 101.0, "job": 13.0}
OTHER = {**ROW, "age": None, "job": "clerk"}
OTHER_ANSWER = {"value": 200.0, "job": 12.0}
CSV = b"job,age,size,born,name\nsmith,50,2,1970-01-11,Ann\nclerk,,2,1970-01-11,Bob\n"


class Rows(Data):
    """Reads rows as data of the template does, and keeps the names of the columns that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def read(self, source: Any) -> dict[str, Tensor]:
        self.names |= set(source)
        return {name: torch.from_numpy(value) for name, value in TableReader(PLAN)(source).inputs.items()}

    def preprocessing(self) -> dict[str, Any]:
        return PLAN


class Sums(pl.LightningModule):
    """Answers as the artefact of `of_rows` does."""

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        inputs, _ = batch
        numbers, categories = inputs["numbers"], inputs["categories"]
        return {"value": numbers[:, 0] + 100 * categories[:, 0], "job": numbers[:, 2] + categories[:, 1]}

    def answer(self, outputs: dict[str, Tensor], facts: dict[str, Any]) -> list[dict[str, Any]]:
        rows = zip(*(values.tolist() for values in outputs.values()), strict=True)
        return [dict(zip(outputs, row, strict=True)) for row in rows]


@pytest.fixture(params=["artefact", "run"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "run":
        return ServedRun(Sums(), Rows(), {})
    of_rows(tmp_path, monkeypatch)
    return ServedArtefact(tmp_path)


@pytest.mark.parametrize(
    ("content", "media_type", "answers"),
    [
        (json.dumps({"input": ROW}), "application/json", [ANSWER]),
        (json.dumps({"inputs": [ROW, OTHER]}), "application/json", [ANSWER, OTHER_ANSWER]),
        (json.dumps({"input": ROW}), "", [ANSWER]),
        (json.dumps({"input": {"unknown": "x", **dict(reversed(ROW.items()))}}), "application/json", [ANSWER]),
        (f"{json.dumps(ROW)}\n{json.dumps(OTHER)}\n", "application/x-ndjson", [ANSWER, OTHER_ANSWER]),
        (CSV, "text/csv", [ANSWER, OTHER_ANSWER]),
        (CSV, "", [ANSWER, OTHER_ANSWER]),
        (CSV.replace(b",", b"\t"), "text/tab-separated-values", [ANSWER, OTHER_ANSWER]),
        (CSV.decode().encode("utf-16"), "text/csv; charset=utf-16", [ANSWER, OTHER_ANSWER]),
    ],
)
def test_payloads(model: Any, content: bytes | str, media_type: str, answers: list[Any]) -> None:
    with client_of(model) as client:
        response = client.post(PATH, content=content, headers={"content-type": media_type})
        assert (response.status_code, response.json().get("answers")) == (200, answers), response.text


def test_files_of_a_form(model: Any) -> None:
    with client_of(model) as client:
        for media_type in ("text/csv", "application/vnd.ms-excel"):
            response = client.post(PATH, files=[("file", ("new.csv", CSV, media_type))])
            assert response.json()["answers"] == [ANSWER, OTHER_ANSWER]
        response = client.post(PATH, files=[("file", ("new.csv", CSV.replace(b"50", b"x"), "text/csv"))])
        assert response.status_code == 422
        assert response.json()["error"] == "new.csv, row 1: age: expected a number, got 'x'"


@pytest.mark.parametrize(
    ("content", "media_type", "status", "text"),
    [
        (json.dumps({"input": {"ages": 1, "size": 2}}), "application/json", 422, "expected a column age and 2 more, "
         "got ages, size. Nearest: ages"),
        (json.dumps({"inputs": [ROW, {}]}), "application/json", 422, "input 1: expected a column age and 3 more, got"),
        (json.dumps({"input": {**ROW, "age": "old"}}), "application/json", 422, "age: expected a number, got 'old'"),
        (json.dumps({"input": {**ROW, "job": ["smith"]}}), "application/json", 422, "job: expected a number or a text"),
        (json.dumps({"input": {**ROW, "age": {}}}), "application/json", 422, "age: expected a number or a text, got"),
        (json.dumps({"input": {"numbers": [1], "categories": [9]}}), "application/json", 422, "numbers: expected a nu"),
        (json.dumps({"input": "Ann"}), "application/json", 422, "expected a row as an object"),
        (json.dumps({"input": [1, 2]}), "application/json", 422, "expected a row as an object"),
        (json.dumps({"inputs": [ROW] * 9}), "application/json", 413, "at most 8"),
        (json.dumps({"input": ROW, "options": {"top": 1}}), "application/json", 422, "this model has no options"),
        (f"{json.dumps(ROW)}\n" * 9, "application/x-ndjson", 413, "at most 8"),
        ("age\n" + "1\n" * 9, "text/csv", 413, "at most 8"),
        ("age,job,age\n1,2,3\n", "text/csv", 422, "two columns are called age"),
        ("age,job\n1\n", "text/csv", 422, "row 2: expected 2 fields"),
        ("age,job\n", "text/csv", 422, "expected at least one"),
        (b"", "text/csv", 400, "expected a row: as an object in JSON"),
        (b"\x93NUMPY", "application/x-npy", 415, "the model takes a row"),
        (b"text", "text/plain", 415, "the model takes a row"),
    ],
)  # fmt: skip
def test_refusals(model: Any, content: bytes | str, media_type: str, status: int, text: str) -> None:
    with client_of(model) as client:
        response = client.post(PATH, content=content, headers={"content-type": media_type})
        assert response.status_code == status, response.text
        assert text in response.json()["error"]


def test_a_run_is_not_told_of_columns_that_it_does_not_read() -> None:
    """Its data may remember them, and clients may send any number."""
    data = Rows()
    with client_of(ServedRun(Sums(), data, {})) as client:  # type: ignore[arg-type]  # a model as any other
        for number in range(3):
            assert client.post(PATH, json={"input": {**ROW, f"x{number}": 1}}).status_code == 200
    assert data.names == set(ROW)


def test_the_separator_of_the_files_that_a_model_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_rows(tmp_path, monkeypatch, separator=";")
    with client_of(ServedArtefact(tmp_path)) as client:  # type: ignore[arg-type]  # a model as any other
        response = client.post(PATH, content=CSV.replace(b",", b";"), headers={"content-type": "text/csv"})
        assert response.json()["answers"] == [ANSWER, OTHER_ANSWER]


def test_the_schema_of_a_row(model: Any) -> None:
    with client_of(model, limits=Limits()) as client:
        described = client.get(PATH).json()
        schema = client.get("/openapi.json").json()
        assert "Answer rows" in client.get("/docs").text
        body = schema["paths"][PATH]["post"]["requestBody"]["content"]["application/json"]["schema"]
        reference = {"$ref": "#/components/schemas/m.row"}
        assert (body["properties"]["input"], body["properties"]["inputs"]["items"]) == (reference, reference)
        assert schema["paths"][PATH]["post"]["parameters"][0]["in"] == "query"
        row = schema["components"]["schemas"]["m.row"]
        assert (described["kind"], described["row"]) == ("row", row)
        assert row["required"] == ["age", "size", "born", "job"]
        assert {name: own["type"][0] for name, own in row["properties"].items()} == {
            "age": "number",
            "size": "number",
            "born": "string",
            "job": "string",
        }
        examples = {name: own["examples"][0] for name, own in row["properties"].items()}
        assert client.post(PATH, json={"input": examples}).status_code == 200
        assert schema["paths"].keys() >= {"/v1/models/{name}", "/health"}


def test_models_of_other_kinds_have_no_rows() -> None:
    from playbook.testing.serving import Fake

    with client_of(Fake("text")) as client:
        assert client.get(PATH).json()["row"] is None
        assert PATH not in client.get("/openapi.json").json()["paths"]
