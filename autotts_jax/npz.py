"""Archives of NumPy arrays that others may have written: headers are checked before anything is unpacked."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autotts_jax.errors import DataError
from autotts_jax.files import read_bytes
from autotts_jax.terminal import quoted

MAX_UNPACKED = 2**30
"""The most bytes that the arrays of one archive may take together."""


HEADER = 128
"""Bytes of the header of a flat array."""


def check_unpacked(arrays: Mapping[str, np.ndarray]) -> None:
    """Checks that an archive of flat arrays can be read again.

    Raises:
        ValueError: they are too large.
    """
    size = sum(HEADER + array.nbytes for array in arrays.values())
    if size > MAX_UNPACKED:
        raise ValueError(f"it unpacks to {size:,} bytes, more than {MAX_UNPACKED:,}; split it")


class Form(NamedTuple):
    """What the header of an array says."""

    dtype: np.dtype
    shape: tuple[int, ...]


class Npz:
    """An ``.npz`` archive whose arrays are read one by one.

    Opening it reads the headers alone, and makes sure that the arrays are as large as these say. No code that
    an archive may hold (pickles) is ever run.

    Attributes:
        forms: what the header of each array says, by name.

    Raises:
        DataError: it cannot be read, is damaged, or is too large when unpacked.
    """

    def __init__(self, path: str | Path, remedy: str):
        self._path, self._remedy = path, remedy
        content = io.BytesIO(read_bytes(path))
        forms: dict[str, Form] = {}
        # numpy and zipfile raise a dozen kinds of errors on damaged files.
        try:
            self._archive = zipfile.ZipFile(content)
            entries = self._archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if size <= MAX_UNPACKED:
                forms = {entry.filename.removesuffix(".npy"): self._form(entry) for entry in entries}
        except Exception as error:
            raise self._damaged(error) from error
        if size > MAX_UNPACKED:
            raise DataError(path, f"unpacks to {size:,} bytes, more than {MAX_UNPACKED:,}; split it")
        if len(forms) < len(entries):
            raise self._damaged("it has an array twice")
        self.forms: Mapping[str, Form] = forms

    def read(self, name: str) -> np.ndarray:
        """Reads an array.

        Returns:
            The array.

        Raises:
            DataError: it is damaged.
        """
        try:
            with self._archive.open(f"{name}.npy") as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)
        except Exception as error:
            raise self._damaged(f"{name!r:.60} cannot be unpacked") from error

    def _form(self, entry: zipfile.ZipInfo) -> Form:
        if not entry.filename.endswith(".npy"):
            raise ValueError(f"{entry.filename!r:.60} is not an array")
        # The other methods of compression unpack without a limit, and numpy does not use them.
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename!r:.60} is compressed in another way than numpy does")
        with self._archive.open(entry) as stream:
            read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
            try:
                major, _ = np.lib.format.read_magic(stream)
                shape, _, dtype = read_header[major](stream)
            except Exception:  # numpy's messages speak of arguments that nobody here has given
                raise ValueError(f"{entry.filename!r:.60} has a header that numpy does not read") from None
            told, there = math.prod(shape) * dtype.itemsize, entry.file_size - stream.tell()
        if dtype.hasobject or told != there or min(shape, default=0) < 0:
            raise ValueError(f"{entry.filename!r:.60} is {dtype} of shape {shape} in {there} bytes")
        return Form(dtype, shape)

    def _damaged(self, problem: object) -> DataError:
        return DataError(self._path, f"not a complete .npz archive ({quoted(problem)}); {self._remedy}")
