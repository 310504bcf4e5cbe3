"""Masked patch prediction, as in section B.1.2 of the paper.

masked_patch.py                   digits, one to two minutes on two cores
masked_patch.py:ViT,DATASET       another data set, the same way
masked_patch.py:ViTB16,DATASET    as in the paper on JFT-300M

DATASET is the name of a data set in TensorFlow Datasets, a folder of images or
an npz file; for jft300m, --config.data.dataset gives the path of the images.
"""

from recipes import experiment, masked_patch, unlabelled


def get_config(arguments: str = "ViT,digits") -> unlabelled.Config:
    """Return the config of "MODEL,DATASET"."""
    model, dataset = experiment.model_and_dataset(
        arguments, "masked_patch.py", "ViTB16,jft300m"
    )
    if model == "ViT":
        return _small(dataset)
    return unlabelled.Config(
        objective="masked_patch",
        model=experiment.Model(name=model, dtype_policy="mixed_bfloat16"),
        data=experiment.Data(
            dataset=dataset,
            image_size=(224,),
            crop="inception",
            flip=True,
            batch_size=4096,
        ),
        schedule=experiment.Schedule(
            total_steps=1_000_000,  # about 14 epochs of JFT-300M
            warmup_steps=10_000,
            name="cosine",
        ),
        optim=experiment.Optim(name="adam", base_lr=2e-4, clip_norm=0.0),
        run=experiment.Run(checkpoint_every=5_000),
        evaluation=experiment.Evaluation(every=5_000),
    )


def _small(dataset):
    """Return the same training for a small model, which takes minutes."""
    return unlabelled.Config(
        objective="masked_patch",
        data=experiment.small_images(dataset),
        schedule=experiment.Schedule(num_epochs=90, warmup_steps=200),
        optim=experiment.Optim(base_lr=2e-3, name="adam", clip_norm=1.0),
        evaluation=experiment.Evaluation(every=500),
        # Predict all 4x4 pixels: the mean of a small patch has little detail.
        masked_patch=masked_patch.MaskedPatch(target="downsized"),
    )
