"""Finds a pretrained model or tokenizer in a local directory, or downloads it from the Hugging Face hub."""

import re
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from playbook import UserError, nearest

CONNECT_S = 5.0  # without a network, transformers itself tried for 48 s
FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")  # no code, and nothing pickled
IDENTIFIER = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def local_folder(name: str, option: str, tokenizer_alone: bool = False) -> Path:
    """The local directory of a pretrained model; a model of the hub is downloaded once.

    Local directories have precedence. Neither they nor earlier downloads need network access.

    Args:
        name: a directory written by `save_pretrained`, or the name of a repository of the hub.
        option: name of the option, for messages.
        tokenizer_alone: whether only the tokenizer is needed, not the weights.

    Raises:
        UserError: there is no such directory, it contains no model, the hub has no such repository or cannot be
            reached.
    """
    path = Path(name).expanduser()
    if path.exists():
        files = ("tokenizer.json", "tokenizer_config.json") if tokenizer_alone else ("config.json",)
        if not any((path / file).is_file() for file in files):
            raise UserError(f"{option} {name}: expected a folder with {files[0]}, as save_pretrained writes it")
        return path
    if not IDENTIFIER.fullmatch(name) or (path.parent != Path() and path.parent.is_dir()):
        siblings = [entry.as_posix() for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UserError(f"{option} {name}: no such folder{nearest(path.as_posix(), siblings)}")
    return _from_hub(name, option, tokenizer_alone)


def _from_hub(name: str, option: str, tokenizer_alone: bool) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    patterns = [pattern for pattern in FILES if not (tokenizer_alone and pattern == "*.safetensors")]
    try:
        folder = Path(snapshot_download(name, local_files_only=True, allow_patterns=patterns))
        if tokenizer_alone or any(folder.glob("*.safetensors")):
            return folder
    except LocalEntryNotFoundError:
        pass
    advice = "expected a local folder written by save_pretrained, or the name of an earlier download"
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"{option} {name}: no such folder, and HF_HUB_OFFLINE forbids a download; {advice}")
    try:
        with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=CONNECT_S):  # noqa: S310 - of the library
            pass
    except HTTPError:
        pass  # it answers
    except (URLError, OSError) as error:
        why = getattr(error, "reason", error)
        raise UserError(
            f"{option} {name}: no such folder, and the Hugging Face hub cannot be reached ({why}); {advice}"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except RepositoryNotFoundError:
        raise UserError(
            f"{option} {name}: neither a folder nor a repository of the Hugging Face hub; {advice}"
        ) from None
    except HfHubHTTPError as error:
        raise UserError(f"{option} {name}: cannot be downloaded: {str(error).splitlines()[0]}") from None
