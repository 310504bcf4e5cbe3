"""Masked autoencoders, as He et al. 2021 (2111.06377) train them.

mae.py                        digits, one to two minutes on two cores
mae.py:ViT,DATASET            another data set, the same way
mae.py:ViTB16,imagenet2012    as in the paper; also ViTL16, ViTH14

DATASET is the name of a data set in TensorFlow Datasets, a folder of images or
an npz file.
"""

from recipes import experiment, mae, unlabelled

# Table 8 of the paper. Values not printed there: the clipping, which its code
# does not have.
EPOCHS, WARMUP_EPOCHS, BATCH_SIZE = 800, 40, 4096
BASE_LR = 1.5e-4  # for 256 images
IMAGENET_IMAGES = 1_281_167


def get_config(arguments: str = "ViT,digits") -> unlabelled.Config:
    """Return the config of "MODEL,DATASET"."""
    model, dataset = experiment.model_and_dataset(
        arguments, "mae.py", "ViTB16,imagenet2012"
    )
    if model == "ViT":
        return _small(dataset)
    return unlabelled.Config(
        model=experiment.Model(name=model, dtype_policy="mixed_bfloat16"),
        data=experiment.Data(
            dataset=dataset,
            image_size=(224,),
            crop="inception",
            min_area=0.2,
            flip=True,
            batch_size=BATCH_SIZE,
        ),
        schedule=experiment.Schedule(
            num_epochs=EPOCHS,
            warmup_steps=WARMUP_EPOCHS * IMAGENET_IMAGES // BATCH_SIZE,
            name="cosine",
        ),
        optim=experiment.Optim(
            name="AdamW(beta_2=0.95)",
            base_lr=BASE_LR * BATCH_SIZE / 256,
            weight_decay=0.05,
            clip_norm=0.0,
        ),
        run=experiment.Run(checkpoint_every=5_000),
        evaluation=experiment.Evaluation(every=5_000),
    )


def _small(dataset):
    """Return the same training for a small model, which takes minutes."""
    architecture = experiment.Architecture()
    if dataset == "digits":  # of 8 x 8 pixels
        architecture.patch_size = 2
    return unlabelled.Config(
        model=experiment.Model(architecture=architecture),
        data=experiment.small_images(dataset),
        schedule=experiment.Schedule(num_epochs=45, warmup_steps=200),
        optim=experiment.Optim(
            base_lr=2e-3,
            name="AdamW(beta_2=0.95)",
            weight_decay=0.05,
            clip_norm=1.0,
        ),
        evaluation=experiment.Evaluation(every=500),
        mae=mae.Mae(
            decoder_num_layers=2,
            decoder_hidden_size=64,
            decoder_num_heads=4,
            decoder_mlp_dim=128,
        ),
        probe=unlabelled.Probe(dataset=dataset),
    )
