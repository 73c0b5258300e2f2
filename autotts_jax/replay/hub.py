"""Datasets on the Hugging Face Hub, by addresses like ``hf://ORG/NAME``."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.files import files_below
from autotts_jax.terminal import quoted

HUB = "hf://"
"""What an address begins with."""

_ADDRESS = re.compile(
    r"hf://(?:datasets/)?(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>refs/\w+/[\w.-]+|[\w.-]+))?"
    r"(?:/(?P<path>.+?))?/?",
    re.ASCII,
)


def hub_files(address: str) -> list[Path]:
    """Downloads the Parquet files of a dataset, those that the cache of the Hub's client lacks.

    Args:
        address: ``hf://ORG/NAME``, where wanted with ``@REVISION``, a branch, a tag or a commit, and with
            ``/PATH``, a folder or a file of the dataset. ``hf://datasets/ORG/NAME``, as others write, is the
            same.

    Returns:
        The files in the cache, at least one.

    Raises:
        InputError: it is no such address, huggingface_hub is not installed, the dataset cannot be downloaded,
            or has no Parquet file there.
    """
    parts = _ADDRESS.fullmatch(address)
    path = parts["path"] or "" if parts else ".."
    if parts is None or ".." in path.split("/"):
        raise InputError(
            f"{address!r:.200} is not an address of a dataset; write hf://ORG/NAME[@REVISION][/PATH]"
        )
    name, revision = parts["name"], parts["revision"]
    with needs("collecting", f"{address}: downloading a dataset"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
    below = glob.escape(path)
    patterns = [below, f"{below}/*.parquet"] if path else ["*.parquet"]
    try:
        snapshot = snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=patterns)
    except RevisionNotFoundError as error:
        raise InputError(f"{address}: the dataset has no revision {revision}; name one of its own") from error
    except RepositoryNotFoundError as error:
        raise InputError(
            f"{address}: the Hugging Face Hub has no such dataset, or you may not read it; check the name. "
            "For a private or gated one, log in (hf auth login) or set HF_TOKEN"
        ) from error
    # The library, the network and the disk may raise anything.
    except Exception as error:
        raise InputError(
            f"{address}: cannot be downloaded: {quoted(error)}; check the address and the connection"
        ) from error
    place = Path(snapshot, path)
    found = files_below(place) if place.is_dir() else [place] if place.is_file() else []
    if files := [file for file in found if file.suffix == ".parquet"]:
        return files
    raise InputError(
        f"{address}: there is no Parquet file; name a dataset that autotts-jax data convert wrote"
    )
