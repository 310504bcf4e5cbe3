"""Paths of variables are those of files, wherever a model is built."""

import inspect

import keras
import pytest

import keras_vit

pytestmark = pytest.mark.backend("torch")
TINY = dict(hidden_size=8, num_layers=4, num_heads=2, mlp_dim=8)
TEXT = TINY | dict(vocab_size=9, context_length=9, embedding_size=8)
CLASSES = dict(classes=2)
NECK = dict(neck_sizes=(4, 4, 4, 4), fusion_size=8)
EOMT = dict(CLASSES, num_queries=2, num_blocks=1)


def vit(name="ViT", shape=(32, 32, 3), **changes):
    sizes = TINY | dict(include_top=False, input_shape=shape) | changes
    return getattr(keras_vit, name)(patch_size=8, **sizes)


def mvit():
    sizes = dict(TINY, depths=(1,), hidden_sizes=(8,), num_heads=(1,))
    del sizes["num_layers"], sizes["hidden_size"], sizes["mlp_dim"]
    strides = dict(query_stride=((1, 1, 1),), key_value_stride=((1, 1, 1),))
    shape = dict(input_shape=(4, 32, 32, 3), include_top=False)
    return keras_vit.MViT(**sizes, **strides, **shape)


def towers():
    names = ["cat", "dog"]
    text = keras_vit.text.text_tower(
        "clip",
        **TEXT,
        tokenizer=keras_vit.text.word_tokenizer(names, 9),
    )
    # The image tower gets a projection.
    return keras_vit.two_towers(vit(hidden_size=16), text)


heads = keras_vit.heads
MODELS = {
    "actions": lambda: heads.actions(mvit(), **CLASSES),
    "beit_masked": lambda: heads.beit_masked(vit("BEiT")),
    "depth_anything": lambda: heads.depth_anything(vit(), **NECK),
    "dpt": lambda: heads.dpt(vit(), **CLASSES, **NECK),
    "eomt": lambda: heads.eomt(vit(), **EOMT),
    "linear": lambda: heads.linear(vit(), **CLASSES),
    "mae": lambda: heads.mae(vit()),
    "mask_attention": lambda: heads.mask_attention(heads.eomt(vit(), **EOMT)),
    "owl": lambda: heads.owl(vit("CLIP"), embedding_size=4),
    "simple_feature_pyramid": lambda: heads.simple_feature_pyramid(vit()),
    "vitpose": lambda: heads.vitpose(vit(), **CLASSES),
    "with_queries": lambda: heads.with_queries(
        heads.owl(vit("CLIP"), embedding_size=4), [[1.0, 2, 3, 4]]
    ),
    "yolos": lambda: heads.yolos(vit(), **CLASSES),
    "text_tower": lambda: keras_vit.text.text_tower("siglip", **TEXT),
    "two_towers": towers,
    "zero_shot": lambda: keras_vit.zero_shot(towers(), ["cat", "dog"]),
}


def test_every_head_is_in_the_table():
    heads = vars(keras_vit.heads).items()
    assert {name for name, x in heads if inspect.isfunction(x)} <= set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_scope_of_the_caller_is_not_in_the_paths(name):
    expected = [weight.path for weight in MODELS[name]().weights]
    with keras.name_scope("mine"):
        model = MODELS[name]()
    assert [weight.path for weight in model.weights] == expected
