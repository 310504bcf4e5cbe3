"""Fine-tuning of section 4.1: select a rate, then train on all images.

sweep.py                   digits from scratch, a small model, a few minutes
sweep.py:ViTB16,DATASET    released weights, with the rates of Table 4
sweep.py:BiTR50x1,DATASET  the same rates with the setups of ViT and of BiT, as
                           in appendix B.1.1

DATASET is the same as in finetune.py.
"""

import re

from keras_vit.models import bit
from recipes import fields, sweep
from recipes.configs import finetune

# Fractions of the training images by which the paper selects learning rates.
DEV_FRACTIONS = {
    "imagenet2012": 0.01,
    "cifar100": 0.02,
    "cifar10": 0.02,
    "oxford_iiit_pet": 0.1,
    "oxford_flowers102": 0.1,
}


def get_config(arguments: str = "ViT,digits") -> sweep.Config:
    """Return the config of "MODEL,DATASET"."""
    run = finetune.get_config(arguments)
    name = re.split(r"[/:]", run.data.dataset)[0]
    setups = {"": {}}
    if run.model.name in bit.VARIANTS:
        rule, run = run, finetune.from_weights(run.model.name, run.data.dataset)
        changes = fields.difference(run, rule)
        changes.pop("optim.base_lr", None)
        setups = {"vit": {}, "bit": changes}
    if run.model.name in finetune.TITLES:
        # Short, because there are several runs.
        run.schedule.num_epochs = 20
        base_lrs = (0.05, 0.1, 0.2)
    elif name in finetune.TABLE_4:
        _, base_lrs = finetune.TABLE_4[name]
    else:
        base_lrs = (0.001, 0.003, 0.01)
    return sweep.Config(
        run=run,
        base_lrs=base_lrs,
        setups=setups,
        dev_fraction=DEV_FRACTIONS.get(name, 0.1),
        num_seeds=3,
    )
