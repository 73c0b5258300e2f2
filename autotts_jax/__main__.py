"""``python -m autotts_jax`` is the command line."""

from autotts_jax.cli.main import main

if __name__ == "__main__":
    main()
