"""How long reading data takes: what comes with the package, and files.

python benchmarks/load_speed.py [--data PATH ...]
"""

from __future__ import annotations

import argparse
import statistics
import time

from autotts_jax.replay import load

REPEATS = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", default=[], help="as autotts-jax evaluate takes it")
    for data in ["smollm2", *parser.parse_args().data]:
        seconds = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            dataset = load(data)
            seconds.append(time.perf_counter() - began)
        median = statistics.median(seconds)
        print(f"{data}: {len(dataset)} questions, first {seconds[0]:.3f} s, median {median:.3f} s")


if __name__ == "__main__":
    main()
