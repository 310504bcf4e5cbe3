"""Every experiment: the paper's tables, its resolved text, two of its steps."""

import dataclasses
import difflib
import pathlib
import re

import mocked
import numpy as np
import pytest
from small_runs import changed

from keras_vit.data import vtab as tasks
from keras_vit.models import families, vit
from recipes import (
    checks,
    cli,
    experiment,
    fewshot,
    fields,
    finetune,
    inputs,
    miniature,
    pretrain,
    study,
    sweep,
    training_step,
    unlabelled,
    vtab,
)

# Configs are no backend's, and on the others each step would be compiled for
# seconds; the tests of resuming and of devices train on them.
pytestmark = pytest.mark.backend("torch")
GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "configs"
IMAGENET = ("ViTB16", "ViTB32", "ViTL16", "ViTL32")
HYBRIDS = ("R50ViTB16", "R50ViTB32", "R50ViTL32", "R50ViTL16")
JFT = (*IMAGENET, "ViTH14", *HYBRIDS)
RESNETS = ("BiTR50x1", "BiTR50x2", "BiTR101x1", "BiTR152x1", "BiTR152x2")
RESNETS += ("BiTR200x3",)
AXIAL = ("AxialResNet50", "AxialViTB32", "AxialViTB16")
# The data sets of Table 4.
DATASETS = ("imagenet2012", "cifar100", "cifar10", "oxford_iiit_pet")
DATASETS += ("oxford_flowers102",)
# Arguments of video.py, another file of recipes.finetune.
VIDEO = (
    "video:",
    "video:ViT",
    "video:MViT,path/to/videos",
    "video:MViTB16x4,path/to/videos",
    "video:MViTB24_32x3,path/to/videos,kinetics600",
    "video:MViTB16x4,path/to/videos,ssv2",
    "video:MViTB16x4,path/to/videos,charades",
)
CIFAR10 = (
    "cifar10:path/to/images",
    "cifar10:path/to/images,stem",
    "cifar10:path/to/images,200_epochs",
)
STUDIES = (
    "figure_4",
    "figure_8",
    "figure_9",
    "figure_10",
    "figure_13",
    "table_5",
    "table_7",
    "table_8",
)
# Of each recipe the arguments of its config file; "" is the default.
EXPERIMENTS = {
    pretrain: [
        "",
        *(f"{model},jft300m" for model in JFT),
        *(f"{model},imagenet21k" for model in (*IMAGENET, "ViTH14", *HYBRIDS)),
        *(f"{model},imagenet2012" for model in IMAGENET),
        *(f"{model},jft300m" for model in (*RESNETS, *AXIAL)),
        "BiTR50x1,jft300m,sgd",
        "BiTR152x2,jft300m,sgd",
        "BiTR50x1,imagenet21k",
        "BiTR50x1,imagenet2012",
        "MixerB16,imagenet2012",
        "MLPMixer,digits",
        "RaftMLPS,imagenet2012",
        "ASMLPS,imagenet2012",
        "ConvMLPS,imagenet2012",
        "ResMLPS12,imagenet2012",
        "ResMLPS24,imagenet2012",
        "GMLPS16,imagenet2012",
        "HireMLPTiny,imagenet2012",
        "RaftMLP,digits,short",
        "ViTg14,jft3b",
    ],
    finetune: [
        "",
        *(f"ViTB16,{dataset}" for dataset in DATASETS),
        "ViTL16,imagenet2012",
        "ViTH14,imagenet2012",
        "ViTH14,cifar10",
        "R50ViTB16,cifar100",
        "ViTS16,path/to/images",
        "MLPMixer,digits",
        "MixerB16,cifar10",
        "MixerL16,imagenet2012",
        "BiT,digits",
        "BiTR50x1,oxford_iiit_pet",
        "BiTR50x1,cifar10",
        "BiTR50x1,imagenet2012",
        *VIDEO,
        *CIFAR10,
    ],
    sweep: [
        "",
        *(f"ViTB16,{dataset}" for dataset in DATASETS),
        "BiTR50x1,cifar10",
    ],
    study: [
        "",
        *(f"{name},jft300m" for name in STUDIES),
        "figure_4,digits",
        "table_5,imagenet2012",
        "figure_13,digits",
        "table_7,digits",
        "table_8,path/to/images",
        "scaling,jft3b",
        "scaling,path/to/images",
    ],
    unlabelled: [
        "",
        *("ViTB16,imagenet2012", "ViTL16,imagenet2012", "ViTH14,imagenet2012"),
        *("masked_patch:", "masked_patch:ViTB16,jft300m"),
    ],
    miniature: ["", "digits", "cifar10,cifar10"],
    fewshot: ["", "ViTB16,cifar10"],
    vtab: ["", *(f"ViTB16,{task}" for task in tasks.TASKS)],
}
# Others whose resolved text is frozen, and whose settings are trained above.
FROZEN = {pretrain: ["ViTS16,imagenet2012,plain", "MViTB16,imagenet2012"]}
NAMES = {recipe: recipe.__name__.split(".")[1] for recipe in EXPERIMENTS}
ALL = [
    pytest.param(recipe, argument, id=f"{NAMES[recipe]}:{argument}")
    for recipe, arguments in EXPERIMENTS.items()
    for argument in arguments
]


def config_of(recipe, argument):
    file = recipe.DEFAULT_CONFIG
    other, colon, rest = argument.partition(":")
    if colon:
        file, argument = file.with_name(f"{other}.py"), rest
    file = f"{file}:{argument}".rstrip(":")
    return cli.parse(["recipe", f"--config={file}"], recipe.DEFAULT_CONFIG)[0]


def lines_of(config, prefix=""):
    """One line for each field; of the architecture, for those that are set."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if prefix.endswith("architecture.") and value == field.default:
            continue  # a field that a family adds changes nothing
        if dataclasses.is_dataclass(value):
            yield from lines_of(value, f"{prefix}{field.name}.")
        elif isinstance(value, tuple) and any(
            map(dataclasses.is_dataclass, value)
        ):
            for i, each in enumerate(value):
                yield from lines_of(each, f"{prefix}{field.name}[{i}].")
        else:
            yield f"{prefix}{field.name} = {value!r}"


def text_of(recipe):
    """All fields of the first config of a kind, and what others change."""
    parts, first_of_kind = [], {}
    for argument in EXPERIMENTS[recipe] + FROZEN.get(recipe, []):
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
    for argument in EXPERIMENTS[recipe]:
        if recipe is not fewshot:
            checks.check(trained_config(recipe, argument))
    difference = "\n".join(
        difflib.unified_diff(
            golden.read_text().splitlines(), text.splitlines(), lineterm=""
        )
    )
    assert not difference, difference


def test_every_config_file_is_among_the_experiments():
    folder = pathlib.Path(finetune.DEFAULT_CONFIG).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    # These have tests of their own.
    others = {"detect", "segment", "depth", "contrastive", "dino", "distill"}
    recipes = {recipe.DEFAULT_CONFIG.stem for recipe in NAMES}
    assert files == {*recipes, "video", "cifar10", "masked_patch", *others}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("MixerB16,imagenet2012,plain", "must be a ViT and images with one"),
        ("R50ViTB16,jft3b", "must be a ViT without a ResNet"),
    ],
)
def test_settings_of_vits_are_refused_to_others(argument, message):
    with pytest.raises(ValueError, match=message):
        config_of(pretrain, argument)


@pytest.mark.parametrize("dataset", [*DATASETS, "path/to/images"])
def test_resnets_are_swept_with_the_setups_of_vit_and_of_bit(dataset):
    config = config_of(sweep, f"BiTR50x1,{dataset}")
    same_as_vit = config_of(sweep, f"ViTB16,{dataset}")
    assert config.base_lrs == same_as_vit.base_lrs
    assert config.dev_fraction == same_as_vit.dev_fraction
    assert changed(config.run, model="ViTB16") == same_as_vit.run
    rule = config_of(finetune, f"BiTR50x1,{dataset}")
    assert rule.optim.base_lr in config.base_lrs
    changes = config.setups.pop("bit") | {"optim.base_lr": rule.optim.base_lr}
    assert fields.changed(config.run, changes) == rule
    assert config.setups == {"vit": {}}


def test_table_7_takes_the_better_setup():
    for to in config_of(study, "table_7,jft300m").transfers:
        assert to == config_of(sweep, f"BiTR50x1,{to.run.data.dataset}")


# Of each family, or model, a small architecture.
SMALL = {
    "raft_mlp": dict(depths=(1, 1, 1, 1), hidden_sizes=(8, 8, 8, 8)),
    "RaftMLP": {},
    "vit": dict(hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32),
    "mixer": dict(hidden_size=16, num_layers=1, tokens_mlp_dim=8, mlp_dim=16),
    "bit": dict(depths=(1,), width_factor=0.5),
    "mvit": dict(
        depths=(1,), hidden_sizes=(8,), num_heads=1, cube_stride=(2, 8, 8)
    ),
}
# And of a masked autoencoder.
DECODER = {
    "mae.decoder_num_layers": 1,
    "mae.decoder_hidden_size": 16,
    "mae.decoder_num_heads": 2,
    "mae.decoder_mlp_dim": 16,
}


def family_of(model):
    """A model's family, and whether the model is one of its variants."""
    for family in families.FAMILIES.values():
        if model == family.title or model in family.variants:
            return family, model in family.variants
    raise AssertionError(model)


def shrunk(config):
    """The same training of a small model, for two steps."""
    family, is_variant = family_of(config.model.name)
    side = 2
    if is_variant:
        side = family.variants[config.model.name].get("patch_size", 16)
    small = SMALL.get(family.name, family.small)
    small = SMALL.get(config.model.name, small)
    if vit.VARIANTS.get(config.model.name, {}).get("resnet_depths"):
        side *= 16
        # One stage: more of them are the same code, compiled longer.
        small = small | dict(resnet_depths=(1,))
    size = min(config.model.architecture.representation_size, 8)
    return changed(
        config,
        architecture=dataclasses.replace(
            config.model.architecture, representation_size=size, **small
        ),
        weights="",
        image_size=(2 * side,) if is_variant else (0,),
        resize=3 * side if config.data.crop == "resize" else 0,
        batch_size=4,
        total_steps=2,
        num_epochs=0,
        eval_every=0,
        checkpoint_every=0,
        dev_fraction=0.5 * bool(config.data.dev_fraction),  # of 12 images
        dtype_policy="float32",  # a processor compiles the other slowly
        # Each operation is traced with all that may be drawn.
        augment=tuple(
            "RandAugment(num_ops=1)" if text.startswith("RandAugment") else text
            for text in config.data.augment
        ),
    )


def batches_of(config):
    """Dataset info and both kinds of batches of a shrunk config."""
    checks.check(config)
    parts = inputs.load(config)
    info = inputs.dataset_info(config, parts[0])
    return info, *inputs.pipelines(config, info, *parts)


def train_shrunk(config):
    """Two steps of what recipes.finetune and pretrain do, on random images."""
    config = shrunk(config)
    checks.check(config)
    info = inputs.dataset_info(config, inputs.load(config)[0])
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (8, *info.input_shape)).astype("float32")
    classes = len(info.class_names)
    trainer = training_step.build(config, info).trainer
    history = trainer.fit(
        images, np.eye(classes)[np.arange(8) % classes], batch_size=4, verbose=0
    )
    return history.history["loss"][0]


def shrunk_few_shot(config):
    changes = {
        "model.name": "ViT",
        "model.weights": "",
        "data.max_train_images": 100,
        "shots": (1,),
        "num_draws": 1,
        "neighbours": (1,),
    }
    return fields.changed(config, changes)


def trained_config(recipe, argument):
    """The config that a recipe trains with, on a set that can be mocked."""
    config = config_of(recipe, argument)
    if not isinstance(config, experiment.Config | fewshot.Config):
        config = config.run  # of a sweep, a study, all of VTAB
    if config.data.dataset == "vtab":
        config = vtab.config_of(config, "dtd")
    # No set of TFDS: whoever has these images says where they are.
    others = ("jft300m", "jft3b", "imagenet21k", "path/to/images")
    if config.data.dataset in others:
        config = changed(config, dataset="cifar10")
    if config.data.dataset == "path/to/videos":
        config = changed(
            config,
            dataset="moving_digits",
            frame_rate=0.0,  # arrays have none
            channels=3 if config.data.augment else 0,  # colours to jitter
        )
    return config


def kind_of(value):
    """What of a value selects code: of a number, whether it is 0 or above 1.

    A name, a flag and the elements of a tuple select by what they are.
    """
    if isinstance(value, tuple):
        return tuple(map(kind_of, value))
    if isinstance(value, (str, bool)):
        return value
    return (value != 0) + (value > 1)


def settings_of(recipe, config, *groups):
    """The fields of a shrunk config in these groups, and the kinds of values.

    Beside them, the recipe's way of training and the kinds of model and data.
    """
    if recipe is fewshot:
        return {("way", "fewshot")}
    source = config.data.dataset.partition("/")[0]
    known = ("digits", "moving_digits", "vtab")
    family, is_variant = family_of(config.model.name)
    values = fields.flat(dataclasses.asdict(shrunk(config)))
    values["data.dataset"] = source if source in known else "tfds"
    values["model.name"] = f"{family.name}, {is_variant}"
    way = config.objective if recipe is unlabelled else "training"
    augment = values.pop("data.augment")
    if "data" not in groups:
        augment = ()
    return (
        {("way", way)}
        | {("data.augment", text.partition("(")[0]) for text in augment}
        | {
            (path, kind_of(value))
            for path, value in values.items()
            if path.split(".")[0] in groups
        }
    )


def of_step(recipe, config):
    """What a training step reads. Whatever the data, batches have one form."""
    return settings_of(recipe, config, "model", "optim", "schedule", "run")


def of_batches(recipe, config):
    return settings_of(recipe, config, "data")


def covering(settings, cases=ALL):
    """Cases that together have every setting of all of them."""
    chosen, seen = [], set()
    for case in cases:
        recipe, argument = case.values
        found = settings(recipe, trained_config(recipe, argument))
        if not found <= seen:
            chosen.append(case)
            seen |= found
    return chosen, seen


TRAINED, SETTINGS = covering(of_step)


def of_the_page():
    """Yields (recipe, argument) of each command of docs/paper.md's."""
    text = (GOLDENS.parents[2] / "docs/paper.md").read_text()
    by_name = {recipe.DEFAULT_CONFIG.stem: recipe for recipe in NAMES}
    words = r"(\w+,[\w/]+(?:,\w+)?|\w+)"
    for name, argument in re.findall(rf"configs/(\w+)\.py:{words}", text):
        if name in by_name:
            yield by_name[name], argument
        elif name in ("video", "cifar10"):
            yield finetune, f"{name}:{argument}"
        else:  # an objective
            yield unlabelled, f"{name}:{argument}"
    # Other arguments of a command in the same row.
    for argument in re.findall(rf"`:{words}`", text):
        yield pretrain, argument
    for argument in re.findall(r"`((?:figure|table)_\d+,\w+)`", text):
        yield study, argument


PAGE = sorted(set(of_the_page()), key=lambda case: (NAMES[case[0]], case[1]))


@pytest.mark.parametrize(
    ("recipe", "argument"), PAGE, ids=lambda x: NAMES.get(x, x)
)
def test_settings_of_the_papers_page_are_trained_with(recipe, argument):
    config = trained_config(recipe, argument)
    if recipe is not fewshot:
        checks.check(config)
    assert of_step(recipe, config) <= SETTINGS


def variants_of_studies():
    """Yields variants of studies with settings that no experiment has."""
    seen = set(SETTINGS)
    for name in STUDIES:
        of_study = config_of(study, f"{name},digits")
        for variant in of_study.variants:
            config = study.config_of(of_study.run, variant, 100)
            found = of_step(study, config)
            if not found <= seen:
                seen |= found
                yield pytest.param(config, id=f"{name}-{variant.name}")


@pytest.mark.slow
@pytest.mark.parametrize("config", list(variants_of_studies()))
def test_two_steps_of_every_variant_of_a_study_run(config):
    assert np.isfinite(train_shrunk(config))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of TFDS, on mocked sets
@pytest.mark.parametrize(("recipe", "argument"), TRAINED)
def test_two_steps_with_every_setting_run(tmp_path, recipe, argument):
    config = trained_config(recipe, argument)
    with mocked.mocked_tfds(12):
        if recipe is fewshot:
            assert fewshot.run(shrunk_few_shot(config), str(tmp_path / "run"))
        elif recipe is unlabelled:
            own = DECODER if config.objective == "mae" else {}
            config = fields.changed(shrunk(config), own)
            assert unlabelled.run(config, str(tmp_path / "run"))
        else:
            assert np.isfinite(train_shrunk(config))


@pytest.mark.usefixtures("plain_decoding")
@pytest.mark.filterwarnings("ignore")  # of TFDS, on mocked sets
@pytest.mark.parametrize(
    ("recipe", "argument"),
    # Segments have tests of their own (tests/data/test_clips.py), of less time.
    [case for case in covering(of_batches)[0] if "ssv2" not in case.id],
)
def test_images_of_every_experiment_are_batches_of_one_form(recipe, argument):
    config = trained_config(recipe, argument)
    if recipe is fewshot:
        config = changed(
            experiment.Config(), dataset=config.data.dataset, num_epochs=1
        )
    with mocked.mocked_tfds(12):
        info, train_batches, eval_batches = batches_of(shrunk(config))
        for batches in (train_batches(0), eval_batches()):
            [batch] = batches.take(1)
            assert batch["images"].shape == (4, *info.input_shape)
            assert batch["labels"].shape == (4, len(info.class_names))
            assert np.isfinite(batch["images"]).all()
            np.testing.assert_array_equal(np.sum(batch["labels"], axis=-1), 1)
