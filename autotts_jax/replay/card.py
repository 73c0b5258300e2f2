"""The card of a dataset on the Hugging Face Hub: what it is, its columns and its statistics, in Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.statistics import cell_statistics
from autotts_jax.terminal import printable

_NAMED = 3
"""Models or benchmarks that the title names."""

_TEXT = """\
# {title}

Recorded reasoning branches of language models, to replay how a controller spends test-time compute. For each
question several branches were sampled, and after every `interval` tokens of a branch the model was made to
answer. A row is one branch of one question.

autotts_jax compares controllers such as those of [AutoTTS](https://arxiv.org/abs/2605.08083) on it:

```text
autotts-jax evaluate --data hf://ORG/NAME --controllers sc@8,cmc@0.5
```

## Columns

| column | type | content |
|---|---|---|
{columns}

An answer that could not be extracted is `ERR`. A final answer is right if it equals the gold answer.

## Statistics

Numbers of probes and tokens are those of a branch. `mean@1` is the share of final answers that are right,
`label_accuracy` that of questions whose most frequent final answer is right, `pass@n` that of questions with
a right final answer, `error_share` that of probes without an answer. `autotts_jax.replay.cell_statistics`
defines all of them.

{statistics}
"""


def card(
    dataset: ProbeDataset, columns: Mapping[str, tuple[str, str]], path: str, licence: str | None
) -> str:
    """Writes the card of a dataset.

    Args:
        dataset: the dataset.
        columns: type and content of each column: a type is ``string``, ``int32`` and the like, or a
            ``list of`` one.
        path: pattern of the data files in the folder of the card.
        licence: identifier of the licence; None leaves it out.

    Returns:
        Markdown that begins with the metadata that the Hub reads.
    """
    models, benchmarks = (
        _some(sorted({getattr(cell, part) for cell in dataset.cells})) for part in ("model", "benchmark")
    )
    title = f"Probe matrices of {models} on {benchmarks}"
    metadata = [
        *([f"license: {licence}"] if licence else []),
        f"pretty_name: {_quoted(title)}",
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: train",
        f"    path: {_quoted(path)}",
        "dataset_info:",
        "  features:",
    ]
    for name, (kind, _) in columns.items():
        form, _, element = kind.rpartition(" of ")
        metadata += [f"  - name: {name}", f"    {form or 'dtype'}: {element}"]
    text = _TEXT.format(
        title=_cell(title),
        columns="\n".join(_row(f"`{name}`", kind, content) for name, (kind, content) in columns.items()),
        statistics=_statistics(dataset),
    )
    return "\n".join(["---", *metadata, "---", "", text])


def _statistics(dataset: ProbeDataset) -> str:
    """A table with a row for each statistic and a column for each cell."""
    names = [_cell(cell.name) for cell in dataset.cells]
    found = [cell_statistics(dataset, number) for number in range(len(dataset.cells))]
    rows = [_row(f"`{name}`", *(_number(of_cell[name]) for of_cell in found)) for name in found[0]]
    return "\n".join([_row("statistic", *names), "|---" * (1 + len(names)) + "|", *rows])


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value}"
    return "" if math.isnan(value) else f"{value:.3f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _cell(name: str) -> str:
    r"""A name as a table of Markdown shows it; ``|`` would end the cell."""
    return printable(name).replace("|", "\\|")


def _quoted(text: str) -> str:
    """A string of YAML, of which those of JSON are a part."""
    return json.dumps(printable(text), ensure_ascii=False)
