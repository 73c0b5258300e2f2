"""Counts the words of the site's pages, against the outline: ``python docs/words.py``.

Code and tables count; the reference of names and commands, which is generated and ignored by git, does not.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOTAL = 28_000
OUTLINE = {
    "README.md": 700,
    "docs/tutorials": 2_700,
    "docs/explanation/replay.md": 500,
    "docs/alternatives.md": 400,
    "docs/glossary.md": 400,
    "docs/faq.md": 600,
    "CHANGELOG.md": 400,
}
"""The most words of a page, or of the pages of a folder, for which the outline has a number."""


def pages() -> dict[str, int]:
    """The words of each page that git does not ignore, by its path."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output([*asked, "README.md", "CHANGELOG.md", "docs/*.md"], cwd=ROOT, text=True)
    files = {name: ROOT / name for name in listed.splitlines()}
    return {
        name: len(file.read_text(encoding="utf-8").split()) for name, file in files.items() if file.exists()
    }


def main() -> None:
    """Prints the words of each page, and what the outline allows."""
    counted = pages()
    for name, count in counted.items():
        print(f"{count:7,}  {name}")
    print(f"{sum(counted.values()):7,}  in all, of {TOTAL:,}")
    for part, most in OUTLINE.items():
        count = sum(number for name, number in counted.items() if name == part or name.startswith(f"{part}/"))
        print(f"{count:7,}  {part}, of {most:,}{'' if count <= most else ': too many'}")


if __name__ == "__main__":
    main()
