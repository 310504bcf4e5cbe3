"""The plan of one training run: memory, work, communication, time, cost."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import sys
import types
import typing

from recipes import fields
from tools.plan_tpu import compiler, largest_batch, report, slices

# Data sets that need not be installed: training images, classes (0 of pairs),
# and the side in pixels if it is the same for all. JFT: 303M images (section
# 4.1 of the paper) of 18,291 classes (Kolesnikov et al. 2020, 1912.11370,
# section 3.1).
DATASETS = {
    "imagenet2012": (1_281_167, 1000, 0),
    "imagenet21k": (14_197_122, 21_843, 0),
    "jft300m": (303_000_000, 18_291, 0),
    # "Nearly 3 billion"; the classes are those of big_vision's train_vit_g.py.
    "jft3b": (3_000_000_000, 29_593, 0),
    "cifar10": (50_000, 10, 32),
    "cifar100": (50_000, 100, 32),
    "oxford_flowers102": (1_020, 102, 0),
    "oxford_iiit_pet": (3_680, 37, 0),
    # Of tasks: train2017, its panoptic classes, and those of ADE20K.
    "coco/2017": (118_287, 80, 0),
    "coco/2017_panoptic": (118_287, 133, 0),
    "scene_parse150": (20_210, 150, 0),
    # Of images with captions. As many as CLIP's own (Schuhmann et al. 2021,
    # 2111.02114).
    "coco_captions": (82_783, 0, 0),
    "laion400m/images": (400_000_000, 0, 0),
}
# Table 2 of the paper: TPUv3-core-days of pre-training. Its other rows are
# BiT-L (ResNet152x4), 9900, and Noisy Student (EfficientNet-L2), 12300.
PAPER = {
    ("ViTH14", "jft300m"): 2500,
    ("ViTL16", "jft300m"): 680,
    ("ViTL16", "imagenet21k"): 230,
}


def make(
    config, tpu: slices.Slice, *, search: bool, split: bool = True
) -> report.Plan:
    """Return the plan of a recipe's config on a slice.

    `search` looks for the largest batch, `split` divides a batch that does not
    fit into micro-batches.
    """
    info = dataset_info(config)
    step, built = make_step(config, info, tpu)
    split = split and _takes_parts(config)
    say(f"Compiling {config.model.name} for {tpu.name}: seconds to minutes.")
    plan = report.Plan(
        tpu=tpu,
        model=config.model.name,
        dataset=config.data.dataset,
        strategy=config.run.strategy,
        remat=config.model.remat,
        batch_size=config.data.batch_size,
        model_parallel=tpu.num_devices // step.num_replicas,
        micro_batches=config.run.micro_batches,
        num_replicas=step.num_replicas,
        total_steps=built.total_steps,
        paper_core_days=PAPER.get((config.model.name, config.data.dataset)),
    )
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        found = search and other.submit(_largest, config, info, tpu, step)
        plan = _compile(plan, config, info, step, split)
        largest = found.result() if found else None
    return dataclasses.replace(plan, largest=largest)


def dataset_info(config):
    """Return the properties of the data set that the experiment uses."""
    recipe = recipe_of(config)
    if config.data.dataset not in DATASETS:
        return recipe.dataset_info(config, recipe.load(config)[0])
    images, classes, side = DATASETS[config.data.dataset]
    source: typing.Any = types.SimpleNamespace(
        image_shape=(side, side, 3) if side else None,
        class_names=tuple(map(str, range(classes))),
        num_examples=images,
        multi_label=False,
        is_video=False,
        num_frames=None,
    )
    return recipe.dataset_info(config, source)


def recipe_of(config) -> typing.Any:
    """Return the module that knows a config; inputs of classifiers."""
    from recipes import contrastive, distill, inputs, tasks, unlabelled

    known = (tasks, contrastive, distill, unlabelled)
    recipes = {each.Config: each for each in known}
    return recipes.get(type(config), inputs)


def check(config) -> None:
    """Refuse invalid values, as the recipe of a config does.

    Raises:
        ValueError: If a field has an invalid value.
    """
    from recipes import checks

    getattr(recipe_of(config), "check", checks.check)(config)


def planned(config, info) -> tuple:
    """Return the objective of a config, and what makes its symbolic batch.

    None of a classifier, whose targets are as its outputs.
    """
    own = getattr(recipe_of(config), "planned", lambda *given: (None, None))
    return own(config, info)


def _takes_parts(config):
    """Return whether a batch may be computed in parts.

    The losses of all pairs and of batches that are centred take none.
    """
    try:
        check(fields.changed(config, {"run.micro_batches": 2}))
    except ValueError:
        return False
    return True


def make_step(config, info, tpu: slices.Slice):
    """Return the compiler.Step of a config, and its TrainingStep."""
    import keras

    from keras_vit import distribution
    from keras_vit.distribution import layouts
    from recipes import training_step

    objective, batch = planned(config, info)
    devices = slices.devices(tpu)
    model_parallel = 1
    if "tensor" in config.run.strategy:
        hosts = collections.Counter(d.process_index for d in devices)
        model_parallel = config.run.model_parallel or min(hosts.values())
    layout = layouts.distribution(config.run.strategy, devices, model_parallel)
    keras.config.set_dtype_policy(config.model.dtype_policy)
    built = []

    def build():
        built.append(training_step.build(config, info, "tpu", objective))
        return built[0].trainer

    step = compiler.Step(build, layout, tpu, config.run.micro_batches, batch)
    distribution.check_model(layout, built[0].model)
    counts = dict(num_devices=tpu.num_devices, num_replicas=step.num_replicas)
    slice_of = distribution.Devices(kind="tpu", **counts)
    slice_of.check_batch(config.data.batch_size, config.run.micro_batches)
    return step, built[0]


def _step(config, info, tpu):
    return make_step(config, info, tpu)[0]


def _largest(config, info, tpu, step):
    """Return the largest number of images that fit on each replica at once."""
    replicas = step.num_replicas
    changes = {"run.micro_batches": 1, "data.batch_size": replicas}
    config = fields.changed(config, changes)
    ask = functools.partial(_step, config, info, tpu)
    memory = tpu.hbm * tpu.num_devices // replicas
    with contextlib.closing(largest_batch.CompilerProcess(ask)) as asker:
        return largest_batch.largest(
            lambda images: asker(images * replicas),
            start=max(1, memory // step.least_bytes_per_image),
            fixed=step.state_bytes,
        )


def _compile(plan, config, info, step, split):
    """Add the compiled program, with micro-batches if it does not fit."""
    try:
        return _with_program(plan, step.compile(plan.batch_size))
    except compiler.DoesNotFit as error:
        sizes = dict(needs=error.needs, available=error.available)
        plan = dataclasses.replace(plan, fits=False, **sizes)
    each = plan.batch_size // plan.num_replicas
    parts = [k for k in range(2, each + 1) if each % k == 0]
    fixed = step.state_bytes
    for k in parts if split else ():
        part = fixed + (plan.needs - fixed) * config.run.micro_batches / k
        # Out of reach, even if the compiler saves as much as it can.
        hopeless = plan.available and part > 1.5 * plan.available
        if k <= config.run.micro_batches or hopeless:
            continue
        say(f"It does not fit; compiling with run.micro_batches={k}.")
        split_config = fields.changed(config, {"run.micro_batches": k})
        step, _ = make_step(split_config, info, plan.tpu)
        try:
            program = step.compile(plan.batch_size)
        except compiler.DoesNotFit:
            continue
        return _with_program(
            dataclasses.replace(plan, micro_batches=k), program
        )
    return plan


def _with_program(plan, program):
    seconds, source = compiler.step_time(program, plan.tpu)
    days = plan.total_steps * seconds / 86_400
    return dataclasses.replace(
        plan,
        program=program,
        hbm=program.hbm,
        roofline=compiler.roofline(program, plan.tpu),
        seconds=seconds,
        seconds_from=source,
        images_per_second=plan.batch_size / seconds,
        days=days,
        core_days=days * plan.tpu.num_cores,
    )


def say(text):
    """Print progress to stderr, separate from the result."""
    print(text, file=sys.stderr, flush=True)
