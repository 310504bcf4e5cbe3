"""Training on videos.

video.py                       MViT on clips of moving digits, from scratch
video.py:ViT                   a ViT on each frame separately, for comparison
video.py:MViT,DATASET          a small MViT on your own videos, from scratch
video.py:MViTB16x4,DATASET     as published on Kinetics-400; also MViTB32x3,
                               MViTB64x3, MViTB24_32x3 and VideoViTB16

DATASET is a folder of videos, an npz file of clips or the name of a data set in
TensorFlow Datasets.
"""

from keras_vit.models import families
from recipes import experiment

# Small models to train from scratch.
TITLES = [family.title for family in families.FAMILIES.values()]
# For each Kinetics model: video frames from one frame of a clip to the next, at
# 30 frames per second, and the rate of stochastic depth.
KINETICS = {
    "MViTB16x4": (4, 0.2),
    "MViTB32x3": (3, 0.2),
    "MViTB64x3": (3, 0.2),
    "MViTB24_32x3": (3, 0.3),
    "VideoViTB16": (8, 0.2),
}
# Approximate number of training videos of Kinetics-400: some are no longer
# available.
NUM_VIDEOS = 240_000


def get_config(arguments: str = "MViT") -> experiment.Config:
    """Return the config of "MODEL" or "MODEL,DATASET"."""
    model, _, dataset = arguments.partition(",")
    if model in KINETICS and dataset:
        return _kinetics(model, dataset)
    if model not in TITLES:
        raise ValueError(
            f"The argument of video.py must be MODEL or MODEL,DATASET, with a "
            f"MODEL of {TITLES}, or MODEL,DATASET with one of "
            f"{list(KINETICS)}. Received: {arguments!r}"
        )
    config = experiment.Config(
        model=experiment.Model(name=model),
        data=experiment.Data(
            dataset=dataset or "moving_digits",
            crop="none",  # a clip shows all of the motion
            batch_size=50,
        ),
        schedule=experiment.Schedule(num_epochs=6, warmup_steps=100),
        optim=experiment.Optim(
            base_lr=3e-3, name="adam", weight_decay=0.05, clip_norm=1.0
        ),
        evaluation=experiment.Evaluation(every=120),
    )
    if model == "MViT":
        config.model.architecture.cube_stride = (2, 4, 4)
    if dataset:
        config.data.num_frames, config.data.frame_step = 16, 4
        config.data.image_size, config.data.eval_resize = (112,), 128
        config.data.crop, config.data.min_area = "inception", 0.08
        config.data.flip = True
        config.evaluation.every = 0
    return config


def _kinetics(model, dataset):
    """Return the authors' configs/Kinetics: MViT on Kinetics-400.

    Evaluate with
    `recipes.evaluate --clips=5 --frame_step=4 --frame_rate=30 --resize=224`.
    The authors apply either MixUp or CutMix to a batch and draw the strength of
    RandAugment around 7 of 10; here both are applied, and strengths lie between
    0 and 7. Their jitter multiplies brightness; that of Keras adds to it. They
    scale pixels with a mean of 0.45 and a standard deviation of 0.225.
    """
    frame_step, drop_path_rate = KINETICS[model]
    batch_size, repeats = 512, 2
    return experiment.Config(
        model=experiment.Model(
            name=model,
            architecture=experiment.Architecture(
                drop_path_rate=drop_path_rate, head_dropout_rate=0.5
            ),
            dtype_policy="mixed_bfloat16",
        ),
        data=experiment.Data(
            dataset=dataset,
            frame_step=frame_step,
            frame_rate=30.0,
            image_size=(224,),
            eval_resize=256,
            crop="inception",
            min_area=0.08,
            flip=True,
            augment=(
                "RandomColorJitter(brightness_factor=0.4, contrast_factor=0.4, "
                "saturation_factor=(0.375, 0.583))",  # times 0.6 to 1.4
                "RandAugment(num_ops=4, factor=0.21)",
                "RandomErasing(factor=(0.25, 0.25))",
                "MixUp(alpha=0.8)",
                "CutMix()",
            ),
            repeats=repeats,
            batch_size=batch_size,
        ),
        schedule=experiment.Schedule(
            num_epochs=200,
            warmup_steps=30 * repeats * NUM_VIDEOS // batch_size,
            final_lr=1e-6,
        ),
        optim=experiment.Optim(
            base_lr=1.6e-3,
            name="adam",
            weight_decay=0.05,
            clip_norm=1.0,
            label_smoothing=0.1,
        ),
        evaluation=experiment.Evaluation(every=5_000),
        run=experiment.Run(checkpoint_every=5_000),
    )
