"""Every experiment: the paper's tables, its resolved text, two of its steps."""

import dataclasses
import difflib
import pathlib

import mocked
import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import vtab as tasks
from keras_vit.models import vit
from recipes import (
    cli,
    experiment,
    fewshot,
    finetune,
    inputs,
    masked_patch,
    pretrain,
    sweep,
    training_step,
    vtab,
)

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "configs"
IMAGENET = ("ViTB16", "ViTB32", "ViTL16", "ViTL32")
JFT = (*IMAGENET, "ViTH14", "R50ViTB16", "R50ViTL32")
# Table 4: steps and base learning rates, copied from the paper, and the
# shares of the training images by which section 4.1 and its appendix choose.
TABLE_4 = {
    "imagenet2012": (20_000, {0.003, 0.01, 0.03, 0.06}, 0.01),
    "cifar100": (10_000, {0.001, 0.003, 0.01, 0.03}, 0.02),
    "cifar10": (10_000, {0.001, 0.003, 0.01, 0.03}, 0.02),
    "oxford_iiit_pet": (500, {0.001, 0.003, 0.01, 0.03}, 0.1),
    "oxford_flowers102": (500, {0.001, 0.003, 0.01, 0.03}, 0.1),
}
# Of each recipe the arguments of its config file; "" is the default.
EXPERIMENTS = {
    pretrain: [
        "",
        *(f"{model},jft300m" for model in JFT),
        *(f"{model},imagenet21k" for model in IMAGENET),
        *(f"{model},imagenet2012" for model in IMAGENET),
    ],
    finetune: [
        "",
        *(f"ViTB16,{dataset}" for dataset in TABLE_4),
        "ViTL16,imagenet2012",
        "ViTH14,imagenet2012",
        "ViTH14,cifar10",
        "R50ViTB16,cifar100",
        "ViTS16,path/to/images",
    ],
    sweep: ["", *(f"ViTB16,{dataset}" for dataset in TABLE_4)],
    masked_patch: ["", "ViTB16,jft300m"],
    fewshot: ["", "ViTB16,cifar10"],
    vtab: ["", *(f"ViTB16,{task}" for task in tasks.TASKS)],
}
NAMES = {recipe: recipe.__name__.split(".")[1] for recipe in EXPERIMENTS}
ALL = [
    pytest.param(recipe, argument, id=f"{NAMES[recipe]}:{argument}")
    for recipe, arguments in EXPERIMENTS.items()
    for argument in arguments
]


def config_of(recipe, argument):
    file = f"{recipe.DEFAULT_CONFIG}:{argument}".rstrip(":")
    return cli.parse(["recipe", f"--config={file}"], recipe.DEFAULT_CONFIG)[0]


def lines_of(config, prefix=""):
    """One line for each field."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from lines_of(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name} = {value!r}"


def text_of(recipe):
    """All fields of the first config of a kind, and what others change."""
    parts, first_of_kind = [], {}
    for argument in EXPERIMENTS[recipe]:
        config = config_of(recipe, argument)
        lines = list(lines_of(config))
        first = first_of_kind.setdefault(type(config), lines)
        own = [x for x in lines if first is lines or x not in first]
        parts.append("\n".join([f"[{argument}]", *own, ""]))
    return "\n".join(parts)


@pytest.mark.parametrize("recipe", EXPERIMENTS, ids=NAMES.get)
def test_resolved_configs_are_those_frozen(recipe, update_goldens):
    golden = GOLDENS / f"{NAMES[recipe]}.txt"
    text = text_of(recipe)
    if update_goldens:
        golden.write_text(text)
    difference = "\n".join(
        difflib.unified_diff(
            golden.read_text().splitlines(), text.splitlines(), lineterm=""
        )
    )
    assert not difference, difference


def test_every_config_file_is_among_the_experiments():
    folder = pathlib.Path(finetune.DEFAULT_CONFIG).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == set(NAMES.values())


@pytest.mark.parametrize("dataset", TABLE_4)
@pytest.mark.parametrize("model", ["ViTB16", "ViTL16", "ViTH14", "R50ViTB16"])
def test_configs_are_the_rows_of_table_4(model, dataset):
    config = config_of(sweep, f"{model},{dataset}")
    steps, base_lrs, dev_fraction = TABLE_4[dataset]
    assert set(config.base_lrs) == base_lrs
    assert config.dev_fraction == dev_fraction
    run = config.run
    assert run == config_of(finetune, f"{model},{dataset}")
    assert run.total_steps == steps
    assert run.base_lr in base_lrs
    # Table 4's caption and appendix B.1.1.
    assert (run.optimizer, run.momentum, run.weight_decay) == ("sgd", 0.9, 0)
    assert (run.schedule, run.batch_size, run.clip_norm) == ("cosine", 512, 1)
    assert run.head_bias == 0 and run.loss == "softmax"
    size, average = (384,), 0.0
    if dataset == "imagenet2012" and model in ("ViTL16", "ViTH14"):
        size, average = ((512,) if model == "ViTL16" else (518,)), 0.9999
    elif model == "ViTH14":
        size = (378,)
    assert (run.image_size, run.ema_momentum) == (size, average)


@pytest.mark.parametrize("task", tasks.TASKS)
def test_vtab_trains_as_table_4_says(task):
    run = config_of(vtab, f"ViTB16,{task}")
    assert (run.dataset, run.total_steps) == (f"vtab/{task}", 2_500)
    assert (run.base_lr, run.batch_size) == (0.01, 512)
    assert (run.schedule, run.weight_decay, run.clip_norm) == ("cosine", 0, 1)
    assert run.image_size == (384,)


def shrunk(config):
    """The same training of a small model, for two steps."""
    sizes = vit.VARIANTS.get(config.model, {})
    patch_size = int(config.model[-2:]) if config.model != "ViT" else 2
    return dataclasses.replace(
        config,
        architecture=dataclasses.replace(
            config.architecture,
            hidden_size=16,
            num_layers=1,
            num_heads=2,
            mlp_dim=32,
            resnet_units=(1,) * len(sizes.get("resnet_units", ())),
            representation_size=min(config.architecture.representation_size, 8),
        ),
        weights="",
        image_size=(2 * patch_size,) if config.model != "ViT" else (0,),
        resize=3 * patch_size if config.crop == "resize" else 0,
        batch_size=4,
        total_steps=2,
        num_epochs=0,
        eval_every=0,
        checkpoint_every=0,
        dtype_policy="float32",  # a processor compiles the other slowly
    )


def train_shrunk(config):
    """Two steps of what recipes.finetune and pretrain do, and no more."""
    config = shrunk(config)
    experiment.check(config)
    train, evaluation = inputs.load(config)
    facts = inputs.facts_of(config, train)
    train_batches, _ = inputs.pipelines(config, facts, train, evaluation)
    trainer = training_step.build(config, facts).trainer
    history = trainer.fit(
        data.as_pairs(train_batches(0)), steps_per_epoch=2, verbose=0
    )
    return history.history["loss"][0]


def shrunk_few_shot(config):
    return dataclasses.replace(
        config,
        model="ViT",
        weights="",
        shots=(1,),
        num_draws=1,
        neighbours=(1,),
        max_train_images=100,
    )


@pytest.mark.backend("tensorflow", "jax")
@pytest.mark.filterwarnings("ignore")  # of TFDS, on mocked sets
@pytest.mark.parametrize(("recipe", "argument"), ALL)
def test_two_steps_of_every_experiment_run(tmp_path, recipe, argument):
    config = config_of(recipe, argument)
    # No set of TFDS: whoever has these images says where they are.
    for name in ("jft300m", "imagenet21k", "path/to/images"):
        if getattr(config, "dataset", "") == name:
            config = dataclasses.replace(config, dataset="cifar10")
    with mocked.mocked_tfds(12):
        if recipe is fewshot:
            assert fewshot.run(shrunk_few_shot(config), str(tmp_path / "run"))
        elif recipe is masked_patch:
            assert masked_patch.run(shrunk(config), str(tmp_path / "run"))
        else:
            run = getattr(config, "run", config)  # of a sweep, of all of VTAB
            if run.dataset == "vtab":
                run = vtab.config_of(run, "dtd")
            assert np.isfinite(train_shrunk(run))
