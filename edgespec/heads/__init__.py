"""Draft heads: small networks over a model's own hidden states. Weights, their file, and which model has which."""
