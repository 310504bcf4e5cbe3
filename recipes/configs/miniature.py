"""The paper's central claims on small photographs.

miniature.py           CIFAR-10 from TFDS; about two hours on two cores
miniature.py:DATASET   another data set of TFDS, a folder of images, an npz
                       file, or "digits" for a quick try
"""

from recipes import miniature
from recipes.configs import pretrain


def get_config(dataset: str = "cifar10") -> miniature.Config:
    """Return the config for a data set."""
    run = pretrain.get_config(f"ViT,{dataset},short")
    run.data.image_size = (32,)
    run.data.channels = 3
    run.data.eval_fraction = 0.1
    run.data.cache = True
    run.schedule.num_epochs = 0
    run.schedule.total_steps = 1_600
    run.evaluation.every = 400
    run.model.dtype_policy = "mixed_bfloat16"
    if dataset == "digits":
        run.data.flip = False  # a mirrored 2 is not a 2
        return miniature.Config(run=run, sizes=(100, 1_000))
    return miniature.Config(run=run)
