"""Programs that train, fine-tune and predict with keras_vit."""
