"""Fine-tuning, from scratch and from released weights.

finetune.py                   digits from scratch, one minute on two cores
finetune.py:ViT,DATASET       another data set from scratch, the same way
finetune.py:ViTB16,DATASET    released weights, as in Table 4 of the paper
finetune.py:MixerB16,DATASET  the same at 224 pixels, as in the MLP-Mixer paper
finetune.py:BiTR50x1,DATASET  released weights, with BiT-HyperRule

DATASET is the name of a data set in TensorFlow Datasets, a folder of images or
an npz file.
"""

import re

from keras_vit.models import bit, families, mixer
from keras_vit.weights import registry
from recipes import experiment

# Table 4: steps and the base learning rates to try. `recipes.sweep` selects one
# of the rates; without a sweep, DEFAULT_LR is used.
TABLE_4 = {
    "imagenet2012": (20_000, (0.003, 0.01, 0.03, 0.06)),
    "cifar100": (10_000, (0.001, 0.003, 0.01, 0.03)),
    "cifar10": (10_000, (0.001, 0.003, 0.01, 0.03)),
    "oxford_iiit_pet": (500, (0.001, 0.003, 0.01, 0.03)),
    "oxford_flowers102": (500, (0.001, 0.003, 0.01, 0.03)),
}
DEFAULT_LR = {"imagenet2012": 0.03}
# Section 4.1: on ImageNet the largest models are fine-tuned at a higher
# resolution, and their weights are averaged.
IMAGENET_SIZE = {"ViTL16": 512, "ViTH14": 518}
# BiT-HyperRule by the number of training images (below 20k, below 500k, more):
# steps, the fractions of them after which the rate is divided by 10, and MixUp.
HYPER_RULE = {
    "small": (500, (0.4, 0.6, 0.8), ()),
    "medium": (10_000, (0.3, 0.6, 0.9), ("MixUp(alpha=0.1)",)),
    "large": (20_000, (0.3, 0.6, 0.9), ("MixUp(alpha=0.1)",)),
}
SIZES = {"cifar10": "medium", "cifar100": "medium", "imagenet2012": "large"}
# Small models to train from scratch.
TITLES = [family.title for family in families.FAMILIES.values()]


def get_config(arguments: str = "") -> experiment.Config:
    """Return the config of "MODEL,DATASET"; without them, the quick try."""
    if not arguments:
        return _quick_try()
    model, dataset = experiment.model_and_dataset(
        arguments, "finetune.py", "ViTB16,cifar10"
    )
    if model in TITLES:
        return _from_scratch(model, dataset)
    if model in bit.VARIANTS:
        return _hyper_rule(model, dataset)
    return from_weights(model, dataset)


def _quick_try():
    """Train on digits of 8 pixels, enlarged to 16, for 16 tokens.

    Patches of 4 pixels would be 4 tokens, with which a picture of attention
    shows little. With a convolutional root, as in the hybrids of section 3.1,
    16 tokens are as accurate, with patches of pixels they are not
    (docs/benchmarks.md).
    """
    config = _from_scratch("ViT", "digits")
    config.data.image_size = (16,)
    config.model.architecture = experiment.Architecture(
        patch_size=1, num_layers=2, resnet_depths=(1,), resnet_width=0.5
    )
    config.schedule.num_epochs = 50
    return config


def _from_scratch(model, dataset):
    return experiment.Config(
        model=experiment.Model(name=model),
        data=experiment.small_images(dataset),
        schedule=experiment.Schedule(num_epochs=80, warmup_steps=100),
        optim=experiment.Optim(
            base_lr=0.2,
            name="sgd",
            momentum=0.9,
            clip_norm=1.0,
            label_smoothing=0.1,
        ),
        evaluation=experiment.Evaluation(every=100),
    )


def from_weights(model: str, dataset: str) -> experiment.Config:
    """Fine-tune as Table 4 says for ViT, ResNets too."""
    config = experiment.Config(
        model=experiment.Model(name=model, weights=_weights(model)),
        data=experiment.Data(
            dataset=dataset,
            image_size=(_image_size(model),),
            flip=experiment.may_flip(dataset),
            batch_size=512,
        ),
        schedule=experiment.Schedule(warmup_steps=500),
        optim=experiment.Optim(name="sgd", momentum=0.9, clip_norm=1.0),
    )
    name = re.split(r"[/:]", dataset)[0]
    if name not in TABLE_4:
        # Few images: smaller batches, with the rate scaled in proportion.
        config.data.batch_size, config.optim.base_lr = 64, 0.003
        config.schedule.num_epochs = 20
        return config
    config.schedule.total_steps, _ = TABLE_4[name]
    config.optim.base_lr = DEFAULT_LR.get(name, 0.01)
    if name == "imagenet2012":
        config.data.eval_split = "validation"
        if model in IMAGENET_SIZE:
            config.data.image_size = (IMAGENET_SIZE[model],)
            config.optim.ema_momentum = 0.9999
    return config


def _image_size(model):
    """Return the authors' fine-tuning resolution, in pixels per side."""
    if model in mixer.VARIANTS:
        return 224
    # 384 is not a multiple of 14; 378 is 27 patches per side.
    return 378 if families.sizes_of(model).get("patch_size") == 14 else 384


def _hyper_rule(model, dataset):
    """Apply BiT-HyperRule, section 3.3; an unknown size counts as small.

    Args:
        model: The name of a BiT constructor.
        dataset: The data set; the size of its images selects the resolution.
    """
    name = re.split(r"[/:]", dataset)[0]
    total_steps, decay_at, augment = HYPER_RULE[SIZES.get(name, "small")]
    return experiment.Config(
        model=experiment.Model(name=model, weights=_weights(model)),
        data=experiment.Data(
            dataset=dataset,
            eval_split="validation" if name == "imagenet2012" else "",
            crop="bit",
            flip=experiment.may_flip(dataset),
            augment=augment,
            batch_size=512,
        ),
        schedule=experiment.Schedule(
            total_steps=total_steps,
            warmup_steps=500,
            name="step",
            decay_at=decay_at,
        ),
        optim=experiment.Optim(
            base_lr=0.003, name="sgd", momentum=0.9, clip_norm=0.0
        ),
    )


def _weights(model):
    """Return the name of the weights to start from, "" without any."""
    entry = registry.default(model)
    return entry.name if entry else ""
