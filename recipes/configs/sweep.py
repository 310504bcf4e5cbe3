"""All of section 4.1's fine-tuning: choose, then train on everything.

sweep.py                   digits from scratch, small, a few minutes
sweep.py:ViTB16,DATASET    released weights, with the rates of Table 4

DATASET as in finetune.py.
"""

import re

from recipes import sweep
from recipes.configs import finetune

# Shares of the training images that the paper chooses learning rates by.
DEV_FRACTIONS = {
    "imagenet2012": 0.01,
    "cifar100": 0.02,
    "cifar10": 0.02,
    "oxford_iiit_pet": 0.1,
    "oxford_flowers102": 0.1,
}


def get_config(arguments: str = "ViT,digits") -> sweep.Config:
    """Returns the config of "MODEL,DATASET"."""
    run = finetune.get_config(arguments)
    name = re.split(r"[/:]", run.dataset)[0]
    if run.model == "ViT":
        # Short, for there are several of them.
        run.num_epochs = 20
        base_lrs = (0.05, 0.1, 0.2)
    elif name in finetune.TABLE_4:
        _, base_lrs = finetune.TABLE_4[name]
    else:
        base_lrs = (0.001, 0.003, 0.01)
    return sweep.Config(
        run=run,
        base_lrs=base_lrs,
        dev_fraction=DEV_FRACTIONS.get(name, 0.1),
        num_seeds=3,
    )
