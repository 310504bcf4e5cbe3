"""Models of shapes alone, of which parameters and operations are counted."""


def outline(constructor: str, **arguments):
    """Return a model of shapes alone, by the name of its constructor."""
    import keras_vit
    from keras_vit.inspection import costs

    with costs.shapes_alone():
        return getattr(keras_vit, constructor)(**arguments)


def cost_of(constructor: str, **arguments):
    """Return `keras_vit.cost` of a model."""
    import keras_vit

    return keras_vit.cost(outline(constructor, **arguments))
