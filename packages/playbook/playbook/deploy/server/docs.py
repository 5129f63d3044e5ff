"""The page /docs: each address of the server with a line for curl that asks it."""

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from playbook.deploy.server.catalogue import Model

SAMPLES = {"image": "@picture.png", "audio": "@recording.wav", "row": "@rows.csv", "tensor": "@array.npy"}
ASKS = {
    "image": "Answer a picture",
    "audio": "Answer a recording",
    "text": "Answer a text",
    "prompt": "Generate text",
    "row": "Answer rows",
    "tensor": "Answer an array",
}
TEXT = '{"input": "Once upon a time"}'
JSON = "content-type: application/json"


class Call(NamedTuple):
    """A request to the server.

    Args:
        method: GET or POST.
        path: with the query.
        says: what it is for.
        header: of the request, if it has one.
        data: for curl's --data-binary.
        source: path whose answer is the data, in place of `data`.
    """

    method: str
    path: str
    says: str
    header: str = ""
    data: str = ""
    source: str = ""


SERVER = (
    Call("GET", "/v1/models", "All models"),
    Call("POST", "/v1/rescan", "Look at the folders of models again"),
    Call("GET", "/metrics", "Metrics in Prometheus' format"),
    Call("GET", "/health", "Whether the process lives"),
    Call("GET", "/ready", "Whether models are served"),
    Call("GET", "/openapi.json", "This interface as OpenAPI 3.1"),
)
OPEN = ("/health", "/ready", "/openapi.json")  # without a token


def calls_of(model: Model | None) -> list[Call]:
    """What a model can be asked.

    Args:
        model: None for one of any name and kind, which the shell's variable NAME holds.
    """
    if model is None:
        path = "/v1/models/$NAME"
        return [
            Call("GET", path, "What it is, and which inputs and options it takes"),
            Call("GET", f"{path}/example", "An example, as the next line takes it"),
            Call("POST", path, "Answer the input in a file", "content-type: application/octet-stream", "@FILE"),
            Call("POST", f"{path}/stream", "Generate text piece by piece", JSON, TEXT),
        ]
    path = f"/v1/models/{model.name}"
    query = {"top": "?top=3", "score": "?score=0.5", "max_new_tokens": "?max_new_tokens=50"}
    option = next((text for name, text in query.items() if name in model.served.options), "")
    calls = [Call("GET", path, "What it is, and which inputs and options it takes")]
    if model.example is not None:
        calls.append(Call("GET", f"{path}/example", "An example, as the next line takes it"))
        header = f"content-type: {model.example.media_type}"
        body: dict[str, str] = {"header": header, "source": f"{path}/example"}
    elif model.served.kind in SAMPLES:
        body = {"header": "content-type: application/octet-stream", "data": SAMPLES[model.served.kind]}
        if model.served.kind == "row":
            body["header"] = "content-type: text/csv"
    else:
        body = {"header": JSON, "data": TEXT}
    calls.append(Call("POST", path + option, ASKS[model.served.kind], **body))
    if "max_new_tokens" in model.served.options:
        calls.append(Call("POST", f"{path}/stream{option}", "Generate text piece by piece", **body))
    calls.append(
        Call("GET", f"{path}/versions/{model.version}", "The same of one version; the addresses above have it too")
    )
    return calls


def curl(call: Call, address: str, has_token: bool) -> str:
    """A line for a POSIX shell."""
    secret = ' -H "Authorization: Bearer $TOKEN"' if has_token and call.path not in OPEN else ""
    parts = f"curl -sS{secret}"
    url = _quoted(address + call.path)
    if call.method == "GET":
        more = " -o example" if call.path.endswith("/example") else ""
        return f"{parts}{more} {url}"
    if not call.header:
        return f"{parts} -X POST {url}"
    data = f"{parts} -H {shlex.quote(call.header)} --data-binary"
    if call.source:
        return f"{parts} {_quoted(address + call.source)} | {data} @- {url}"
    return f"{data} {shlex.quote(call.data)} {url}"


def _quoted(url: str) -> str:
    """An address for the shell; $NAME is its variable."""
    place, name, rest = url.partition("$NAME")
    return f'{shlex.quote(place)}"$NAME"{shlex.quote(rest) if rest else ""}' if name else shlex.quote(url)


def docs_page(models: Sequence[Model], address: str, has_token: bool) -> str:
    """The interface as a page that loads nothing from elsewhere.

    Args:
        models: to name; none on a server with a token, as the page needs none.
        address: of the server, such as http://127.0.0.1:8000.
        has_token: whether clients must send one.
    """
    groups: list[tuple[str, Sequence[Call]]] = [(model.name, calls_of(model)) for model in models]
    if not models:
        groups = [("A model", calls_of(None))]
    groups.append(("Server", SERVER))
    sections = "\n".join(_section(title, calls, address, has_token) for title, calls in groups)
    links = "".join(f'<li><a href="#{_anchor(title)}">{escape(title)}</a></li>' for title, _ in groups)
    variables = [*(["TOKEN"] if has_token else []), *([] if models else ["NAME"])]
    settings = "".join(f"{name}=…\n" for name in variables)
    first = (
        f"<section><h2>First</h2><p>Set these in your shell:</p><pre>{settings}</pre></section>" if variables else ""
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page/style.css">
<link rel="stylesheet" href="/page/page.css">
</head>
<body>
<header class="top">
<div>
<h1>API</h1>
<p class="quiet">Each address with a command of curl. A refusal is JSON with the key error.</p>
</div>
<div class="tools"><a class="button" href="/">Try a model</a></div>
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{first}
{sections}
<section id="body"><h2>Bodies of requests</h2>
<p>A body is the input itself (an image, a recording, a text, a table or an array, as its Content-Type says), a form of
files, or JSON with one input or several:</p>
<pre>{escape(BODY)}</pre>
<p>Options go into the address, as in ?top=3, or into the JSON.</p></section>
</main>
</body>
</html>
"""


BODY = '{"input": …}\n{"inputs": [… , …], "options": {"top": 3}}'


def _section(title: str, calls: Sequence[Call], address: str, has_token: bool) -> str:
    rows = "".join(
        f'<h3 class="call"><span class="method {call.method.lower()}">{call.method}</span>'
        f"<code>{escape(call.path)}</code></h3><p>{escape(call.says)}</p>"
        f'<pre class="shell">{escape(curl(call, address, has_token))}</pre>'
        for call in calls
    )
    return f'<section id="{_anchor(title)}"><h2>{escape(title)}</h2>{rows}</section>'


def _anchor(title: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in title)


def address_of(scope: Mapping[str, Any]) -> str:
    """The server as its client named it."""
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    return f"{scope['scheme']}://{host}"
