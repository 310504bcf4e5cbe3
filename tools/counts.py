"""Parameters and operations of models, counted without their weights."""


def cost_of(constructor: str, **arguments):
    """Return `keras_vit.cost` of a model, by the name of its constructor."""
    import keras_vit
    from keras_vit.inspection import costs

    with costs.shapes_alone():
        model = getattr(keras_vit, constructor)(**arguments)
    return keras_vit.cost(model)
