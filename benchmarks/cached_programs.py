"""The programs of ``examples/released_programs.py`` with one change: each confidence is computed once.

Most of the time of the programs that use it goes into SciPy's Beta distribution; this shows how much.
"""

import functools
import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples" / "released_programs.py"

spec = importlib.util.spec_from_file_location("released_programs", EXAMPLES)
programs = importlib.util.module_from_spec(spec)
# Dataclasses look their module up while it is being executed.
importlib.sys.modules[spec.name] = programs
spec.loader.exec_module(programs)
programs.confidence = functools.cache(programs.confidence)
globals().update({name: value for name, value in vars(programs).items() if isinstance(value, type)})
