"""Trains a model from scratch on many images, for fine-tuning."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.pretrain")

import pathlib

from recipes import experiment, finetune
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "pretrain.py"


def run(config: experiment.Config, workdir: str = "") -> dict[str, float]:
    """Pre-train a model: the program of fine-tuning, with random weights.

    Usage:
        python -m recipes.pretrain
            Scikit-learn's handwritten digits, as a first example.
        python -m recipes.pretrain --config.data.dataset=path/to/images
            Your own images.
        python -m recipes.pretrain \\
            --config=recipes/configs/pretrain.py:ViTL16,imagenet21k \\
            --config.data.dataset=path/to/images
            A row of the paper's Table 3.

    The workdir is "runs/", the data set's name and "-pretrained" unless given;
    its last.keras is a `weights` of fine-tuning.

    Returns:
        Those of recipes.finetune: of the last evaluation, and of the best.
    """
    name = workdirs.default(config.model.name, config.data.dataset)
    return finetune.run(config, workdir or f"{name}-pretrained")
