"""The released AutoTTS matrices by one name, from a folder or downloaded once.

They are those of https://github.com/zhengkid/AutoTTS at one revision, which states no licence: they are read
from there, and nothing of them comes with this package.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import platformdirs

from autotts_jax.errors import DataError, InputError
from autotts_jax.extras import needs
from autotts_jax.files import exists, read_bytes
from autotts_jax.terminal import quoted

RELEASED = "autotts"
"""The name of the data; with ``:FOLDER`` behind it, that of a folder that holds it."""

FOLDER_VARIABLE = "AUTOTTS_FOLDER"
"""The environment variable that names the folder."""

REVISION = "3cd98d12c7cb999afc5c21381f22ea5811ac6c05"
BASE = f"https://raw.githubusercontent.com/zhengkid/AutoTTS/{REVISION}/"
"""Where the files are downloaded from."""

INSIDE = "efficient_reasoning_controller/test_environment"
SHA256 = {
    "Qwen3-0.6B/aime24": "6b4297405b494c84afb05b337af315c617513eb2580ed327ca7040b760988a7d",
    "Qwen3-0.6B/aime25": "33f65695ecc78fb777f53bead2128ba1249772b3608c6a22bd4e674488d453e0",
    "Qwen3-0.6B/hmmt25": "7e7c574aaedcd05b36b801c11e3bdd7e2cfd3b7309a2376967cc1e8bc01ebebc",
    "Qwen3-1.7B/aime24": "5d6c9a63e26c7cf60181c53b67adc7017db146bf2ff1e3b9784673cb97313ad1",
    "Qwen3-1.7B/aime25": "77bfb8e8589d0c0da3ccb6d5852c37bf23273e047664a5086d492896a5ae2496",
    "Qwen3-1.7B/hmmt25": "87d158ecdc3551e375891d19917ce02f8fdcadd778afe99ad2ae179f872fb298",
    "Qwen3-4B/aime24": "d99ce8711c60605b7555a7fc6e66cc5ae0abe7ce6b36bf4e712802d26aa7ffdd",
    "Qwen3-4B/aime25": "977f56022b0cd225bd0233aff1f7b39740c45ec79693475ada8c766ee4097a3f",
    "Qwen3-4B/hmmt25": "4bc0b51765a0fc5a3d9a462b1ff317b70577d478c5cb5e06f20fe9d5b73b4b1c",
    "Qwen3-8B/aime24": "be725bdacc64712088d5c947b9b869471ad659c8465c3e5b6e9ff5191bfd0128",
    "Qwen3-8B/aime25": "969bba7bb0276f66d421d069e078e20a9b3ff4a59977393a2733a97ca6e4566c",
    "Qwen3-8B/hmmt25": "561efa74e3dd4ca79b67463c7c5d449762824b4534bdc7267b19d9af29d2a9a9",
}
"""The SHA-256 of each cell's file."""

_BY_HAND = (
    f"to get them by hand: git clone https://github.com/zhengkid/AutoTTS, git checkout {REVISION}, and name "
    f"the checkout as {RELEASED}:FOLDER or by the environment variable {FOLDER_VARIABLE}"
)


def released_files(name: str) -> list[Path]:
    """Finds the files of the released matrices, and downloads those that are missing.

    Args:
        name: `RELEASED`, or with ``:FOLDER`` behind it. Otherwise the folder is that of `FOLDER_VARIABLE`. In
            a folder, a checkout or one with ``MODEL/BENCHMARK.json``, the cells that are there are read, and
            nothing is downloaded. Without a folder, all twelve are downloaded to the user's cache, once.

    Returns:
        The files.

    Raises:
        InputError: the folder has none of them, or they cannot be downloaded.
        DataError: a file is not the released one.
    """
    folder = name.partition(":")[2] or os.environ.get(FOLDER_VARIABLE, "")
    if not folder:
        return _downloaded(Path(platformdirs.user_cache_dir("autotts_jax"), RELEASED, REVISION[:12]))
    inside = Path(folder, INSIDE)
    place = inside if exists(inside) else Path(folder)
    files = {cell: file for cell in SHA256 if exists(file := place / f"{cell}.json")}
    if not files:
        raise InputError(f"{folder} has none of the released matrices, as Qwen3-4B/aime24.json; {_BY_HAND}")
    for cell, file in files.items():
        if hashlib.sha256(read_bytes(file)).hexdigest() != SHA256[cell]:
            raise DataError(
                file,
                f"is not the released file of {REVISION[:12]}; get it again, or name the file without "
                f"{RELEASED}:",
            )
    return list(files.values())


def _downloaded(cache: Path) -> list[Path]:
    """The files in the cache; those that are missing or damaged are downloaded."""
    with needs("released", "downloading the released matrices"):
        import pooch
    pooch.get_logger().setLevel("WARNING")
    registry = {f"{cell}.json": f"sha256:{digest}" for cell, digest in SHA256.items()}
    urls = {file: f"{BASE}{INSIDE}/{file}" for file in registry}
    source = pooch.create(path=cache, base_url=BASE, registry=registry, urls=urls)
    try:
        return [Path(source.fetch(file)) for file in registry]
    # The library, the network and the disk may raise anything.
    except Exception as error:
        raise InputError(
            f"the released matrices cannot be downloaded from {BASE}: {quoted(error)}; {_BY_HAND}"
        ) from error
