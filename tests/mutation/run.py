"""Changes the meaning of the core here and there, and tells which quick test notices.

    python tests/mutation/run.py SEED          a sample of mutants of every file in `NET`
    python tests/mutation/run.py SEED NAME …   these mutants again, by the names that a run prints

A mutant is a file with one change: a comparison, a constant, a term, a mask, a branch. A copy of the tree
gets it, and the tests of the file run there until one fails. README.md says what came of it.
"""

from __future__ import annotations

import ast
import collections
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parents[2]

NET: dict[str, tuple[int, tuple[str, ...]]] = {
    "core/mdp.py": (17, ("tests/test_core.py", "tests/test_rollout.py")),
    "core/votes.py": (12, ("tests/test_votes.py", "tests/test_core.py")),
    "core/pool.py": (10, ("tests/test_core.py", "tests/test_rollout.py")),
    "core/rollout.py": (
        8,
        (
            "tests/test_rollout.py",
            "tests/test_checks.py::test_a_leader_that_is_no_opened_branch_is_refused",
        ),
    ),
    "core/stepping.py": (5, ("tests/test_rollout.py", "tests/test_trace.py")),
    "core/lanes.py": (2, ("tests/test_rollout.py",)),
    "core/controller.py": (3, ("tests/test_rollout.py",)),
    "core/costs.py": (4, ("tests/test_costs.py",)),
    "core/view.py": (2, ("tests/test_core.py", "tests/test_checks.py::test_a_controller_that_is_none")),
    "core/keys.py": (1, ("tests/test_env.py::test_random_words_are_those_of_jax",)),
    "replay/orders.py": (
        2,
        (
            "tests/test_dataset.py::test_the_orders_of_paper64_stay_what_they_are",
            "tests/test_released.py::test_repo100_orders_are_those_of_cpython",
            "tests/test_released.py::test_paper64_orders_depend_on_seed_and_question_alone",
        ),
    ),
    "replay/encoding.py": (3, ("tests/test_encoding.py",)),
    "replay/matrix.py": (1, ("tests/test_dataset.py",)),
}
"""How many mutants of a file to sample, and the tests of it, cheapest file first."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}

OPPOSITES = {"min": "max", "minimum": "maximum", "any": "all", "argmin": "argmax"}
OPPOSITES |= {opposite: name for name, opposite in OPPOSITES.items()}

TERMS = ast.Add | ast.Sub | ast.Mult | ast.BitAnd | ast.BitOr

SHAPES = {"axis", "in_axes", "shape", "reshape"}
"""Numbers in them say how arrays lie; a wrong one does not run at all."""

ASIDE = {
    *("LANES", "MANY_LANES", "READS", "REPORT_SECONDS", "SEGMENTS", "progress_stops", "_bucket_size"),
    *("MAX_ENTRIES", "__post_init__", "_is_concrete"),
    *("described", "is_array", "is_too_large", "type_of"),
}
"""Names that affect speed alone, or what is refused."""


class Mutant(NamedTuple):
    """One change to a file.

    Attributes:
        name: the file and the number of the change among all of it.
        about: the line that is changed, and what becomes what.
        source: the changed file.
    """

    name: str
    about: str
    source: str


class Outcome(NamedTuple):
    """What came of a mutant: the test that failed, ``a timeout``, or None where it survived."""

    mutant: Mutant
    killer: str | None
    seconds: float


def is_check(name: str) -> bool:
    """Whether a function checks arguments, by its name."""
    return name.lstrip("_").startswith(("check", "refuse"))


def says_nothing(parent: ast.AST, field: str, node: ast.AST) -> bool:
    """Whether a node holds what no episode depends on: messages, checks of arguments, defaults."""
    match parent:
        case ast.Subscript(value=ast.Attribute(attr=name)) if name in SHAPES and field == "slice":
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in SHAPES and field == "args":
            return True
    match node:
        case ast.FunctionDef(name=name):
            return name in ASIDE or is_check(name)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in ASIDE
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return is_check(name)
        case ast.If(body=body):
            return all(isinstance(statement, ast.Raise) for statement in body)
        case ast.keyword(arg=name):
            return name in SHAPES
    return isinstance(node, ast.arguments | ast.Raise | ast.Assert | ast.JoinedStr)


def places(parent: ast.AST) -> Iterator[tuple[list[ast.AST] | dict[str, ast.AST], int | str]]:
    """Yields where nodes hang that may be changed: what holds them, and the index there."""
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        holder = value if isinstance(value, list) else vars(parent)
        for index in range(len(value)) if isinstance(value, list) else [field]:
            node = holder[index]
            if isinstance(node, ast.AST) and not says_nothing(parent, field, node):
                yield holder, index
                yield from places(node)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields what may take the place of a node."""

    def with_(**fields: object) -> ast.AST:
        changed = copy.copy(node)
        vars(changed).update(fields)
        return changed

    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                if type(op) in SWAPS:
                    yield with_(ops=[*ops[:i], SWAPS[type(op)](), *ops[i + 1 :]])
        case ast.BinOp(op=op, left=left, right=right):
            if type(op) in SWAPS:
                yield with_(op=SWAPS[type(op)]())
            if isinstance(op, TERMS):
                yield from (left, right)
        case ast.AugAssign(op=op) if type(op) in SWAPS:
            yield from (with_(op=SWAPS[type(op)]()), ast.Pass())
        case ast.BoolOp(op=op, values=values):
            yield from (with_(op=SWAPS[type(op)]()), with_(values=values[1:]), with_(values=values[:-1]))
        case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield from (ast.Constant(value + step) for step in (-1, 1) if value + step >= 0)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if any(isinstance(p, ast.Starred) for p in parts):
            yield from (with_(elts=[*parts[:i], *parts[i + 1 :]]) for i in range(len(parts)))
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.IfExp(body=body, orelse=orelse):
            yield with_(body=orelse, orelse=body)
        case ast.Call(func=ast.Attribute(attr="where"), args=[condition, one, other]):
            yield with_(args=[condition, other, one])
        case ast.Attribute(attr=name) if name in OPPOSITES:
            yield with_(attr=OPPOSITES[name])
        case ast.Name(id=name) if name in OPPOSITES:
            yield with_(id=OPPOSITES[name])


class File:
    """A file that mutants are made of."""

    def __init__(self, name: str):
        self.name = name
        text = (ROOT / "autotts_jax" / name).read_text("utf-8")
        self.lines, self.tree = text.splitlines(), ast.parse(text)
        self.changes = [
            (holder, index, changed)
            for holder, index in places(self.tree)
            for changed in changes(holder[index])
        ]

    def mutant(self, number: int) -> Mutant:
        """Makes the change of a number."""
        holder, index, changed = self.changes[number]
        node = holder[index]
        holder[index] = changed
        source = ast.unparse(self.tree)
        holder[index] = node
        line = f"line {node.lineno}: {self.lines[node.lineno - 1].strip()}"
        about = f"{line}\n    {ast.unparse(node)}  →  {ast.unparse(changed)}"
        return Mutant(f"{self.name}#{number}", about, source)


class Room:
    """A copy of the tree, in which tests run as `make test` runs them."""

    def __init__(self, folder: str):
        self.folder = Path(folder)
        for part in ("autotts_jax", "tests"):
            shutil.copytree(ROOT / part, self.folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", self.folder)

    def run_tests(self, tests: Sequence[str], *options: str, timeout: float | None = None) -> tuple[int, str]:
        """Runs tests; returns pytest's exit status and output. Raises `subprocess.TimeoutExpired`."""
        command = [sys.executable, "-m", "pytest", "-m", "not slow and not shipped", "-p", "no:cacheprovider"]
        command += ["-p", "run", *options, *tests]  # this module is the plugin
        environment = os.environ | {
            "PYTHONPATH": f"{self.folder}{os.pathsep}{self.folder / 'tests' / 'mutation'}",
            # What one mutant compiled, the others load; tests/conftest.py makes no folder for a worker.
            "PYTEST_XDIST_WORKER": "mutant",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        }
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return process.returncode, output

    def durations(self, tests: Sequence[str]) -> dict[str, float]:
        """Runs tests on the tree as it is, all of which have to pass; gives the seconds of each."""
        status, output = self.run_tests(tests, "--durations=0", "-vv")
        if status:
            raise SystemExit(f"the tests fail without a mutant:\n{output[-4000:]}")
        seconds: dict[str, float] = collections.defaultdict(float)
        for taken, test in re.findall(r"^([\d.]+)s (?:setup|call) +(\S.*)$", output, re.MULTILINE):
            seconds[test] += float(taken)
        return seconds

    def outcome(self, mutant: Mutant, tests: Sequence[str], timeout: float) -> Outcome:
        """Runs the tests on a mutant."""
        file = self.folder / "autotts_jax" / mutant.name.partition("#")[0]
        original = file.read_text("utf-8")
        began = time.monotonic()
        try:
            self.write(file, mutant.source)
            status, output = self.run_tests(tests, "-x", "-rfE", "--tb=no", timeout=timeout)
        except subprocess.TimeoutExpired:
            return Outcome(mutant, "a timeout", time.monotonic() - began)
        finally:
            self.write(file, original)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
        killer = None if status == 0 else failed[1] if failed else "an import"
        return Outcome(mutant, killer, time.monotonic() - began)

    @staticmethod
    def write(file: Path, source: str) -> None:
        file.write_text(source, "utf-8")
        # What Python compiled of it looks current when the size stays and the second, too.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()


def chosen(seed: str, names: Sequence[str]) -> dict[str, list[Mutant]]:
    """The mutants to try, by file: those of the names, or a sample."""
    mutants = {}
    for name in dict.fromkeys(name.partition("#")[0] for name in names) or NET:
        file = File(name)
        if names:
            numbers = [int(one.partition("#")[2]) for one in names if one.startswith(f"{name}#")]
        else:
            total = len(file.changes)
            numbers = random.Random(f"{seed} {name}").sample(range(total), min(NET[name][0], total))
            print(f"{name}: {len(numbers)} of {total} mutants", flush=True)
        mutants[name] = [file.mutant(number) for number in sorted(numbers)]
    return mutants


def show(outcomes: Sequence[Outcome]) -> None:
    """Prints the score by file, with the tests that kill there, and what survived."""
    print("\n| file | mutants | killed | by |\n| --- | --- | --- | --- |")
    for file in dict.fromkeys(outcome.mutant.name.partition("#")[0] for outcome in outcomes):
        killers = [one.killer for one in outcomes if one.mutant.name.startswith(f"{file}#")]
        by = collections.Counter(
            killer.rpartition("::")[2].partition("[")[0] for killer in killers if killer is not None
        )
        tests = ", ".join(f"`{test}` {count}" for test, count in by.most_common())
        print(f"| {file} | {len(killers)} | {by.total()} | {tests} |")
    survivors = [outcome.mutant for outcome in outcomes if outcome.killer is None]
    print(f"\n{len(outcomes) - len(survivors)} of {len(outcomes)} mutants were killed")
    for mutant in survivors:
        print(f"\n{mutant.name}, {mutant.about}")


def pytest_configure() -> None:
    """Has Hypothesis try the same examples each time, and not look for the smallest that fails."""
    few = settings(settings.get_profile("ci"), max_examples=30)  # as tests/conftest.py does
    settings.register_profile("mutants", few, phases=[Phase.explicit, Phase.generate])
    settings.load_profile("mutants")


def main(seed: str, *names: str) -> None:
    """Tries mutants and prints what came of them."""
    outcomes = []
    by_file = chosen(seed, names)
    tests = {test for file in by_file for test in NET[file][1]}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        room = Room(folder)
        seconds = room.durations(sorted(tests))
        for file, mutants in by_file.items():
            net = [[test for test in seconds if test.startswith(part)] for part in NET[file][1]]
            timeout = 60 + 3 * sum(seconds[test] for tests in net for test in tests)
            kills: dict[str | None, int] = collections.Counter()
            for mutant in mutants:
                # File by file, for the sake of fixtures; in each first what is quick or has killed before.
                order = [
                    test
                    for tests in net
                    for test in sorted(tests, key=lambda test: seconds[test] / (1 + kills[test]))
                ]
                outcome = room.outcome(mutant, order, timeout)
                outcomes.append(outcome)
                kills[outcome.killer] += 1
                said = f"killed by {outcome.killer}" if outcome.killer else "SURVIVED"
                print(f"{mutant.name}: {said}, {outcome.seconds:.0f} s", flush=True)
    show(outcomes)


if __name__ == "__main__":
    main(*sys.argv[1:])
