"""Pre-training, as in Table 3 of the paper.

pretrain.py                   digits, for a look
pretrain.py:ViTB16,DATASET    a row of the table

DATASET is "imagenet2012" (of TFDS), "imagenet21k", "jft300m", or another name
of TFDS, folder of images or npz file, which is trained like ImageNet. Where
the images of imagenet21k and jft300m are, --config.dataset says.
"""

import fnmatch

from keras_vit.models import vit
from recipes import experiment

# Model, data set: epochs, base learning rate, decay, weight decay, dropout.
# Where the table has two numbers of epochs, the larger. The caption: batch
# 4096, 10k steps of warm-up, 224 pixels, and on ImageNet gradients clipped at
# a global norm of 1.
TABLE_3 = (
    ("ViTB16", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("ViTB32", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("ViTL32", "jft300m", 7, 6e-4, "linear", 0.1, 0.0),
    ("ViTL16", "jft300m", 14, 4e-4, "linear", 0.1, 0.0),
    ("ViTH14", "jft300m", 14, 3e-4, "linear", 0.1, 0.0),
    ("R50ViTB16", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("R50ViTB32", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("R50ViTL32", "jft300m", 7, 2e-4, "linear", 0.1, 0.0),
    ("R50ViTL16", "jft300m", 14, 4e-4, "linear", 0.1, 0.0),
    ("ViTB16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTB32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTL16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTL32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    # Not in the table: hybrids on ImageNet-21k, as their ViT counterparts.
    ("R50ViTB16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTB32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTL16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTL32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("*", "imagenet2012", 300, 3e-3, "cosine", 0.3, 0.1),
)
# Images with several labels: the paper's loss is a sigmoid for each class.
MULTI_LABEL = ("imagenet21k", "jft300m")


def get_config(arguments: str = "ViT,digits") -> experiment.Config:
    """Returns the config of "MODEL,DATASET"."""
    model, comma, dataset = arguments.partition(",")
    if not (model and comma and dataset):
        raise ValueError(
            "The argument of pretrain.py must be MODEL,DATASET, such as "
            f"ViTB16,imagenet2012. Received: {arguments!r}"
        )
    if model == "ViT":
        return _for_a_look(dataset)
    known = dataset if dataset in MULTI_LABEL else "imagenet2012"
    rows = [
        row[2:]
        for row in TABLE_3
        if fnmatch.fnmatch(model, row[0]) and row[1] == known
    ]
    if not rows or model not in vit.VARIANTS:
        raise ValueError(
            f"MODEL must be one that Table 3 trains on {dataset}: "
            f"{[row[0] for row in TABLE_3 if row[1] == dataset]}. "
            f"Received: {model!r}"
        )
    epochs, base_lr, schedule, weight_decay, dropout = rows[0]
    multi_label = dataset in MULTI_LABEL
    return experiment.Config(
        model=model,
        architecture=experiment.Architecture(
            dropout_rate=dropout,
            # Section 3.1: one hidden layer before the head at pre-training.
            representation_size=vit.VARIANTS[model]["hidden_size"],
        ),
        dataset=dataset,
        image_size=(224,),
        crop="inception",
        flip=True,
        batch_size=4096,
        num_epochs=epochs,
        warmup_steps=10_000,
        base_lr=base_lr,
        schedule=schedule,
        optimizer="adam",
        weight_decay=weight_decay,
        clip_norm=0.0 if multi_label else 1.0,
        loss="sigmoid" if multi_label else "softmax",
        head_bias=-10.0 if multi_label else 0.0,
        checkpoint_every=5_000,
        eval_every=5_000,
        dtype_policy="mixed_bfloat16",
    )


def _for_a_look(dataset):
    """The same kind of training for a small model, in a minute."""
    return experiment.Config(
        dataset=dataset,
        architecture=experiment.Architecture(dropout_rate=0.1),
        crop="pad",
        batch_size=64,
        num_epochs=60,
        warmup_steps=200,
        base_lr=2e-3,
        schedule="linear",
        optimizer="adam",
        weight_decay=0.1,
        clip_norm=1.0,
        eval_every=100,
        # As the paper watches pre-training, section 4.1.
        fewshot_dataset="digits" if dataset == "digits" else "",
    )
