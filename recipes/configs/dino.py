"""Self-distillation: DINO (2104.14294) and DINOv2 (2304.07193).

dino.py                          digits, a small model
dino.py:ViT,DATASET              another data set, the same way
dino.py:ViTS16,imagenet2012      DINO as published, also ViTB16
dino.py:DINOv2L14,imagenet2012   DINOv2's published recipe for ImageNet-1k

DATASET is the name of a data set in TensorFlow Datasets, a folder of images or
an npz file.
"""

from recipes import dino, experiment, unlabelled

IMAGENET_IMAGES = 1_281_167
BATCH_SIZE = 1024


def get_config(arguments: str = "ViT,digits") -> unlabelled.Config:
    """Return the config of "MODEL,DATASET"."""
    model, dataset = experiment.model_and_dataset(
        arguments, "dino.py", "ViTS16,imagenet2012"
    )
    if model == "ViT":
        return _small(dataset)
    if model.startswith("DINOv2"):
        return _version_2(model, dataset)
    return _version_1(model, dataset)


def _steps(epochs, batch_size):
    return epochs * IMAGENET_IMAGES // batch_size


def _version_1(model, dataset):
    """DINO: the defaults of main_dino.py, and the published runs.

    From memory, of the arguments that are published beside the weights: the
    batch, the epochs, and all in which B/16 differs from S/16.
    """
    large = model == "ViTB16"
    return unlabelled.Config(
        objective="dino",
        model=experiment.Model(
            name=model,
            architecture=experiment.Architecture(drop_path_rate=0.1),
            dtype_policy="mixed_bfloat16",
        ),
        data=experiment.Data(
            dataset=dataset,
            image_size=(224,),
            flip=True,
            batch_size=BATCH_SIZE,
        ),
        schedule=experiment.Schedule(
            num_epochs=400 if large else 800,
            warmup_steps=_steps(10, BATCH_SIZE),
            name="cosine",
            final_lr=2e-6 if large else 1e-6,
        ),
        optim=experiment.Optim(
            # Clipped for each variable.
            name="AdamW(clipnorm=0.3)" if large else "AdamW(clipnorm=3.0)",
            base_lr=0.00075 * BATCH_SIZE / 256
            if large
            else 0.0005 * BATCH_SIZE / 256,
            weight_decay=0.04,
            final_weight_decay=0.4,
            clip_norm=0.0,
        ),
        run=experiment.Run(checkpoint_every=5_000),
        evaluation=experiment.Evaluation(every=5_000),
        dino=dino.Dino(
            local_size=96,
            temperature_steps=_steps(50 if large else 30, BATCH_SIZE),
            frozen_steps=_steps(3 if large else 1, BATCH_SIZE),
        ),
    )


def _version_2(model, dataset):
    """DINOv2: dinov2/configs/ssl_default_config.yaml, with untied heads.

    The paper's heads are untied and centred by Sinkhorn-Knopp; there neither.
    The patches' rate, a fifth of it, is not. From memory: 32 GPUs of 64 images.
    """
    batch_size, epoch = 2048, 1250
    return unlabelled.Config(
        objective="dino",
        model=experiment.Model(
            name=model,
            architecture=experiment.Architecture(drop_path_rate=0.3),
            dtype_policy="mixed_bfloat16",
        ),
        data=experiment.Data(
            dataset=dataset,
            image_size=(224,),
            flip=True,
            batch_size=batch_size,
        ),
        schedule=experiment.Schedule(
            total_steps=100 * epoch,
            warmup_steps=10 * epoch,
            name="cosine",
            final_lr=1e-6,
        ),
        optim=experiment.Optim(
            name="AdamW",
            base_lr=0.004 * (batch_size / 1024) ** 0.5,
            weight_decay=0.04,
            final_weight_decay=0.4,
            clip_norm=3.0,
            layer_decay=0.9,
        ),
        run=experiment.Run(checkpoint_every=epoch),
        evaluation=experiment.Evaluation(every=10 * epoch),
        dino=dino.Dino(
            local_size=98,  # 7 patches of 14 pixels
            num_local=8,
            global_area=(0.32, 1.0),
            local_area=(0.05, 0.32),
            temperature_steps=30 * epoch,
            momentum=0.992,
            centring="sinkhorn",
            frozen_steps=epoch,
            patch_weight=1.0,
            koleo_weight=0.1,
        ),
    )


def _small(dataset):
    """Return the same training for a small model, which takes minutes."""
    architecture = experiment.Architecture(
        hidden_size=64, num_layers=2, num_heads=4, mlp_dim=128
    )
    if dataset == "digits":  # of 8 x 8 pixels
        architecture.patch_size = 2
    return unlabelled.Config(
        objective="dino",
        model=experiment.Model(architecture=architecture),
        data=experiment.Data(
            dataset=dataset,
            flip=experiment.may_flip(dataset),
            batch_size=64,
        ),
        schedule=experiment.Schedule(num_epochs=22, warmup_steps=40),
        optim=experiment.Optim(
            name="AdamW",
            base_lr=3e-3,
            weight_decay=0.04,
            final_weight_decay=0.4,
            clip_norm=3.0,
        ),
        evaluation=experiment.Evaluation(every=110),
        dino=dino.Dino(
            local_size=0,
            num_local=4,
            global_area=(0.6, 1.0),
            local_area=(0.3, 0.6),
            distort=dataset != "digits",
            num_prototypes=64,
            hidden_size=128,
            bottleneck_size=64,
            teacher_temperatures=(0.04, 0.04),
            momentum=0.95,
            # With so few images and steps features do not spread by themselves.
            koleo_weight=0.1,
        ),
        probe=unlabelled.Probe(dataset="digits" if dataset == "digits" else ""),
    )
