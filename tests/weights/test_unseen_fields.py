"""What the arrays of a file do not show is required, not guessed."""

import dataclasses
import json

import catalogue
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection import costs
from keras_vit.weights import checkpoint, formats, rules
from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import patches

pytestmark = pytest.mark.backend("torch")

# Models whose fields differ from the defaults, on top of the catalogue's.
OTHERS = {
    "as mlp": dict(shift_size=7),
    "axial vit": dict(pooling="token"),
    "eamlp": dict(position_embedding="table"),
    "hire mlp": dict(
        depths=(1,) * 4,
        hidden_sizes=(8,) * 4,
        region_sizes=(2,) * 4,
        roll_periods=(3,) * 4,
        roll_steps=(1,) * 4,
    ),
    "gap": dict(gelu_approximate=False, layer_norm_epsilon=1e-5),
    "token": dict(gelu_approximate=True, layer_norm_epsilon=1e-5),
}
# What all files of a format have in common, because its library's code has no
# argument for it.
CONSTANTS = {
    "mixer jax": {"gelu_approximate"},
    "vit jax": {"gelu_approximate", "layer_norm_epsilon", "resnet_numerics"},
    "vit timm": {"resnet_numerics"},
    "bit jax": {"numerics"},
}
# Where None is a value, or arrays show that there is no such part.
ABSENT = {
    *("pooling_size", "pretrained_image_size", "embedding_kernels"),
    *("resnet_depths", "resnet_width", "resnet_numerics"),
    *("position_embedding", "position_placement", "raft_sizes"),
}


NAMES = [
    *(n for n in catalogue.OTHER_FAMILIES if n not in catalogue.ENCODERS),
    *("gap", "token"),
]


def opened(model, file_format, monkeypatch, config):
    """Opens the names and shapes of a model's file."""
    shapes = {v.path: tuple(v.shape) for v in model.weights}
    arrays = {}
    for rule in file_format.rules(model.metadata):
        blank = np.broadcast_to(np.float32(0), shapes[rule.path])
        parts = rule.transform.split(blank)
        arrays |= dict(zip(rule.sources, parts, strict=True))
    stored = {n: Stored(a.shape, lambda a=a: a) for n, a in arrays.items()}
    monkeypatch.setattr(formats, "read", lambda path: (stored, config))
    return checkpoint.open_checkpoint("file", model.metadata.get("grid"))


def formats_of(family):
    for name, file_format in rules.FAMILIES[family].FORMATS.items():
        if name not in ("keras_vit", "keras_hub"):
            yield name, file_format


@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_no_array_shows_is_required(name, monkeypatch):
    with costs.shapes_alone():
        model = catalogue.make_model(name, **OTHERS.get(name, {}))
    config = dataclasses.asdict(model.architecture)
    fields = [
        field
        for field in dataclasses.fields(model.architecture)
        if field.metadata or field.default is dataclasses.MISSING
    ]
    for format_name, file_format in formats_of(model.family):
        patch = patches.pair(model.metadata.get("patch_size", 1))
        if file_format.refused(model.metadata | dict(patch_size=patch), ""):
            continue
        source = opened(model, file_format, monkeypatch, {})
        required = file_format.required(source.metadata)
        case = f"{model.family} {format_name}"
        for field in fields:
            found = source.metadata.get(field.name)
            if found is None:
                assert field.name in {*required, *ABSENT}, (case, field.name)
            elif field.name not in CONSTANTS.get(case, ()):
                values = (found, config[field.name])
                if field.name in ("patch_size", "position_table_size"):
                    values = map(patches.pair, values)
                found, expected = values
                assert found == expected, (case, field.name)


@pytest.mark.parametrize(
    ("variant", "format_name", "absent"),
    [
        ("ASMLPT", "authors", []),
        ("HireMLPTiny", "authors", []),
        ("MixerB32", "timm", []),
        ("BiTR50x1", "timm", []),
        ("ViTTi16", "timm", ["num_heads"]),
    ],
)
def test_published_sizes_specify_all(variant, format_name, absent, monkeypatch):
    with costs.shapes_alone():
        model = getattr(keras_vit, variant)()
    file_format = rules.FAMILIES[model.family].FORMATS[format_name]
    found = opened(model, file_format, monkeypatch, {}).metadata
    required = file_format.required(found)
    assert [name for name in required if found.get(name) is None] == absent


@pytest.mark.parametrize("name", ["gmlp", "res_mlp", "bit"])
def test_another_activation_of_timm_is_refused(name, monkeypatch):
    with costs.shapes_alone():
        model = catalogue.make_model(name)
    file_format = rules.FAMILIES[model.family].FORMATS["timm"]
    config = dict(model_args=dict(act_layer="silu"))
    with pytest.raises(ValueError, match="expected `act_layer`"):
        opened(model, file_format, monkeypatch, config)


GATED = dict(activation="swiglu")
MIXED = dict(rotary="mixed", qkv_bias="qkv")
CENTERED = dict(rotary="centered", positions=False)
INDEXED = dict(post_norm=False, rotary_reference=(2, 2))
MAP = INDEXED | dict(pooling="map", pooling_heads=4, activation="gelu")
MAX = dict(pooling_mode="max")
BIASED = dict(head_bias_init=1, input_shape=(8, 8, 3))


@pytest.mark.parametrize(
    ("name", "more", "library", "field", "value"),
    [
        ("token", {}, "timm", "pool_include_prefix", True),
        ("dinov2", {}, "timm", "pool_include_prefix", True),
        ("dinov2", GATED, "timm", "act_layer", "gelu"),
        ("dinov2", {}, "timm", "act_layer", "silu"),
        ("dinov2", {}, "timm", "global_pool", ""),
        ("token", {}, "timm", "global_pool", ""),
        ("dinov3", MIXED, "timm", "use_rot_pos_emb", False),
        ("dinov3", MIXED, "timm", "rope_grid_indexing", "ij"),
        ("dinov3", CENTERED, "timm", "rope_type", "cat"),
        ("dinov3", CENTERED, "timm", "rope_grid_offset", 0.5),
        ("eva02", INDEXED, "timm", "rope_rotate_half", True),
        ("eva02", INDEXED, "timm", "rope_type", "mrope"),
        ("dinov3", CENTERED | GATED, "huggingface", "hidden_act", "gelu"),
    ],
)
def test_what_no_array_shows_and_no_model_computes_is_refused(
    name, more, library, field, value, tmp_path
):
    if library == "huggingface":
        more = more | dict(include_top=False)
    model = catalogue.make_model(name, **more)
    keras_vit.save_checkpoint(model, tmp_path, library, allow_differences=True)
    checkpoint.open_checkpoint(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    (config["model_args"] if library == "timm" else config)[field] = value
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=field):
        checkpoint.open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "library", "field", "value"),
    [
        ("deit", {}, "timm", "num_heads", 1),
        ("videomae", {}, "keras", "num_heads", 1),
        ("mvit image", MAX, "authors", "num_heads", (2, 2)),
        ("eva02", MAP, "timm", "pooling_heads", 1),
        ("eva02", MAP, "keras", "pooling_heads", 1),
    ],
)
def test_heads_are_those_of_the_weights(
    name, changes, library, field, value, tmp_path
):
    model, path = catalogue.make_model(name, **changes), tmp_path / "a.keras"
    model.save(path)
    if library != "keras":
        path = tmp_path / "a"
        keras_vit.save_checkpoint(model, path, library, allow_differences=True)
    with pytest.raises(ValueError, match=f"`{field}` must be that of the chec"):
        keras_vit.from_pretrained(path, **{field: value})


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("mixer", "global_pool", ""),
        ("bit", "global_pool", "max"),
        ("bit", "avg_down", True),
        ("bit", "output_stride", 16),
    ],
)
def test_another_architecture_of_the_names_is_refused(family, field, value):
    read = rules.FAMILIES[family].FORMATS["timm"].read_config
    read(dict(num_classes=5))
    with pytest.raises(ValueError, match=field):
        read(dict(num_classes=5, model_args={field: value}))


@pytest.mark.parametrize(
    ("family", "name"),
    [("clip", "vit_base_patch16_clip_224"), ("eva02", "beit3_base_patch16")],
)
def test_norms_of_another_class_have_its_epsilon(family, name):
    read = rules.FAMILIES[family].FORMATS["timm"].read_config
    config = dict(architecture=name, model_args={})
    assert read(config)["layer_norm_epsilon"] == 1e-5
    config["model_args"]["norm_layer"] = "layernorm"
    assert read(config)["layer_norm_epsilon"] == 1e-6


@pytest.mark.parametrize("family", ["vit", "clip", "dinov2"])
def test_norms_that_no_model_has_are_refused(family):
    # Its arrays are those of RMSNorm.
    read = rules.FAMILIES[family].FORMATS["timm"].read_config
    with pytest.raises(ValueError, match="`norm_layer`.*'simplenorm'"):
        read(dict(model_args=dict(norm_layer="simplenorm")))


def test_a_rectangle_of_a_beit_of_transformers_is_refused():
    read = rules.FAMILIES["beit"].FORMATS["huggingface"].read_config
    config = dict(model_type="beit", patch_size=4, image_size=[8, 8])
    assert read(config)["image_size"] == (8, 8)
    with pytest.raises(ValueError, match="images that are not square"):
        read(config | dict(image_size=[8, 16]))


@pytest.mark.parametrize(
    ("family", "tower"), [("clip", "vision"), ("clip_text", "text")]
)
def test_the_older_config_of_a_tower_of_clip_overrides(family, tower):
    read = rules.FAMILIES[family].FORMATS["huggingface"].read_config
    own = dict(hidden_act="gelu", layer_norm_eps=1e-3, num_attention_heads=2)
    config = {"model_type": "clip", f"{tower}_config": own}
    assert read(config)["activation"] == "gelu"
    config[f"{tower}_config_dict"] = dict(num_attention_heads=4)
    found = read(config)
    # So do its defaults.
    assert (found["num_heads"], found["activation"]) == (4, "quick_gelu")
    assert found["layer_norm_epsilon"] == 1e-5


def test_several_tokens_that_end_a_text_are_refused():
    read = rules.FAMILIES["clip_text"].FORMATS["huggingface"].read_config
    with pytest.raises(ValueError, match=r"eos_token_id=\[2, 3\]"):
        read(dict(model_type="clip_text_model", eos_token_id=[2, 3]))


def test_a_pooling_of_keras_hub_without_its_token_is_refused():
    read = rules.FAMILIES["vit"].FORMATS["keras_hub"].read_arrays
    with pytest.raises(ValueError, match="'token' without a class token"):
        read({}, dict(pooling="token"), {})


def test_attention_pooling_of_a_beit3_is_refused():
    # timm pools its patches alone, and all tokens of an Eva.
    read = rules.FAMILIES["eva02"].FORMATS["timm"].read_config
    with pytest.raises(ValueError, match="attention pooling of a BEiT-3"):
        read(dict(architecture="beit3_base_patch16_224", global_pool="map"))


BEIT3 = dict(rotary="none", qkv_bias="qkv", activation="gelu", post_norm=False)


@pytest.mark.parametrize(
    ("name", "changes", "library", "words"),
    [
        ("deit", GATED, "timm", "activation='swiglu'"),
        ("clip", GATED, "timm", "activation='swiglu'"),
        ("clip", BIASED, "huggingface", "bias of the head"),
        ("siglip", GATED | dict(pooling="gap"), "timm", "activation='swiglu'"),
        ("dinov2", dict(qkv_bias="qv"), "timm", "qkv_bias='qv'"),
        ("dinov2", dict(qkv_bias="qv"), "huggingface", "qkv_bias='qv'"),
        ("dinov3", CENTERED | dict(qkv_bias="qkv"), "timm", "'qkv' in 'vit_sm"),
        ("dinov3", dict(qkv_bias="qv"), "timm", "'qv' in 'vit_small"),
        ("dinov3", CENTERED | dict(rotary_order="xy"), "huggingface", "'xy'"),
        ("eva02", dict(layer_scale=0.1), "timm", "True with LayerScale"),
        ("eva02", BEIT3 | dict(layer_scale=0.1), "timm", "LayerScale of BEiT"),
        ("eva02", BEIT3 | dict(pooling="map"), "timm", "'map' of BEiT-3"),
        ("eva02", BEIT3 | dict(pre_norm=True), "timm", "a norm before the bl"),
    ],
)
def test_what_the_librarys_model_does_not_have_is_refused(
    name, changes, library, words, tmp_path
):
    model = catalogue.make_model(name, **changes)
    with pytest.raises(ValueError, match=words):
        keras_vit.save_checkpoint(model, tmp_path / "a", library)


def test_a_beit_without_scales_is_written_as_timm_reads_it(tmp_path):
    model = catalogue.make_model("beit", layer_scale=0.0)
    keras_vit.save_checkpoint(model, tmp_path, "timm")
    written = json.loads((tmp_path / "config.json").read_text())
    # timm takes None for its default, 0.1.
    assert written["model_args"]["init_values"] == 0.0


def test_a_prefix_without_positions_is_written(tmp_path):
    model = catalogue.make_model("dinov3", **CENTERED, position_prefix=1)
    keras_vit.save_checkpoint(model, tmp_path, "timm")
    assert (tmp_path / "model.safetensors").exists()


def test_an_offset_of_positions_that_has_no_use_is_not_written(tmp_path):
    model = catalogue.make_model("dinov3", **CENTERED, rotary_offset=0.5)
    keras_vit.save_checkpoint(model, tmp_path, "timm")
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["model_args"]["rope_grid_offset"] == 0


def test_an_eva02_with_a_norm_before_its_blocks_keeps_its_positions():
    # Its family is then that of Perception Encoders, with other defaults.
    read = rules.FAMILIES["eva02"].FORMATS["timm"].read_config
    found = read(dict(architecture="eva02_tiny_patch14_224"))
    assert (found["rotary_order"], found["rotary_offset"]) == ("ij", 0.0)
