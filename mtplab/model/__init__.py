"""The model in torch: backbone, draft heads, freezing, training, prompt sets."""
