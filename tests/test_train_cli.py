"""Configuration files, folds, and ``autotts-jax train`` as a user meets it."""

import dataclasses
import functools
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from progress import without_progress
from rich.console import Console
from toy_command import CONFIG, TOY
from toy_runs import Toy, end_of, two_processes, validate

from autotts_jax.cli import console
from autotts_jax.cli.train import live_metrics, print_run
from autotts_jax.core import CostModel
from autotts_jax.envs import WidthDepthRounds
from autotts_jax.envs.difficulty import vary_difficulty
from autotts_jax.errors import InputError
from autotts_jax.pages import rendering
from autotts_jax.policies.neural import policy_file
from autotts_jax.policies.neural.actions import HEADS
from autotts_jax.policies.neural.network import BRANCH_INPUTS
from autotts_jax.policies.neural.policy import NeuralPolicy, head_of
from autotts_jax.replay import SYNTHETIC_MODELS, select_part, synthetic, write_json
from autotts_jax.replay.dataset import stack
from autotts_jax.replay.matrix import NONE
from autotts_jax.training import (
    Config,
    DataSettings,
    EvolutionSettings,
    NetworkSettings,
    ObjectiveSettings,
    PPOSettings,
    RunSettings,
    RunState,
    TrainingRun,
    Validation,
    WarmStartSettings,
    entry,
    fold_of,
    make_params,
    measure_signals,
    read_config,
    split_folds,
    train,
    validation,
)
from autotts_jax.training.manifest import read_manifest

MAIN = (
    "from autotts_jax.pages import rendering; rendering.available = lambda: False  # one takes a minute\n"
    "from autotts_jax.cli.main import main; main()"
)


@pytest.fixture
def toy(monkeypatch):
    for name, value in TOY.items():
        monkeypatch.setattr(entry, name, value)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def run_train(toy, run, monkeypatch, tmp_path):  # noqa: ARG001
    """Runs ``train`` in a folder of its own; gives exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return functools.partial(run, "train")


# --- the command ----------------------------------------------------------------------------------------


def test_train_says_what_it_made(run_train, config, monkeypatch):
    monkeypatch.setattr(entry, "rendering", rendering)
    status, out, err = run_train("--config", config)
    assert (status, err) == (0, "")
    manifest = json.loads(Path("runs/toy/manifest.json").read_text())
    result = manifest["result"]
    assert Path("runs/toy/report.html").exists() == rendering.available()
    assert out.splitlines() == [
        f"best validation objective: {result['best_objective']:.4f}, at update {result['best_update']}",
        "best policy: runs/toy/best.npz",
        "evaluate it: autotts-jax evaluate --controllers neural:runs/toy",
    ]
    assert manifest["command"] == ["autotts-jax", "train", "--config", str(config)]
    assert manifest["config"] == {
        "data": {"paths": None, "encoding": "exact", "folds": 3, "fold": 0, "split": False},
        "network": {"hidden": 4, "actions": "rounds", "signals": []},
        "objective": {
            "gamma": [1e-5, 1e-3],
            "reward": "outcome",
            "voters": 0,
            "difficulty_std": 0.0,
            "cost": "intervals",
            "hardware": "h100-sxm",
            "cost_model": None,
            "batch": None,
            "prefix_cached": True,
        },
        "warm_start": None,
        "trainer": dataclasses.asdict(EvolutionSettings(max_branches=8)),
        "run": {"updates": 30, "validate_every": 3, "checkpoint_every": 4, "patience": None, "seed": 5},
    }
    cells = synthetic().cells
    assert manifest["data"] == {c.name: {"source": c.source, "sha256": c.sha256} for c in cells}
    assert manifest["versions"]["jax"] == jax.__version__
    assert manifest["devices"]
    assert run_train("--config", config, "--resume")[:2] == (0, out)


def test_options_go_before_the_configuration(run_train, config, tmp_path):
    file = tmp_path / "M" / "bench.json"
    file.parent.mkdir()
    write_json(synthetic(0, SYNTHETIC_MODELS[:1], 3, 10), file)
    options = ("--data", file, "--seed", 7, "--fold", 2, "--updates", 6, "--out", "here")
    status, out, err = run_train("--config", config, *options)
    assert (status, err) == (0, "")
    assert out.endswith(f"evaluate it: autotts-jax evaluate --controllers neural:here --data {file}\n")
    manifest = json.loads(Path("here/manifest.json").read_text())
    expected = {"paths": [str(file)], "encoding": "exact", "folds": 3, "fold": 2, "split": False}
    assert manifest["config"]["data"] == expected
    assert manifest["config"]["run"] | {"seed": 7, "updates": 6} == manifest["config"]["run"]
    assert manifest["data"].keys() == {"M/bench"}
    status, out, err = run_train("--config", config, *options[2:], "--resume")
    assert (status, out) == (2, "")
    assert f'config.data.paths is ["{file}"] there and nothing here' in err


def test_early_stopping_is_told(run_train, config):
    config.write_text(CONFIG.replace("[run]", "[run]\npatience = 1"))
    status, out, _ = run_train("--config", config)
    assert status == 0
    assert "stopped early, after update" in out


def test_a_policy_is_evaluated_on_the_data_that_it_was_trained_on(capsys):
    run = TrainingRun(Path("my run"), None, {}, RunState(1, 0.5, 1), None)
    print_run(run, 1, False, DataSettings(paths=("smollm2", "a b"), encoding="equiv"))
    told = "evaluate --controllers 'neural:my run' --data smollm2 --data 'a b' --encoding equiv"
    assert capsys.readouterr().out.endswith(f"evaluate it: autotts-jax {told}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--config toy.toml --resume", "runs/toy holds no run to resume; start one without resume"),
        ("--config missing.toml", "missing.toml: cannot be read: No such file"),
        ("--config toy.toml --data nowhere", "nothing found at 'nowhere'"),
        ("--config toy.toml --fold 3", "fold is 3, but it must be in 0 … 2"),
        (
            "--config toy.toml --data empty.json",
            "empty.json: holds no questions; give it at least one",
        ),
        ("--config toy.toml --out toy.toml/run", "toy.toml/run: cannot be made: Not a directory"),
        ("--config toy.toml --process 0", "processes and process need a coordinator; give it, or leave"),
        (
            "--config toy.toml --coordinator auto --processes 2",
            "auto asks the cluster; leave out processes",
        ),
        (
            "--config toy.toml --coordinator here:1 --processes 2",
            "needs processes and process; give both",
        ),
        ("--config toy.toml --coordinator here --processes 2 --process 0", "must be HOST:PORT of process 0"),
        (
            "--config toy.toml --coordinator here:0 --processes 2 --process 0",
            "must be HOST:PORT of process 0",
        ),
        ("--config toy.toml --coordinator :1 --processes 2 --process 0", "must be HOST:PORT of process 0"),
        (
            "--config toy.toml --coordinator here:1 --processes 2 --process 2",
            "process is 2, but it must be in 0 … 1",
        ),
    ],
)
@pytest.mark.usefixtures("config")
def test_train_says_what_is_wrong(run_train, arguments, message):
    Path("empty.json").write_text("[]")
    status, out, err = run_train(*arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("autotts-jax: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("auto", "coordinator auto: no cluster such as SLURM or Open MPI has started this process; give"),
        (
            "localhost:1 --processes 2 --process 1",
            "coordinator localhost:1: not all processes connected",
        ),
    ],
)
def test_a_coordinator_that_is_not_there(arguments, message):
    code = f"from autotts_jax.core import hosts; hosts.INITIALIZATION_SECONDS = 1; {MAIN}"
    options = f"train --config missing.toml --coordinator {arguments}".split()
    command = [sys.executable, "-c", code, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"autotts-jax: error: {message}")
    assert without_progress(done.stderr).count("\n") == 1


def test_a_port_that_is_taken(run_train, config):
    with socket.create_server(("", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
        joined = ("--coordinator", address, "--processes", 2, "--process", 0)
        status, out, err = run_train("--config", config, *joined)
    assert (status, out) == (2, "")
    assert err.startswith(f"autotts-jax: error: coordinator {address}: Address already in use")
    assert err.endswith("; give a free port\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_it_and_the_command_that_it_says_goes_on(run_train, config, monkeypatch, number):
    run_train("--config", config, "--out", "whole")
    updates, update = itertools.count(1), Toy.update

    def stopped(self, state):
        if next(updates) == 6:
            os.kill(os.getpid(), number)
        return update(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Toy, "update", stopped)
        status, _, err = run_train("--config", "toy.toml", "--out", "stopped")
    assert status == 128 + number
    message, command = err.split("; continue with: ")
    assert message == f"autotts-jax: stopped by {number.name} after update 6 of 30"
    assert err.count("\n") == 1
    assert sorted(Path("stopped/checkpoints").iterdir())[-1].name == "00000006"
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("autotts-jax", "train")
    assert run_train(*arguments)[0] == 0
    assert end_of(Path("stopped")) == end_of(Path("whole"))


def test_live_metrics_are_shown_below_the_bar(monkeypatch):
    metrics = {"train/kl": 0.01234, "train/accuracy": 0.5, "train/tokens": 212345.6, "validation/tokens": 1.0}
    screen = Console(force_terminal=True, width=80)
    monkeypatch.setattr(console, "Console", lambda **_: screen)
    with screen.capture() as shown, console.working() as tell:
        tell("training", 3, 10, live_metrics(metrics))
    assert "3/10" in shown.get()
    assert "accuracy 0.5  tokens 212,346  kl 0.0123" in shown.get()


WARM_START = "[warm_start]\ngenerations = 2\npopulation = 4\nnum_gammas = 2\nupdates = 20\n"

RUNS = {
    "evolution": ("rounds", ["eat"], {"kind": "evolution", "population": 4, "num_gammas": 1, "std": 0.5}),
    "ppo": ("rounds", ["eat"], {"kind": "ppo", "num_envs": 4, "num_steps": 4, "epochs": 1, "minibatches": 2}),
    "atomic": ("atomic", [], {"kind": "ppo", "num_envs": 4, "num_steps": 16, "epochs": 1, "minibatches": 2}),
}


@pytest.fixture(scope="module")
def whole(request, tmp_path_factory):
    """A folder with a run that one process with two devices has made, and what trains there further."""
    folder = tmp_path_factory.mktemp(request.param)
    actions, signals, trainer = RUNS[request.param]
    for model in SYNTHETIC_MODELS[:2]:
        (folder / model.name).mkdir()
        write_json(synthetic(0, [model], 3, 10, signals=True), folder / model.name / "bench.json")
    lines = [f"{key} = {json.dumps(value)}" for key, value in (trainer | {"max_branches": 4}).items()]
    config = CONFIG.replace('kind = "evolution"\nmax_branches = 8', "\n".join(lines))
    config = config.replace("hidden = 4", f'hidden = 4\nactions = "{actions}"\nsignals = {signals}')
    config = config.replace("updates = 30", "updates = 5").replace(
        "checkpoint_every = 4", "checkpoint_every = 2"
    )
    config += '[objective]\nreward = "majority"\n' + (WARM_START if trainer["kind"] == "evolution" else "")
    (folder / "real.toml").write_text(config)
    arguments = ["train", "--config", "real.toml", "--data", "*/bench.json", "--out"]
    options = {"cwd": folder, "env": os.environ | {"JAX_NUM_CPU_DEVICES": "2"}}

    def start(*more):
        command = [sys.executable, "-c", MAIN, *arguments, *more]
        done = subprocess.run(command, **options, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, without_progress(done.stderr)) == (0, "")

    def start_two(*more):
        return two_processes(MAIN, *arguments, *more, **options)

    start("whole")
    return types.SimpleNamespace(
        folder=folder,
        start=start,
        start_two=start_two,
        kind=trainer["kind"],
        actions=actions,
        signals=signals,
    )


def result_of(run):
    """Metrics and the best parameters, bit by bit."""
    parameters = policy_file.load_policy(run)[0].parameters
    return (run / "metrics.jsonl").read_text(), [leaf.tobytes() for leaf in jax.tree.leaves(parameters)]


@pytest.mark.nightly
@pytest.mark.parametrize("whole", ["ppo", "evolution", "atomic"], indirect=True)
def test_the_trainers_go_on_bit_for_bit_in_a_fresh_process(whole):
    run = shutil.copytree(whole.folder / "whole", whole.folder / "resumed")
    shutil.rmtree(run / "checkpoints" / "00000005")
    shutil.rmtree(run / "checkpoints" / "00000004")
    whole.start("resumed", "--resume")
    assert result_of(run) == result_of(whole.folder / "whole")
    assert (run / "best.npz").read_bytes() == (whole.folder / "whole" / "best.npz").read_bytes()
    policy, card = policy_file.load_policy(run)
    assert '"validation/accuracy"' in result_of(run)[0]
    assert card["config"]["trainer"]["kind"] == whole.kind
    assert policy.parameters["trunk"]["bias"].shape == (4,)
    assert head_of(policy.parameters) is HEADS[whole.actions]
    assert list(policy.signals) == card["config"]["network"]["signals"] == whole.signals
    assert (policy.trained_on.least_interval, policy.trained_on.most_interval) == (500, 500)


@pytest.mark.nightly
@pytest.mark.parametrize("whole", ["ppo", "evolution"], indirect=True)
def test_two_processes_do_what_one_does(whole):
    """With as many devices in all; a signal to one of them stops both, and they go on."""
    run = whole.folder / "two"
    with whole.start_two("two") as processes:
        metrics = run / "metrics.jsonl"  # with a line when both are in the loop of updates
        while not (metrics.exists() and metrics.stat().st_size) and processes[0].poll() is None:
            time.sleep(0.01)
        processes[1].send_signal(signal.SIGTERM)
        (out, err), theirs = (process.communicate(timeout=300) for process in processes)
    assert [process.returncode for process in processes] == [128 + signal.SIGTERM] * 2
    assert "\nautotts-jax: stopped by SIGTERM after update " in f"\n{err}"
    assert err.endswith("--process 0 --resume\n")
    assert [said(out), said("".join(theirs))] == ["", ""]
    with whole.start_two("two", "--resume") as processes:
        (out, err), theirs = (process.communicate(timeout=300) for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert "best policy: two/best.npz" in out
    assert (without_progress(err), said("".join(theirs))) == ("", "")
    assert result_of(run) == result_of(whole.folder / "whole")


def said(output):
    """What the program says, without the lines that JAX adds."""
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("[Gloo]"))


@pytest.mark.parametrize("name", ["train.toml", "train_aime24.toml", "train_label_free.toml"])
def test_the_example_configurations_are_read(name):
    config = read_config(Path(__file__).parents[1] / "examples" / name)
    assert config.trainer.kind == "evolution"
    assert (config.warm_start is None) == (name == "train.toml")


# --- validation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["outcome", "majority"])
def test_validation_counts_the_right_answers(monkeypatch, reward):
    dataset = stack([synthetic(0, SYNTHETIC_MODELS[:1], 3, 10), synthetic(1, SYNTHETIC_MODELS[1:2], 2, 7)])
    config = Config(
        trainer=EvolutionSettings(max_branches=4),
        run=RunSettings(1),
        objective=ObjectiveSettings((1e-4, 1e-2), reward),
    )
    answers = dataset.matrix.answers.copy()
    answers[0] = NONE  # so that a majority of the first question has none either, and nobody is right
    matrix = dataclasses.replace(dataset.matrix, answers=answers)
    dataset = dataclasses.replace(dataset, matrix=matrix)
    finals = np.asarray(matrix.finals())

    def rollout(policies, played_matrix, orders, episodes, hooks, devices):  # noqa: ARG001
        """Plays perfectly: answers with the target of every episode, worked out anew."""
        assert played_matrix is matrix
        assert [policy.gamma for policy in policies] == pytest.approx(np.geomspace(1e-4, 1e-2, 8))
        answers = []
        for question, row in zip(episodes.question, episodes.row, strict=True):
            played = set(np.asarray(orders.of(question, row)).tolist())
            recorded = dataset.cells[matrix.cell[question]].num_branches
            assert len(played) == 4
            assert max(played) < recorded
            others = [finals[question, b] for b in range(recorded) if b not in played]
            counts = Counter(answer for answer in others if answer != NONE)
            most = counts.most_common(1)[0][0] if counts else NONE
            answers.append(most if reward == "majority" else matrix.gold[question])
        intervals = np.arange(len(answers)) % 7
        assert len(set(zip(*episodes, strict=True))) == len(answers) == 8 * 16 * 5
        return types.SimpleNamespace(answer=np.array(answers), intervals=intervals, tokens=500 * intervals)

    monkeypatch.setattr(validation, "rollout", rollout)
    measured = Validation(config, dataset)(NeuralPolicy({}, 1e-3))
    intervals = np.arange(8 * 16 * 5) % 7
    gamma = np.repeat(np.geomspace(1e-4, 1e-2, 8), 16 * 5)
    if reward == "outcome":
        assert measured["accuracy"] == 1
    else:
        assert 0.72 < measured["accuracy"] <= 0.8  # ties are broken differently
    assert measured["objective"] == pytest.approx(measured["accuracy"] - np.mean(gamma * intervals))
    assert measured["tokens"] == pytest.approx(500 * intervals.mean())


def test_a_policy_is_compared_with_controllers_at_their_best_values(monkeypatch):
    dataset = synthetic(0, SYNTHETIC_MODELS[:1], 3, 10)
    config = Config(
        trainer=EvolutionSettings(max_branches=4),
        run=RunSettings(1),
        objective=ObjectiveSettings((1e-4, 1e-1)),
    )

    def rollout(controllers, _matrix, _orders, episodes, hooks, devices):  # noqa: ARG001
        """SC@1 is right in half of the orders, for 1; others are always: SC@4 for 100, the rest for 10."""
        branches = np.array([getattr(one, "branches", 0) for one in controllers])[episodes.setting]
        right = (branches != 1) | (episodes.row % 2 == 0)
        answer = np.where(right, np.asarray(dataset.matrix.gold)[episodes.question], NONE)
        intervals = np.select([branches == 1, branches == 4], [1, 100], 10)
        return types.SimpleNamespace(answer=answer, intervals=intervals, tokens=500 * intervals)

    monkeypatch.setattr(validation, "rollout", rollout)
    over_sc, over_cmc = Validation(config, dataset).compare(NeuralPolicy({}, 1e-3))
    gamma = np.geomspace(1e-4, 1e-1, 8)
    one = 0.5 - gamma > 1 - 100 * gamma
    assert 0 < one.sum() < 8
    gain = np.mean(1 - 10 * gamma - np.where(one, 0.5 - gamma, 1 - 100 * gamma))
    assert over_sc[:2] == ("sc", pytest.approx(gain))
    assert np.isnan(over_sc[2:4]).all()  # three questions claim nothing
    assert over_sc.accuracy == pytest.approx(one.mean() / 2)
    assert over_sc.tokens_ratio == pytest.approx(10 / np.where(one, 1, 100).mean())
    assert (over_cmc[:2], over_cmc.accuracy, over_cmc.tokens_ratio) == (("cmc", 0), 0, 1)


def test_questions_are_as_difficult_in_validation_as_in_training(monkeypatch):
    dataset = synthetic(0, SYNTHETIC_MODELS[:1], 3, 10)
    config = Config(
        trainer=EvolutionSettings(max_branches=4),
        run=RunSettings(1),
        objective=ObjectiveSettings((1e-4, 1e-2), difficulty_std=2.0),
    )
    seen = []

    def rollout(_policies, _matrix, orders, episodes, hooks, devices):  # noqa: ARG001
        """Notes the branches that each question is played with."""
        seen.append((orders, episodes.row.reshape(-1, 16, 3)))
        nothing = 0 * episodes.question
        return types.SimpleNamespace(answer=nothing, intervals=nothing, tokens=nothing)

    monkeypatch.setattr(validation, "rollout", rollout)
    Validation(config, dataset)(NeuralPolicy({}, 1e-3))
    [(orders, row)] = seen
    expected = make_params(config, dataset, validation.VALIDATION_SEED).orders.first(4)
    np.testing.assert_array_equal(orders.table, expected.table)
    np.testing.assert_array_equal(row[0], np.arange(16)[:, None].repeat(3, axis=1))
    plain = WidthDepthRounds(4).make_params(dataset.matrix, seed=7)
    trained = make_params(config, dataset, 7)
    np.testing.assert_array_equal(trained.orders.table, vary_difficulty(plain, 2.0, 7).orders.table)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trainer",
    [
        pytest.param(EvolutionSettings(population=2, num_gammas=1, max_branches=4), id="evolution"),
        pytest.param(
            PPOSettings(max_branches=4, num_envs=4, num_steps=8, minibatches=1),
            marks=pytest.mark.nightly,
            id="ppo",
        ),
    ],
)
def test_a_run_charges_the_cost_that_its_card_names(tmp_path, trainer, monkeypatch):
    reported = rendering.available() and trainer.kind == "ppo"  # one report is enough: it takes seconds
    monkeypatch.setattr(rendering, "available", lambda: reported)
    dataset = synthetic(0, SYNTHETIC_MODELS[:1], 6, 8)
    config = Config(
        trainer=trainer,
        run=RunSettings(1),
        network=NetworkSettings(2),
        objective=ObjectiveSettings((1e-3, 1e-2), cost="latency", cost_model="Qwen3-8B", batch=4),
    )
    trained = train(config, dataset, out=tmp_path / "out")
    policy, card = policy_file.load_policy(trained.folder)
    assert card["config"]["objective"]["cost"] == "latency"
    assert card["config"]["objective"]["batch"] == 4
    validate = Validation(config, dataset)
    assert trained.metrics == pytest.approx(validate(policy))
    if reported:
        assert "published controllers" in (trained.folder / "report.html").read_text(encoding="utf-8")
    in_intervals = dataclasses.replace(config, objective=ObjectiveSettings((1e-3, 1e-2)))
    reader, _ = policy_file.load_policy(policy_file.SHIPPED)
    measured, other = validate(reader), Validation(in_intervals, dataset)(reader)
    assert (other["accuracy"], other["tokens"]) == (measured["accuracy"], measured["tokens"])
    assert other["objective"] != pytest.approx(measured["objective"], rel=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": ObjectiveSettings(cost="flops")}, "the model 'synthetic-S' has no profile"),
        (
            {"network": NetworkSettings(signals=("eat",))},
            "the network reads the signal eat, and the data has none; use data that was recorded with it",
        ),
    ],
)
def test_data_that_lacks_something_starts_no_run(tmp_path, settings, message):
    config = Config(trainer=EvolutionSettings(), run=RunSettings(1), **settings)
    with pytest.raises(InputError, match=message):
        train(config, synthetic(), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_signals_are_measured_on_the_training_questions():
    """At every depth that can be read, as far as they are finite."""
    dataset = synthetic(0, SYNTHETIC_MODELS[:1], 3, 4, signals=True)
    values = {name: dataset.matrix.signals[name].copy() for name in ("eat", "conf_low", "logprob_mean")}
    values["eat"][0, 0, :2] = np.nan, np.inf
    values["conf_low"][:] = 0.1
    matrix = dataclasses.replace(dataset.matrix, signals=values)
    lengths = matrix.lengths.ravel()
    recorded = [row[: length + 1] for row, length in zip(values["eat"].reshape(12, -1), lengths, strict=True)]
    known = np.concatenate(recorded).astype(float)
    known = known[np.isfinite(known)]
    assert known.size == (lengths + 1).sum() - 2
    eat, constant = measure_signals(matrix, ["eat", "conf_low"])
    assert eat == ("eat", pytest.approx(known.mean()), pytest.approx(known.std()))
    assert constant == ("conf_low", pytest.approx(0.1, rel=1e-3), 1)
    values["logprob_mean"][:] = np.nan
    with pytest.raises(InputError, match="the signal logprob_mean has no finite value to train on"):
        measure_signals(matrix, ["logprob_mean"])


@pytest.mark.usefixtures("toy")
def test_signals_are_measured_without_the_held_out_questions(config, tmp_path, monkeypatch):
    config.write_text(CONFIG.replace("hidden = 4", 'hidden = 4\nsignals = ["eat"]'))
    made = []
    trainers = {EvolutionSettings: lambda *given, **more: made.append((*given, more)) or Toy()}
    monkeypatch.setattr(entry, "TRAINERS", trainers)
    dataset = synthetic(0, SYNTHETIC_MODELS[:1], 6, 8, signals=True)
    train(config, dataset, out=tmp_path / "out", updates=0)
    [(_, params, start, more)] = made
    training, _ = split_folds(dataset, 3, 0)
    assert more == {"signal_inputs": measure_signals(training.matrix, ["eat"])}
    assert list(params.matrix.signals) == ["eat"]
    assert start["embed"]["kernel"].shape == (len(BRANCH_INPUTS) + 1, 4)
    assert read_manifest(tmp_path / "out")["config"]["network"]["signals"] == ["eat"]


# --- configuration --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[run]", "[run"), "toy.toml: not TOML: "),
        (("[run]", "[runs]"), "toy.toml: run is missing; add it; runs is unknown; did you mean run"),
        (("[data]", "rate = 1\n[data]"), "toy.toml: rate is unknown; known are trainer, run, data, network,"),
        (("seed", "sed"), "toy.toml: run.sed is unknown; did you mean seed"),
        (("hidden", "depth"), "toy.toml: network.depth is unknown; known are hidden, actions"),
        (
            ("max_branches", "maxbranches"),
            "toy.toml: trainer.maxbranches is unknown; did you mean max_branches",
        ),
        (("hidden = 4", 'signals = "eat"'), "network.signals is 'eat': input should be a valid array"),
        (("hidden = 4", 'signals = ["EAT"]'), "toy.toml: network.signals is ('EAT',), but a signal cannot"),
        (("hidden = 4", 'signals = ["eat", "eat"]'), "signals is ('eat', 'eat'); name each signal once"),
        (("hidden = 4", "hidden = 0"), "toy.toml: network.hidden is 0, but it must be between 1 and 16384"),
        (
            ("hidden = 4", "hidden = 1000000000"),
            "toy.toml: network.hidden is 1000000000, but it must be between",
        ),
        (("hidden = 4", 'actions = "all"'), "network.actions is 'all': input should be 'rounds' or 'atomic'"),
        (
            ("hidden = 4", 'actions = "atomic"\n[warm_start]'),
            "toy.toml: warm_start is given, but its teachers decide in rounds, which a policy of atomic ",
        ),
        (("updates = 30", ""), "toy.toml: run.updates is missing; add it"),
        (("updates = 30", "updates = true"), "run.updates is True: input should be a valid integer"),
        (("updates = 30", "updates = 3.5"), "run.updates is 3.5: input should be a valid integer"),
        (("updates = 30", 'updates = "3"'), "run.updates is '3': input should be a valid integer"),
        (("updates = 30", "updates = -1"), "toy.toml: run.updates is -1, but it must be at least 0"),
        (
            ("updates = 30", "updates = 3.5\npatience = 0.5"),
            "run.updates is 3.5: input should be a valid integer; run.patience is 0.5: input should be",
        ),
        (("max_branches = 8", "std = -1"), "toy.toml: trainer.std is -1.0, but it must be positive"),
        (("max_branches = 8", "std = nan"), "trainer.std is nan: input should be a finite number"),
        (("max_branches = 8", 'std = "low"'), "trainer.std is 'low': input should be a valid number"),
        (
            ("max_branches = 8", "std = 1979-05-27"),
            "trainer.std is '1979-05-27': input should be a valid number",
        ),
        (('"evolution"', '"ppo"\nclip = 2.0'), "trainer.clip is 2.0, but it must be in 0 … 1"),
        (
            ('"evolution"', '"ppo"\nminibatches = 3'),
            "trainer.minibatches is 3, but it must divide num_envs x",
        ),
        (('"evolution"', '"sgd"'), "trainer.kind is 'sgd', but it must be 'evolution', 'ppo'"),
        (('kind = "evolution"', ""), "trainer.kind is missing; add kind = 'evolution' or kind = 'ppo'"),
        (('"evolution"', "[1]"), "toy.toml: trainer.kind is '[1]'"),
        (("[data]", "[warm_start]\nfits = 0\n[data]"), "warm_start.fits is 0, but it must be positive"),
        (("[data]", "[objective]\ngamma = [-1e-4, 1e-4]\n[data]"), "gamma is [-0.0001, 0.0001], but it must"),
        (("[data]", "[objective]\ngamma = [1e-4]\n[data]"), "objective.gamma"),
        (("[data]", '[objective]\nreward = "gold"\n[data]'), "objective.reward is 'gold': input should be"),
        (
            ("[data]", '[objective]\nreward = "majority"\ndifficulty_std = 2\n[data]'),
            "toy.toml: objective.difficulty_std is 2.0, which needs gold answers",
        ),
        (
            ("[data]", "[objective]\nvoters = 3\n[data]"),
            "toy.toml: objective.voters is 3, but with reward 'outcome' no branches vote",
        ),
        (
            ("[data]", '[objective]\nreward = "majority"\nvoters = -1\n[data]'),
            "objective.voters is -1, but it must be at least 0",
        ),
        (
            ("[data]", "[objective]\ndifficulty_std = -1.0\n[data]"),
            "objective.difficulty_std is -1.0, but it must be",
        ),
        (("[data]", '[objective]\ncost = "joules"\n[data]'), "objective.cost is 'joules': input should be"),
        (
            ("[data]", '[objective]\ncost = "latency"\nhardware = "h100"\n[data]'),
            "toy.toml: objective.cost is 'latency', but the hardware 'h100' has no profile; did you mean",
        ),
        (
            ("[data]", '[objective]\ncost = "flops"\ncost_model = "Qwen3-7B"\n[data]'),
            "toy.toml: objective.cost is 'flops', but the model 'Qwen3-7B' has no profile; did you mean",
        ),
        (("[data]", '[objective]\ncost = "kv"\nbatch = 0\n[data]'), "but batch is 0, but it must be at"),
        (
            ("[data]", '[objective]\nhardware = "h200-sxm"\n[data]'),
            "toy.toml: objective.cost is 'intervals', which does not depend on hardware, cost_model,",
        ),
        (
            ("[data]", '[objective]\ncost = "latency"\n[warm_start]\nuntil_peak = true\n[data]'),
            "toy.toml: warm_start.until_peak is true, which weighs intervals, but objective.cost is",
        ),
        (("folds = 3", "folds = 1"), "toy.toml: data.folds is 1, but it must be at least 2"),
        (("fold = 0", "fold = 3"), "toy.toml: data.fold is 3, but it must be in 0 … 2"),
        (("fold = 0", "fold = 0\nsplit = true"), "toy.toml: data.split is true and fold is 0, but only one"),
        (("fold = 0", "split = 1"), "data.split is 1: input should be a valid boolean"),
        (("[data]", "[data]\npaths = []"), "data.paths is empty; name at least one, or leave it out"),
        (("[data]", '[data]\npaths = "x"'), "data.paths is 'x': input should be a valid array"),
        (("[data]", '[data]\npaths = ["x", 3]'), "data.paths.1 is 3: input should be a valid string"),
        (("[data]", '[data]\nencoding = "no"'), "data.encoding is 'no': input should be 'exact' or 'equiv'"),
        (("[network]\nhidden = 4", "network = 4"), "network"),
    ],
)
def test_a_configuration_that_is_wrong(config, change, message):
    assert change[0] in CONFIG
    config.write_text(CONFIG.replace(*change))
    with pytest.raises(InputError) as error:
        read_config(config)
    assert message in str(error.value)


def test_networks_that_memory_does_not_hold_are_refused(run_train, config):
    wide = CONFIG.replace("hidden = 4", "hidden = 16384")
    config.write_text(wide.replace("[trainer]", "[trainer]\npopulation = 16384"))
    status, _, err = run_train("--config", config)
    assert status == 2
    assert err.startswith("autotts-jax: error: networks of this size take 32812 GiB, more than the ")
    assert not Path("runs").exists()


def test_the_example_is_a_configuration():
    config = read_config(Path(__file__).parents[1] / "examples" / "train.toml")
    assert config.trainer == EvolutionSettings()
    assert config.network == NetworkSettings()
    assert config.objective == ObjectiveSettings()
    assert config.data == DataSettings(fold=0)


def test_every_key_is_read(tmp_path):
    """Each field of each section, as it is written to a file and as it is given in Python."""
    sections = {
        "data": DataSettings(("a", "b"), "equiv", 3, 1),
        "network": NetworkSettings(3, "rounds", ("eat", "conf_low")),
        "objective": ObjectiveSettings((1e-3, 1.0), "majority", 2),
        "warm_start": WarmStartSettings(2, 3, 4, 5, 6, True, 7, 0.5),
        "trainer": PPOSettings(8, 4, 2, 3, 4, 5, 0.5, 0.25, 0.75, 1.0, 0.125, 1.5, 2.0),
        "run": RunSettings(9, 8, 7, 6, 5),
    }
    lines = []
    for name, section in sections.items():
        lines += [
            f"[{name}]",
            *(f"{key} = {json.dumps(v)}" for key, v in dataclasses.asdict(section).items() if v is not None),
        ]
    file = tmp_path / "all.toml"
    file.write_text("\n".join(lines))
    assert read_config(file) == Config(**sections)


def test_the_keys_of_a_cost_are_read(config):
    keys = (
        'cost = "latency"\nhardware = "a100-sxm"\ncost_model = "Qwen3-4B"\nbatch = 8\nprefix_cached = false'
    )
    config.write_text(CONFIG.replace("[data]", f"[objective]\n{keys}\n[data]"))
    settings = read_config(config)
    assert settings.objective.cost_charged == CostModel("latency", "a100-sxm", "Qwen3-4B", 8, False)
    assert make_params(settings, synthetic(), 0).cost.batch == 8


# --- from Python ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("toy")
def test_train_from_python(config, tmp_path, monkeypatch):
    """A file or a configuration, data by name, by file or as a dataset: the same run."""
    monkeypatch.chdir(tmp_path)
    seen = []
    from_file = train("toy.toml", on_update=lambda update, metrics: seen.append((update, metrics)))
    assert from_file.folder == Path("runs/toy")
    assert from_file.stopped_by is None
    assert from_file.state.update == 30
    assert [update for update, _ in seen] == list(range(1, 31))
    best = [metrics for update, metrics in seen if update == from_file.state.best_update]
    expected = {f"validation/{name}": value for name, value in from_file.metrics.items()}
    assert [metrics | expected for metrics in best] == best
    assert from_file.metrics["objective"] == from_file.state.best_objective
    with np.load("runs/toy/best.npz") as policy:
        assert all(np.array_equal(policy[name], leaf) for name, leaf in from_file.policy.items())
    from_python = train(read_config(config), synthetic(), out="other")
    assert end_of(from_python.folder) == end_of(from_file.folder)
    shorter = train(config, "synthetic", out=tmp_path / "shorter", seed=7, updates=3, fold=1)
    assert shorter.state.update == 3
    written = json.loads((tmp_path / "shorter" / "manifest.json").read_text())["config"]
    assert (written["run"]["seed"], written["data"]["fold"], written["data"]["paths"]) == (
        7,
        1,
        ["synthetic"],
    )
    assert train(config, synthetic(), resume=True).state == from_file.state
    Path("runs/toy/metrics.jsonl").write_text("")
    again = train(config, synthetic(), resume=True)
    assert (again.state, again.metrics) == (from_file.state, from_file.metrics)
    with pytest.raises(InputError, match="out is missing"):
        train(read_config(config))
    with pytest.raises(InputError, match="an empty path names nothing"):
        train(config, out="")


@pytest.mark.usefixtures("toy")
def test_a_split_trains_and_validates_on_parts_of_the_benchmark(config, monkeypatch, tmp_path):
    config.write_text(CONFIG.replace("folds = 3\nfold = 0", "split = true"))
    used = {}
    monkeypatch.setattr(entry, "make_params", lambda _, dataset, _seed: used.setdefault("train", dataset))
    monkeypatch.setattr(
        entry, "Validation", lambda _, dataset: (used.setdefault("validation", dataset), validate)[1]
    )
    dataset = synthetic(0, SYNTHETIC_MODELS[:2], 10, 4)
    train(config, dataset, out=tmp_path / "out", updates=1)
    for name, found in used.items():
        expected = select_part(dataset, name)
        assert [question.text for question in found.questions] == [q.text for q in expected.questions]
    assert len(used) == 2


def test_folds_share_no_question():
    dataset = synthetic(0, SYNTHETIC_MODELS[:2], 7, 4)
    held = []
    for fold in range(3):
        training, held_out = split_folds(dataset, 3, fold)
        texts, held_texts = ({question.text for question in part.questions} for part in (training, held_out))
        assert not texts & held_texts
        assert len(texts | held_texts) == 7
        assert len(training) + len(held_out) == len(dataset) == 14
        assert {dataset.questions[q].text for q in np.flatnonzero(fold_of(dataset, 3) == fold)} == held_texts
        shuffled = split_folds(dataset.shuffle(1), 3, fold)[1]
        assert {question.text for question in shuffled.questions} == held_texts
        held += held_texts
    assert len(held) == len(set(held)) == 7
    assert split_folds(dataset, 3, None) == (dataset, dataset)
    with pytest.raises(InputError, match="7 distinct questions cannot be dealt into 8 folds"):
        split_folds(dataset, 8, 0)
