"""Facts about GPUs, prices and models, with their sources. Pure."""
