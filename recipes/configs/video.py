"""Training on videos.

video.py                       MViT on clips of moving digits, from scratch
video.py:ViT                   a ViT on each frame separately, for comparison
video.py:MViT,DATASET          a small MViT on your own videos, from scratch
video.py:MViTB16x4,DATASET     as published on Kinetics-400; also MViTB32x3,
                               MViTB64x3, MViTB24_32x3 and VideoViTB16
video.py:MViTB16x4,DATASET,kinetics600  as published on another set, with the
                               same models: kinetics600, ssv2, charades or ava

DATASET is a folder of videos, perhaps with the lists that Kinetics,
Something-Something v2, Charades and AVA are published with, an npz file of
clips or the name of a data set in TensorFlow Datasets.
"""

import dataclasses

from keras_vit.models import families
from recipes import experiment, task_settings
from recipes.configs import pretrain

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
# Approximate number of training videos of each set: some of Kinetics are no
# longer available.
NUM_VIDEOS = {
    "kinetics400": 240_000,
    "kinetics600": 390_000,
    "ssv2": 168_913,
    "charades": 7_985,
    "ava": 211_000,  # key frames
}
# Released weights from which a model is fine-tuned.
WEIGHTS = {"MViTB16x4": "kinetics400", "MViTB24_32x3": "kinetics600"}


def get_config(
    arguments: str = "MViT",
) -> experiment.Config | task_settings.Config:
    """Return the config of "MODEL", "MODEL,DATASET" or "MODEL,DATASET,SET"."""
    model, _, dataset = arguments.partition(",")
    if model in KINETICS and dataset:
        dataset, _, name = dataset.partition(",")
        others = dict(ssv2=_ssv2, charades=_charades, ava=_ava)
        if name in others:
            return others[name](model, dataset)
        if name in ("", "kinetics400", "kinetics600"):
            return _kinetics(model, dataset, name or "kinetics400")
    if model not in TITLES:
        raise ValueError(
            f"The argument of video.py must be MODEL or MODEL,DATASET, with a "
            f"MODEL of {TITLES}, or MODEL,DATASET or MODEL,DATASET,SET with "
            f"one of {list(KINETICS)} and a SET of {list(NUM_VIDEOS)}. "
            f"Received: {arguments!r}"
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
        config.data.flip = experiment.may_flip(dataset)
        config.evaluation.every = 0
    return config


def _kinetics(model, dataset, name):
    """Return the authors' configs/Kinetics: MViT on Kinetics-400, or 600.

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
            flip=experiment.may_flip(dataset),
            augment=(
                pretrain.COLOUR_JITTER,
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
            warmup_steps=30 * repeats * NUM_VIDEOS[name] // batch_size,
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


def _ssv2(model, dataset):
    """Return the authors' configs/SSv2: Something-Something v2, fine-tuned.

    They released the settings of their second version, MVITv2_S_16x4.yaml; the
    paper's are the same as far as it states them. Evaluate with
    `recipes.evaluate --frame_step=0 --resize=224 --crops=3`. They crop 224
    pixels of a shorter side of 256 to 320, that is 37 to 57 % of the area of a
    video of 4:3; here it is 37 to 100 %, of other ratios of sides too. The rest
    differs as in `_kinetics`. Their batch is 16 clips for each machine at a
    rate of 0.0025, and here that of eight.
    """
    config = _fine_tuned(model, dataset, batch_size=128, min_area=0.37)
    config.model.architecture.drop_path_rate = 0.4
    # A frame of each segment; mirrored, "left" would be "right".
    config.data.frame_step, config.data.frame_rate = 0, 0.0
    config.data.flip = False
    config.optim.base_lr, config.optim.clip_norm = 0.02, 0.0
    config.optim.label_smoothing = 0.1
    config.schedule = experiment.Schedule(
        num_epochs=100,
        warmup_steps=3 * NUM_VIDEOS["ssv2"] // 128,
        final_lr=1e-6,
    )
    return config


def _charades(model, dataset):
    """Return the authors' configs/Charades: several labels, fine-tuned.

    They released no settings of MViT; these are SLOWFAST_16x8_R50.yaml, with
    the frames of the model. Evaluate with `recipes.evaluate --clips=10
    --crops=3 --highest --frame_step=4 --frame_rate=30 --resize=224`. A clip is
    trained with all classes of its video, theirs with those seen in it. They
    crop 33 to 57 % of a video of 4:3, here it is 33 to 100 %.
    """
    config = _fine_tuned(model, dataset, batch_size=16, min_area=0.33)
    config.model.architecture.drop_path_rate = KINETICS[model][1]
    config.data.augment = ()
    config.optim.base_lr, config.optim.clip_norm = 0.0375, 0.0
    config.optim.loss = "sigmoid"
    config.schedule = experiment.Schedule(
        num_epochs=57,
        warmup_steps=4 * NUM_VIDEOS["charades"] // 16,
        name="step",
        decay_at=(41 / 57, 49 / 57),
    )
    return config


def _ava(model, dataset):
    """Return AVA v2.2: boxes of persons with several actions, fine-tuned.

    The authors released no settings of MViT on AVA. Batch, rate, epochs, decay
    and stochastic depth are those of the paper as remembered; the form of
    clips, the head and the score of detected boxes are configs/AVA. Training
    takes the true boxes; theirs adds detected ones with an IoU of 0.9. Their
    images keep the ratio of their sides; these are squares, so that a model
    with a table of positions sees every person.
    """
    config = _fine_tuned(model, dataset, batch_size=512, min_area=0.08)
    config.model.architecture.drop_path_rate = 0.4
    default = experiment.Data()
    config.data = dataclasses.replace(
        config.data,
        crop=default.crop,
        min_area=default.min_area,
        eval_resize=default.eval_resize,
        augment=default.augment,
    )
    config.optim.base_lr, config.optim.clip_norm = 0.6, 0.0
    config.optim.weight_decay = 1e-7  # 10 times 1e-8, as above
    config.schedule = experiment.Schedule(
        num_epochs=30, warmup_steps=5 * NUM_VIDEOS["ava"] // 512
    )
    config.evaluation.every = 5 * NUM_VIDEOS["ava"] // 512
    config.run.checkpoint_every = 0
    task = task_settings.Task(
        name="actions",
        max_objects=50,
        # A shorter side of 256 to 320 pixels, of which 224 are cropped.
        scales=(256 / 224, 320 / 224),
    )
    return experiment.extended(config, task_settings.Config, task=task)


def _fine_tuned(model, dataset, batch_size, min_area):
    """Return a config with the weights of Kinetics and the authors' SGD."""
    config = _kinetics(model, dataset, "kinetics400")
    config.model.weights = WEIGHTS.get(model, "")
    config.data = dataclasses.replace(
        config.data, batch_size=batch_size, repeats=1, min_area=min_area
    )
    # Multiplied by the learning rate. With a momentum of 0.9 this equals L2
    # regularisation of 1e-4, which momentum multiplies by 10.
    config.optim = experiment.Optim(name="sgd", momentum=0.9, weight_decay=1e-3)
    return config
