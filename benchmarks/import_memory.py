"""The memory that importing completions takes: ``python benchmarks/import_memory.py --gigabytes 3``.

The file is generated piece by piece into a temporary folder, and imported by the command in its own process.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMPLETIONS = 64
WORDS = ["so", "we", "add", "the", "terms", "and", "check", "that", "$x^2$", "is", "even", "\n"]


def write(path: Path, size: int) -> int:
    """Writes questions of 64 completions, of 200 to 8,000 words each, until the file has ``size`` bytes."""
    rng = random.Random(0)
    questions = 0
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            texts = [
                " ".join(rng.choices(WORDS, k=rng.randint(200, 8_000))) + rf" \boxed{{{rng.randint(0, 3)}}}"
                for _ in range(COMPLETIONS)
            ]
            row = {"question": f"How many? ({questions})", "answer": "1", "completions": texts}
            file.write(json.dumps(row) + "\n")
            questions += 1
    return questions


def main() -> None:
    """Prints the size of the file, the time, and the most memory that the import held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "completions.jsonl"), Path(folder, "own.npz")
        questions = write(path, int(given.gigabytes * 1e9))
        command = [sys.executable, "-m", "autotts_jax", "data", "import", str(path), "--out", str(out)]
        started = time.monotonic()
        subprocess.run([*command, "--model", "m"], check=True)
        seconds = time.monotonic() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        size = path.stat().st_size / 1e9
        print(f"{questions} questions, {size:.1f} GB: {seconds:.0f} s, at most {peak:.2f} GiB in one process")


if __name__ == "__main__":
    main()
