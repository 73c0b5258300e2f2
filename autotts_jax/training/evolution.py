"""Evolution strategies (Salimans et al., arXiv 1703.03864) on the objective itself.

In every generation all members of a population play the same episodes: each training question, at a few
values of γ and in branch orders drawn anew. All that is estimated is the direction in which 1{right} - γ·C
grows.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray, UInt32

from autotts_jax.checks import check_int
from autotts_jax.envs.params import EnvParams
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.network import SignalInput
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters
from autotts_jax.training.arena import Arena
from autotts_jax.training.settings import MAX_SIZE, Settings
from autotts_jax.training.trainer import Metrics
from autotts_jax.typing import Array


@dataclasses.dataclass(frozen=True)
class EvolutionSettings(Settings):
    """Settings of `Evolution`.

    Attributes:
        population: members of a generation, an even number: each is paired with its mirror image.
        std: standard deviation of a member's parameters around the mean.
        learning_rate: Adam's learning rate at first; it decays to a tenth along a cosine.
        decay_updates: generations over which the learning rate decays.
        num_gammas: values of γ at which a member plays each question; log-uniform, one from each stratum.
        max_branches: branches that an episode can open.
        kind: the trainer's name in a configuration.
    """

    population: int = 32
    std: float = 0.05
    learning_rate: float = 0.02
    decay_updates: int = 200
    num_gammas: int = 4
    max_branches: int = 32
    kind: Literal["evolution"] = "evolution"

    def __post_init__(self) -> None:
        if self.population < 2 or self.population % 2:
            raise InputError(f"population is {self.population}, but it must be an even number of at least 2")
        for name in ("std", "learning_rate", "decay_updates", "num_gammas", "max_branches"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"{name} is {getattr(self, name)}, but it must be positive")
        for name in ("population", "num_gammas"):
            check_int(name, getattr(self, name), 1, MAX_SIZE)


class EvolutionState(NamedTuple):
    """What is carried from generation to generation.

    Attributes:
        strategy: mean, optimiser and number of generations.
        key: key data. Shape (2,).
    """

    strategy: Any
    key: UInt32[Array, " 2"]


class Played(NamedTuple):
    """What P members have made of the episodes of a generation.

    Attributes:
        objective: of each member. Shape (P,).
        metrics: of the generation, ``accuracy`` and ``tokens``, means, among them.
    """

    objective: Float[np.ndarray, " P"]
    metrics: Metrics


class EvolutionStrategy(abc.ABC):
    """A trainer that moves parameters to where its objective grows.

    Args:
        settings: its settings.
        start: the parameters that it starts from, a pytree of arrays.
    """

    def __init__(self, settings: EvolutionSettings, start: Any):
        from evosax.algorithms import Open_ES  # here, as it starts JAX

        self._settings, self._start = settings, start
        rate = optax.cosine_decay_schedule(settings.learning_rate, settings.decay_updates, alpha=0.1)
        self._strategy = Open_ES(
            settings.population,
            start,
            optimizer=optax.adam(rate),
            std_schedule=lambda _: settings.std,
        )

    def init(self, key: PRNGKeyArray) -> EvolutionState:
        """Makes the state before the first generation.

        Args:
            key: the key that everything is drawn with.
        """
        own, strategy = jax.random.split(key)
        state = self._strategy.init(strategy, self._start, self._strategy.default_params)
        return EvolutionState(state, jax.random.key_data(own))

    def update(self, state: EvolutionState) -> tuple[EvolutionState, Metrics]:
        """Makes one generation.

        Args:
            state: the state before it.

        Returns:
            The state after it, and the population's metrics: means of ``objective``, ``accuracy`` and
            ``tokens``; ``objective_spread``, the standard deviation of the members' objectives; and of a
            policy ``steps``, the environment steps of the generation.
        """
        keys = jax.random.split(jax.random.wrap_key_data(jnp.asarray(state.key)), 4)
        defaults = self._strategy.default_params
        members, strategy = self._strategy.ask(keys[0], state.strategy, defaults)
        played = self._play(jax.tree.map(np.asarray, members), keys[1])
        strategy, _ = self._strategy.tell(
            keys[2], members, jnp.asarray(-played.objective), strategy, defaults
        )
        metrics: Metrics = {
            "objective": played.objective.mean(),
            "objective_spread": played.objective.std(),
            **played.metrics,
        }
        return EvolutionState(strategy, jax.random.key_data(keys[3])), metrics

    def policy(self, state: EvolutionState) -> Any:
        """Returns the policy at the mean of the population.

        Args:
            state: the state.
        """
        return self._policy(self._strategy.get_mean(state.strategy))

    @abc.abstractmethod
    def _play(self, members: Any, key: PRNGKeyArray) -> Played:
        """Plays the same episodes with all members, parameters stacked along a first axis."""

    @abc.abstractmethod
    def _policy(self, parameters: Any) -> Any:
        """The policy of some parameters."""


class Evolution(EvolutionStrategy):
    """Trains a policy by an evolution strategy.

    Args:
        settings: its settings.
        params: training questions, branch orders, the range of γ, and the targets.
        parameters: the parameters that it starts from.
        devices: local devices to share the episodes among; by default all, of all processes.
        signal_inputs: the signals that the policy reads; ``params`` are those of an environment that shows
            them.
    """

    def __init__(
        self,
        settings: EvolutionSettings,
        params: EnvParams,
        parameters: Parameters,
        devices: Sequence[jax.Device] | None = None,
        signal_inputs: tuple[SignalInput, ...] = (),
    ):
        super().__init__(settings, parameters)
        self._signal_inputs = signal_inputs
        self._arena = Arena(params, settings.max_branches, devices)

    def _play(self, members: Parameters, key: PRNGKeyArray) -> Played:
        def controller(member: int, gamma: float) -> NeuralPolicy:
            return self._at(jax.tree.map(lambda leaf: leaf[member], members), gamma)

        settings = self._settings
        scores = self._arena.play(controller, settings.population, settings.num_gammas, key)
        means: Metrics = {"accuracy": scores.right.mean(), "tokens": scores.tokens.mean()}
        return Played(scores.objective, {**means, "steps": scores.steps.sum()})

    def _policy(self, parameters: Parameters) -> NeuralPolicy:
        return self._at(parameters, self._arena.middle_gamma)

    def _at(self, parameters: Parameters, gamma: float) -> NeuralPolicy:
        return NeuralPolicy(parameters, gamma, signal_inputs=self._signal_inputs)
