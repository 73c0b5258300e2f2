"""What other processes are sent survives pickling; `test_every_face` plays pickled players."""

import pickle

import jax
import numpy as np
import pytest

import autotts_jax.collect
import autotts_jax.live  # noqa: F401  # defines errors
from autotts_jax.discovery import family, random_program
from autotts_jax.errors import DataError, InputError
from autotts_jax.policies import CMC, CONTROLLERS, load_policy, neural_family, tuned
from autotts_jax.policies.neural.policy_file import SHIPPED


def copied(value):
    """What another process would be given."""
    return pickle.loads(pickle.dumps(value))


FAMILIES = [
    *CONTROLLERS.values(),
    neural_family(load_policy(SHIPPED)[0]),
    family("found", random_program(np.random.default_rng(0))),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_pickled_family_makes_the_same_controllers(family):
    copy = copied(family)
    assert (copy.name, copy.values, copy.value_name) == (family.name, family.values, family.value_name)
    for value in family.values:
        assert_same(copy.make(value), family.make(value))


def test_a_pickled_family_that_was_tuned_makes_the_same_controllers():
    make = tuned(CMC.of_beta, {"max_use": 0.5})
    assert_same(copied(make)(1.0), make(1.0))


def assert_same(controller, other):
    assert type(controller) is type(other)
    for leaf, same in zip(jax.tree.leaves(controller), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(leaf, same)


def kinds(error):
    """A class of errors, and those derived from it in this package."""
    own = [kind for kind in error.__subclasses__() if kind.__module__.startswith("autotts_jax.")]
    return [error, *(kind for sub in own for kind in kinds(sub))]


@pytest.mark.parametrize("kind", kinds(InputError), ids=lambda kind: kind.__name__)
def test_pickled_errors_keep_their_message(kind):
    error = kind("a.json", "mend\nit", 3, 4) if kind is DataError else kind("mend it")
    error.add_note("from a worker")
    copy = copied(error)
    assert (type(copy), str(copy), copy.__notes__) == (kind, str(error), error.__notes__)
    assert kind is not DataError or str(copy) == "a.json, question 3, branch 4: mend\nit"
