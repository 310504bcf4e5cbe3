"""`keras-vit predict`, for a checkout that is not installed."""

import sys

import keras_vit_cli


def main(words: list[str]) -> int:
    """Run `keras-vit predict` with the given arguments."""
    return keras_vit_cli.main(["predict", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
