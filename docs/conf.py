"""Settings of the site, which ``make docs`` builds.

The reference of names and commands is written from docstrings and options.
"""

import ast
import importlib
import os
import subprocess
import sys
import typing
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

import autotts_jax
from autotts_jax.envs.observations import Feature

project = "autotts_jax"
author = "The autotts_jax developers"
copyright = "2026, the autotts_jax developers, Apache-2.0"  # noqa: A001  # Sphinx's name
release = version = autotts_jax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "**/runs"]  # what tutorials write when they are executed
default_role = "py:obj"
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_title = "autotts_jax"
html_show_sphinx = False
html_copy_source = False

myst_enable_extensions = ["attrs_inline", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

HERE = Path(__file__).parent
# Notebooks import the scripts in examples, as their readers do who start them there.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "examples"), os.environ.get("PYTHONPATH", "")])
MODULES = ["", *sorted(file.parent.name for file in HERE.parent.glob("autotts_jax/*/__init__.pyi"))]
"""What exports names: the package and its public modules."""


def directive(module: str, name: str, value: object) -> str:
    """The directive that documents an exported name."""
    if isinstance(value, type):
        return f".. autoclass:: {module}.{name}\n   :members:\n"
    if callable(value) and typing.get_origin(value) is None:
        return f".. autofunction:: {module}.{name}\n"
    # Constants: autodoc would show the docstring of their type, as it looks where they are exported.
    described = ModuleAnalyzer.for_module(defining_module(module, name)).find_attr_docs()["", name]
    text = f".. py:data:: {name}\n   :module: {module}\n\n" + "".join(f"   {line}\n" for line in described)
    if isinstance(value, tuple) and isinstance(value[0], Feature):
        text += "\n   .. list-table::\n\n"
        text += "".join(
            f"      * - ``{entry}``\n        - 0 … {high:g}\n        - {meaning}\n"
            for entry, high, meaning in value
        )
    return text


def defining_module(module: str, name: str) -> str:
    """The module that a public module has a constant from, as its stub says."""
    for node in ast.parse(Path(str(importlib.import_module(module).__file__) + "i").read_text()).body:
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return f"{module}.{node.module}"
    raise LookupError(f"the stub of {module} does not export {name}")


def write_names() -> None:
    """Writes a page for each public module with all names that it exports."""
    folder = HERE / "reference" / "api"
    folder.mkdir(exist_ok=True)
    top = set(autotts_jax.__all__)
    for module in MODULES:
        dotted = f"autotts_jax.{module}".rstrip(".")
        exporting = importlib.import_module(dotted)
        values = {name: getattr(exporting, name) for name in sorted(exporting.__all__, key=str.lower)}
        elsewhere = {
            name
            for name, value in values.items()
            if isinstance(value, type(sys))
            or (module and name in top and value is getattr(autotts_jax, name))
        }
        text = f"``{dotted}``\n{'=' * (len(dotted) + 4)}\n\n.. automodule:: {dotted}\n\n"
        if module and elsewhere:
            links = ", ".join(f":py:obj:`autotts_jax.{name}`" for name in values if name in elsewhere)
            text += f"Also exported here: {links}.\n\n"
        text += "\n".join(
            directive(dotted, name, value) for name, value in values.items() if name not in elsewhere
        )
        write(folder / f"{dotted}.rst", text)


def write_commands() -> None:
    """Writes the page of the command line."""
    command = [sys.executable, "-m", "typer", "autotts_jax.cli.app", "utils", "docs", "--name", "autotts-jax"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    write(HERE / "reference" / "cli.md", shown.replace("# `autotts-jax`", "# Command line", 1))


def write(file: Path, text: str) -> None:
    """Writes a generated page, unless it is as it was: Sphinx reads what has changed."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")


write_names()
write_commands()
