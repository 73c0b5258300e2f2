"""The tests that a change can reach: on files of this repository, and on a few that are made up."""

import subprocess

import changed
import pytest
from changed import WHOLE, Graph, select


@pytest.fixture(scope="module")
def graph():
    return Graph(changed.texts_of())


def reaching(graph, module, name):
    assert name in graph.modules[module].definitions
    found = graph.reaching({(module, name)})
    return {f"{name}::{test}".removeprefix("tests.") for name, test in graph.tests() if (name, test) in found}


@pytest.mark.slow
def test_a_controller_is_reached_by_the_tests_that_play_it(graph):
    tests = reaching(graph, "autotts_jax.policies.sprt", "SPRTConsensus")
    assert "test_check_controller::test_shipped_families_pass" in tests  # takes all of `CONTROLLERS`
    assert "test_published::test_every_embedded_episode_equals_that_of_plain_lists" in tests  # says "sprt"
    assert "test_parity::test_every_embedded_episode_equals_the_released_evaluator" not in tests
    tests = reaching(graph, "autotts_jax.policies.cmc", "CMC")
    assert "test_parity::test_every_embedded_episode_equals_the_released_evaluator" in tests
    assert "test_discovery::test_a_killed_run_loses_nothing" in tests  # through a helper
    assert len(tests) < len(graph.tests()) / 2


@pytest.mark.slow
def test_a_command_is_reached_by_the_tests_that_give_it(graph):
    tests = reaching(graph, "autotts_jax.cli.trace", "trace")
    assert "test_cli::test_the_default_trace_runs_in_a_fresh_process" in tests
    assert "test_train_cli::test_two_processes_do_what_one_does" not in tests


SOURCES = {
    "autotts_jax/__init__.py": "from lazy_loader import attach_stub",
    "autotts_jax/__init__.pyi": "from .room.first import one, two",
    "autotts_jax/room/__init__.py": "",
    "autotts_jax/room/first.py": "def one(): return _table\ndef two(): ...\n_table = open('table.csv')",
    "autotts_jax/room/second.py": "from autotts_jax.room import first\nclass Reader: read = first.two",
    "autotts_jax/room/table.csv": "1,2",
    "autotts_jax/room/third.py": "seen = []\nseen[:] = [_noted()]\ndef _noted(): ...\ndef three(): ...",
    "tests/helper.py": "from autotts_jax.room.third import three",
    "tests/conftest.py": "import pytest, helper\n@pytest.fixture\ndef thing(): return helper.three()",
    "tests/test_one.py": "import autotts_jax as at\ndef test_it(): at.one()\ndef test_all(): vars(at)",
    "tests/test_two.py": "def test_it():\n    from autotts_jax.room.second import Reader",
    "tests/test_three.py": "def test_it(thing): ...\ndef test_idle(): ...",
    "tests/cache.py": "FOLDER = cache_of('autotts_jax') / 'tests'",
    "tests/test_main.py": "import cache\ndef test_it(): run(['-m', 'autotts_jax'])\n"
    "def test_idle(): cache.FOLDER",
    "autotts_jax/__main__.py": "from autotts_jax.room.first import two\ntwo()",
    "tests/test_text.py": "CODE = 'import autotts_jax as at; at.two()'\ndef test_it(): run(CODE)",
    "autotts_jax/envs/gym.py": "class WidthDepthEnv: ...",
    "tests/test_id.py": "def test_it(): make('autotts_jax:WidthDepth-v0')",
    "tests/called.py": "def call(): ...",
    "examples/mine.py": "def play(): ...",
    "tests/test_file.py": "def play(): ...\ndef test_it(): run(f'{__file__}:play')",
    "tests/test_own.py": "def test_it(): run(f'{HERE}/mine.py:play')\ndef test_too(): run('{}/mine.py')",
    "tests/test_path.py": "def test_it(name): run(f'called:{name}')\ndef test_idle(): run('called: never')",
}


@pytest.mark.parametrize(
    ("node", "tests"),
    [
        (("autotts_jax.room.first", "one"), {"one.test_it", "one.test_all"}),
        (
            ("autotts_jax.room.first", "two"),
            {"one.test_all", "two.test_it", "text.test_it", "main.test_it"},
        ),
        (("autotts_jax.room.first", "_table"), {"one.test_it", "one.test_all"}),
        (("autotts_jax/room/table.csv", WHOLE), {"one.test_it", "one.test_all"}),
        (("autotts_jax.room.third", "three"), {"one.test_all", "three.test_it"}),
        (("autotts_jax.room.third", "_noted"), {"one.test_all", "three.test_it"}),
        (("autotts_jax.room.second", "Reader"), {"one.test_all", "two.test_it"}),
        (("autotts_jax.envs.gym", "WidthDepthEnv"), {"one.test_all", "id.test_it"}),
        (("tests.called", "call"), {"path.test_it"}),
        (("examples.mine", "play"), {"own.test_it", "own.test_too"}),
        (("tests.test_file", "play"), {"file.test_it"}),
    ],
)
def test_what_leads_to_a_definition(node, tests):
    graph = Graph(SOURCES)
    found = graph.reaching({node})
    assert {
        f"{name.removeprefix('tests.test_')}.{test}" for name, test in graph.tests() if (name, test) in found
    } == tests


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository without a commit; gives a function that commits files, and names the commit."""
    monkeypatch.setattr(changed, "ROOT", tmp_path)

    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True
        )

    def commit(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        git("add", "--all")
        git("commit", "--quiet", "--message", "More")
        return changed.git("rev-parse", "HEAD").strip()

    git("init", "--quiet")
    return commit


def test_only_what_differs_counts(repository, tmp_path):
    base = repository(SOURCES)
    assert select(base)[0] == []
    first = tmp_path / "autotts_jax/room/first.py"
    first.write_text("# A comment\n" + SOURCES["autotts_jax/room/first.py"])
    assert select(base)[0] == []
    first.write_text('"""Examples of it."""\n' + SOURCES["autotts_jax/room/first.py"])
    assert select(base)[0] == ["tests/test_one.py::test_all"]
    first.write_text(SOURCES["autotts_jax/room/first.py"].replace("two(): ...", "two(): return 2"))
    names = "main.py::test_it", "one.py::test_all", "text.py::test_it", "two.py::test_it"
    found = [f"tests/test_{name}" for name in names]
    assert select(base)[0] == found
    repository({})
    assert select(base)[0] == found


@pytest.mark.slow
def test_tests_with_an_environment_of_their_own_are_apart(graph):
    apart = {path for path in graph.paths if path.startswith(changed.APART)}
    assert apart
    assert not apart & {graph.path_of(name) for name, _ in graph.tests()}


def test_where_nothing_is_known_everything_is_run(repository):
    base = repository(SOURCES)
    for unknown in ("", "0" * 40, base[:-1] + "x"):
        assert select(unknown) == (["tests"], f"{unknown or 'nothing'} is not an ancestor")
    later = repository({"tests/conftest.py": ""})
    assert select(base) == (["tests"], "tests/conftest.py differs")
    repository({"autotts_jax/room/größe.bin": "?"})
    assert select(later) == (["tests"], "autotts_jax/room/größe.bin differs, and nothing names it")
