"""Which names of timm's ViTs open, walked over without weights."""

import pytest

from keras_vit.models import families
from keras_vit.weights import checkpoint, formats, released
from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import table

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.backend("torch"),
]

MODULES = (
    *("vision_transformer", "vision_transformer_hybrid", "deit"),
    *("eva", "beit", "vision_transformer_relpos"),
)
# Of timm 1.0.31, without AIMv2 and models made for its tests, in all and those
# that open; neither may fall.
OTHERS = ("aimv2_", "test_")
NAMES, TAGS = 262, 435
OPEN_NAMES, OPEN_TAGS = 252, 427

ROWS = released.of_hub()


def vit_names(timm):
    return [
        name
        for name in timm.list_models()
        if timm.models.model_entrypoint(name).__module__.rpartition(".")[2]
        in MODULES
    ]


def make(timm, name):
    """Returns a model of one block, without memory."""
    with torch.device("meta"):
        try:
            return timm.create_model(name, depth=1)
        except (TypeError, ValueError, AssertionError, IndexError):
            return timm.create_model(name)


def opened(model, name, monkeypatch):
    """Opens the names and shapes of a model, with the config of its name."""

    def unread():
        raise AssertionError("no weights are read")

    arrays = {
        key: Stored(tuple(value.shape), unread)
        for key, value in model.state_dict().items()
        if value.is_floating_point()
    }
    config = dict(
        architecture=name,
        num_classes=model.num_classes,
        global_pool=model.global_pool,
        pretrained_cfg={
            key: model.pretrained_cfg[key]
            for key in ("input_size", "mean", "std")
        },
    )
    monkeypatch.setattr(formats, "read", lambda path: (arrays, config))
    source = checkpoint.open_checkpoint(name)
    checkpoint.complete(source, {})
    checkpoint.check_names(source, source.rules)
    for rule in source.rules:
        blanks = [table.blank(source.arrays[n].shape) for n in rule.sources]
        rule.transform.join(*blanks)
    return source


def check_constants(source, model):
    """Compares what only timm's code says with what is known of the name."""
    found, block = source.metadata, model.blocks[0]
    parallel = hasattr(block, "in_proj")
    norm = block.in_norm if parallel else block.norm1
    attention = block if parallel else block.attn
    assert found["num_heads"] == attention.num_heads
    assert found["layer_norm_epsilon"] == norm.eps
    is_post = type(block).__name__ in ("ResPostBlock", "ResPostRelPosBlock")
    is_post = is_post or type(block).__name__ == "EvaBlockPostNorm"
    assert found.get("post_norm", False) == is_post
    activation = found.get("activation") or (
        "gelu_tanh" if found["gelu_approximate"] else "gelu"
    )
    kinds = {
        "GELU(approximate='none')": "gelu",
        "GELUTanh()": "gelu_tanh",
        "QuickGELU()": "quick_gelu",
        "SiLU()": "swiglu",
    }
    act = block.mlp_act if parallel else block.mlp.act
    assert kinds[repr(act)] == activation
    positions = getattr(model, "rope", None)
    if positions is None:
        assert found.get("rotary", "none") == "none"
    elif type(positions).__name__ == "RotaryEmbeddingMixed":
        assert found["rotary"] == "mixed"
    else:
        is_centered = type(positions).__name__ == "RotaryEmbeddingDinoV3"
        assert found["rotary"] == ("centered" if is_centered else "index")
        assert found["rotary_theta"] == positions.temperature
        reference = getattr(positions, "ref_feat_shape", None)
        wanted = found.get("rotary_reference")
        assert (wanted and tuple(wanted)) == (reference and tuple(reference))
        assert found.get("rotary_offset", 0.0) == positions.grid_offset
        assert found.get("rotary_order", "ij") == positions.grid_indexing
    pool = getattr(model, "attn_pool", None)
    if pool is not None:
        heads = found.get("pooling_heads") or found["num_heads"]
        assert heads == pool.num_heads


def check_constructors(source, name):
    """Compares the fields of the constructors that open its repositories."""
    for row in ROWS:
        if row.repository.startswith(f"timm/{name}."):
            family = families.FAMILIES[source.family]
            for field, value in family.variants[row.variant].items():
                found = source.metadata.get(field)
                if field == "patch_size":
                    found = found if isinstance(found, int) else found[0]
                if field == "num_layers" or found is None:
                    continue  # one block was made
                assert found == value, (name, field)


def test_every_name_opens_or_is_refused_by_its_feature(
    timm, monkeypatch, request
):
    names = vit_names(timm)
    counted = request.config.getoption("--thorough")
    if not counted:  # one in five, of every module
        names = names[::5]
    tags = {name: len(timm.list_pretrained(name)) for name in names}
    refused = {}
    for name in names:
        model = make(timm, name)
        try:
            source = opened(model, name, monkeypatch)
        except ValueError as error:
            refused[name] = str(error)
            continue
        check_constants(source, model)
        check_constructors(source, name)
    names = [name for name in names if not name.startswith(OTHERS)]
    fine = [name for name in names if name not in refused]
    count = sum(tags[name] for name in names)
    print(f"{len(fine)} of {len(names)} names open,", end=" ")
    print(f"{sum(tags[name] for name in fine)} of {count} tags")
    if counted:
        assert (len(names), count) >= (NAMES, TAGS)
        assert len(fine) >= OPEN_NAMES
        assert sum(tags[name] for name in fine) >= OPEN_TAGS
    assert len(fine) >= 0.9 * len(names) > 40
    for name, text in refused.items():  # each by the name of its feature
        assert "not supported" in text, (name, text)
