"""Files and arguments of version 0.2 are read, with a warning of new names."""

import contextlib
import json
import zipfile

import keras
import numpy as np
import pytest
from catalogue import make_model
from test_catalogue import fill, images_for, outputs_of

import keras_vit
from keras_vit._earlier_names import NAMES
from recipes import fields

pytestmark = pytest.mark.backend("torch")
# A model of the catalogue -> today's name of each argument and the earlier one,
# and the layers that have them, beside the architecture.
CASES = {
    "hybrid": (
        dict(resnet_depths="resnet_units", pooling="classifier"),
        ("ResNetV2Stem", dict(depths="num_units")),
    ),
    "mvit": (dict(num_heads="heads", pooling="classifier"), ("", {})),
    "bit": (dict(depths="num_units"), ("", {})),
    "mixer": (
        dict(mlp_dim="channels_mlp_dim"),
        ("MixerBlock", dict(mlp_dim="channels_mlp_dim")),
    ),
    "raft": (
        dict(
            mlp_ratio="channel_expansion_factor",
            tokens_mlp_ratio="token_expansion_factor",
        ),
        ("RaftMLPBlock", dict(mlp_ratio="channel_expansion_factor")),
    ),
    "res_mlp": (
        dict(layer_scale="layer_scale_init"),
        ("ResMLPBlock", dict(layer_scale="layer_scale_init")),
    ),
    "deit": (dict(pooling="classifier"), ("", {})),
}


@contextlib.contextmanager
def rewritten(path):
    """Gives the layers in a file's config to be changed."""
    with zipfile.ZipFile(path) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    config = json.loads(contents["config.json"])
    yield config["config"]["layers"]
    contents["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, value in contents.items():
            file.writestr(name, value)


def rewrite(path, architecture, of_layer):
    """Gives the arguments in a file the names that they had."""
    class_name, arguments = of_layer
    with rewritten(path) as layers:
        for layer in layers:
            if layer["class_name"] == "Metadata":
                names, fields = architecture, layer["config"]["architecture"]
            elif layer["class_name"] == class_name:
                names, fields = arguments, layer["config"]
            else:
                continue
            for new, old in names.items():
                fields[old] = fields.pop(new)


@pytest.mark.parametrize("case", CASES)
def test_a_file_of_earlier_names_opens(case, tmp_path):
    model = make_model(case)
    fill(model.weights)
    x = images_for(model)
    path = tmp_path / "model.keras"
    model.save(path)
    rewrite(path, *CASES[case])
    for read in (keras.saving.load_model, keras_vit.from_pretrained):
        with pytest.warns(FutureWarning, match="`.*` is `.*`"):
            again = read(path)
        for name in CASES[case][0]:
            found = getattr(again.architecture, name)
            assert found == getattr(model.architecture, name)
        np.testing.assert_array_equal(
            outputs_of(again, x), outputs_of(model, x)
        )


# What blocks of the first files said, beside sizes and rates.
FIRST = dict(
    activation="gelu",
    qkv_bias="qkv",
    grid_size=None,
    rotary=None,
    relative_positions=False,
    attention_norm=False,
    mlp_norm=False,
)
LATER = ("pre_norm", "post_norm", "parallel", "norm", "query_key_norm")
LATER += ("relative_dim", "class_token")


@pytest.mark.parametrize(
    ("case", "block"),
    [
        ("deit", {}),
        ("dinov2", {}),
        (
            "beit",
            dict(qkv_bias="qv", relative_positions=True, grid_size=(4, 2)),
        ),
    ],
)
def test_a_file_of_the_first_blocks_opens(case, block, tmp_path):
    model = make_model(case)
    fill(model.weights)
    path = tmp_path / "model.keras"
    model.save(path)
    with rewritten(path) as layers:
        for layer in layers:
            config = layer["config"]
            if layer["class_name"] == "EncoderBlock":
                for name in ("attention_options", "mlp_options", "norm"):
                    del config[name]
                del config["norm_placement"], config["dropout_rate"]
                config["layer_scale"] = config["layer_scale"][0]
                config |= FIRST | block
            if layer["class_name"] == "Metadata":
                for name in LATER:
                    config["architecture"].pop(name, None)
    x = images_for(model)
    for read in (keras.saving.load_model, keras_vit.from_pretrained):
        found = outputs_of(read(path), x)
        np.testing.assert_array_equal(found, outputs_of(model, x))


@pytest.mark.parametrize(
    ("case", "earlier", "today"),
    [
        ("token", dict(classifier="gap"), dict(pooling="gap")),
        ("mvit", dict(heads=(2, 4)), dict(num_heads=2)),
    ],
)
def test_an_argument_of_an_earlier_name_is_taken(case, earlier, today):
    with pytest.warns(FutureWarning, match=f"`{[*earlier][0]}` is") as warned:
        model = make_model(case, **earlier)
    assert warned[0].filename.endswith("catalogue.py")
    if case == "mvit":
        assert model.architecture.num_heads == (2, 4)
    for name, value in today.items():
        found = make_model(case, **today).architecture
        assert getattr(model.architecture, name) == getattr(found, name)
        assert value


def test_levels_are_feature_maps():
    with pytest.warns(FutureWarning, match="feature_maps=True"):
        model = make_model("bit", include_top=False, pooling="levels")
    assert len(model.outputs) == 2


def test_a_mean_beside_a_token_has_the_name_of_other_families():
    with pytest.warns(FutureWarning, match="gap_norm', class_token=True"):
        model = make_model("token", pooling="token_gap")
    assert model.architecture.pooling == "gap_norm"
    assert model.architecture.has_class_token
    with pytest.raises(ValueError, match="`class_token` must be True with"):
        make_model("token", pooling="gap", class_token=True)


def test_a_run_begun_with_earlier_names_resumes():
    assert fields.RENAMED == NAMES
    architecture = dict(classifier="gap", heads=[], num_heads=2, pooling="")
    for content in (
        dict(architecture=architecture),
        dict(model=dict(architecture=architecture)),
    ):
        found = fields.stored(content)
        assert found["model.architecture.num_heads"] == 2
        assert found["model.architecture.pooling"] == "gap", found
    assert "model.architecture.pooling." in fields.hint(
        ["model.architecture.classifier"]
    )
