"""Fine-tuning, of three kinds.

finetune.py                   digits from scratch, a minute on two cores
finetune.py:ViT,DATASET       another data set from scratch, the same way
finetune.py:ViTB16,DATASET    released weights, as in Table 4 of the paper

DATASET is a name of TensorFlow Datasets, a folder of images or an npz file.
"""

import re

from keras_vit.weights import registry
from recipes import experiment

# Table 4: steps and the base learning rates that are tried. Each is used with
# the one that `recipes.sweep` picks; without a sweep, with DEFAULT_LR.
TABLE_4 = {
    "imagenet2012": (20_000, (0.003, 0.01, 0.03, 0.06)),
    "cifar100": (10_000, (0.001, 0.003, 0.01, 0.03)),
    "cifar10": (10_000, (0.001, 0.003, 0.01, 0.03)),
    "oxford_iiit_pet": (500, (0.001, 0.003, 0.01, 0.03)),
    "oxford_flowers102": (500, (0.001, 0.003, 0.01, 0.03)),
}
DEFAULT_LR = {"imagenet2012": 0.03}
# Section 4.1: on ImageNet the largest models see more pixels, and their
# weights are averaged.
IMAGENET_SIZE = {"ViTL16": 512, "ViTH14": 518}


def get_config(arguments: str = "ViT,digits") -> experiment.Config:
    """Returns the config of "MODEL,DATASET"."""
    model, comma, dataset = arguments.partition(",")
    if not (model and comma and dataset):
        raise ValueError(
            "The argument of finetune.py must be MODEL,DATASET, such as "
            f"ViTB16,cifar10. Received: {arguments!r}"
        )
    if model == "ViT":
        return _from_scratch(dataset)
    return _from_weights(model, dataset)


def _from_scratch(dataset):
    return experiment.Config(
        dataset=dataset,
        crop="pad",
        flip=dataset != "digits",  # a mirrored 2 is no 2
        batch_size=64,
        num_epochs=80,
        warmup_steps=100,
        base_lr=0.2,
        optimizer="sgd",
        momentum=0.9,
        clip_norm=1.0,
        label_smoothing=0.1,
        eval_every=100,
    )


def _from_weights(model, dataset):
    config = experiment.Config(
        model=model,
        weights=_weights(model),
        dataset=dataset,
        # 384 is no multiple of 14; 378 has the 27 patches a side that fit.
        image_size=(378 if model == "ViTH14" else 384,),
        flip=True,
        batch_size=512,
        warmup_steps=500,
        optimizer="sgd",
        momentum=0.9,
        clip_norm=1.0,
    )
    name = re.split(r"[/:]", dataset)[0]
    if name not in TABLE_4:
        # Fewer images, smaller batches, a rate in the same proportion.
        config.num_epochs, config.batch_size, config.base_lr = 20, 64, 0.003
        return config
    config.total_steps, _ = TABLE_4[name]
    config.base_lr = DEFAULT_LR.get(name, 0.01)
    if name == "imagenet2012":
        config.eval_split = "validation"
        if model in IMAGENET_SIZE:
            config.image_size = (IMAGENET_SIZE[model],)
            config.ema_momentum = 0.9999
    return config


def _weights(model):
    """The weights that the paper fine-tunes, or else those of augreg."""
    known = registry.names(model)
    names = [name for name in ("imagenet21k", "augreg") if name in known]
    return names[0] if names else ""
