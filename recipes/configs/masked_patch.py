"""Masked patch prediction, as in section B.1.2 of the paper.

masked_patch.py                   digits, one to two minutes on two cores
masked_patch.py:ViT,DATASET       another data set, the same way
masked_patch.py:ViTB16,DATASET    as in the paper on JFT-300M

DATASET is the name of a data set in TensorFlow Datasets, a folder of images or
an npz file; for jft300m, --config.dataset gives the path of the images.
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
        # About 14 epochs of JFT-300M.
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
    """Returns the same training for a small model, which takes minutes."""
    return masked_patch.Config(
        dataset=dataset,
        crop="pad",
        flip=dataset != "digits",  # a mirrored 2 is not a 2
        batch_size=64,
        num_epochs=90,
        warmup_steps=200,
        base_lr=2e-3,
        optimizer="adam",
        clip_norm=1.0,
        eval_every=500,
        # Predict all 4x4 pixels: the mean of a small patch has little detail.
        target="downsized",
    )
