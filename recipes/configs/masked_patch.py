"""Masked patch prediction, as in section B.1.2 of the paper.

masked_patch.py                   digits, a minute or two on two cores
masked_patch.py:ViT,DATASET       another data set, the same way
masked_patch.py:ViTB16,DATASET    as the paper does on JFT-300M

DATASET is a name of TensorFlow Datasets, a folder of images or an npz file;
for jft300m, --config.dataset says where the images are.
"""

from recipes import masked_patch


def get_config(arguments: str = "ViT,digits") -> masked_patch.Config:
    """Returns the config of "MODEL,DATASET"."""
    model, comma, dataset = arguments.partition(",")
    if not (model and comma and dataset):
        raise ValueError(
            "The argument of masked_patch.py must be MODEL,DATASET, such as "
            f"ViTB16,jft300m. Received: {arguments!r}"
        )
    if model == "ViT":
        return _small(dataset)
    return masked_patch.Config(
        model=model,
        dataset=dataset,
        image_size=(224,),
        crop="inception",
        flip=True,
        # About 14 passes over JFT-300M.
        total_steps=1_000_000,
        batch_size=4096,
        optimizer="adam",
        base_lr=2e-4,
        warmup_steps=10_000,
        schedule="cosine",
        clip_norm=0.0,
        checkpoint_every=5_000,
        eval_every=5_000,
        dtype_policy="mixed_bfloat16",
    )


def _small(dataset):
    """The same kind of training for a small model, in minutes."""
    return masked_patch.Config(
        dataset=dataset,
        crop="pad",
        flip=dataset != "digits",  # a mirrored 2 is no 2
        batch_size=64,
        num_epochs=90,
        warmup_steps=200,
        base_lr=2e-3,
        optimizer="adam",
        clip_norm=1.0,
        eval_every=500,
        # Small patches: all of their 4x4 pixels, where the mean says little.
        target="downsized",
    )
