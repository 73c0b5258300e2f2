"""Which tests a change can reach: ``python tests/changed.py BASE``.

Prints the tests that can reach what differs between the commit BASE and the files that are here, as pytest
takes them, one a line; and to stderr how many, and why. Where BASE is no ancestor, or what differs decides
about all tests, it prints their folder.

What a test reaches is found from names. Every top-level definition of a module is a node, and leads to the
definitions that its source names, through imports and the stubs of lazy packages. An object is made by
whoever names its class, so calls of its methods lead nowhere. To import a module at the top is not to reach
it: the quick tests, which always run, import all modules. Besides:

- A test leads to its fixtures.
- A module that is used as an object, as in ``vars(module)``, is reached as a whole.
- A text leads to the dotted paths, the imports, ``module:name`` and the files that are in it. A file that is
  not Python is reached by its name, by a pattern, or by the name of a folder that it is in; if nothing names
  it, it decides about all tests.
- What users name is looked up in tables: controllers and commands. An entry is reached by what reaches both
  the table and a text with the name of the entry, or takes all values of the table.
- A text with the id of an environment leads to what Gymnasium imports for it.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = "autotts_jax", "tests"
APART = ("tests/clients/", "tests/collect/")
"""Folders of tests that have environments of their own; pytest finds none of them elsewhere."""
FOLDERS = (PACKAGE, TESTS, "examples", "benchmarks")
"""Where modules are."""

DECIDES_ALL = ("pyproject.toml", "constraints.txt", "Makefile", "tests/conftest.py", "tests/compiled.py")
SEEN_BY_NO_TEST = (
    ".ci/*",
    "workflows/*",
    ".gitignore",
    ".pre-commit-config.yaml",
    "constraints-collect.txt",
    "constraints-cuda.txt",
    "constraints-shinka.txt",
)
"""`.ci/run` looks after these."""

Node = tuple[str, str]
"""A module and a name in it, or the path of another file and `WHOLE`."""

WHOLE, ON_IMPORT, AS_PROGRAM = "*", "", "__main__"
"""Names for a whole module, and for what it does when it is imported or run."""

CONTROLLERS = f"{PACKAGE}.policies.players", "CONTROLLERS"
VALUES = CONTROLLERS[0], "CONTROLLERS.values()"
COMMANDS = f"{PACKAGE}.cli.app", ON_IMPORT
TABLES = CONTROLLERS, COMMANDS
ENVIRONMENTS = tuple(f"{PACKAGE}.envs.{name}" for name in ("registry", "gym", "gym_vector"))
"""What Gymnasium imports for whoever spells the id of an environment."""
ALIKE = f"{PACKAGE}.policies.allocators", f"{PACKAGE}.styles", "docs/reference/results.csv"
"""Modules and files with names of controllers, which look none up."""

WORD = re.compile(r"[\w-]+")
DOTTED = re.compile(rf"\b{PACKAGE}((?:\.\w+)+)")
IMPORT = re.compile(r"\bimport ([\w.]+)(?: as (\w+))?")
IMPORT_FROM = re.compile(r"\bfrom ([\w.]+) import (?:\(([\w ,\n]+)\)|([\w ,]+))")
IMPORT_PATH = re.compile(r"\b(\w+):(?:(\w+)| $)")
FILE = re.compile(r"(?=.*\w)(?=.*[./]|[^*]*$)[\w./*-]{1,100}")
OWN_FILE = ("__file__", "__path__", "__version__")


class Module:
    """The top-level names of a module.

    Args:
        name: its dotted name.
        source: its code.
        stub: the stub of a lazy package.
    """

    def __init__(self, name: str, source: str, stub: str = ""):
        self.name = name
        self.definitions: dict[str, list[ast.stmt]] = defaultdict(list)
        self.imports: dict[str, list[tuple[str, str]]] = defaultdict(list)
        """What each name is imported from: a module, and a name in it where it is not the module itself."""
        for part in (source, stub):
            tree = ast.parse(part)
            for statement in tree.body:
                for bound in bound_by(statement):
                    self.definitions[bound].append(statement)
            if ast.get_docstring(tree):
                self.definitions["__doc__"].append(tree.body[0])
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        first = alias.name.partition(".")[0]
                        self.imports[alias.asname or first].append(
                            (alias.name if alias.asname else first, "")
                        )
                elif isinstance(node, ast.ImportFrom):
                    target = ".".join(filter(None, [name * bool(node.level), node.module]))
                    for alias in node.names:
                        self.imports[alias.asname or alias.name].append((target, alias.name))

    def versions(self) -> dict[str, str]:
        """What stands behind each name, without comments."""
        found = {name: "".join(map(ast.dump, parts)) for name, parts in self.definitions.items()}
        return found | {name: found.get(name, "") + repr(sources) for name, sources in self.imports.items()}

    @functools.cached_property
    def fixtures(self) -> dict[str, bool]:
        """Pytest's fixtures, and whether every test uses each."""
        found = {}
        for name, statements in self.definitions.items():
            for decorator in getattr(statements[-1], "decorator_list", []):
                if "fixture" in dotted(decorator.func if isinstance(decorator, ast.Call) else decorator):
                    found[name] = "autouse" in ast.dump(decorator)
        return found


def bound_by(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement defines, with `ON_IMPORT` where it does something besides."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            parts = [part for target in targets for part in ast.walk(target)]
            changes = any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts)
            return [part.id for part in parts if isinstance(part, ast.Name)] + [ON_IMPORT] * changes
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return [AS_PROGRAM]
        case (
            ast.Import()
            | ast.ImportFrom()
            | ast.Expr(value=ast.Constant())
            | ast.If(test=ast.Name(id="TYPE_CHECKING"))
        ):
            return []
    inside = (part for part in ast.iter_child_nodes(statement) if isinstance(part, ast.stmt))
    return [ON_IMPORT, *(name for part in inside for name in bound_by(part))]


def dotted(node: ast.AST) -> tuple[str, ...]:
    """The parts of a dotted path; nothing where it is something else."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name) if parts := dotted(value):
            return (*parts, name)
    return ()


class Graph:
    """What leads where.

    Args:
        texts: the text of every file by its path; empty for binary files.
    """

    def __init__(self, texts: Mapping[str, str]):
        self.modules: dict[str, Module] = {}
        self.paths: dict[str, PurePosixPath] = {path: PurePosixPath(path) for path in texts}
        self._by_part: dict[str, list[str]] = defaultdict(list)
        self._places: dict[str, str] = {}
        self._stems: dict[str, list[str]] = defaultdict(list)
        for path, text in texts.items():
            for part in self.paths[path].parts:
                self._by_part[part].append(path)
            if is_module(path):
                name = module_of(path)
                self.modules[name] = Module(name, text, texts.get(f"{path}i", ""))
                self._places[name] = path
                if not name.startswith(PACKAGE):
                    self._stems[name.rpartition(".")[2]].append(name)
        self.leads: dict[Node, set[Node]] = defaultdict(set)
        self.words: dict[Node, set[str]] = defaultdict(set)
        self.entries: dict[tuple[Node, str], set[Node]] = defaultdict(set)
        """What is reached through a table by a name."""
        for path, text in texts.items():
            if not is_module(path) and not path.startswith(PACKAGE):
                self._read_text((path, WHOLE), text)
        for module in self.modules.values():
            self._read_module(module)
        self._take_tables_apart()

    # --- names ----------------------------------------------------------------------------------------

    def follow(self, module: str, parts: tuple[str, ...], seen: frozenset[Node] = frozenset()) -> set[Node]:
        """What a dotted path stands for, from a module on."""
        known = self.modules.get(module)
        if known is None:
            if module.startswith(f"{PACKAGE}."):
                return {(module, WHOLE)}  # it is no more
            return {node for name in self._stems.get(module, ()) for node in self.follow(name, parts, seen)}
        if not parts:
            return {(module, WHOLE)}
        if parts[0] in OWN_FILE:
            return set()
        found = self.local(known, parts, seen)
        if len(found) < 2 and parts[0] not in known.definitions and f"{module}.{parts[0]}" in self.modules:
            found |= self.follow(f"{module}.{parts[0]}", parts[1:])
        return found or {(module, WHOLE)}

    def local(self, module: Module, parts: tuple[str, ...], seen: frozenset[Node] = frozenset()) -> set[Node]:
        """What a dotted path stands for in a module's own source; nothing where it is of local variables."""
        here = module.name, parts[0]
        found = {here} if parts[0] in module.definitions or parts[0] in module.imports else set()
        for target, name in module.imports.get(parts[0], ()) if here not in seen else ():
            found |= self.follow(target, (name, *parts[1:]) if name else parts[1:], seen | {here})
        return found

    def files(self, near: str, text: str) -> set[Node]:
        """The files that a text in a file of a folder names: beside it, or else anywhere."""
        last = text.rstrip("/").rpartition("/")[2]
        if not FILE.fullmatch(text) or last in (PACKAGE, TESTS, "__init__.py"):
            return set()
        inside = f"{PACKAGE}/" if near.startswith(PACKAGE) else ""
        candidates = self.paths if "*" in last else self._by_part.get(last, ())
        found = []
        for path in candidates:
            this = self.paths[path]
            names = [this, *this.parents] if is_data(path) else [this]
            if path.startswith(inside) and any(name.match(text) for name in names):
                found.append(path)
        for exact in (f"{near}/{text}", text):
            found = [path for path in found if path == exact] or found
        return {(module_of(path) if is_module(path) else path, WHOLE) for path in found}

    # --- sources --------------------------------------------------------------------------------------

    def _read_module(self, module: Module) -> None:
        """Adds what leads from the names of a module."""
        whole = self.leads[module.name, WHOLE]
        for name, statements in module.definitions.items():
            here = module.name, name
            whole |= {here}
            if name != ON_IMPORT and ON_IMPORT in module.definitions:
                self.leads[here].add((module.name, ON_IMPORT))
            for statement in statements:
                self._read(module, here, statement)
                for decorator in getattr(statement, "decorator_list", []):
                    path = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
                    for place, owner in self.local(module, path) if path[1:] else ():
                        if (
                            place in self.modules and owner in self.modules[place].definitions
                        ):  # it keeps what it decorates
                            self.leads[place, owner].add(here)
        for name in module.imports:
            whole |= {(module.name, name)}
            found = self.follow(module.name, (name,))
            self.leads[module.name, name] |= {node for node in found if node[1] != WHOLE}
        if self._places[module.name].endswith("__init__.py"):
            whole |= {(name, WHOLE) for name in self.modules if name.startswith(f"{module.name}.")}
        if module.name.startswith(TESTS):
            self._read_fixtures(module)

    def _read_fixtures(self, module: Module) -> None:
        """Adds what leads from tests and fixtures to fixtures."""
        folders = module.name.split(".")[:-1]
        conftests = [".".join([*folders[:depth], "conftest"]) for depth in range(1, len(folders) + 1)]
        places = [self.modules[name] for name in {module.name, *conftests} if name in self.modules]
        always = {(place.name, name) for place in places for name, every in place.fixtures.items() if every}
        for name, statements in module.definitions.items():
            here, is_test = (module.name, name), name.startswith("test_")
            if is_test:
                self.leads[here] |= always
                if "pytestmark" in module.definitions:
                    self.leads[here].add((module.name, "pytestmark"))
            for part in (part for statement in statements for part in ast.walk(statement)):
                wanted = [part.arg] if isinstance(part, ast.arg) else []
                if isinstance(part, ast.Call) and {"usefixtures", "getfixturevalue"} & {*dotted(part.func)}:
                    wanted += [str(one.value) for one in part.args if isinstance(one, ast.Constant)]
                self.leads[here] |= {
                    (place.name, one) for place in places for one in wanted if one in place.fixtures
                }
            self.leads[here].discard(here)

    def _read(self, module: Module, here: Node, node: ast.AST, *, by_name: bool = False) -> None:
        """Adds what leads from a piece of source; ``by_name`` where a table is only asked for a name."""
        if path := dotted(node):
            found = self.local(module, path)
            self.leads[here] |= found | ({VALUES} if CONTROLLERS in found and not by_name else set())
            return
        match node:
            case ast.Constant(value=str(text)):
                self._read_text(here, text)
            case ast.JoinedStr(values=values):
                parts = [str(part.value) if isinstance(part, ast.Constant) else " " for part in values]
                self._read_text(here, "".join(parts))
            case ast.ImportFrom(names=names):  # inside a function
                for alias in names:
                    found = self.local(module, (alias.asname or alias.name,))
                    self.leads[here] |= {
                        one for one in found if one[1] != WHOLE or one[0] not in self.modules
                    }
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                values = [part.value if isinstance(part, ast.Constant) else None for part in elements]
                if ("-m", PACKAGE) in itertools.pairwise(values):  # as in `python -m autotts_jax`
                    self.leads[here].add((f"{PACKAGE}.__main__", WHOLE))
            case ast.Raise():
                for part in ast.walk(node):
                    if path := dotted(part):
                        self.leads[here] |= self.local(module, path)
                return
            case ast.Expr(value=ast.Constant()) | ast.keyword(arg="help"):
                return
            case ast.Call(args=[owner, ast.Constant(value=str(name)), *_]) if self._is_module(module, owner):
                self.leads[here] |= self.local(module, (*dotted(owner), name))  # `setattr(module, "name", …)`
                node = ast.Call(node.func, node.args[1:], node.keywords)
            case ast.Call(func=called, args=[name, *_]) if dotted(called)[-1:] == ("import_module",):
                if isinstance(name, ast.Constant):
                    self.leads[here] |= self.follow(str(name.value), ())
                elif module.name.startswith(TESTS):
                    self.leads[here].add((PACKAGE, WHOLE))
        for part in ast.iter_child_nodes(node):
            asked = isinstance(node, ast.Compare) or (isinstance(node, ast.Subscript) and part is node.value)
            self._read(module, here, part, by_name=by_name or asked)

    def _is_module(self, module: Module, node: ast.AST) -> bool:
        """Whether a piece of a module's source stands for a whole module."""
        parts = dotted(node)
        return bool(parts) and any(name == WHOLE for _, name in self.local(module, parts))

    def _read_text(self, here: Node, text: str) -> None:
        """Adds what leads from a text."""
        self.words[here].update(WORD.findall(text))
        if "WidthDepth" in text and here[0] != ENVIRONMENTS[0]:
            self.leads[here] |= {(module, WHOLE) for module in ENVIRONMENTS}
        near = str(PurePosixPath(self._places.get(here[0], here[0])).parent)
        for part in set(re.split(r"[\s,:;@'\"`()\[\]{}<>|=]+", text)):
            found = self.files(near, part.lstrip("/"))  # as in f"{FOLDER}/file.py"
            self.leads[here] |= (
                found if here[0] in self.modules else {node for node in found if node[0] in self.modules}
            )
        if own := self.modules.get(here[0]):  # as in f"{__file__}:name"
            self.leads[here] |= {
                (own.name, name) for name in re.findall(r":(\w+)", text) if name in own.definitions
            }
        for target, name in IMPORT_PATH.findall(text):
            if target in self._stems:
                self.leads[here] |= self.follow(target, (name,) if name else ())
        for target, *names in IMPORT_FROM.findall(text):
            for name in filter(str.strip, "".join(names).split(",")):
                self.leads[here] |= self.follow(target, (name.split()[0],))
        rest = IMPORT_FROM.sub("", text)
        for path in DOTTED.findall(rest):
            self.leads[here] |= self.follow(PACKAGE, tuple(path[1:].split(".")))
        for target, alias in IMPORT.findall(rest):
            name = re.escape(alias or target)
            for path in re.findall(rf"\b{name}((?:\.\w+)+)", rest):
                self.leads[here] |= self.follow(target, tuple(path[1:].split(".")))
            if re.search(rf"[(,] *{name} *[,)]", rest):
                self.leads[here] |= self.follow(target, ())

    def _take_tables_apart(self) -> None:
        """Has names lead to the entries of tables, instead of the tables themselves."""
        if CONTROLLERS not in self.leads:
            return
        families = self.leads.pop(CONTROLLERS)
        self.leads[VALUES] = families
        self.leads[CONTROLLERS[0], WHOLE].add(VALUES)
        for place, name in families:
            if statements := self.modules[place].definitions.get(name) if place != CONTROLLERS[0] else None:
                texts = (part.value for part in ast.walk(statements[0]) if isinstance(part, ast.Constant))
                if label := next((text for text in texts if isinstance(text, str)), None):
                    self.entries[CONTROLLERS, label].add((place, name))
        for node in self.leads.pop(COMMANDS, set()):
            name = node[1] if node[0] == COMMANDS[0] else node[0].rpartition(".")[2]
            self.entries[COMMANDS, name].add(node)
        self.leads[COMMANDS] = self.follow(COMMANDS[0], ("with_options",))
        self.leads.pop((ENVIRONMENTS[0], "register"), None)  # importing the package calls it

    # --- what reaches what ----------------------------------------------------------------------------

    def reaching(self, changed: set[Node]) -> set[Node]:
        """The nodes from which a change can be reached."""
        nodes = list(
            {*self.leads, *self.words, *TABLES, *changed}.union(*self.leads.values(), *self.entries.values())
        )
        bit = {node: 1 << number for number, node in enumerate(nodes)}
        reach = {node: bit[node] for node in nodes}
        growing = True
        while growing:
            growing = False
            for node, onwards in self.leads.items():
                before = after = reach[node]
                for other in onwards:
                    after |= reach[other]
                if after != before:
                    reach[node], growing = after, True
        spelled = {
            (table, word): sum(
                bit[node]
                for node, words in self.words.items()
                # The package itself gives no commands.
                if word in words
                and not (table == COMMANDS and node[0].startswith(PACKAGE))
                and not (table == CONTROLLERS and node[0] in ALIKE)
            )
            for table, word in self.entries
        }
        goal = sum(bit[node] for node in changed)
        found = set()
        for node in nodes:
            seen, closed = reach[node], dict(self.entries)
            while opened := [entry for entry in closed if seen & bit[entry[0]] and seen & spelled[entry]]:
                for entry in opened:
                    for target in closed.pop(entry):
                        seen |= reach[target]
            if seen & goal:
                found.add(node)
        return found

    def path_of(self, module: str) -> str:
        """Where a module is."""
        return self._places[module]

    def tests(self) -> list[Node]:
        """The tests, without those of `APART`."""
        return [
            (name, test)
            for name, path in sorted(self._places.items(), key=lambda place: place[1])
            if path.startswith(f"{TESTS}/") and self.paths[path].name.startswith("test_")
            if not path.startswith(APART)
            for test in self.modules[name].definitions
            if test.startswith("test_")
        ]


def is_module(path: str) -> bool:
    """Whether a file is Python that is looked into."""
    return path.endswith(".py") and path.partition("/")[0] in FOLDERS


def is_data(path: str) -> bool:
    """Whether a file may be read by the name of its folder."""
    data = not is_module(path) and path.startswith((PACKAGE, TESTS)) and not path.endswith("README.md")
    return data or path.startswith("tests/cheats/")


def module_of(path: str) -> str:
    """The dotted name of a module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def git(*arguments: str) -> str:
    """What a command of git prints."""
    command = ["git", "-c", "core.quotePath=false", *arguments]  # or it escapes letters that are not ASCII
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def before_of(base: str, path: str) -> str:
    """The text that a file had at a commit; nothing where there was none."""
    try:
        return git("show", f"{base}:{path}")
    except subprocess.CalledProcessError:
        return ""


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path is one of these."""
    return any(PurePosixPath(path).match(pattern) for pattern in patterns)


def text_of(path: str) -> str:
    """The text of a file; empty for a binary or deleted one."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def texts_of(others: Iterable[str] = ()) -> dict[str, str]:
    """The files that git knows, and others, with their texts."""
    paths = {*git("ls-files").splitlines(), *others}
    return {path: text_of(path) for path in paths if not matches(path, SEEN_BY_NO_TEST)}


def select(base: str) -> tuple[list[str], str]:
    """The tests that what differs from a commit can reach, and why these."""
    try:
        git("merge-base", "--is-ancestor", base, "HEAD")
    except subprocess.CalledProcessError:
        return [TESTS], f"{base or 'nothing'} is not an ancestor"
    new = git("ls-files", "--others", "--exclude-standard").splitlines()
    paths = [*git("diff", "--name-only", "--no-renames", base).splitlines(), *new]
    paths = [path for path in paths if not matches(path, SEEN_BY_NO_TEST)]
    graph = Graph(texts_of(paths))
    changed: set[Node] = set()
    for path in paths:
        if matches(path, DECIDES_ALL):
            return [TESTS], f"{path} differs"
        if is_module(path.removesuffix("i")):  # or the stub of one
            path = path.removesuffix("i")
            name, before = module_of(path), [before_of(base, one) for one in (path, f"{path}i")]
            old = Module(name, *before).versions()
            now = graph.modules[name].versions() if name in graph.modules else {}
            changed |= {(name, one) for one in old.keys() | now.keys() if old.get(one) != now.get(one)}
            if old.keys() - now.keys():
                changed.add((name, WHOLE))  # of what is no more a name leads to the whole module
        elif any((path, WHOLE) in onwards for onwards in graph.leads.values()):
            changed.add((path, WHOLE))
        else:
            return [TESTS], f"{path} differs, and nothing names it"
    reaching = graph.reaching(changed)
    tests = graph.tests()
    found = [f"{graph.path_of(name)}::{test}" for name, test in tests if (name, test) in reaching]
    places = sorted({place for place, _ in changed})
    return (
        found,
        f"{len(found)} of {len(tests)} test functions reach {', '.join(places) or 'nothing that differs'}",
    )


def main(base: str = "") -> None:
    found, why = select(base)
    print(f"{'all, as ' if found == [TESTS] else ''}{why}", file=sys.stderr)
    for test in found:
        print(test)


if __name__ == "__main__":
    main(*sys.argv[1:])
