"""Training draft heads for a model on this machine, from text that the model writes itself: `edgespec train`."""
